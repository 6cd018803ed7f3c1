"""Fixtures: a state directory for each test, a command line to call, and proof that no process stays behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from outlast import Shell
from outlast.errors import AlreadyEnded
from outlast.linux import process

PATIENCE_S = 30.0
LEAVE_PATIENCE_S = 30.0

# Machines are shared: an example that takes long says nothing about the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_configure() -> None:
    # The workers of pytest-xdist inherit the seed, so a whole run has one.
    os.environ.setdefault("OUTLAST_SEED", str(random.SystemRandom().randrange(1 << 32)))
    # `nohup make test &` ignores these signals, and what a test starts would ignore them too. A handler, unlike
    # SIG_IGN, does not survive exec, so the tests still ignore them and their commands do not.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


def pytest_report_header() -> str:
    return f"OUTLAST_SEED={os.environ['OUTLAST_SEED']}"


def eventually(look: Callable[[], Any], patience: float = PATIENCE_S, what: str = "") -> Any:
    """Wait for a condition, with a bound; what it gave when it came true."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"did not come true within {patience:g} s: {what or look}")
        time.sleep(0.005)


def prepared_shells(shell: Any) -> list[Any]:
    """Wait until the thread that prepares shells has nothing left to do, and return what it prepared."""
    idle = float("inf")
    return list(eventually(lambda: shell.starter._preparer._due == idle and shell.executor.local.prepared._shells))


def prepare_most(shell: Any) -> None:
    """Let the shell keep as many prepared shells as it ever does: each has descriptors, which tests count."""
    shell.executor.local.prepared._wanted = 4
    shell.run("true")
    eventually(lambda: len(prepared_shells(shell)) == 4)


def processes_of(home: str) -> dict[int, str]:
    """Every living process that belongs to a state directory: its guards, and what carries its tasks' ids."""
    tasks = os.path.join(home, "tasks")
    marks = [f"OUTLAST_TASK_ID={task_id}".encode() for task_id in os.listdir(tasks)] if os.path.isdir(tasks) else []
    found = {}
    for pid, stat in process.Table().by_pid.items():
        if stat.dead or pid == os.getpid():
            continue
        try:
            cwd = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        guard = stat.name.startswith("outlast-") and cwd.startswith(home + "/")
        if guard or any(mark in environ for mark in marks):
            found[pid] = f"{stat.name} in {cwd}"
    return found


@pytest.fixture
def home() -> Iterator[str]:
    """A private state directory. Afterwards nothing that was started in it may still run."""
    path = tempfile.mkdtemp(prefix="outlast-test-")
    state = os.path.join(path, "state")
    yield state
    deadline = time.monotonic() + LEAVE_PATIENCE_S
    while (left := processes_of(state)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    shutil.rmtree(path, ignore_errors=True)
    assert not left, f"processes were left behind: {left}"


@pytest.fixture
def shell(home: str) -> Iterator[Shell]:
    """An open shell; whatever still runs at the end of the test is ended."""
    with Shell.open(home=home) as opened:
        yield opened
        end_all(opened)


def end_all(shell: Shell) -> None:
    """End every task of a shell that is not closed."""
    for task in shell.list():
        if not task.finished or task.children:
            with suppress(AlreadyEnded):  # it was quicker
                shell.kill(task.task_id, grace=0.2)


class Cli:
    """The command line, as a user calls it."""

    def __init__(self, home: str) -> None:
        self.env = {**os.environ, "OUTLAST_HOME": home}
        for name in ("OUTLAST_SESSION", "COLUMNS", "LINES"):  # libraries that other tests import set the last two
            self.env.pop(name, None)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "outlast"]

    def __call__(
        self, *words: str, stdin: str | bytes = b"", check: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; `check` is the exit code that it must have."""
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        ran = subprocess.run([*self.command, *words], input=data, capture_output=True, env=self.env, timeout=100)
        out = subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())
        if check is not None:
            assert out.returncode == check, (words, out.returncode, out.stdout, out.stderr)
        return out

    def json(self, *words: str, stdin: str | bytes = b"") -> Any:
        """The one JSON object that a call prints."""
        return json.loads(self(*words, "--json", stdin=stdin).stdout)

    def start(self, *words: str, **how: Any) -> subprocess.Popen[bytes]:
        """Run it beside the test."""
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.Popen([*self.command, *words], env=self.env, **how)


@pytest.fixture
def cli(home: str) -> Iterator[Cli]:
    """The command line on a private state directory."""
    yield Cli(home)
    if os.path.isdir(home):
        with Shell.open(home=home, operator=True) as opened:
            end_all(opened)
