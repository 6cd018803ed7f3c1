"""One connection to the far end: an `ssh` child of ours, with `outlast-guard --far` at its other end.

Requests and answers are frames: a line `WORD ID NUMBER... BYTES` and so many bytes. A thread reads them. The guard for
the other machine is copied there once, into `~/.cache/outlast/guard-SHA256`, and its hash is checked each time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import threading
from functools import cache

from outlast.errors import OutlastError, Unsupported
from outlast.executors.far_launch import describe, read_session_script
from outlast.executors.remote import Unreachable
from outlast.guard.client import HEADER, encode_launch, find_guard
from outlast.linux.files import read_file
from outlast.storage import record, sessions
from outlast.types import NO_SHELL, Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, BinaryIO

    from outlast.types import Launch

    Handle = Callable[[str, list[str], bytes], None]

CONNECT_S = 10  # for the connection alone
_LOGIN_S = 30.0  # for all until the far end says hello: slow logins, a first copy over a slow line
_ALIVE_S = 5  # between two signs of life of an idle connection; three missing ones end it
_CLOSE_S = 2.0
_LONGEST_LINE = 4096
_LONGEST_NOISE = 1 << 20  # what a login may print before the far end begins
_MACHINES = ("x86_64", "aarch64", "armv7l", "ppc64le", "riscv64", "s390x", "i686")
_CACHE = 'd="${XDG_CACHE_HOME:-$HOME/.cache}/outlast"; '
_SOCKET_BYTES = 60  # of the file name that ssh makes of %C, and of its temporary suffix; 108 is the limit of a socket


class Link:
    """Starts connecting at once; `wait_hello` says whether it worked. `send` asks, `handle` gets the answers."""

    def __init__(self, name: str, ssh: Sequence[str], far: str, guards: Mapping[str, str], handle: Handle) -> None:
        """`far` are the arguments of `--far`; `guards` are programs by machine."""
        self._name, self._ssh, self._guards, self._handle = name, ssh, guards, handle
        self._sending, self._hello = threading.Lock(), threading.Event()
        self._needs = ""
        self.place: Place | None = None
        self.state, self.system = "", ""
        self.is_over = False
        self._errors = tempfile.TemporaryFile()
        self._child = subprocess.Popen(
            [*ssh, as_one_word(_login_script(guards, far))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # a Ctrl-C at the terminal is not for it
        )
        threading.Thread(target=self._read, daemon=True, name=f"ssh-{name}").start()

    def wait_hello(self) -> None:
        """Raise `Unreachable` if there is no connection, `Unsupported` if the machine cannot be used."""
        self._hello.wait(_LOGIN_S)
        if self.place is None and not self._needs:
            self.close()
            raise Unreachable(f"{self._name} cannot be reached: {self._reason()}")

    @property
    def needs(self) -> str:
        """The architecture of a machine that has no guard yet."""
        return self._needs

    def _reason(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].rstrip(".\r") if lines else "it did not answer in time" if not self.is_over else "it hung up"

    def send(self, word: str, task_id: str, number: float = 0, payload: bytes = b"") -> None:
        """Send a request; a lost connection is noticed by the reader."""
        assert self._child.stdin is not None
        with self._sending:
            try:
                self._child.stdin.write(
                    b"%s %s %r %d\n" % (word.encode(), task_id.encode(), float(number), len(payload))
                )
                self._child.stdin.write(payload)
                self._child.stdin.flush()
            except (OSError, ValueError):
                self.is_over = True

    def _read(self) -> None:
        stream: Any = self._child.stdout
        try:
            while (frame := _read_frame(stream)) is not None:
                word, words, payload = frame
                if word == "hello":
                    self._note_hello(payload)
                elif word == "need":
                    self._needs = words[1] if len(words) > 1 else "?"
                    self._hello.set()
                else:
                    self._handle(word, words, payload)
        except (OSError, ValueError, OutlastError):
            pass  # what came is not true here (a full disk): the next connection begins where the mirror ends
        self.is_over = True
        self._hello.set()
        self._handle("over", [], b"")

    def _note_hello(self, payload: bytes) -> None:
        state, home, shell, umask, system, rest = payload.split(b"\n", 5)
        items = [os.fsdecode(item).partition("=") for item in rest.split(b"\0") if b"=" in item]
        environ = {name: value for name, _, value in items}
        self.state, self.system = os.fsdecode(state), os.fsdecode(system)
        self.place = Place(self._name, environ, os.fsdecode(home), os.fsdecode(shell), int(umask, 8))
        self._hello.set()

    def close(self) -> None:
        self.is_over = True
        try:
            if self._child.stdin is not None:
                self._child.stdin.close()
        except OSError:
            pass
        try:
            self._child.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def install(self) -> None:
        """Copy the guard to a machine that has none. Raises `Unsupported` if there is none for it here."""
        program = self._guards.get(self._needs)
        if program is None:
            raise Unsupported(
                f"{self._name} is a machine of the kind {self._needs}, and there is no guard for it here "
                f'(only for {", ".join(self._guards)}); name one with `guard = "FILE"` in [executors.{self._name}].'
            )
        with open(program, "rb") as file:
            data = file.read()
        script = (
            f'umask 077; {_CACHE}f="$d/new.$$"; mkdir -p "$d" && cat >"$f" && chmod 700 "$f" && '
            f'h={hash_program(program)}; [ "$(sha256sum <"$f" | cut -c1-64)" = $h ] && mv "$f" "$d/guard-$h"'
        )
        command = [*self._ssh, as_one_word(script)]
        try:
            ran = subprocess.run(
                command, input=data, capture_output=True, timeout=_LOGIN_S * 4, start_new_session=True, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"The guard could not be copied to {self._name} in time") from None
        if ran.returncode:
            lines = ran.stderr.decode(errors="replace").strip().splitlines() or ["the copy is not complete"]
            raise Unreachable(f"The guard could not be copied to {self._name}: {lines[-1]}")


def _read_frame(stream: BinaryIO) -> tuple[str, list[str], bytes] | None:
    """Return the next whole frame; None at the end of the connection, also in the middle of a frame."""
    skipped = 0
    while True:
        line = stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
            return None
        words = line.decode("ascii", "replace").split()
        if len(words) > 1 and words[0] in _WORDS and words[-1].isdecimal():
            break
        if (skipped := skipped + len(line)) > _LONGEST_NOISE:
            return None
    payload = stream.read(int(words[-1]))
    return (words[0], words[1:-1], payload) if len(payload) == int(words[-1]) else None


_WORDS = frozenset(
    (
        "hello",
        "need",
        "data",
        "file",
        "state",
        "none",
        "started",
        "refused",
        "never",
        "kill",
        "input",
        "signal",
        "resize",
        "failed",
    )
)


def _login_script(guards: Mapping[str, str], far: str) -> str:
    """Return the script that becomes the far end, or says which machine needs a guard first."""
    hashes = " ".join(f"{machine}) h={hash_program(program)};;" for machine, program in guards.items())
    return (
        f'h=; case $(uname -m) in {hashes} esac; {_CACHE}f="$d/guard-$h"; '
        'if [ -n "$h" ] && [ "$( { sha256sum <"$f"; } 2>/dev/null | cut -c1-64)" = "$h" ]; '
        f'then exec "$f" --far {far}; fi; echo "need far $(uname -m) 0"'
    )


def as_one_word(script: str) -> str:
    """Return what a login shell of any kind runs as `sh`: as a login, for the variables that a user has there."""
    assert "'" not in script
    return f"exec sh -lc '{script}'"


@cache
def hash_program(path: str) -> str:
    """Return the SHA-256 of a program."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_guards(given: str = "") -> dict[str, str]:
    """Return the guards that can be copied to other machines, by architecture; `given` is for all of them."""
    if given:
        return dict.fromkeys(_MACHINES, os.path.expanduser(given))
    own = find_guard()
    found = {os.uname().machine: own}
    for machine in _MACHINES:
        if os.path.exists(path := f"{own}-{machine}"):
            found[machine] = path
    return found


