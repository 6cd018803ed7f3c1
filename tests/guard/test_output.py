"""Every byte that the command prints is in the files, in its place, once; or it was dropped and is counted."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.harness import Item, Launcher, read_stream, refuse_splice, wait_until

NUMBERS = b"".join(b"%09d\n" % number for number in range(200_000))
PRINT_NUMBERS = "import sys; sys.stdout.buffer.writelines(b'%09d\\n' % n for n in range(200_000))"


@pytest.fixture(params=["splice", "relay", "read"])
def mover(request: pytest.FixtureRequest, launcher: Launcher) -> Launcher:
    """The three ways that bytes take: directly, through the relay where a file has no splice, without any splice."""
    if request.param != "splice":
        launcher.preexec = lambda: refuse_splice(also_pipes=request.param == "read")
    return launcher


def start_numbers(launcher: Launcher, *items: Item) -> Path:
    task = launcher.start(f'exec python3 -Ic "{PRINT_NUMBERS}"', *items)
    assert task.run() == ["exit", "0"]
    return task.directory


def test_exact_bytes(mover: Launcher) -> None:
    assert read_stream(start_numbers(mover)) == [(0, NUMBERS)]


def test_any_bytes(mover: Launcher) -> None:
    data = os.urandom(500_000) + b"\0\xff\r\x1b]" * 1000
    (mover.place / "data").write_bytes(data)
    task = mover.start("cat data")
    task.run()
    assert task.output() == data


def test_the_head_and_the_tail_are_kept(mover: Launcher) -> None:
    head, segment = 10_007, 5_003
    directory = start_numbers(mover, ("head", head), ("segment", segment))
    pieces = read_stream(directory, head=head)
    assert pieces[0] == (0, NUMBERS[:head])
    assert len(pieces) == 9
    for start, data in pieces[1:]:
        assert NUMBERS[start : start + len(data)] == data
        assert len(data) == segment or start + len(data) == len(NUMBERS)
    starts = [start for start, _ in pieces[1:]]
    assert all(after - before == segment for before, after in itertools.pairwise(starts))
    assert starts[-1] + len(pieces[-1][1]) == len(NUMBERS)
    note = (directory / "output").read_bytes()[head:]
    assert len(note) == 100
    assert b"output.NUMBER" in note


def test_output_that_just_fits_needs_no_segment(mover: Launcher) -> None:
    task = mover.start("head -c 5000 /dev/zero; exit 2", ("head", 5000), ("segment", 100))
    assert task.run() == ["exit", "2"]
    assert read_stream(task.directory) == [(0, bytes(5000))]


def test_two_streams_and_their_order(mover: Launcher) -> None:
    task = mover.start("echo out1; sleep 0.1; echo err1 >&2; sleep 0.1; echo out2", ("split", 1))
    task.run()
    assert task.output() == b"out1\nout2\n"
    assert task.output("stderr") == b"err1\n"
    order = task.output("order")
    entries = [int.from_bytes(order[at : at + 8], "little") for at in range(0, len(order), 8)]
    assert entries == [5, 5 | 1 << 63]  # stdout stood at 5 when stderr went on, and stderr at 5 when stdout did


def test_merged_output_keeps_the_order_of_both(mover: Launcher) -> None:
    task = mover.start("for i in {1..300}; do echo o$i; echo e$i >&2; done")
    task.run()
    assert task.output() == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 301))


def test_output_of_a_child_that_stays_behind(mover: Launcher) -> None:
    task = mover.start("(read line <stop; echo late) & echo early; exit 5", ("cwd", str(mover.place)))
    os.mkfifo(mover.place / "stop")
    task.expect("started")
    assert task.expect("ended") == ["exit", "5"]
    assert task.output() == b"early\n"
    assert "alone" not in task.slot("outcome")
    assert task.is_alive()
    (mover.place / "stop").write_bytes(b"\n")
    task.wait_closed()
    assert task.output() == b"early\nlate\n"


def test_a_pipe_made_nonblocking_loses_nothing(launcher: Launcher) -> None:
    """node leaves O_NONBLOCK set on the pipe that it shares with its siblings."""
    flags = "import fcntl,os; fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK); os.write(1, b'x')"
    task = launcher.start(f'python3 -Ic "{flags}"; read line; head -c 3000000 /dev/zero; echo $?', ("stdin", "open"))
    task.expect("started")
    wait_until(lambda: task.output() == b"x", "the supervisor was woken by the first byte")
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"\n")
    task.expect("ended")
    task.wait_closed()
    assert task.output() == b"x" + bytes(3_000_000) + b"0\n"


def test_names_that_the_command_put_in_the_way(launcher: Launcher) -> None:
    """A named pipe where the next segment would be must not block the guards."""
    script = "mkfifo tasks/t0/output.%020d; head -c 1000 /dev/zero; sleep 0.05; head -c 1000 /dev/zero"
    task = launcher.start(script % 500, ("head", 500), ("segment", 600))
    assert task.run() == ["exit", "0"]
    assert task.slot("position")["stdout"] > 500


def test_a_truncated_file_does_not_move_the_stream_back(launcher: Launcher) -> None:
    """The command empties its output file, and a supervisor that comes later must not count its bytes from there."""
    kill = "read -r _ _ _ parent _ </proc/$$/stat; kill -9 $parent; until [ -s moved ]; do sleep 0.01; done; "
    task = launcher.start(
        f"head -c 1000 /dev/zero; read line; : >tasks/t0/output; {kill} echo after", ("stdin", "open")
    )
    task.expect("started")
    wait_until(lambda: len(task.output()) == 1000, "the first bytes are stored")
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"\n")
    wait_until(lambda: task.slot("guards")["recoveries"], "there is another supervisor")
    (launcher.place / "moved").write_text("x")
    assert task.expect("ended") == ["exit", "0"]
    task.wait_closed()
    assert read_stream(task.directory) == [(0, b""), (1000, b"after\n")]


# --- a full disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
    if made.returncode:
        pytest.skip("cannot mount a small file system here")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("relay", [False, True])
def test_a_full_disk_drops_counts_and_goes_on(small_disk: Path, guard_program: str, relay: bool) -> None:
    launcher = Launcher(small_disk, guard_program)
    if relay:
        launcher.preexec = lambda: refuse_splice(also_pipes=False)
    try:
        task = launcher.start("head -c 4000000 /dev/zero; read line; echo after; exit 7", ("stdin", "open"))
        task.expect("started")
        wait_until(lambda: task.slot("position").get("stdout") == 4_000_000, "the rest was dropped and counted")
        os.truncate(task.directory / "output", 1000)  # there is space again
        with open(task.directory / "stdin", "wb") as pipe:
            pipe.write(b"\n")
        assert task.expect("ended") == ["exit", "7"]
        task.wait_closed()
        assert task.slot("code")["exit"] == 7
        assert task.slot("outcome")["ended"] > 0
    finally:
        launcher.close()


def test_the_floor_of_free_space_is_kept(small_disk: Path, guard_program: str) -> None:
    launcher = Launcher(small_disk, guard_program)
    try:
        task = launcher.start("head -c 4000000 /dev/zero; exit 7", ("floor", 900_000))
        assert task.run() == ["exit", "7"]
        free = os.statvfs(small_disk)
        assert (
            free.f_bavail * free.f_frsize >= 45_000
        )  # the floor is at most a twentieth of the disk, here 52,428, less a part of a page
        assert task.slot("position")["stdout"] == 4_000_000
    finally:
        launcher.close()
