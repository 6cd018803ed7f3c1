"""Fault 5: a full disk, one without inodes, and the bounds that keep it from getting there.

Whatever the disk says: every exit code is recorded, no task is held up, what was not kept is counted, and
when space returns, everything goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import OutlastError, StartFailed, StateRefused
from outlast.light import replace
from outlast.storage import task_directory
from outlast.storage.output import Source
from outlast.types import Result, Stdin, Task
from tests.conftest import PATIENCE_S, Cli, end_all, eventually, processes_of
from tests.faults.support import closed, directory_of, guard, left_in_staging, replace_guard
from tests.test_output import kept, pieces, with_settings

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

MIB = 1 << 20
PAGE = 4096
LINES = b"".join(b"%d\n" % n for n in range(1, 30_001))  # 168,894 bytes: far more than a pipe holds


class Disk:
    """A small disk of our own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.home = os.path.join(path, "state")
        self._ballast: list[str] = []

    def fill(self, leave: int = 0) -> None:
        """Take all space but so many pages."""
        name = self._new()
        with open(name, "wb", 0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * PAGE)
        os.truncate(name, max(0, os.stat(name).st_size - leave * PAGE))

    def fill_inodes(self, leave: int = 0) -> None:
        """Take all inodes but so many."""
        made: list[str] = []
        with contextlib.suppress(OSError):
            while True:
                made.append(self._new())
        for name in made[: leave + 1]:  # the last one could not be made
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _new(self) -> str:
        name = os.path.join(self.path, f"ballast{len(self._ballast)}")
        self._ballast.append(name)
        open(name, "xb").close()
        return name

    def free(self) -> None:
        for name in self._ballast:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        self._ballast.clear()

    def available(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def mounted(options: str) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk; see the test that runs this file in a user namespace")
    with tempfile.TemporaryDirectory(prefix="outlast-test-") as path:
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "outlast-test", path], capture_output=True
        )
        if tried.returncode:
            pytest.skip(f"no disk can be mounted here: {tried.stderr.decode().strip()}")
        disk = Disk(path)
        try:
            yield disk
            disk.free()
            with contextlib.suppress(StateRefused), Shell.open(disk.home, operator=True, prepare=False) as shell:
                end_all(shell)
            eventually(lambda: not processes_of(disk.home), what="the end of all processes")
        finally:
            subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture(params=["space", "inodes"])
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    """A disk that can be filled up, in one way or the other."""
    options = f"size={MIB}" if request.param == "space" else f"size={64 * MIB},nr_inodes=160"
    with mounted(options) as made:
        if request.param == "inodes":
            made.fill = made.fill_inodes  # type: ignore[method-assign]
        yield made


class Waiting:
    """A task that ends in its own way once it is let go, and prints a good deal before."""

    def __init__(self, shell: Shell, gates: Path, code: int) -> None:
        self.code = code
        self._gate = gates / f"gate{code}"
        os.mkfifo(self._gate)
        self.task = shell.start(f"read -r _ < {self._gate}; seq 1 30000; exit {code}")

    def let_go(self) -> None:
        self._gate.write_text("go\n")
        self._gate.unlink()


# --- full ----------------------------------------------------------------------------------


def check_codes_on_a_full_disk(disk: Disk, shell: Shell, gates: Path, codes: range) -> None:
    waiting = [Waiting(shell, gates, code) for code in codes]
    disk.fill()
    for one in waiting:
        one.let_go()
    for one in waiting:
        ended = shell.wait(one.task.task_id, timeout=PATIENCE_S)
        assert (ended.reason, ended.exit_code) == ("exit", one.code)
        result = shell.read(one.task.task_id)
        whole = len(kept(shell, one.task)) + result.dropped_bytes
        assert (whole, result.cursor) == (len(LINES), str(len(LINES))), "what was dropped was not counted"
    found = {task.task_id: task.exit_code for task in shell.list()}
    assert all(found[one.task.task_id] == one.code for one in waiting)


