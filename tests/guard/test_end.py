"""Limits, processes that stay behind, and what happens when a command ended."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlast.guard.client import encode_launch
from tests.guard.harness import Item, Launcher, is_gone, wait_until
from tests.guard.test_start import PREPARED


def test_the_limit_asks_first(launcher: Launcher) -> None:
    task = launcher.start("trap 'echo asked; exit 3' TERM; sleep 60 & wait", ("limit", 0.2), ("grace", 20.0))
    began = time.monotonic()
    assert task.run() == ["exit", "3"]
    assert 0.2 <= time.monotonic() - began < 10
    assert task.output() == b"asked\n"
    ending = task.slot("ending")
    assert (ending["by"], ending["rule"]) == ("limit", "limit of 0.2 s")


def test_the_limit_kills_after_its_grace(launcher: Launcher) -> None:
    task = launcher.start("trap '' TERM; while :; do sleep 0.01; done", ("limit", 0.1), ("grace", 0.2))
    assert task.run() == ["signal", "9"]


def test_the_limit_ends_what_left_its_group_and_its_session(launcher: Launcher) -> None:
    script = "setsid bash -c 'echo $$; trap \"\" TERM; sleep 60; sleep 60' & sleep 60"
    task = launcher.start(script, ("limit", 0.3), ("grace", 0.2))
    task.run()
    assert is_gone(int(task.output()))


def test_the_limit_ends_a_stopped_command(launcher: Launcher) -> None:
    task = launcher.start("kill -STOP $$", ("limit", 0.1), ("grace", 20.0))
    assert task.run() == ["signal", "15"]


def test_no_limit_after_the_command_ended(launcher: Launcher) -> None:
    """The limit is for the command. What it left in the background goes on."""
    os.mkfifo(launcher.place / "stop")
    task = launcher.start("(read line <stop; echo late) & exit 0", ("limit", 0.5), ("grace", 0.1))
    task.expect("started")
    task.expect("ended")
    assert not select.select([task.line], [], [], 1.0)[0]
    (launcher.place / "stop").write_bytes(b"\n")
    task.wait_closed()
    assert task.output() == b"late\n"
    assert task.slot("ending") == {}


LOSES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def test_a_process_that_loses_term_gets_it_again(launcher: Launcher) -> None:
    """As a child of bash between fork and exec, which still has the handlers of bash and forgets them."""
    items: list[Item] = [("env", f"CODE={LOSES_TERM}"), ("limit", 0.5), ("grace", 25.0)]
    task = launcher.start('exec python3 -Ic "$CODE"', *items)
    began = time.monotonic()
    assert task.run() == ["signal", "15"]
    assert time.monotonic() - began < 10
    assert task.output() == b"ready\n"


def test_a_process_that_catches_term_gets_it_once(launcher: Launcher) -> None:
    script = "trap 'echo asked' TERM; while :; do sleep 0.05; done"
    task = launcher.start(script, ("limit", 0.1), ("grace", 1.0))
    assert task.run() == ["signal", "9"]
    assert task.output().split().count(b"asked") == 1


MANY = """
import os, signal, time
def start(handler):
    if not os.fork():
        signal.signal(signal.SIGTERM, handler)
        os.write(ready, b'.')
        while True:
            time.sleep(60)
count, (done, ready) = 1200, os.pipe()
for _ in range(count):
    start(signal.SIG_IGN)
start(lambda *_: os.write(1, b'asked'))
for _ in range(count + 1):
    os.read(done, 1)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(3, b'r')
os.read(4, 1)
time.sleep(60)
"""


def test_every_one_of_many_children_is_asked(launcher: Launcher) -> None:
    """The kernel hands out a list of children in pages of 4,096 bytes, which is not the whole list."""
    task = launcher.start('exec python3 -Ic "$CODE"', ("env", f"CODE={MANY}"), *PREPARED)
    task.expect("prepared")
    task.begin(("limit", 0.2), ("grace", 2.0))
    assert task.run() == ["signal", "9"]
    assert task.output() == b"asked"


FORKS = """
import os, sys, time
while True:  # a process that is never there when its parent is looked at
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
"""


def test_a_process_that_forks_all_the_time_is_ended(guard_program: str, tmp_path: Path) -> None:
    """In a pid namespace, so that nothing can leak if it escapes."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "from pathlib import Path\nfrom tests.guard.harness import Launcher\n"
        f"launcher = Launcher(Path({str(tmp_path)!r}), {guard_program!r})\n"
        f"items = [('env', 'FORKS=' + {FORKS!r}), ('limit', 0.3), ('grace', 0.1)]\n"
        "task = launcher.start('python3 -Ic \"$FORKS\" & exec sleep 60', *items)\n"
        "print(task.run()[0])\n"
        "launcher.close()\n"
    )
    words = ["unshare", "-p", "-f", "--mount-proc", "--kill-child", sys.executable, "-c", code]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "unshare failed" in ran.stderr or "Operation not permitted" in ran.stderr:
        pytest.skip("no pid namespaces here")
    assert ran.stdout == "signal\n", ran.stderr


