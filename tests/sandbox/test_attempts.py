"""Everything of `attempts.py` is tried, in both kinds of sandbox and without one: docs/sandbox.md says what holds.

Without a sandbox an attempt has to succeed, or it would prove nothing. Afterwards nothing outside has changed, whatever
the attempts believe.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

import outlast
from outlast import Shell
from tests.sandbox import attempts
from tests.sandbox.attempts import ATTEMPTS, POSSIBLE, REFUSED
from tests.sandbox.support import BOTH, inside, python

DOCS = Path(__file__).parents[2] / "docs" / "sandbox.md"
SOURCE = Path(attempts.__file__)
TIMEOUT_S = 120.0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Outside:
    """The victims: files, processes, sockets, a terminal, a key."""

    def __init__(self, top: Path, stack: ExitStack) -> None:
        # In the home directory: what else is in /tmp a sandbox does not show at all.
        self.home, self.project, self.outside = top / "home", top / "home" / "project", top / "home" / "outside"
        self.state = top / "home" / "state-parent" / "state"
        self._stack, self._token = stack, token_hex(4)
        self._make_files()
        _make_repository(self.project)
        (self.project / "src").mkdir()
        shutil.copy(SOURCE, self.project / "src" / "attempts.py")
        self.victim = self._start_victim()
        self.said: dict[str, Any] = {
            "outside": str(self.outside),
            "home": str(self.home),
            "project": str(self.project),
            "state": str(self.state),
            "pid": self.victim.pid,
            "host": os.getpid(),
            "fd": self._fd,
            "address": _address_of(self.victim.pid),
            "package": os.path.dirname(outlast.__file__),
            "sockets": self._listen(),
            "abstract": f"outlast-test-{self._token}",
            "tcp": self._bind(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()[1],
            "udp": self._bind(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)).getsockname()[1],
            "terminal": self._terminal(),
            "fifo": self._fifo(),
            "tmp_file": self._file("/tmp"),
            "shm_file": self._file("/dev/shm"),
            "shm": self._shared_memory(),
            "queue": self._queue(),
            "key": _key(),
        }
        self._bind(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.said["abstract"])

    def _make_files(self) -> None:
        for name in (".ssh", ".local/bin", ".gnupg", ".docker/run", "runtime", ".codex", ".claude", ".vscode"):
            (self.home / name).mkdir(parents=True)
        (self.project / "dotfiles").mkdir(parents=True)
        (self.project / "dotfiles" / "bashrc").write_text("mine\n")
        (self.home / ".bashrc").symlink_to(self.project / "dotfiles" / "bashrc")
        (self.home / ".profile").write_text("mine\n")
        self.outside.mkdir()
        (self.outside / "cwd").mkdir()
        for name in ATTEMPTS:
            (self.outside / name / "empty").mkdir(parents=True)
            file = self.outside / name / "file"
            file.write_text("mine\n")
            file.chmod(0o644)
            try:
                os.setxattr(file, "user.victim", b"1")
            except OSError:
                pass  # not every file system has them
        self.state.parent.mkdir()

    def _start_victim(self) -> subprocess.Popen[bytes]:
        file = open(self.outside / "held", "w+")
        self._stack.callback(file.close)
        self._fd = file.fileno()
        victim = subprocess.Popen(
            ["sleep", "300"], pass_fds=[self._fd], cwd=self.outside / "cwd", start_new_session=True
        )
        self._stack.callback(victim.wait)
        self._stack.callback(victim.kill)
        return victim

    def _bind(self, family: int, kind: int, address: Any) -> socket.socket:
        line = self._stack.enter_context(socket.socket(family, kind))
        line.bind(address)
        if kind == socket.SOCK_STREAM:
            line.listen(100)
        return line

    def _listen(self) -> dict[str, str]:
        places = {
            "home": self.home / "s",
            "datagram": self.home / "d",
            "tmp": Path(f"/tmp/outlast-test-{self._token}"),
            "run": Path(f"/run/outlast-test-{self._token}"),
            "ssh-agent": self.home / ".ssh" / "agent",
            "gpg-agent": self.home / ".gnupg" / "S.gpg-agent",
            "docker": self.home / ".docker" / "run" / "docker.sock",
            "x11": Path(f"/tmp/.X11-unix/X{self._token}"),
            "wayland": self.home / "runtime" / "wayland-0",
            "dbus": self.home / "runtime" / "bus",
        }
        if not places["x11"].parent.is_dir():
            places["x11"].parent.mkdir()
            places["x11"].parent.chmod(0o1777)
            self._stack.callback(_remove_if_empty, places["x11"].parent)
        if not os.access(places["x11"].parent, os.W_OK):
            places["x11"] = Path(f"/tmp/outlast-test-x11-{self._token}")  # the directory is another user's
        for name, path in places.items():
            if name == "run" and not os.access("/run", os.W_OK):
                continue
            kind = socket.SOCK_DGRAM if name == "datagram" else socket.SOCK_STREAM
            self._bind(socket.AF_UNIX, kind, str(path))
            self._stack.callback(path.unlink, missing_ok=True)
        return {name: str(path) for name, path in places.items()}

    def _terminal(self) -> str:
        pair = os.openpty()
        for fd in pair:
            self._stack.callback(os.close, fd)
        return os.ttyname(pair[1])

    def _fifo(self) -> str:
        path = self.outside / "fifo"
        os.mkfifo(path)
        fd = os.open(path, os.O_RDWR)
        self._stack.callback(os.close, fd)
        return str(path)

    def _file(self, place: str) -> str:
        path = Path(place, f"outlast-test-file-{self._token}")
        path.write_text("mine\n")
        self._stack.callback(path.unlink, missing_ok=True)
        return str(path)

    def _shared_memory(self) -> int:
        made = int(_libc.shmget(0, 4096, 0o1600))
        self._stack.callback(_libc.shmctl, made, 0, None)
        return made

    def _queue(self) -> str:
        name = f"outlast-test-{self._token}"
        number = {"x86_64": (240, 241), "aarch64": (180, 181)}.get(os.uname().machine, (240, 241))
        fd = _libc.syscall(number[0], name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
        if fd >= 0:
            self._stack.callback(_libc.syscall, number[1], name.encode())
            self._stack.callback(os.close, fd)
        return name

    def tried(self, shell: Shell, names: list[str]) -> dict[str, str]:
        """What became of these attempts in the shell's sandbox, or without one."""
        self.said["task_output"] = shell.run("echo mine").output_file
        (self.project / "src" / "world.json").write_text(json.dumps({**self.said, "only": names}))
        program = python("")[: -len(" -c ''")]
        ran = shell.run(f"{program} src/attempts.py src/world.json", limit=TIMEOUT_S, show={"max_chars": 1_000_000})
        assert ran.exit_code == 0, ran.output
        found: dict[str, str] = json.loads(ran.output)
        return found

    def photograph(self, possible: set[str]) -> dict[str, object]:
        """All that must be as it was: every file outside and in protected places."""
        kept = [self.home / name for name in (".profile", ".ssh", ".local", ".gnupg", ".codex", ".claude")]
        kept += [self.project / name for name in (".git", ".claude", ".codex", ".vscode", ".envrc", ".mcp.json")]
        kept += [self.project / name for name in ("dotfiles", "own-hooks", ".gitinclude")]
        kept.append(self.state / "config.toml")
        places = [self.outside / name for name in os.listdir(self.outside) if name not in possible] + kept
        found = [path for place in places for path in (place, *place.rglob("*")) if path.exists()]
        return {str(path): _picture(path) for path in found if path.name not in ("config.lock", "index")}


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        pass  # another world is there, or an X server


