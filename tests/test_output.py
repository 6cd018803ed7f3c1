"""What a command prints, on disk: exact, in order, bounded, and beyond what the command can do to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell
from outlast.storage.output import SEGMENTS, bound_of
from outlast.types import Slice, Task
from tests.conftest import Cli, end_all, eventually
from tests.faults.support import closed, directory_of, guard, numbers, replace_guard

LIMIT = 1_000_000


@pytest.fixture
def bounded(home: str) -> Iterator[Shell]:
    """A shell whose tasks keep little."""
    with with_settings(home, output_limit_bytes=LIMIT) as shell:
        yield shell


@contextlib.contextmanager
def with_settings(home: str, **settings: int) -> Iterator[Shell]:
    """A shell on a state directory with settings of its own; its tasks are ended."""
    os.makedirs(home, 0o700, exist_ok=True)
    Path(home, "config.toml").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    with Shell.open(home) as shell:
        yield shell
        end_all(shell)


def pieces(shell: Shell, task: Task, stream: str = "stdout") -> list[Slice]:
    return list(shell.executor.source(task.task_id, stream).chunks())


def kept(shell: Shell, task: Task, stream: str = "stdout") -> bytes:
    return b"".join(piece.data for piece in pieces(shell, task, stream))


def await_bytes(shell: Shell, task: Task, count: int) -> None:
    """Wait until so many bytes were printed, kept or not."""
    source = shell.executor.source(task.task_id, "stdout")
    eventually(lambda: source.end() >= count, what=f"{count} bytes of output")


def on_disk(task: Task) -> int:
    """The bytes of all output files at this moment."""
    size = 0
    for name in os.listdir(directory_of(task)):
        if name.split(".")[0] in ("output", "stderr"):
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(os.path.join(directory_of(task), name)).st_size
    return size


# --- nothing is destroyed, nothing is out of order -----------------------------------------


@pytest.mark.parametrize("split", [False, True], ids=["merged", "split"])
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/2"])
@pytest.mark.parametrize("how", [">", ">>", "| tee", ">|"])
def test_opening_ones_own_output_again_destroys_nothing(shell: Shell, how: str, name: str, split: bool) -> None:
    task = shell.run(f"echo before; echo wrong >&2; echo x {how} {name}; echo after; echo more >&2", split=split)
    assert task.exit_code == 0
    twice = "x\n" if how == "| tee" else ""
    if not split:
        assert sorted(task.output.split()) == sorted(f"before wrong x {twice}after more".split())
        assert task.output.startswith("before\nwrong\nx\n")
        assert task.output.endswith("after\nmore\n")
    else:
        to_stdout = name.endswith(("stdout", "1"))
        assert task.stdout == "before\n" + ("x\n" if to_stdout else "") + twice + "after\n"
        assert task.stderr == "wrong\n" + ("" if to_stdout else "x\n") + "more\n"


def test_truncating_ones_own_output_destroys_nothing(shell: Shell) -> None:
    task = shell.run("echo before; : > /dev/stdout; truncate -s 0 /dev/stdout; echo after", split=False)
    assert task.output.startswith("before\n")
    assert task.output.endswith("after\n")


def test_both_streams_in_exact_order(shell: Shell) -> None:
    """Hundreds of small writes by several processes, alternating between the two."""
    task = shell.run("for i in $(seq 300); do echo out $i; echo err $i >&2; /bin/echo child $i; done")
    wanted = "".join(f"out {n}\nerr {n}\nchild {n}\n" for n in range(1, 301))
    assert kept(shell, task).decode() == wanted


def test_every_byte_value_is_kept(shell: Shell, tmp_path: Path) -> None:
    data = bytes(range(256)) * 300
    (tmp_path / "data").write_bytes(data)
    task = shell.run(f"cat {tmp_path}/data; cat {tmp_path}/data >&2", split=True)
    assert kept(shell, task) == kept(shell, task, "stderr") == data
    assert Path(task.output_file).read_bytes() == data


def test_what_a_child_prints_after_the_end_is_kept(shell: Shell, tmp_path: Path) -> None:
    """A megabyte of it: far more than fits into the pipe."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = shell.run(f"(read -r _ < {gate}; seq 1 150000; seq 1 10 >&2) & echo started")
    assert (task.status, task.output, len(task.children)) == ("completed", "started\n", 1)
    gate.write_text("go\n")
    closed(shell, task)
    assert kept(shell, task) == b"started\n" + numbers(150_000) + numbers(10)