# --- processes that stay behind ---


def test_orphans_are_reaped_as_they_end(launcher: Launcher) -> None:
    task = launcher.start("for i in {1..50}; do (setsid true &) ; done; echo forked; read line", ("stdin", "open"))
    task.expect("started")
    wait_until(lambda: task.output() == b"forked\n", "all are forked")
    supervisor = task.pid("supervisor")

    def zombies() -> list[str]:
        found = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return [pid for pid in found if int(pid) != task.pid("command")]

    wait_until(lambda: not zombies(), "no zombie is left below the supervisor")
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"\n")
    task.expect("ended")
    task.wait_closed()


def test_the_task_lives_while_a_silent_process_is_left(launcher: Launcher) -> None:
    task = launcher.start("(exec >/dev/null 2>&1 </dev/null; setsid sleep 60) & exit 0")
    task.expect("started")
    task.expect("ended")
    assert task.is_alive()
    children = Path(f"/proc/{task.pid('supervisor')}/task/{task.pid('supervisor')}/children")
    for pid in wait_until(lambda: children.read_text().split(), "it was adopted"):
        os.kill(int(pid), signal.SIGKILL)
    task.wait_closed()


def test_a_task_started_inside_of_another_is_not_a_part_of_it(launcher: Launcher, guard_program: str) -> None:
    inner = launcher.describe("inner", "read line <stop; exit 4", [])
    os.mkfifo(launcher.place / "stop")
    (launcher.place / "launch").write_bytes(encode_launch(inner))
    task = launcher.start(f"{guard_program} 5 - 5<launch; exec sleep 60", ("limit", 0.3), ("grace", 0.1))
    assert task.run() == ["signal", "15"]  # closed, though guards of the inner task were below it
    directory = launcher.place / "tasks" / "inner"
    wait_until((directory / "record").exists, "the inner task was published")
    (launcher.place / "stop").write_bytes(b"\n")
    task.directory = directory
    wait_until(lambda: task.slot("outcome"), "the inner task ended")
    assert task.slot("code")["exit"] == 4


# --- the end is announced ---


def test_bells(launcher: Launcher) -> None:
    bells = launcher.place / "bells"
    bells.mkdir()
    ends = []
    for number in range(2):
        os.mkfifo(bells / f"bell.{number}")
        ends.append(os.open(bells / f"bell.{number}", os.O_RDONLY | os.O_NONBLOCK))
    task = launcher.start("read line; echo x; read line", ("stdin", "open"), ("bells", str(bells)))
    task.expect("started")

    def rung(fds: list[int]) -> bool:
        poll = select.poll()
        for fd in fds:
            poll.register(fd, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(10_000))

    assert rung(ends)
    own = [os.open(task.directory / f"bell.{number}", os.O_RDONLY | os.O_NONBLOCK) for number in range(2)]
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"\n")
    assert rung(own)
    wait_until(lambda: task.output() == b"x\n", "the line was printed")
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"\n")
    task.expect("ended")
    task.wait_closed()
    for fd in ends + own:
        os.close(fd)


def test_the_program_at_the_end_runs_once_and_is_not_a_part_of_the_task(launcher: Launcher) -> None:
    log = launcher.place / "log"
    words = ["/bin/bash", "-c", f"echo $PPID >>{log}; exec sleep 1"]
    items: list[Item] = [("on-end", word) for word in words]
    task = launcher.start("exit 5", *items)
    task.expect("started")
    guards = [task.pid("supervisor"), task.pid("keeper")]
    task.expect("ended")
    began = time.monotonic()
    task.wait_closed()
    assert time.monotonic() - began < 0.9  # it was not waited for
    wait_until(lambda: log.exists() and log.read_text(), "it ran")
    assert int(log.read_text()) not in guards
    wait_until(lambda: not launcher._reap(), "it ended")
    assert len(log.read_text().split()) == 1


def test_held_locks_are_released_when_the_command_ends(launcher: Launcher) -> None:
    with open(launcher.place / "session", "wb") as held:
        task = launcher.start(
            "read line; sleep 60 & exit 0", ("stdin", "open"), ("hold", held.fileno()), fds=(held.fileno(),)
        )
        task.expect("started")
        fcntl.flock(held, fcntl.LOCK_EX)  # the same open file: now the guards hold the lock too
    with open(launcher.place / "session", "wb") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(task.directory / "stdin", "wb") as pipe:
            pipe.write(b"\n")
        task.expect("ended")
        wait_until(lambda: take_lock(other.fileno()), "the lock is free")
    assert task.is_alive()  # sleep is left
    children = Path(f"/proc/{task.pid('supervisor')}/task/{task.pid('supervisor')}/children")
    for pid in wait_until(lambda: children.read_text().split(), "it was adopted"):
        os.kill(int(pid), signal.SIGKILL)
    task.wait_closed()


