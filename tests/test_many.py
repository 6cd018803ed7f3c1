"""Many tasks at once: started, listed, ended; every exit code right, nothing left, and what each of them costs."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import pytest

from outlast import Shell
from outlast.linux import process
from outlast.storage import record
from outlast.types import Task
from tests.conftest import eventually, processes_of

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def places_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "2000")


def directory_of(task: Task) -> str:
    return os.path.dirname(task.output_file)


def guards_of(task: Task) -> list[int]:
    guards = record.guards_of(directory_of(task))
    return [who.pid for who in (guards.supervisor, guards.keeper) if who]


def memory(pid: int) -> dict[str, int]:
    """What a process takes by itself (private), and with its part of what it shares (Pss), in bytes."""
    found = {"private": 0, "pss": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        if name.startswith("Private_"):
            found["private"] += int(size) * 1024
        elif name == "Pss:":
            found["pss"] = int(size) * 1024
    return found


def start_all(shell: Shell, count: int, gate: Path) -> list[Task]:
    """Tasks that all run until the gate opens, and then end each with a code of its own."""
    command = "read -r line < {gate}; echo {n}; exit {code}"
    return [shell.start(command.format(gate=gate, n=n, code=n % 256)) for n in range(count)]


def costs(tasks: list[Task]) -> dict[str, float]:
    """What supervisor and keeper of one task take together, on average, in MiB."""
    sums = {"private": 0, "pss": 0}
    for task in tasks:
        for pid in guards_of(task):
            for name, size in memory(pid).items():
                sums[name] += size
    return {name: size / len(tasks) / MIB for name, size in sums.items()}


def run_at_once(home: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """Start, list and end `count` tasks; what each costs in memory."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = os.open(gate, os.O_RDWR)  # so that nobody waits for the other end
    with Shell.open(home=home) as shell:
        began = time.monotonic()
        tasks = start_all(shell, count, gate)
        started = time.monotonic() - began
        began = time.monotonic()
        listed = shell.list()
        listing = time.monotonic() - began
        assert [task.task_id for task in listed] == [task.task_id for task in reversed(tasks)]
        assert {task.status for task in listed} == {"running"}
        assert len({task.pid for task in listed}) == count
        cost = costs(tasks)
        began = time.monotonic()
        _open_gate(holder, count)
        for n, task in enumerate(tasks):
            ended = shell.wait(task.task_id, timeout=120)
            assert (ended.exit_code, ended.status) == (n % 256, "failed" if n % 256 else "completed")
        ending = time.monotonic() - began
        eventually(lambda: all(task.closed for task in shell.list()), patience=120)
        for n, task in enumerate(tasks):
            assert shell.read(task.task_id).output == f"{n}\n"
        assert [task.exit_code for task in shell.list()] == [n % 256 for n in reversed(range(count))]
        eventually(
            lambda: not [one for one in processes_of(home).values() if "/staging/" not in one],
            patience=120,
        )
        assert not zombies_of(os.getpid())
    os.close(holder)
    with capsys.disabled():
        print(
            f"\n{count} tasks: started in {started:.1f} s, listed in {listing * 1000:.0f} ms, ended in {ending:.1f} s; "
            f"each takes {cost['private']:.2f} MiB private, {cost['pss']:.2f} MiB with its part of what is shared"
        )
    return cost


def _open_gate(holder: int, count: int) -> None:
    """A line for each task. The pipe takes only so many at once."""
    for _ in range(count):
        os.write(holder, b"go\n")


def zombies_of(parent: int) -> list[int]:
    """Children that ended and that nobody reaped."""
    table = process.Table()
    return [pid for pid in table.children.get(parent, ()) if table.by_pid[pid].dead]


