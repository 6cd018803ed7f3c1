"""Fault 13: many readers at once, slow ones, and some that read while the middle is dropped.

Each gets every byte that is kept, right and once; none holds the task or another reader.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from outlast import AsyncShell, Shell
from outlast.types import Slice, Task
from tests.conftest import PATIENCE_S, Cli, eventually, prepared_shells
from tests.faults.support import closed, dice, numbers
from tests.test_output import await_bytes, kept, with_settings

LIMIT = 100_000
LINES = 120_000
PRINTED = numbers(LINES)  # 728,894 bytes: most of the middle is dropped


class Reader:
    """Checks every piece as it comes."""

    def __init__(self, printed: bytes, start: int = 0) -> None:
        self._printed = printed
        self.place = start
        self.bytes = self.dropped = self.pieces = 0

    def take(self, piece: Slice) -> None:
        assert piece.start == self.place + piece.dropped, "bytes came twice, or were skipped untold"
        assert piece.data == self._printed[piece.start : piece.next]
        self.place = piece.next
        self.bytes += len(piece.data)
        self.dropped += piece.dropped
        self.pieces += 1

    def take_all(self, pieces: Iterable[Slice]) -> None:
        for piece in pieces:
            self.take(piece)

    def check(self) -> None:
        assert self.place == len(self._printed)


def command(lines: int, gate: Path) -> str:
    """Prints in many small turns, once it is let go."""
    os.mkfifo(gate)
    return f"read -r _ < {gate}; for ((i = 0; i < {lines}; i += 1000)); do seq $((i + 1)) $((i + 1000)); done; exit 3"


async def read_slowly(pieces: AsyncIterator[Slice], reader: Reader, chance: random.Random) -> None:
    async for piece in pieces:
        reader.take(piece)
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.05)


async def check_many_readers(home: str, gate: Path, count: int) -> None:
    chance = dice()
    async with AsyncShell.open(home, prepare=False) as shell:
        before = len(os.listdir("/proc/self/fd"))
        task = await shell.start(command(LINES, gate))
        readers = [Reader(PRINTED, chance.choice([0, 0, 0, 5, 40_000])) for _ in range(count)]
        fast, slow = readers[: count // 2], readers[count // 2 :]
        reading = [asyncio.create_task(read_all(shell, task, reader)) for reader in fast]
        for reader in slow:
            pieces = shell.follow(task.task_id, cursor=str(reader.place))
            reading.append(asyncio.create_task(read_slowly(pieces, reader, chance)))
        gate.write_text("go\n")
        await asyncio.gather(*reading)
        assert (await shell.wait(task.task_id)).exit_code == 3
        for reader in readers:
            reader.check()
        assert any(reader.dropped for reader in readers), "nobody read while the middle was dropped"
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= before + 20, "descriptors were left open"


async def read_all(shell: AsyncShell, task: Task, reader: Reader) -> None:
    async for piece in shell.follow(task.task_id, cursor=str(reader.place)):
        reader.take(piece)


def test_200_readers_in_one_host(home: str, tmp_path: Path) -> None:
    with with_settings(home, output_limit_bytes=LIMIT):
        asyncio.run(check_many_readers(home, tmp_path / "gate", 200))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_2000_readers_in_one_host(home: str, tmp_path: Path) -> None:
    with with_settings(home, output_limit_bytes=LIMIT):
        asyncio.run(check_many_readers(home, tmp_path / "gate", 2000))


def test_two_shells_in_one_host_do_not_block_each_other(home: str) -> None:
    """Each is used by many threads at once, and both write to the same index."""
    codes: list[int | None] = []
    with Shell.open(home, session="one", prepare=False) as one, Shell.open(home, session="two", prepare=False) as two:

        def use(shell: Shell) -> None:
            for code in range(3):
                task = shell.start(f"exit {code}")
                shell.list()
                codes.append(shell.wait(task.task_id, timeout=PATIENCE_S).exit_code)

        threads = [threading.Thread(target=use, args=(shell,)) for shell in (one, two) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S * 2)
        assert sorted(codes, key=str) == [0] * 20 + [1] * 20 + [2] * 20
        assert len(one.list()) == len(two.list()) == 30


def check_readers_in_processes(home: str, cli: Cli, gate: Path, count: int) -> None:
    with with_settings(home, output_limit_bytes=10 * len(PRINTED)) as shell:
        task = shell.start(command(LINES, gate))
        readers = [cli.start("logs", "-f", "--raw", task.task_id) for _ in range(count)]
        texts: list[bytes] = [b""] * count

        def take(number: int) -> None:
            texts[number] = readers[number].communicate(timeout=PATIENCE_S * 3)[0]

        threads = [threading.Thread(target=take, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        gate.write_text("go\n")
        for thread in threads:
            thread.join(PATIENCE_S * 3)
        assert [reader.returncode for reader in readers] == [0] * count
        assert all(text == PRINTED for text in texts)


def test_readers_in_other_processes(home: str, cli: Cli, tmp_path: Path) -> None:
    check_readers_in_processes(home, cli, tmp_path / "gate", 6)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_100_readers_in_other_processes(home: str, cli: Cli, tmp_path: Path) -> None:
    check_readers_in_processes(home, cli, tmp_path / "gate", 100)


def test_readers_in_threads_and_at_any_cursor(home: str, tmp_path: Path) -> None:
    """Each begins somewhere, in the middle of the flood, and reads on as it likes."""
    with with_settings(home, output_limit_bytes=LIMIT) as shell:
        seed = dice().randrange(1 << 32)
        task = shell.start(command(LINES, tmp_path / "gate"))
        problems: list[str] = []

        def read(number: int) -> None:
            chance = random.Random(seed + number)
            source = shell.executor.source(task.task_id, "stdout")
            try:
                for _ in range(3):
                    reader = Reader(PRINTED, chance.choice([0, chance.randrange(LIMIT), source.end()]))
                    while not (over := shell.executor.has_reached(task.task_id, "closed")) and chance.random() > 0.01:
                        piece = source.read(reader.place, chance.randrange(1, 70_000))
                        reader.take(piece)
                    if over:
                        reader.take_all(source.chunks(reader.place))
                        reader.check()
            except BaseException as error:
                problems.append(f"{number}: {error!r}")

        threads = [threading.Thread(target=read, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        (tmp_path / "gate").write_text("go\n")
        for thread in threads:
            thread.join(PATIENCE_S)
        assert problems == []
        assert closed(shell, task).exit_code == 3


def test_a_reader_that_stands_still_holds_nobody(home: str, tmp_path: Path) -> None:
    """It took one piece and reads the rest only long after the end."""
    with with_settings(home, output_limit_bytes=LIMIT) as shell:
        task = shell.start(f"seq 1 10; {command(LINES, tmp_path / 'gate')}")
        await_bytes(shell, task, len(numbers(10)))
        stream = shell.follow(task.task_id)
        printed = numbers(10) + PRINTED
        still = Reader(printed)
        still.take(next(stream))
        began = time.monotonic()
        (tmp_path / "gate").write_text("go\n")
        other = Reader(printed)
        other.take_all(shell.follow(task.task_id))
        other.check()
        assert shell.show(task.task_id).exit_code == 3
        assert time.monotonic() - began < PATIENCE_S
        still.take_all(stream)
        still.check()
        assert still.bytes == len(kept(shell, task)) < len(printed)


def test_a_follower_that_nobody_reads_holds_nobody(shell: Shell, cli: Cli, tmp_path: Path) -> None:
    """`outlast logs -f` into a full pipe, and a stopped one."""
    task = shell.start(command(LINES, tmp_path / "gate"))
    full = cli.start("logs", "-f", task.task_id)
    stopped = cli.start("logs", "-f", "--raw", task.task_id, stdout=subprocess.DEVNULL)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        (tmp_path / "gate").write_text("go\n")
        assert closed(shell, task).exit_code == 3
        assert kept(shell, task) == PRINTED
        assert full.poll() is None, "it was to be stuck"
        assert full.communicate(timeout=PATIENCE_S)[0] == PRINTED
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.wait(PATIENCE_S) == 0
    finally:
        for process in (full, stopped):
            process.kill()
            process.communicate()


def test_a_foreground_host_that_is_slow_holds_nobody(home: str, tmp_path: Path) -> None:
    """Its callback takes its time; the command does not wait for it."""
    with with_settings(home, output_limit_bytes=LIMIT) as shell:
        reader = Reader(PRINTED)
        gate = tmp_path / "gate"
        late: list[bool] = []

        def take(piece: Slice) -> None:
            reader.take(piece)
            if not late:
                late.append(True)
                (task,) = shell.list()
                eventually(
                    lambda: shell.executor.has_reached(task.task_id, "ended"),
                    what="its end, slowly read",
                )

        text = command(LINES, gate)
        threading.Thread(target=lambda: gate.write_text("go\n")).start()
        result = shell.run(text, on_output=take)
        assert result.exit_code == 3
        reader.check()


def test_reading_changes_nothing(shell: Shell) -> None:
    """Promise E: a hundred reads of every kind later the task's own files are the same bytes."""
    task = closed(shell, shell.run("seq 1 1000; exit 2"))
    prepared_shells(shell)  # for which the session takes over what the command changed
    directory = Path(task.output_file).parent
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    for _ in range(25):
        shell.read(task.task_id)
        shell.read(task.task_id, tail=3)
        shell.read(task.task_id, filter="9", new=True)
        list(shell.follow(task.task_id))
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()} == before
    assert shell.show(task.task_id).exit_code == 2
