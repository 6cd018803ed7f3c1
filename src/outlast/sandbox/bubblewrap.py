"""What bubblewrap is told: what a command sees, and how its shell is started inside.

The command has process numbers, a /tmp, a /dev and (unless it may use the network) a
loopback of its own. All else is read-only, but for its directory and those that were
named, and read-only are in these again the places that it must not change. Outlast's own
state is covered by an empty directory, into which only the files are put back that the
command's shell itself has to read and to write.

bubblewrap is started with no variables at all, because one of them (LD_PRELOAD) could make
it run a program of the command's own choice before there is any sandbox.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from outlast.types import Sandbox

# Its own three are not the command's: it would hold them open, and its complaints are no output.
STDIN, STDOUT, STDERR, TOLD = 6, 7, 8, 9
ARGUMENTS, FILTER = 10, 11

APART = (
    "--unshare-user-try",  # always possible for root, who may do without
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--new-session",
)
GROUND = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
_MACHINE = (  # what in /proc is about the machine and not about a process
    *("acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "latency_stats", "mtrr", "pressure"),
    *("scsi", "sys", "sysrq-trigger", "tty"),
)
OWN = ("/tmp", "/var/tmp", "/run")  # /run: through the sockets of the machine's services one could leave
_KEPT = ("/run/current-system", "/run/opengl-driver", "/run/wrappers")  # where some systems have their programs
_RESOLVERS = ("/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf", "/run/connman")
_LISTENS, _DATAGRAM = "00010000", "0002"  # in /proc/net/unix
_SETSID = ("/usr/bin/setsid", "/bin/setsid", "/run/current-system/sw/bin/setsid")
# Told only when all is set up. A shell that is not there is our failure, not the command's.
_CHECK = f'[ -x "$1" ] || {{ echo "there is no $1 in the sandbox" >&2; exit 1; }}; echo r >&{TOLD}; '
_WAIT = "read -r go <&3 || exit 1; "
_TURN_INTO = f'exec "$@" 0<&{STDIN} 1>&{STDOUT} 2>&{STDERR} {STDIN}<&- {STDOUT}>&- {STDERR}>&- {TOLD}>&-'


def options(sandbox: Sandbox, cwd: str, home: str, files: Iterable[tuple[str, str, str]] = ()) -> list[str]:
    """What the sandbox looks like. `files` of the state directory `home` are put back: how, which, as what."""
    home = os.path.realpath(home)
    return [
        *APART,
        *(() if sandbox.network else ("--unshare-net",)),
        *GROUND,
        # Root needs no capability to write there, and through core_pattern alone could leave.
        *(
            word
            for name in _MACHINE
            if os.path.exists(f"/proc/{name}")
            for word in ("--ro-bind", *[f"/proc/{name}"] * 2)
        ),
        *_own(sandbox),
        # The outer ones first, or they would cover the inner ones.
        *(word for path in sorted(sandbox.writable, key=len) for word in ("--bind", path, path)),
        *(word for path in _list_pinned(sandbox, home) for word in ("--bind", path, path)),
        *(word for path in sandbox.protected for word in ("--ro-bind", path, path)),
        *(word for path in _sockets(sandbox, home) for word in ("--ro-bind", "/dev/null", path)),
        *("--tmpfs", home),
        *(word for how, source, target in files for word in (how, source, target)),
        *("--remount-ro", home),
        # By the name it is known by, unless a link on the way to it is covered.
        *("--chdir", os.path.realpath(cwd) if is_within(cwd, OWN) else cwd),
    ]


def _own(sandbox: Sandbox) -> Iterator[str]:
    for path in OWN:
        if os.path.isdir(path) and not os.path.islink(path):
            yield from ("--tmpfs", path)
    for path in (*_KEPT, *(_RESOLVERS if sandbox.network else ()), *sandbox.readable):
        yield from ("--ro-bind-try", path, path)


def is_within(path: str, places: Iterable[str]) -> bool:
    """Whether `path` is one of the places, or below one."""
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _list_pinned(sandbox: Sandbox, home: str) -> list[str]:
    found = {path for place in (home, *sandbox.protected) for path in pins(place, sandbox.writable)}
    return sorted(found, key=len)


def pins(place: str, writable: Iterable[str]) -> list[str]:
    """The directories between a writable one and a place in it that a command must not change.

    A command that renamed one of them could put a place of its own where ours was. What something is mounted on
    cannot be renamed.
    """
    found = []
    path = os.path.dirname(place)
    while path != "/" and is_within(path, [place for place in writable if place != path]):
        found.append(path)
        path = os.path.dirname(path)
    return found[::-1]


def _sockets(sandbox: Sandbox, home: str) -> list[str]:
    """Sockets of programs outside, such as an agent's in a home directory: a read-only mount does not close them."""
    with open("/proc/net/unix", errors="surrogateescape") as file:
        fields = [line.split(None, 7) for line in file]
    paths = {one[7] for one in fields if len(one) == 8 and (one[3] == _LISTENS or one[4] == _DATAGRAM)}
    found = {os.path.realpath(path.rstrip("\n")) for path in paths if path.startswith("/")}
    seen = [path for path in found if not is_within(path, OWN) or is_within(path, sandbox.readable)]
    return sorted(path for path in seen if not is_within(path, (home, *sandbox.writable)) and os.path.exists(path))


def for_args(words: Iterable[str], env: Mapping[str, str], filtered: bool) -> bytes:
    """Options and variables as `--args` takes them: variables may be secret, and an argument list is not."""
    setenv = [word for name, value in env.items() for word in ("--setenv", name, value)]
    filters = ["--seccomp", str(FILTER)] if filtered else []
    return b"".join(os.fsencode(word) + b"\0" for word in [*words, *setenv, *filters])


def arguments(program: str, shell: list[str], waits: bool, tty: bool = False) -> list[str]:
    """The argument list. A shell that waits for its command is started at once; for another one the script waits.

    With `tty` the session of the shell gets its standard input as controlling terminal.
    """
    lead = ["/bin/sh", "-c", f'exec "$@" 0<&{STDIN}', "sh", setsid(), "-c"] if tty else [setsid()]
    script = _CHECK + (_TURN_INTO if waits else f"{_WAIT}{_TURN_INTO} 3<&-")
    return [program, "--args", str(ARGUMENTS), "--", *lead, "/bin/sh", "-c", script, "sh", *shell]


def setsid() -> str:
    """The program that makes the command's shell the first of a session of its own."""
    return next((path for path in _SETSID if os.path.exists(path)), _SETSID[0])
