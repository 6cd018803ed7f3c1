"""The next user of a session merges what finished commands changed, whoever was killed or stopped meanwhile."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import SessionBusy
from outlast.storage import record, sessions, snapshot
from outlast.storage.sessions import Sessions
from outlast.types import Result
from tests.conftest import end_all, eventually
from tests.faults.support import SOURCE

TRIES = 40
LATEST_S = 0.006  # after the command was let go: its shell has dumped its state and exited by then


@pytest.fixture
def named(home: str) -> Iterator[Shell]:
    with Shell.open(home=home, session="s", prepare=False) as opened:
        yield opened
        end_all(opened)


@pytest.fixture
def chance() -> random.Random:
    return random.Random(int(os.environ["OUTLAST_SEED"]))


class Gated:
    """A foreground command of a session that waits at a gate, and its supervisor."""

    def __init__(self, shell: Shell, home: str, gate: Path, command: str, wait: float) -> None:
        self._gate = gate
        self.results: list[Result] = []
        known = {task.task_id for task in shell.list()}
        words = f"read -r _ < {gate}; {command}"
        self._thread = threading.Thread(target=lambda: self.results.append(shell.run(words, wait=wait)))
        self._thread.start()
        self.task_id = eventually(
            lambda: next((one.task_id for one in shell.list(status="running") if one.task_id not in known), None)
        )
        self.directory = os.path.join(home, "tasks", self.task_id)
        self.supervisor = record.guards_of(self.directory).supervisor.pid

    def open_gate(self) -> None:
        self._gate.write_text("\n")

    def result(self) -> Result:
        self._thread.join(60)
        (result,) = self.results
        return result


def test_a_supervisor_killed_as_its_command_ends_costs_no_state(
    named: Shell, home: str, tmp_path: Path, chance: random.Random
) -> None:
    os.mkfifo(tmp_path / "gate")
    for number in range(TRIES):
        one = Gated(named, home, tmp_path / "gate", f"n={number}; many+=x", wait=60)
        one.open_gate()
        time.sleep(chance.uniform(0, LATEST_S))  # the moment is what is drawn
        try:
            os.kill(one.supervisor, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was done
        assert one.result().status == "completed"
        assert named.run("echo $n ${#many}").output == f"{number} {number + 1}\n"


def test_a_supervisor_stopped_as_its_command_ends_blocks_nobody(
    named: Shell, home: str, tmp_path: Path, chance: random.Random
) -> None:
    os.mkfifo(tmp_path / "gate")
    expected, ended = "none", 0
    for number in range(TRIES):
        one = Gated(named, home, tmp_path / "gate", f"n={number}", wait=0.4)
        one.open_gate()
        time.sleep(chance.uniform(0, LATEST_S))
        stopped = _signal(one.supervisor, signal.SIGSTOP)
        try:
            # One whose end is not recorded was left to the background by its caller: then its state is its own.
            if one.result().status == "completed":
                expected, ended = str(number), ended + 1
            before = time.monotonic()
            told = named.run("echo ${n-none}", wait=20)
            assert (told.status, told.output) == ("completed", f"{expected}\n")
            assert time.monotonic() - before < sessions.LOCK_TIMEOUT_S
        finally:
            if stopped:
                _signal(one.supervisor, signal.SIGCONT)
        named.wait(one.task_id, 20)
    assert ended


def test_a_supervisor_stopped_once_the_end_is_recorded_blocks_nobody(named: Shell, home: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    for number in range(TRIES):
        # What it leaves running keeps the supervisor there.
        one = Gated(named, home, tmp_path / "gate", f"n={number}; sleep 60 >/dev/null 2>&1 &", wait=60)
        one.open_gate()
        assert one.result().status == "completed"
        assert _signal(one.supervisor, signal.SIGSTOP)
        try:
            assert named.run("echo $n", wait=20).output == f"{number}\n"
        finally:
            _signal(one.supervisor, signal.SIGCONT)
            named.kill(one.task_id, grace=0)


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


COUNTING = """
import sys
sys.path.insert(0, sys.argv[1])
from outlast import Shell
with Shell.open(home=sys.argv[2], session="s") as shell:
    for _ in range(200):
        sys.stdout.write(shell.run("n=$((n + 1)); echo $n").output)
        sys.stdout.flush()
"""


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_a_caller_killed_at_any_moment_takes_nothing_back(
    named: Shell, home: str, chance: random.Random, others: int
) -> None:
    """Each number that it printed is in the state, and at most the command that ran when it was killed besides."""
    reached = 0
    for round_ in range(8):
        caller = subprocess.Popen([sys.executable, "-c", COUNTING, SOURCE, home], stdout=subprocess.PIPE, bufsize=0)
        assert caller.stdout is not None
        for _ in range(chance.randrange(1, 6)):
            reached = max(reached, int(caller.stdout.readline()))
            if others:
                named.run(f"beside_{round_}=1")
        time.sleep(chance.uniform(0, 0.02))
        caller.kill()
        printed = caller.communicate(timeout=30)[0].split()
        reached = max([reached, *map(int, printed)])
        eventually(lambda: not named.list(status="running"))
        found = int(named.run("echo ${n-0}").output)
        assert reached <= found <= reached + 1
        reached = found
        if others:
            assert named.run(f"echo $beside_{round_}").output == "1\n"


# --- a merge that is killed ------------------------------------------------------------------

MERGING = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from outlast.storage.sessions import Sessions
left = int(sys.argv[3])
def counted(call):
    def one(*args, **how):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **how)
    return one
for name in ("open", "close", "rename", "unlink", "listdir", "lstat", "stat", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
Sessions(sys.argv[2] + "/sessions").read("s")
"""