def take_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- the command is not trusted ---


def test_a_command_cannot_forge_its_exit_code(launcher: Launcher) -> None:
    """It writes to everything that is in its directory and to every descriptor it can open, then exits with 7."""
    script = """
    cd tasks/t0
    for name in *; do timeout 0.1 bash -c "echo '{\\"exit\\":0}' >>$name" 2>/dev/null; done
    printf '%s' '00000000 {"exit":0,"cpu":0}' | dd of=record bs=1 seek=1024 conv=notrunc 2>/dev/null
    for fd in 3 4 5 6 7 8 9; do eval "echo g >&$fd" 2>/dev/null; done
    exit 7
    """
    task = launcher.start(script, ("split", 1))
    assert task.run() == ["exit", "7"]
    assert task.slot("code")["exit"] == 7


def test_a_command_that_damages_the_record_early_does_not_lose_its_code(launcher: Launcher) -> None:
    task = launcher.start(": >tasks/t0/record; exit 7")
    assert task.run() == ["exit", "7"]
    assert task.slot("code")["exit"] == 7


def test_killing_the_own_guards_does_not_change_the_code(launcher: Launcher) -> None:
    kill = "read -r _ _ _ parent _ </proc/$$/stat; kill -9 $parent; sleep 0.1; "
    task = launcher.start(f"{kill}{kill}echo still here; exit 7")
    assert task.run() == ["exit", "7"]
    assert task.output() == b"still here\n"
    assert task.slot("guards")["recoveries"] == 2


# --- bubblewrap ---


def sandbox(script: str) -> list[Item]:
    inner = f"echo r >&3; exec 3>&-; read -r line <&4 || exit 9; exec 4<&-; {script}"
    words = ["bwrap", "--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"]
    words += ["--", "/bin/bash", "-c", inner]
    items: list[Item] = [("program", shutil.which("bwrap") or ""), *(("arg", word) for word in words)]
    items += [("fd", f"{number} {name}") for number, name in enumerate(["stdin", "stdout", "stderr", "ready", "go"])]
    return [*items, ("program-waits", 1), ("env", f"PATH={os.environ['PATH']}")]


needs_bubblewrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@needs_bubblewrap
@pytest.mark.parametrize(("script", "ended"), [("exit 7", ["exit", "7"]), ("kill -9 $$; true", ["signal", "9"])])
def test_the_status_inside_of_bubblewrap(launcher: Launcher, script: str, ended: list[str]) -> None:
    # bash as pid 2 of the namespace; a signal to itself is not one to the init of the namespace.
    task = launcher.start(None, *sandbox(script))
    assert task.run() == ended


@needs_bubblewrap
def test_a_sandboxed_command_has_its_grace(launcher: Launcher) -> None:
    script = "trap 'echo asked; exit 3' TERM; sleep 60 & wait"
    task = launcher.start(None, *sandbox(script), ("limit", 0.3), ("grace", 20.0))
    assert task.run() == ["exit", "3"]
    assert task.output() == b"asked\n"


@needs_bubblewrap
def test_a_sandbox_that_cannot_be_made_is_refused_with_its_reason(launcher: Launcher) -> None:
    words = ["bwrap", "--bind", "/no/such/place", "/", "--", "/bin/true"]
    items: list[Item] = [("program", shutil.which("bwrap") or ""), *(("arg", word) for word in words)]
    items += [("fd", f"{number} {name}") for number, name in enumerate(["stdin", "stdout", "errors", "ready", "go"])]
    task = launcher.start(None, *items, ("program-waits", 1))
    assert "/no/such/place" in task.expect("refused")[1]
    assert not task.staging.exists()


# --- control groups ---


def test_a_control_group_is_joined_killed_and_removed(launcher: Launcher) -> None:
    root = next(
        (
            place
            for place in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
            if (place / "cgroup.procs").exists()
        ),
        None,
    )
    if not root or not os.access(root / "cgroup.procs", os.W_OK):
        pytest.skip("no control group can be made here")
    group = root / f"outlast-guard-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    task = launcher.start(
        "cat /proc/self/cgroup; trap '' TERM; sleep 60", ("cgroup", str(group)), ("limit", 0.2), ("grace", 0.1)
    )
    assert task.run() == ["signal", "9"]
    assert group.name in task.output().decode()
    assert not group.exists()


def test_record_is_json_that_other_programs_read(launcher: Launcher) -> None:
    task = launcher.start("exit 1")
    task.run()
    text = (task.directory / "record").read_bytes()
    assert len(text) == 4096
    lines = text.decode("ascii").split("\n")
    assert [len(line) + 1 for line in lines[:-1]] == [1024, 128, 448, 64, 2432]
    assert json.loads(lines[0][9:])["guard"] == 1