def test_all_that_was_printed_before_the_end_is_there_when_the_end_is_known(shell: Shell) -> None:
    for number in range(10):
        task = shell.run(f"head -c 300000 /dev/zero | tr '\\0' x; echo {number}; sleep 100 &")
        assert len(kept(shell, task)) == 300_000 + 2
        assert task.output.endswith(f"{number}\n")
        shell.kill(task.task_id, grace=0.1)


def test_output_is_private_whatever_the_umask(home: str) -> None:
    before = os.umask(0)
    try:
        with with_settings(home, output_limit_bytes=2048) as shell:
            task = shell.run("umask; seq 1 2000; echo x >&2", split=True)
            assert task.output.startswith("0000\n"), "the command has the caller's umask"
            shell.read(task.task_id, new=True)
    finally:
        os.umask(before)
    for place, directories, files in os.walk(home):
        assert all(os.stat(os.path.join(place, name)).st_mode & 0o777 == 0o700 for name in directories)
        ours = [name for name in files if name != "config.toml"]
        assert all(os.lstat(os.path.join(place, name)).st_mode & 0o777 == 0o600 for name in ours), ours


# --- bounded -------------------------------------------------------------------------------


def check_bounded(shell: Shell, task: Task, printed: bytes, limit: int, stream: str = "stdout") -> None:
    """That head and newest of `printed` are kept, and that what is missing is known."""
    bound = bound_of(limit, task.split)
    found = pieces(shell, task, stream)
    have = b"".join(piece.data for piece in found)
    assert have[: bound.head] == printed[: bound.head]
    tail = have[bound.head :]
    assert len(tail) >= (SEGMENTS - 1) * bound.segment
    assert printed.endswith(tail)
    assert sum(piece.dropped for piece in found) == len(printed) - len(have)


def test_past_the_bound_head_and_tail_are_kept_and_the_task_goes_on(bounded: Shell, tmp_path: Path) -> None:
    sizes: list[int] = []
    over = threading.Event()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = bounded.start(f"read -r _ < {gate}; seq 1 1500000; echo the end; exit 7")

    def watch() -> None:
        while not over.is_set():
            sizes.append(on_disk(task))

    watcher = threading.Thread(target=watch)
    watcher.start()
    gate.write_text("go\n")
    ended = closed(bounded, task)
    over.set()
    watcher.join(10)
    printed = numbers(1_500_000) + b"the end\n"
    assert (ended.exit_code, ended.status) == (7, "failed")
    assert max(sizes) <= LIMIT
    check_bounded(bounded, task, printed, LIMIT)
    result = bounded.read(task.task_id)
    assert result.truncated
    assert result.dropped_bytes == len(printed) - len(kept(bounded, task))
    assert result.output.endswith("the end\n")
    assert result.cursor == str(len(printed))


def test_what_was_dropped_is_visible(home: str, cli: Cli) -> None:
    """To a model, on the command line, and to who looks at the files with ordinary tools."""
    with with_settings(home, output_limit_bytes=4096) as shell:
        task = shell.run("seq 1 5000")
        have, dropped = kept(shell, task), task.dropped_bytes
        assert dropped == len(numbers(5000)) - len(have)
        head = bound_of(4096, False).head
        marked = f"{have[:head].decode()}\n[outlast: {dropped} bytes were dropped here]\n{have[head:].decode()}"
        assert task.output == marked
        assert cli("logs", task.task_id, check=0).stdout == marked
        shown = subprocess.run("cat output*", shell=True, cwd=directory_of(task), capture_output=True).stdout
        note = shown[head : len(shown) - (len(have) - head)]
        assert shown == have[:head] + note + have[head:]
        assert b"[outlast: the bound is reached" in note
        assert note.endswith(b"]\n")
        last = subprocess.run(
            "ls output.* | tail -n 1 | xargs tail -n 1", shell=True, cwd=directory_of(task), capture_output=True
        )
        assert last.stdout == b"5000\n"


