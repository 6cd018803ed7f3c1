"""What bubblewrap is told: what a command sees, and how its shell is started inside.

The command has process numbers, a /tmp, a /dev and (unless it may use the network) a
loopback of its own. All else is read-only, but for its directory and those that were
named. Outlast's own state is covered by an empty directory, into which only the files are
put back that the command's shell itself has to read and to write.

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
ARGUMENTS = 10

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
        *(word for path in pins(home, sandbox.writable) for word in ("--bind", path, path)),
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


def pins(home: str, writable: Iterable[str]) -> list[str]:
    """The directories between a writable one and the state directory in it.

    Whoever could rename one of them could put a state directory of their own in the place of ours. What
    something is mounted on cannot be renamed.
    """
    found = []
    path = os.path.dirname(home)
    while path != "/" and is_within(path, [place for place in writable if place != path]):
        found.append(path)
        path = os.path.dirname(path)
    return found[::-1]


def for_args(words: Iterable[str], env: Mapping[str, str]) -> bytes:
    """Options and variables as `--args` takes them: variables may be secret, and an argument list is not."""
    setenv = [word for name, value in env.items() for word in ("--setenv", name, value)]
    return b"".join(os.fsencode(word) + b"\0" for word in [*words, *setenv])


def arguments(program: str, shell: list[str], waits: bool) -> list[str]:
    """The argument list. A shell that waits for its command is started at once; for another somebody has to wait."""
    script = _CHECK + (_TURN_INTO if waits else f"{_WAIT}{_TURN_INTO} 3<&-")
    return [program, "--args", str(ARGUMENTS), "--", setsid(), "/bin/sh", "-c", script, "sh", *shell]


def setsid() -> str:
    """The program that makes the command's shell the first of a session of its own."""
    return next((path for path in _SETSID if os.path.exists(path)), _SETSID[0])