def _picture(path: Path) -> object:
    found = path.lstat()
    data = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    is_directory = stat.S_ISDIR(found.st_mode)
    return found.st_mode, found.st_uid, found.st_gid, data, None if is_directory else found.st_mtime_ns


def _make_repository(project: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", "-C", str(project)]
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / ".gitinclude").write_text("")
    (project / "own-hooks").mkdir()
    for name in (".claude", ".vscode"):
        (project / name).mkdir()
    (project / ".vscode" / "tasks.json").write_text("{}")
    for name in (".envrc", ".mcp.json"):
        (project / name).write_text("")
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "config", "core.hooksPath", "own-hooks"], check=True)
    subprocess.run([*git, "config", "include.path", "../.gitinclude"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(project.parent / "linked")], check=True)
    (project / ".git" / "modules" / "sub" / "objects").mkdir(parents=True)
    (project / ".git" / "modules" / "sub" / "config").write_text("")


def _address_of(pid: int) -> int:
    """The lowest address of its stack: nothing is there that it needs."""
    with open(f"/proc/{pid}/maps") as file:
        return next(int(line.split("-")[0], 16) for line in file if "[stack]" in line)


def _key() -> int:
    add, control = {"aarch64": (217, 219)}.get(os.uname().machine, (248, 250))
    key = int(_libc.syscall(add, b"user", b"outlast-test", b"mine", ctypes.c_long(4), ctypes.c_long(-4)))
    if key > 0:
        _libc.syscall(control, 5, ctypes.c_long(key), ctypes.c_long(0x3F3F0000))
    return key