def test_a_reader_that_is_late_learns_how_much_it_missed(home: str) -> None:
    with with_settings(home, output_limit_bytes=4096) as shell:
        printed = numbers(5000)
        task = shell.run("seq 1 5000")
        place = bound_of(4096, False).head - 100
        late = shell.read(task.task_id, cursor=str(place))
        have = b"".join(piece.data for piece in shell.executor.source(task.task_id, "stdout").chunks(place))
        assert late.dropped_bytes == len(printed) - place - len(have)
        assert late.truncated
        assert late.cursor == str(len(printed))
        assert shell.read(task.task_id, tail=3).output == "4998\n4999\n5000\n"
        assert shell.read(task.task_id, tail=3).dropped_bytes == 0


def test_both_streams_of_a_split_task_are_bounded(bounded: Shell) -> None:
    task = bounded.run("seq 1 300000; seq 1 400000 >&2", split=True)
    check_bounded(bounded, task, numbers(300_000), LIMIT)
    check_bounded(bounded, task, numbers(400_000), LIMIT, "stderr")
    assert on_disk(task) <= LIMIT


def test_lines_are_counted_as_they_are_kept(bounded: Shell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = bounded.start(f"seq 1 1000; read -r _ < {gate}; seq 1 300000; read -r _ < {gate}; seq 1 200000")
    eventually(lambda: kept(bounded, task) == numbers(1000))
    assert bounded.reader.line_counts(task) == (1000, 0)
    gate.write_text("go\n")
    eventually(lambda: kept(bounded, task).endswith(b"\n300000\n"))
    assert bounded.reader.line_counts(task) == (kept(bounded, task).count(b"\n"), 0)
    gate.write_text("go\n")
    closed(bounded, task)
    assert bounded.reader.line_counts(task) == (kept(bounded, task).count(b"\n"), 0)
    known = bounded.executor.registry.index.lines(task.task_id)
    assert set(known) == {name for name in os.listdir(directory_of(task)) if name.startswith("output")}


def test_a_new_supervisor_goes_on_within_the_bound(bounded: Shell, tmp_path: Path) -> None:
    """Killed in the middle of a flood, several times: no byte twice, none missing but what was dropped."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = bounded.start(f"seq 1 800000; read -r _ < {gate}; exit 5")
    for number in range(4):
        await_bytes(bounded, task, number * LIMIT + 1)
        replace_guard(task, "supervisor")
    gate.write_text("go\n")
    assert closed(bounded, task).exit_code == 5
    check_bounded(bounded, task, numbers(800_000), LIMIT)
    assert on_disk(task) <= LIMIT


def test_memory_does_not_grow_with_the_output(bounded: Shell, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = bounded.start(f"read -r _ < {gate}; head -c 100000000 /dev/zero; read -r _ < {gate}")
    before = memory_of(guard(task, "supervisor").pid)
    gate.write_text("go\n")
    await_bytes(bounded, task, 100_000_000)
    assert memory_of(guard(task, "supervisor").pid) < before + 2 * 1024 * 1024
    gate.write_text("go\n")
    closed(bounded, task)


def memory_of(pid: int) -> int:
    """The most that a process ever had in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} is gone")


# --- node ----------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
@pytest.mark.parametrize("split", [False, True], ids=["merged", "split"])
def test_node_costs_its_siblings_nothing(shell: Shell, tmp_path: Path, split: bool) -> None:
    """node makes the pipe that it shares with its siblings non-blocking, and leaves it so while it runs."""
    ready, gate = tmp_path / "ready", tmp_path / "gate"
    os.mkfifo(gate)
    script = (
        "const fs = require('fs'); process.stdout.write('node\\n'); process.stderr.write('node\\n');"
        f"fs.writeFileSync('{ready}', ''); fs.readFileSync('{gate}')"
    )
    write = "import os; assert {os.write(1, b'x' * 5_000_000), os.write(2, b'y' * 5_000_000)} == {5_000_000}"
    task = shell.start(
        f'node -e "{script}" & until [ -e {ready} ]; do sleep 0.01; done; '
        f'python3 -c "{write}"; code=$?; echo > {gate}; wait; exit $code',
        split=split,
    )
    ended = closed(shell, task)
    assert ended.exit_code == 0, shell.read(task.task_id, tail=5).output
    both = kept(shell, task) + (kept(shell, task, "stderr") if split else b"")
    assert sorted(both.replace(b"x", b"").replace(b"y", b"").split()) == [b"node", b"node"]
    assert (both.count(b"x"), both.count(b"y")) == (5_000_000, 5_000_000)