def test_every_code_is_recorded_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    with Shell.open(disk.home, prepare=False) as shell:
        check_codes_on_a_full_disk(disk, shell, tmp_path, range(1, 11))
        disk.free()
        assert shell.run("echo again; exit 9").exit_code == 9


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_code_of_a_hundred_tasks_is_recorded_on_a_full_disk(disk: Disk, tmp_path: Path) -> None:
    with Shell.open(disk.home, prepare=False) as shell:
        for first in range(1, 101, 10):
            check_codes_on_a_full_disk(disk, shell, tmp_path, range(first, first + 10))
            disk.free()
            assert shell.clean(all_finished=True) == 10


def test_others_can_look_while_the_disk_is_full(disk: Disk, tmp_path: Path) -> None:
    """Processes that open the state directory only now, when not even the index can be opened."""
    with Shell.open(disk.home, prepare=False) as shell:
        ran = shell.run("echo before; exit 4")
        waiting = Waiting(shell, tmp_path, 5)
    index = os.stat(os.path.join(disk.home, "index.sqlite"))
    disk.fill()
    waiting.let_go()
    cli = Cli(disk.home)
    assert json.loads(cli("wait", "--json", waiting.task.task_id, check=5).stdout)["exit_code"] == 5
    listed = [json.loads(line) for line in cli("ps", "--all", "--json", check=0).stdout.splitlines()]
    assert {task["task_id"]: task["exit_code"] for task in listed} == {ran.task_id: 4, waiting.task.task_id: 5}
    assert cli("logs", ran.task_id, check=0).stdout == "before\n"
    assert cli("logs", "--new", ran.task_id, check=0).stdout == "before\n"
    assert json.loads(cli("show", "--json", ran.task_id[-5:], check=0).stdout)["exit_code"] == 4
    assert os.path.samestat(index, os.stat(os.path.join(disk.home, "index.sqlite"))), "others may have it open"
    assert "Removed 2 finished tasks" in cli("clean", "--all-finished", check=0).stdout
    assert os.listdir(os.path.join(disk.home, "tasks")) == os.listdir(os.path.join(disk.home, "staging")) == []


def test_a_task_is_ended_on_a_full_disk(disk: Disk) -> None:
    with Shell.open(disk.home, prepare=False) as shell:
        killed = shell.start("sleep 100 & sleep 100")
        limited = shell.start("sleep 100", limit=1)
        disk.fill()
        receipt = shell.kill(killed.task_id, grace=0.2)
        assert (receipt.status, receipt.reason, receipt.survivors) == ("killed", "killed", ())
        assert len(receipt.ended) >= 2
        ended = shell.wait(limited.task_id, timeout=PATIENCE_S)
        assert (ended.status, ended.reason) == ("killed", "timeout")


def test_a_supervisor_that_dies_on_a_full_disk_is_replaced(disk: Disk, tmp_path: Path) -> None:
    with Shell.open(disk.home, prepare=False) as shell:
        waiting = Waiting(shell, tmp_path, 6)
        disk.fill()
        replace_guard(waiting.task, "supervisor")
        replace_guard(waiting.task, "keeper")
        waiting.let_go()
        assert shell.wait(waiting.task.task_id, timeout=PATIENCE_S).exit_code == 6


# --- space returns -------------------------------------------------------------------------