def merge_killed_at(home: str, step: int) -> bool:
    """Whether a merge got to this step, and was killed there."""
    words = [sys.executable, "-I", "-c", MERGING, SOURCE, home, str(step)]
    ended = subprocess.run(words, timeout=30, stderr=subprocess.PIPE)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


def several_finished(shell: Shell, tmp_path: Path) -> None:
    """Three commands side by side, which end one after the other, and nobody has merged them."""
    shell.run("x=0; gone=1; list=(0)")
    shell.context.sessions.read("s")
    begun = []
    for number in (1, 2, 3):
        os.mkfifo(tmp_path / str(number))
        words = f"read -r _ < {tmp_path}/{number}; x={number}; v{number}=1; list+=({number})"
        words += "; [[ $x != 2 ]] || unset gone"
        begun.append(shell.starter.launch(words, background=False, keeps=True)[0])
    for number in (3, 1, 2):
        (tmp_path / str(number)).write_text("\n")
        shell.wait(begun[number - 1].task_id, 30)


TELL = "echo $x $v1$v2$v3 ${gone-none} ${list[*]}"


def test_a_merge_killed_at_any_step_loses_nothing_and_takes_nothing_back(home: str, tmp_path: Path) -> None:
    with Shell.open(home=home, session="s", prepare=False) as shell:
        several_finished(shell, tmp_path)
    assert len(os.listdir(f"{home}/sessions/s/pending")) == 3
    expected, steps = None, 0
    while True:
        steps += 1
        copy = str(tmp_path / f"copy{steps}")
        subprocess.run(["cp", "-a", home, copy], check=True)
        killed = merge_killed_at(copy, steps)
        if killed and steps % 3 == 0:
            merge_killed_at(copy, steps // 2)  # and the next one too
        found = Sessions(f"{copy}/sessions").read("s").state()
        expected = expected or found
        assert found == expected
        assert found[snapshot.VARIABLE, b"x"] == b'declare -- x="2"'
        assert os.listdir(f"{copy}/sessions/s/pending") == []
        left = {name for task in os.listdir(f"{copy}/tasks") for name in os.listdir(f"{copy}/tasks/{task}")}
        assert not left & {"before", "start", "state"}
        if not killed:
            break
    assert steps > 30
    with Shell.open(home=copy, session="s") as shell:
        assert shell.run(TELL).output == "2 111 none 0 2\n"


def test_a_later_command_is_not_rolled_back_by_a_merge_that_was_killed(home: str, tmp_path: Path) -> None:
    with Shell.open(home=home, session="s", prepare=False) as shell:
        several_finished(shell, tmp_path)
    for step in range(1, 200, 7):
        copy = str(tmp_path / f"copy{step}")
        subprocess.run(["cp", "-a", home, copy], check=True)
        killed = merge_killed_at(copy, step)
        with Shell.open(home=copy, session="s") as shell:
            shell.run("x=9; unset v3")
            merge_killed_at(copy, step)
            assert shell.run(TELL).output == "9 11 none 0 2\n"
        if not killed:
            return
    pytest.fail("a merge never came to its end")


# --- the lock --------------------------------------------------------------------------------


def test_who_holds_the_lock_is_not_waited_for_without_a_bound(
    named: Shell, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LOCK_TIMEOUT_S", 0.1)
    task = named.run("a=1").task_id
    with open(f"{home}/sessions/s/lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SessionBusy, match="Another process changes session s"):
            named.run("echo $a")
        assert not named.executor.registry.remove(task), "its state is nowhere else"
    assert named.run("echo $a").output == "1\n"


def test_nothing_to_merge_takes_no_lock(named: Shell, home: str) -> None:
    named.run("a=1")
    named.context.sessions.read("s")
    with open(f"{home}/sessions/s/lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert named.run("echo $a").output == "1\n"


# --- what is left behind ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["remove", "clean"])
def test_a_task_is_merged_before_it_is_removed(named: Shell, home: str, how: str) -> None:
    task = named.run("a=1").task_id
    assert os.path.exists(f"{home}/tasks/{task}/state")
    if how == "remove":
        eventually(lambda: named.executor.registry.remove(task))
    else:
        eventually(lambda: named.clean(older_than_hours=0))
    assert not os.path.exists(f"{home}/tasks/{task}")
    assert named.run("echo $a").output == "1\n"


def test_an_entry_of_a_task_that_never_was_is_dropped(named: Shell, home: str) -> None:
    named.run("a=1")
    pending = Path(home, "sessions", "s", "pending")
    (pending / "00000000000000000001-bash-00000000.11111111").touch()
    waiting = pending / "00000000000000000002-bash-00000001.11111111"
    waiting.touch()
    staged = Path(home, "staging", "bash-00000001.11111111")
    staged.mkdir()
    named.context.sessions.read("s")
    assert list(pending.iterdir()) == [waiting], "it may yet be published"
    staged.rmdir()
    named.context.sessions.read("s")
    assert list(pending.iterdir()) == []


def test_a_reset_is_not_undone_by_a_command_that_ended_before_it(named: Shell) -> None:
    named.run("a=1")
    named.sessions.reset()
    assert named.run("echo ${a-none}").output == "none\n"


def test_what_keeps_nothing_leaves_no_session_files(named: Shell, home: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    started = named.start("a=1").task_id
    left = named.run(f"read -r _ < {tmp_path}/gate; a=2", wait=0.05).task_id
    (tmp_path / "gate").write_text("\n")
    eventually(lambda: all(named.show(task).closed for task in (started, left)))
    named.list()  # stores how they ended, and removes what they need no more
    for task in (started, left):
        found = set(os.listdir(f"{home}/tasks/{task}"))
        assert not found & {"before", "start", "state", "go"}
    assert named.run("echo ${a-none}").output == "none\n"


def test_what_one_call_was_given_is_in_no_file_of_it(named: Shell, home: str) -> None:
    secret = "hunter2-of-one-call"
    for command in ("a=1", "a=2; exit 3", "f() { exit 4; }; f", "PASSED=changed"):
        named.run(command, env={"PASSED": secret})
        looked = subprocess.run(["grep", "-rlF", secret, home], capture_output=True, text=True)
        assert looked.stdout == ""
    assert named.run("echo $a $PASSED").output == "2 changed\n"


def test_attributes_of_the_session_change_what_one_call_is_given_and_not_the_session(named: Shell) -> None:
    named.run("declare -u UP=a; declare -i NUMBER=1; export MINE=1")
    env = {"UP": "b", "NUMBER": "2+2", "MINE": "2"}
    assert named.run("echo $UP $NUMBER $MINE", env=env).output == "B 4 2\n"
    assert named.run("echo $UP $NUMBER $MINE").output == "A 1 1\n"
    named.run("unset UP; MINE=3", env=env)
    assert named.run("echo ${UP-none} $NUMBER $MINE").output == "none 1 3\n"


# --- what a command cannot do ------------------------------------------------------------------


@pytest.mark.parametrize(
    "forgery",
    [
        "echo 0 1<>$__outlast_dir/told",
        "mkfifo $__outlast_dir/told; echo 0 1<>$__outlast_dir/told",
        "__outlast_code=0 __outlast_pipes=(0)",
        "echo 'end 0 0' > $__outlast_dir/pipes",
    ],
)
@pytest.mark.parametrize("prepared", [False, True])
def test_a_command_cannot_forge_its_exit_code(named: Shell, forgery: str, prepared: bool) -> None:
    for _ in range(3 * prepared):
        named.run("true")
    result = named.run(f"{forgery}; sleep 0.1; exit 7")
    assert (result.status, result.exit_code) == ("failed", 7)
    eventually(lambda: named.show(result.task_id).closed)
    assert named.show(result.task_id).exit_code == 7


OURS = ["builtin", "set", "declare", "unset", "trap", "shopt", "printf", "exec", "umask", "local", "export", "eval"]
OURS += ["[[", "if", "for", "while", "case", "test", "mapfile"]


def test_an_alias_of_a_word_that_outlast_uses_breaks_nothing(named: Shell) -> None:
    for word in OURS:
        named.run("f() { :; }; export -f f; set -o pipefail; trap : USR1; set -- a b; umask 027; shopt -s nullglob")
        named.run(f"alias {word}='echo broken;'")
        assert named.run("echo one; x=1").output == "one\n", word
        assert named.run("exit 3").output == "", word
        assert named.run("echo $x $#; false | true").exit_code == 1, word
        found = named.sessions.state()
        assert (found.umask, "pipefail" in found.options, word in found.aliases) == ("0027", True, True)
        named.sessions.reset()


@pytest.mark.parametrize("brace", ["{", "}"])
def test_an_alias_of_a_brace_is_not_kept_and_breaks_nothing(named: Shell, brace: str) -> None:
    make = f"alias {brace}='echo hi'\na=1; "
    assert named.run(f"{make}false | true").exit_code == 0
    assert named.run("echo $a; alias; exit 3").output == "1\n"
    told = named.run(f"{make}a=2; exit 4")
    assert (told.exit_code, told.output) == (4, "")
    assert named.run("echo $a; false | true").exit_code == 0
    assert named.run("b=3; exit 5").exit_code == 5
    assert named.run("echo $b").output == "3\n"