def build_ssh(host: str, options: Sequence[str], home: str) -> list[str]:
    """Return the words of `ssh` before the remote command: never a question, one shared connection for each host."""
    usual = {
        "BatchMode": "yes",
        "ConnectTimeout": CONNECT_S,
        "ServerAliveInterval": _ALIVE_S,
        "ServerAliveCountMax": 3,
        "ControlMaster": "auto",
        "ControlPersist": 60,
        "ControlPath": f"{_find_socket_directory(home)}/%C",
    }
    # ssh takes the first value of each option: those of the settings come first.
    given = [word for option in options for word in ("-o", option)]
    return [
        "ssh",
        "-T",
        *given,
        *(word for name, value in usual.items() for word in ("-o", f"{name}={value}")),
        "--",
        host,
    ]


def _find_socket_directory(home: str) -> str:
    """Return a private directory whose path is short enough for a socket."""
    path = f"{home}/ssh"
    if len(os.fsencode(path)) + _SOCKET_BYTES > 108 or "%" in path:
        path = f"{os.environ.get('XDG_RUNTIME_DIR') or '/tmp'}/outlast-ssh-{os.getuid()}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Unsupported(f"{path} is not private, so ssh cannot share a connection in it; remove it.")
    return path


def encode_start(task_id: str, launch: Launch, directory: str, state: str) -> bytes:
    """Return what the far end needs to start a task: see docs/guard.md. `state` is its state directory."""
    name, script = read_session_script()
    items = [("cwd", os.fsencode(launch.cwd))]
    if launch.shell != NO_SHELL:
        items.append(("program", os.fsencode(launch.shell)))
    if launch.state:
        items.append((f"cache:{name}", script))
    for file_name in ("command", record.PIPES, sessions.BEFORE, sessions.START, sessions.STATE):
        if os.path.exists(path := f"{directory}/{file_name}"):
            items.append((file_name, read_file(path)))
    if launch.state and not launch.keeps:
        items.append(("skip", b""))
    described = describe(task_id, launch, f"{state}/tasks/{task_id}", f"{state}/cache/{name}")
    items.append(("launch", encode_launch(described)[len(HEADER) :]))
    return b"".join(b"%s %d\n%s\n" % (key.encode(), len(data), data) for key, data in items)