@contextmanager
def outside(top: Path) -> Iterator[Outside]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    with ExitStack() as stack:
        yield Outside(top, stack)


def short_directory() -> Path:
    """Not pytest's: the address of a socket is short."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="ot-"))


@pytest.fixture(scope="module", params=BOTH)
def tried(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str], dict[str, object], dict[str, object]]]:
    """All attempts in a sandbox of this kind: what became of each, and what was outside before and after."""
    inside(request.param)
    top = short_directory()
    possible = {name for name, one in ATTEMPTS.items() if one.expected(request.param) == POSSIBLE}
    with pytest.MonkeyPatch.context() as patch, outside(top) as world:
        patch.setenv("HOME", str(world.home))
        patch.setenv("OUTLAST_SANDBOX_KIND", request.param)
        patch.setenv("OUTLAST_SANDBOX_CACHES", "/nowhere")
        with Shell.open(home=world.state, policy="workspace", cwd=world.project) as shell:
            (world.state / "config.toml").write_text("retention_hours = 24\n")
            shell.run("true")
            before = world.photograph(possible)
            found = world.tried(shell, list(ATTEMPTS))
            after = world.photograph(possible)
        assert world.victim.poll() is None
        yield request.param, found, before, after
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(scope="module")
def unconfined() -> Iterator[dict[str, str]]:
    """The same without a sandbox, as far as that harms nobody."""
    top = short_directory()
    with pytest.MonkeyPatch.context() as patch, outside(top) as world:
        patch.setenv("HOME", str(world.home))
        (world.project / ".codex").mkdir()
        with Shell.open(home=world.state, cwd=world.project) as shell:
            (world.state / "config.toml").write_text("retention_hours = 24\n")
            yield world.tried(shell, [name for name, one in ATTEMPTS.items() if one.control != "no"])
    shutil.rmtree(top, ignore_errors=True)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_in_a_sandbox(tried: tuple[str, dict[str, str], Any, Any], name: str) -> None:
    kind, found, _, _ = tried
    expected = ATTEMPTS[name].expected(kind)
    assert found[name].split(":")[0] == ("done" if expected == POSSIBLE else REFUSED), found[name]


def test_nothing_outside_has_changed(tried: tuple[str, Any, dict[str, object], dict[str, object]]) -> None:
    _, _, before, after = tried
    assert after == before


@pytest.mark.parametrize("name", [name for name, one in ATTEMPTS.items() if one.control != "no"])
def test_without_one_it_succeeds(unconfined: dict[str, str], name: str) -> None:
    if ATTEMPTS[name].control == "root" and os.geteuid() != 0:
        pytest.skip("only root succeeds")
    if os.geteuid() != 0 and _is_restricted_by_yama() and ATTEMPTS[name].group == "processes outside":
        pytest.skip("this system lets users trace nothing but children")
    assert unconfined[name] == "done"


def _is_restricted_by_yama() -> bool:
    path = Path("/proc/sys/kernel/yama/ptrace_scope")
    return path.exists() and path.read_text().strip() != "0"


def test_there_are_enough_of_them() -> None:
    assert len(ATTEMPTS) >= 85


def test_the_documentation_says_what_holds() -> None:
    assert attempts.table() in DOCS.read_text(), "run `python tests/sandbox/attempts.py --table`"
