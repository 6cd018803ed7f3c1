"""Fault 21: the connection is cut, the far end is killed, a start is repeated. Nothing is lost, nothing runs twice."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import OutlastError
from outlast.executors.remote import Unreachable
from outlast.executors.ssh import SshExecutor
from outlast.guard.client import Refused
from outlast.linux import process
from outlast.types import Task
from tests.conftest import end_all, eventually
from tests.executors.conftest import Bench, write_settings
from tests.executors.cutting import CuttingProxy
from tests.executors.sshd import Sshd

LINES = 400
CALLERS, ROUND = 4, 3  # tasks of each caller that run at once
HANDSHAKE = 8000  # about so many bytes are the beginning of a connection


@pytest.fixture
def own_sshd() -> Iterator[Sshd]:
    """A server that the test may stop."""
    server = Sshd()
    yield server
    server.close()


def command(number: int, scratch: Path) -> str:
    """A command that notes that it ran, prints for a while, and has a code of its own."""
    return (
        f"echo {number} >>{scratch}/ran; for i in $(seq {LINES}); do echo line $i of {number} {'x' * 50}; "
        f"[ $((i % 80)) != 0 ] || sleep 0.02; done; exit {number % 200}"
    )


def output_of(number: int) -> str:
    return "".join(f"line {i} of {number} {'x' * 50}\n" for i in range(1, LINES + 1))


def check_history(shell: Shell, scratch: Path, tasks: dict[int, str]) -> int:
    """Compare what ran with what is said of it; returns how many tasks never began."""
    ran = (scratch / "ran").read_text().split()
    assert len(ran) == len(set(ran)), "a command ran twice"
    unstarted = 0
    for number, task_id in tasks.items():
        task = shell.wait(task_id, timeout=60)
        assert task.reason != "lost"
        if task.reason == "spawn-error":
            assert str(number) not in ran
            unstarted += 1
            continue
        assert task.exit_code == number % 200
        source = shell.executor.source(task_id, "stdout")
        assert b"".join(piece.data for piece in source.chunks()).decode() == output_of(number)
    return unstarted


def run_through_cuts(sshd: Sshd, home: str, scratch: Path, cuts: int) -> None:
    """Several callers, each with a connection of its own, start tasks and wait for them until so many were cut."""
    drawn = random.Random(int(os.environ["OUTLAST_SEED"]))
    # Some cuts fall into the beginning of a connection, most behind it.
    proxy = CuttingProxy(
        sshd.port, lambda: drawn.choice([drawn.randint(1, HANDSHAKE), drawn.randint(HANDSHAKE, 60000)])
    )
    write_settings(home, sshd.settings())
    with Shell.open(home=home) as shell:
        shell.executor.place("box")  # copies the guard, which is longer than a connection here lasts
    write_settings(home, sshd.settings(port=proxy.port, shared=False))
    (scratch / "ran").touch()
    numbers = itertools.count(1)

    def call(caller: int) -> dict[int, str]:
        tasks: dict[int, str] = {}
        with Shell.open(home=home, session=f"cuts-{caller}") as shell:
            while proxy.cuts < cuts:
                begun = {}
                for number in itertools.islice(numbers, ROUND):
                    with suppress(Unreachable):  # there was no connection to begin with, and there is no task
                        begun[number] = shell.start(command(number, scratch), executor="box", fresh=True).task_id
                for task_id in begun.values():
                    shell.wait(task_id, timeout=60)
                tasks |= begun
        return tasks

    with ThreadPoolExecutor(CALLERS) as callers:
        tasks = {number: task_id for begun in callers.map(call, range(CALLERS)) for number, task_id in begun.items()}
    proxy.choose = lambda: 0
    with Shell.open(home=home, operator=True) as shell:
        unstarted = check_history(shell, scratch, tasks)
        end_all(shell)
        assert {task.task_id for task in shell.list()} == set(tasks.values())
    assert len(tasks) > unstarted
    proxy.close()


def test_a_connection_that_is_cut_loses_nothing(sshd: Sshd, home: str, tmp_path: Path) -> None:
    run_through_cuts(sshd, home, tmp_path, 100)


@pytest.mark.soak
def test_a_connection_that_is_cut_500_times(sshd: Sshd, home: str, tmp_path: Path) -> None:
    run_through_cuts(sshd, home, tmp_path, 500)


def test_the_near_side_is_killed(far: Bench) -> None:
    words = [sys.executable, "-m", "outlast", "run", "--executor", "box", command(3, far.scratch)]
    env = {**os.environ, "OUTLAST_HOME": far.home, "OUTLAST_SESSION": "bench"}
    near = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, start_new_session=True)
    assert near.stdout is not None
    near.stdout.readline()
    os.killpg(near.pid, signal.SIGKILL)
    near.wait()
    near.stdout.close()
    (task,) = far.shell.list()
    assert check_history(far.shell, far.scratch, {3: task.task_id}) == 0


def far_ends(sshd: Sshd) -> list[int]:
    found = []
    for pid in process.Table().by_pid:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(sshd.home) in words[0] and b"--far" in words:
            found.append(pid)
    return found


def test_the_far_end_of_the_connection_is_killed(far: Bench, sshd: Sshd) -> None:
    release = far.scratch / "go"
    task = far.start(f"echo one; until [ -e {release} ]; do sleep 0.02; done; echo two; exit 5")
    far.await_output(task.task_id, "one")
    for pid in far_ends(sshd):
        os.kill(pid, signal.SIGKILL)
    release.touch()
    assert far.shell.wait(task.task_id, timeout=20).exit_code == 5
    assert far.shell.read(task.task_id).output == "one\ntwo\n"


def test_a_machine_that_is_gone_for_a_while(own_sshd: Sshd, home: str, tmp_path: Path) -> None:
    write_settings(home, own_sshd.settings())
    release = tmp_path / "go"
    with Shell.open(home=home, session="s") as shell:
        task = shell.start(f"until [ -e {release} ]; do sleep 0.02; done; echo end; exit 4", executor="box")
        own_sshd.stop()
        eventually(lambda: "cannot be reached" in (shell.show(task.task_id).error or ""))
        found = shell.show(task.task_id)
        assert found.status == "running"
        assert found.exit_code is None
        assert (found.error or "").startswith("as of ")
        release.touch()
        assert not shell.wait(task.task_id, timeout=0.5).met
        with pytest.raises(Unreachable):
            shell.start("echo no", executor="box")
        with pytest.raises(OutlastError, match=r"cannot be reached|not known"):
            shell.kill(task.task_id, grace=0.1)
        assert len(shell.list()) == 1
        own_sshd.start()
        ended = shell.wait(task.task_id, timeout=30)
        assert (ended.exit_code, ended.error) == (4, None)
        assert shell.read(task.task_id).output == "end\n"


def test_a_start_that_is_not_confirmed_is_settled(far: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    def lose(executor: SshExecutor, task_id: str, launch: object) -> None:
        launched.append((task_id, launch))
        raise Unreachable("box was just lost")

    with monkeypatch.context() as patched:
        patched.setattr(SshExecutor, "submit", lose)
        task = far.start(f"touch {far.scratch}/ran")
        assert task.status == "pending"
        assert "not confirmed" in (task.error or "")
    found = far.shell.show(task.task_id)
    assert (found.status, found.reason) == ("failed", "spawn-error")
    assert "never reached box" in (found.error or "")
    # The request arrives after all.
    executor = SshExecutor("box", far.shell.settings.executors["box"], far.shell.executor.registry, far.shell.settings)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="given up"):
        executor.submit(task.task_id, launched[0][1])  # type: ignore[arg-type]
    executor.close()
    assert not (far.scratch / "ran").exists()


def test_a_repeated_start_runs_once(far: Bench) -> None:
    submit = SshExecutor.submit
    again: list[object] = []

    def submit_often(executor: SshExecutor, task_id: str, launch: object) -> object:
        again.extend(submit(executor, task_id, launch) for _ in range(5))  # type: ignore[arg-type]
        return again[0]

    SshExecutor.submit = submit_often  # type: ignore[method-assign, assignment]
    try:
        result = far.run(f"echo x >>{far.scratch}/ran")
    finally:
        SshExecutor.submit = submit  # type: ignore[method-assign]
    assert result.exit_code == 0
    assert (far.scratch / "ran").read_text() == "x\n"
    assert len(again) == 5


def test_several_readers_copy_at_once(far: Bench) -> None:
    """Each of them writes the mirror; together they write it once."""
    task = far.start(command(9, far.scratch))

    def read(number: int) -> str:
        with far.open() as shell:
            return b"".join(piece.data for piece in shell.follow(task.task_id, timeout=60)).decode()

    with ThreadPoolExecutor(5) as readers:
        assert set(readers.map(read, range(5))) == {output_of(9)}
    assert check_history(far.shell, far.scratch, {9: task.task_id}) == 0


def test_what_the_other_machine_lost_is_lost(far: Bench, sshd: Sshd) -> None:
    task = far.start("sleep 60")
    (directory,) = [one for one in sshd.tasks() if one.name == task.task_id]
    moved = directory.rename(directory.parent.parent / "staging" / task.task_id)
    found = eventually(lambda: (seen := far.shell.show(task.task_id)).finished and seen)
    assert (found.reason, found.exit_code) == ("lost", None)
    marked = process.Table().find_marked(b"OUTLAST_TASK_ID=" + task.task_id.encode())
    for pid in (*_guards_in(moved), *marked):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _guards_in(directory: Path) -> list[int]:
    found = []
    for pid in process.Table().by_pid:
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(directory):
                found.append(pid)
        except OSError:
            continue
    return found


def test_files_are_private_and_hold_no_secret(far: Bench, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "canary-99-private")
    task = far.start("sleep 60", pass_secrets=["DEPLOY_TOKEN"])
    for top in (sshd.home / ".local/state/outlast-far", Path(far.home)):
        for path in top.rglob("*"):
            if path.name == "config.toml":
                continue  # the test wrote it
            assert path.stat().st_mode & 0o077 == 0, path
            if path.is_file():
                assert b"canary-99-private" not in path.read_bytes(), path
    for pid in process.Table().by_pid:
        try:
            assert b"canary-99-private" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    assert isinstance(far.shell.show(task.task_id), Task)


def test_secrets_of_the_far_login_are_held_back(far: Bench) -> None:
    result = far.run("echo $FAR_ONLY [${FAR_TOKEN-}]")
    assert result.output == "yes []\n"
    assert "FAR_TOKEN" in result.held_back
