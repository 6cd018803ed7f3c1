"""The directory in which an episode takes place, and a look at what runs in it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.episodes.programs import write_programs

MARK = "OUTLAST_EPISODE"
PLACE = "OUTLAST_EPISODES_PLACE"
CLIENT_CUT_S = 60.0  # what most MCP clients wait for a reply
LOG_BYTES = 50_000_000
_LINE_BYTES = 71  # of a line of import.py
_GONE_S = 10.0  # how long a process that was killed may take to disappear
_SECRETS = ("web", "api", "mock", "cache", "watch", "line", "install", "import", "build", "check", "test")
_QUESTIONS = (
    ("config", "Replace the configuration of the last version?"),
    ("data", "Delete the data of all users?"),
)


@dataclass
class World:
    """One episode's directory. `scale` shortens all its times; 1.0 is real time."""

    scale: float
    log_bytes: int = LOG_BYTES
    root: Path = field(init=False)
    secrets: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.root = _make_root()
        self.secrets = {name: os.urandom(4).hex() for name in _SECRETS}
        self.questions = random.sample(_QUESTIONS, len(_QUESTIONS))
        for name in ("work", "home", "tmp", "state"):
            (self.root / name).mkdir()
        write_programs(self.work, self.secrets)
        known = {
            "scale": self.scale,
            "secrets": self.secrets,
            "questions": self.questions,
            "batches": self.log_bytes // _LINE_BYTES,
        }
        (self.work / ".world.json").write_text(json.dumps(known))

    @property
    def work(self) -> Path:
        """Where the programs are and the model works."""
        return self.root / "work"

    @property
    def env(self) -> dict[str, str]:
        """The whole environment of a contestant: no key, no proxy, no variable of the user who runs this."""
        path = ":".join(part for part in os.environ.get("PATH", os.defpath).split(":") if not part.endswith("/shims"))
        return {
            "PATH": path,
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TERM": "xterm-256color",
            MARK: str(self.root),
        }

    @property
    def cut_s(self) -> float:
        """How long a client waits for a reply."""
        return CLIENT_CUT_S * self.scale

    def seconds(self, real: float) -> float:
        """A time that a strategy names, in the time of this world."""
        return real * self.scale

    def milliseconds(self, real: float) -> int:
        return round(self.seconds(real) * 1000)

    def build_of(self, text: str) -> str:
        """What the watcher prints about a build of that text."""
        return hashlib.sha256((self.secrets["watch"] + text).encode()).hexdigest()[:10]

    def running(self, name: str) -> list[int]:
        """The pids of the programs that were started under that name and still run."""
        return [pid for pid in self.started(name) if _is_running(pid, str(self.root))]

    def started(self, name: str) -> list[int]:
        """The pids of all programs that were started under that name."""
        return [int(path.suffix[1:]) for path in (self.work / "running").glob(f"{name}.*")]

    def repeats(self) -> int:
        """How many programs were started again that the user wanted to be started once."""
        names = [path.stem for path in (self.work / "running").iterdir()]
        return len(names) - len(set(names))

    def remove(self) -> list[int]:
        """Kill every process of the episode, remove its directory, and return the pids that could not be killed."""
        left = kill_processes(str(self.root))
        shutil.rmtree(self.root, ignore_errors=True)
        return left


def _make_root() -> Path:
    """Make a directory with a short path: models read and write paths, and pay for their length."""
    if not (place := os.environ.get(PLACE)):
        return Path(tempfile.mkdtemp(prefix="ep-", dir=roomy()))
    root = Path(place, str(1 + len(os.listdir(place))))
    while True:
        try:
            root.mkdir()
        except FileExistsError:
            root = root.with_name(str(int(root.name) + 1))
        else:
            return root


def processes_below(place: str) -> list[int]:
    """Return the pids of all processes that were started in a world at or below that directory."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _is_running(pid, place)]


def kill_processes(place: str) -> list[int]:
    """Kill these processes, wait until they are gone, and return those that are not."""
    deadline = time.monotonic() + _GONE_S
    # Repeated: a process may fork between the look and the signal.
    while (left := processes_below(place)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    return left


def _is_running(pid: int, place: str) -> bool:
    """Return whether that process is alive (a zombie is not) and was started in a world at or below `place`."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    # Compare as f"{MARK}=/a/" so that the world /a/1 does not match a process of /a/12.
    marks = (entry + b"/" for entry in environ.split(b"\0") if entry.startswith(f"{MARK}=".encode()))
    return state not in "ZX" and any(mark.startswith(f"{MARK}={place}/".encode()) for mark in marks)


def roomy() -> str | None:
    """Where worlds are made, if not in the default place for temporary files."""
    # Codex keeps nothing in a home directory below /tmp.
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