def test_a_hundred_tasks_at_once(home, tmp_path, capsys):
    cost = run_at_once(home, 100, tmp_path, capsys)
    assert cost["private"] < 0.5


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [1000, 5000])
def test_thousands_of_tasks_at_once(home, tmp_path, capsys, monkeypatch, count):
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", str(count))
    # Each reserves what it may print at the most; together they must fit into the whole.
    monkeypatch.setenv("OUTLAST_OUTPUT_LIMIT_BYTES", "1000000")
    cost = run_at_once(home, count, tmp_path, capsys)
    assert cost["private"] < 0.5


def test_many_are_ended_by_one_call(home):
    with Shell.open(home=home) as shell:
        tasks = [shell.start("sleep 60 & wait") for _ in range(40)]
        began = time.monotonic()
        receipts = shell.kill_all([task.task_id for task in tasks])
        assert time.monotonic() - began < 30
        assert [receipt.task_id for receipt in receipts] == [task.task_id for task in tasks]
        for receipt in receipts:
            assert receipt.status == "killed"
            assert receipt.survivors == ()
            assert receipt.pid in receipt.ended
        ended = [pid for receipt in receipts for pid in receipt.ended]
        assert len(ended) == len(set(ended)) >= 2 * len(tasks)


def run_in_a_row(home: str, count: int) -> list[float]:
    """Foreground commands of one session, with a state to restore and to keep: nothing leaks; how long each took."""
    took = []
    with Shell.open(home=home, session="row") as shell:
        for n in range(20):
            shell.run(f"N={n}; f{n}() {{ echo $N; }}; exit {n}")
        descriptors, size = len(os.listdir("/proc/self/fd")), memory(os.getpid())["private"]
        for n in range(count):
            began = time.perf_counter()
            # Every tenth changes the state, the others find it.
            result = shell.run(f"N={n}" if n % 10 == 0 else "f3")
            took.append(time.perf_counter() - began)
            assert (result.exit_code, result.output) == (0, "" if n % 10 == 0 else f"{n - n % 10}\n")
        # Shells may be prepared for the next commands: connections to their guards. A thread may just be doing that.
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors + 4)
        assert memory(os.getpid())["private"] < size + 20 * MIB
        eventually(lambda: not [one for one in processes_of(home).values() if "/staging/" not in one])
        eventually(lambda: not zombies_of(os.getpid()))
        assert len(os.listdir(os.path.join(home, "staging"))) <= 5
    assert not [name for name in os.listdir(os.path.join(home, "sessions")) if name.startswith(".")]
    return took


def test_tasks_in_a_row_leave_nothing_behind(home):
    """No process, no descriptor, no file, and no memory that grows."""
    run_in_a_row(home, 200)
    assert len(os.listdir(os.path.join(home, "tasks"))) == 220


def test_what_is_kept_for_no_time_is_gone(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_RETENTION_HOURS", "0")
    run_in_a_row(home, 200)
    assert len(os.listdir(os.path.join(home, "tasks"))) < 100


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_a_hundred_thousand_commands_in_one_session(home, capsys):
    """Nothing leaks, and the last is as fast as the first."""
    took = run_in_a_row(home, 100_000)
    first, last = statistics.median(took[:500]), statistics.median(took[-500:])
    with capsys.disabled():
        print(f"\n100,000 in a row: the first 500 {first * 1000:.2f} ms each, the last {last * 1000:.2f} ms")
    assert last < first * 3  # on a shared machine: what grows with the number of tasks would be far beyond


def test_what_running_tasks_might_keep_costs_no_finished_task(home, monkeypatch):
    """Ten promises of 1 MiB are more than the bound of 8; what ended keeps next to nothing and stays."""
    monkeypatch.setenv("OUTLAST_STATE_LIMIT_BYTES", str(8 << 20))
    monkeypatch.setenv("OUTLAST_OUTPUT_LIMIT_BYTES", str(2 << 20))
    with Shell.open(home=home) as shell:
        over = [shell.run(f"exit {code}").task_id for code in range(5)]
        running = [shell.start("exec sleep 1000").task_id for _ in range(4)]
        try:
            assert [shell.show(task_id).exit_code for task_id in over] == list(range(5))
        finally:
            shell.kill_all(running, grace=0)