class Talking:
    """A task that prints what it is sent; all that it printed is counted."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.task = shell.start("cat", stdin=Stdin(open=True))
        self.said = b""

    def say(self, data: bytes) -> None:
        self._shell.send(self.task.task_id, data)
        self.said += data
        eventually(lambda: self.source.end() == len(self.said), what="the task to go on")

    @property
    def source(self) -> Source:
        return self._shell.executor.source(self.task.task_id, "stdout")

    def say_until_kept(self) -> None:
        def is_kept() -> bool:
            self.say(b"back again\n")
            return self.source.read(len(self.said) - 1).data == b"\n"

        eventually(is_kept, what="output being kept again")

    def end(self) -> Result:
        self._shell.send(self.task.task_id, eof=True)
        closed(self._shell, self.task)
        return self._shell.read(self.task.task_id)

    def check(self) -> int:
        """That everything read is what was said at that place; how much is missing."""
        found = pieces(self._shell, self.task)
        assert all(piece.data == self.said[piece.start : piece.next] for piece in found)
        missing = sum(piece.dropped for piece in found)
        assert missing + sum(len(piece.data) for piece in found) == len(self.said)
        return missing


@pytest.mark.parametrize("killed", [False, True], ids=["", "supervisor killed"])
def test_output_is_kept_again_when_space_returns(killed: bool) -> None:
    with mounted(f"size={MIB}") as disk, Shell.open(disk.home, prepare=False) as shell:
        talking = Talking(shell)
        talking.say(b"kept before\n")
        for number in range(2):
            disk.fill()
            before = talking.check()
            talking.say(b"lost\n" * 20_000)
            if killed:
                replace_guard(talking.task, "supervisor")
            talking.say(b"lost\n" * 20_000)
            assert before < talking.check() <= before + 200_000
            now = shell.read(talking.task.task_id)
            assert (now.truncated, now.cursor) == (True, str(len(talking.said))), number
            disk.free()
            talking.say_until_kept()
        missing = talking.check()
        result = talking.end()
        assert result.dropped_bytes == missing >= 2 * 200_000 - 4 * PAGE
        assert result.output.startswith("kept before\n")
        assert result.output.endswith("back again\n")
        assert result.output.count("bytes were dropped here]") == 2


def test_what_is_lost_at_the_very_end_is_counted_too() -> None:
    with mounted(f"size={MIB}") as disk, Shell.open(disk.home, prepare=False) as shell:
        talking = Talking(shell)
        disk.fill()
        talking.say(b"lost\n" * 20_000)
        result = talking.end()
        assert result.dropped_bytes == 100_000 - len(kept(shell, talking.task)) > 0
        assert result.truncated
        assert f"[outlast: {result.dropped_bytes} bytes were dropped here]" in result.output


def test_bytes_can_be_dropped_without_a_descriptor() -> None:
    with mounted(f"size={MIB}") as disk, Shell.open(disk.home, prepare=False) as shell:
        talking = Talking(shell)
        talking.say(b"kept before\n")
        for name in ("supervisor", "keeper"):
            pid = guard(talking.task, name).pid
            taken = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
            lowest = min(set(range(len(taken) + 1)) - taken)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
        disk.fill()
        talking.say(b"lost\n" * 20_000)
        assert talking.check() > 0
        assert talking.end().exit_code == 0


def test_places_are_remembered_on_a_full_disk(disk: Disk) -> None:
    """Of a reader that read before; to a new one everything may be new once more, but reading works."""
    with Shell.open(disk.home, prepare=False) as shell:
        task = shell.run("echo one; echo two")
        assert shell.read(task.task_id, new=True, reader="old", stream="stdout").output == "one\ntwo\n"
        second = shell.run("echo three")
        shell.read(second.task_id, new=True, reader="old", tail=None)
        disk.fill()
        assert shell.read(second.task_id, new=True, reader="old").output == ""
        for _ in range(2):
            assert shell.read(second.task_id, new=True, reader="new").output in ("three\n", "")


# --- starting ------------------------------------------------------------------------------


def check_refusal(shell: Shell, error: OutlastError, home: str) -> None:
    """One clear sentence, and nothing left behind."""
    assert isinstance(error, StartFailed)
    assert error.message.count("\n") == 0
    assert error.message.endswith(".")
    assert "No space left on device" in error.message or "full" in error.message or "unable to open" in error.message
    assert left_in_staging(home) == []
    assert os.listdir(os.path.join(home, "tasks")) == []
    assert shell.list() == []


@pytest.mark.parametrize("what", ["space", "inodes"])
def test_a_start_needs_this_much_and_fails_cleanly_with_less(what: str) -> None:
    """With a page or an inode more each time: every step of a start is once the one that fails."""
    with mounted(f"size={2 * MIB},nr_inodes=100") as disk, Shell.open(disk.home, prepare=False) as shell:
        shell.run("true")
        shell.clean(all_finished=True)
        refused, in_a_row = 0, 0
        for left in range(40):
            (disk.fill if what == "space" else disk.fill_inodes)(left)
            try:
                task = shell.start("echo hello; exit 3")
            except OutlastError as error:
                check_refusal(shell, error, disk.home)
                refused, in_a_row = refused + 1, 0
                disk.free()
                assert shell.list() == []
                assert shell.executor.registry.index.kept_bytes() == 0, "its share was not taken back"
                continue
            assert shell.wait(task.task_id, timeout=PATIENCE_S).exit_code == 3
            assert kept(shell, task) in (b"hello\n", b"")
            disk.free()
            closed(shell, task)
            assert shell.clean(all_finished=True) == 1
            in_a_row += 1
            if in_a_row == 3:
                break
        assert refused >= 3
        assert in_a_row == 3, "it never started"
        assert shell.run("exit 4").exit_code == 4


def test_the_command_line_says_so_in_one_sentence(disk: Disk) -> None:
    cli = Cli(disk.home)
    cli("run", "true", check=0)
    disk.fill()
    refused = cli("run", "true", check=125)
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("outlast: ")
    disk.free()
    assert cli("run", "echo back", check=0).stdout == "back\n"


def test_a_state_directory_cannot_be_made_on_a_full_disk(disk: Disk) -> None:
    disk.fill()
    refused = Cli(disk.home)("run", "true", check=125)
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("outlast: The state directory")
    disk.free()
    assert Cli(disk.home)("run", "echo back", check=0).stdout == "back\n"
    assert sorted(os.listdir(disk.home)) == ["format", "index.sqlite", "sessions", "staging", "tasks"]


# --- the floor of free space ---------------------------------------------------------------


def watched(value: Callable[[], int], work: Callable[[], None]) -> list[int]:
    """What `value` was, again and again, while `work` was done."""
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(value())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        over.set()
        watcher.join(PATIENCE_S)
    return seen


def test_output_does_not_eat_into_the_floor() -> None:
    floor = 2 * MIB
    settings = {"free_floor_bytes": floor, "output_limit_bytes": 100 * MIB}
    with mounted(f"size={40 * MIB}") as disk, with_settings(disk.home, **settings) as shell:
        tasks: list[Task] = []

        def flood() -> None:
            tasks.append(shell.start("head -c 60000000 /dev/zero; exit 3"))
            closed(shell, tasks[0])

        lowest = min(watched(disk.available, flood))
        assert floor - 64 * 1024 <= lowest < floor + MIB, "the disk was not used, or too much of it"
        assert shell.show(tasks[0].task_id).exit_code == 3
        found = pieces(shell, tasks[0])
        assert sum(len(piece.data) + piece.dropped for piece in found) == 60_000_000
        small = shell.run("echo still heard")
        assert (small.output, small.dropped_bytes) == ("still heard\n", 0)
        assert shell.clean(all_finished=True) == 2
        assert len(kept(shell, shell.run("head -c 3000000 /dev/zero"))) == 3_000_000


# --- the bound for all tasks ---------------------------------------------------------------


def taken(home: str) -> int:
    """What all tasks take on disk at this moment."""
    size = 0
    for place, _, files in os.walk(os.path.join(home, "tasks")):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(place, name)).st_blocks * 512
    return size


def test_all_tasks_together_stay_within_their_bound(home: str) -> None:
    limit = 3 * MIB
    with with_settings(home, state_limit_bytes=limit, output_limit_bytes=400_000) as shell:
        server = shell.start("echo up; sleep 100")
        ids: list[str] = []

        def work() -> None:
            for number in range(25):
                ids.append(shell.run(f"head -c 300000 /dev/zero; exit {number}").task_id)

        seen = watched(lambda: taken(home), work)
        assert max(seen) <= limit
        left = [task.task_id for task in reversed(shell.list())]
        assert left[0] == server.task_id, "a running task was removed"
        assert left[1:] == ids[-(len(left) - 1) :], "it was not the oldest that went"
        # Those that began before the one ahead of them was closed had to do with less.
        assert 4 <= len(left) < len(ids), "the bound was not used, or not kept"
        assert shell.show(ids[-1]).exit_code == 24
        assert shell.show(server.task_id).status == "running"


def test_running_tasks_share_what_there_is(home: str, tmp_path: Path) -> None:
    """The last ones get little, then none is started any more; a flood in all of them stays within the bound."""
    limit = 2 * MIB
    gate = tmp_path / "gate"
    with with_settings(home, state_limit_bytes=limit, max_running=100) as shell:
        tasks: list[Task] = []

        def start_many() -> None:
            for _ in range(100):
                tasks.append(shell.start(f"until [ -e {gate} ]; do sleep 0.05; done; head -c 3000000 /dev/zero"))

        with pytest.raises(StartFailed, match=f"take all of the {limit} bytes that they may") as caught:
            start_many()
        assert caught.value.message.count("\n") == 0
        assert len(tasks) >= 5
        assert len(os.listdir(os.path.join(home, "tasks"))) == len(tasks)
        assert left_in_staging(home) == []

        def flood() -> None:
            gate.touch()
            for task in tasks:
                closed(shell, task)

        assert max(watched(lambda: taken(home), flood)) <= limit
        for task in tasks:
            found = pieces(shell, task)
            assert sum(len(piece.data) + piece.dropped for piece in found) == 3_000_000
            assert len(kept(shell, task)) >= 20_000
        assert shell.run("echo room again").output == "room again\n"


def test_a_share_that_nobody_uses_is_taken_back(home: str) -> None:
    """From tasks that ended without anybody looking, and from starts that died half-way."""
    with with_settings(home, state_limit_bytes=8 * MIB, output_limit_bytes=MIB) as shell:
        index = shell.executor.registry.index
        assert index.reserve("bash-00000000", "default", time.time(), 1, MIB, 8 * MIB)
        tasks = [shell.start("sleep 0.5") for _ in range(5)]
        for task in tasks:
            eventually(lambda task=task: shell.executor.has_reached(task.task_id, "closed"))  # type: ignore[misc]
        assert index.kept_bytes() > 6 * MIB
        last = shell.start("true")
        assert index.kept_bytes() < 2 * MIB
        assert task_directory.read_launch(directory_of(last))[0].output_limit == MIB
        assert index.row("bash-00000000") is None
        assert len(shell.list()) == 6


def test_a_start_in_progress_keeps_its_share(home: str) -> None:
    """It is in the index and has no directory among the tasks yet; nobody may take it for a leftover."""
    with with_settings(home, state_limit_bytes=8 * MIB) as shell:
        registry = shell.executor.registry
        launch = replace(task_directory.read_launch(directory_of(shell.run("true")))[0], state="")
        staged, published = registry.stage(launch)
        assert registry.reserve(staged, published, launch, 8 * MIB)
        assert os.path.basename(published) not in [task.task_id for task in shell.list()]
        assert registry.index.row(os.path.basename(published)) is not None
        registry.discard(staged, published)
        assert registry.index.row(os.path.basename(published)) is None


# --- as a plain user -----------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() == 0, reason="root has run all of this already")
def test_all_of_this_in_a_user_namespace() -> None:
    """A plain user can mount a disk in a namespace of its own, where it seems to be root."""
    inside = ["unshare", "-Urm"]
    tried = subprocess.run([*inside, "true"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"no user namespace can be made here: {tried.stderr.decode().strip()}")
    words = [*inside, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert "no disk can be mounted" not in ran.stdout


@pytest.mark.parametrize("leave", [0, 8, 12, 16, 20, 24])
@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
def test_notices_on_a_nearly_full_disk_are_refused_in_one_sentence(known: bool, leave: int) -> None:
    """Whatever step of it finds no space: the sentence, no traceback; and once there is space each notice comes."""
    with mounted(f"size={2 * MIB}") as disk:
        cli = Cli(disk.home)
        with Shell.open(disk.home, prepare=False) as shell:
            ids = [shell.start("true").task_id for _ in range(30)]
            for task_id in ids:
                shell.wait(task_id)
        if known:
            cli("notices", "--name", "another", check=0)
        disk.fill(leave)
        for words in (["notices"], ["notices", "--for-model", "--name", "m"], ["events"], ["brief"]):
            ran = cli(*words)
            assert "Traceback" not in ran.stderr, ran.stderr
            assert ran.returncode in (0, 125), ran
            assert ran.returncode == 0 or (ran.stderr.startswith("outlast: ") and ran.stderr.count("\n") == 1), ran
        disk.free()
        told = cli("notices", "--all", check=0).stdout
        assert all(task_id in told for task_id in ids), told
