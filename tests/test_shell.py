"""`Shell` on real processes: run, wait and limit, live output, what a result says, what is refused."""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import outlast
from outlast import AsyncShell, OutlastError, Shell, Stdin, Task, Waited, errors
from outlast.errors import BadInput, StartFailed, UnknownTask
from outlast.light import fields
from outlast.linux.process import stat_of
from outlast.output import text_stream
from outlast.shell import reader
from outlast.storage import record
from tests.conftest import eventually, prepared_shells, processes_of

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

NAMES = {
    *("task_id", "kind", "status", "reason", "exit_code", "signal", "command", "description", "session", "cwd"),
    *("pid", "pgid", "started_at", "ended_at", "elapsed_ms", "children", "output_file", "pipe_status"),
}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def directory_of(task: Task) -> str:
    return os.path.dirname(task.output_file)


# --- run -----------------------------------------------------------------------------------


def test_a_result_has_every_name_that_others_rely_on(shell, tmp_path):
    before = time.time()
    result = shell.run("echo $$; ps -o pgid= $$", cwd=tmp_path, description="who am I")
    pid, pgid = map(int, result.output.split())
    assert set(fields(result)) >= NAMES
    assert (result.status, result.reason, result.exit_code, result.signal) == ("completed", "exit", 0, None)
    assert (result.pid, result.pgid) == (pid, pgid) == (pid, pid)
    assert (result.kind, result.session, result.description) == ("bash", "default", "who am I")
    assert result.command == "echo $$; ps -o pgid= $$"
    assert result.cwd == str(tmp_path)
    assert result.children == ()
    assert result.pipe_status == (0,)
    assert before - 1 <= result.started_at <= result.ended_at <= time.time() + 1
    assert open(result.output_file).read() == result.output
    assert result.cursor == str(len(result.output))
    assert not result.truncated
    assert result.finished


def test_a_duration_is_as_long_as_the_command(shell):
    result = shell.run("sleep 0.3")
    assert 300 <= result.elapsed_ms < 5000
    assert result.ended_at - result.started_at == pytest.approx(result.elapsed_ms / 1000, abs=0.05)


@pytest.mark.parametrize(
    ("code", "status"), [(0, "completed"), (1, "failed"), (2, "failed"), (137, "failed"), (255, "failed")]
)
def test_an_exit_code_is_the_commands_own(shell, code, status):
    result = shell.run(f"exit {code}")
    assert (result.status, result.reason, result.exit_code, result.signal) == (status, "exit", code, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_told_apart_from_an_exit_code(shell, number):
    result = shell.run(f"kill -{int(number)} $$")
    assert (result.status, result.reason, result.exit_code, result.signal) == ("failed", "signal", None, number)
    assert result.pipe_status is None
    assert result.ended_by is None


def test_a_last_stage_that_died_shows_in_code_and_pipe_status(shell):
    result = shell.run("true | bash -c 'kill -9 $$'")
    assert (result.reason, result.exit_code, result.signal, result.pipe_status) == ("exit", 137, None, (0, 137))


def test_every_stage_of_a_pipe_is_told(shell):
    result = shell.run("(exit 3) | true")
    assert (result.status, result.exit_code, result.pipe_status) == ("completed", 0, (3, 0))


def test_a_pipeline_longer_than_a_record_still_ends(shell):
    result = shell.run(" | ".join(["true"] * 1500), wait=60)
    assert (result.status, result.exit_code) == ("completed", 0)
    assert result.pipe_status in (None, (0,) * 1500)


def test_stdout_and_stderr_come_in_the_order_printed(shell):
    lines = "".join(f"echo o{i}; echo e{i} >&2; " for i in range(20))
    assert shell.run(lines).output == "".join(f"o{i}\ne{i}\n" for i in range(20))


def test_split_keeps_the_streams_apart(shell):
    result = shell.run("echo out; echo err >&2; echo out2", split=True)
    assert (result.stdout, result.stderr) == ("out\nout2\n", "err\n")
    assert result.split
    assert result.output == "out\nout2\nerr\n"


def test_a_child_that_holds_the_pipe_does_not_hold_the_reply(shell):
    began = time.monotonic()
    result = shell.run("sleep 60 & echo $!")
    assert time.monotonic() - began < 10
    child = int(result.output)
    assert result.status == "completed"
    assert result.children == (child,)
    assert not result.closed
    assert alive(child)


def test_watching_what_a_command_left_takes_no_time_of_the_machine(shell):
    """However the end of the command and its last output fell together."""
    results = [shell.run("sleep 60 & head -c 3000000 /dev/zero") for _ in range(8)]

    def ticks():
        guards = [record.guards_of(directory_of(result)) for result in results]
        stats = [stat_of(who.pid) for one in guards for who in (one.supervisor, one.keeper) if who]
        return sum(stat.cpu_ticks for stat in stats if stat)

    before, began = ticks(), time.monotonic()
    eventually(lambda: time.monotonic() > began + 0.5)  # measured, not waited for
    assert ticks() - before < 10


def test_later_output_of_a_child_still_lands_in_the_output(shell, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    result = shell.run(f"(read -r line < {gate}; echo late $line) & echo early")
    assert result.output == "early\n"
    gate.write_text("bird\n")
    eventually(lambda: shell.show(result.task_id).closed)
    assert shell.read(result.task_id).output == "early\nlate bird\n"
    assert shell.show(result.task_id).exit_code == 0


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo a &", "a\n"),
        ("echo a & # and more", "a\n"),
        ("echo a # a comment", "a\n"),
        ("echo a; # a | comment", "a\n"),
        ("cat <<E\nhello\nE", "hello\n"),
        ("cat <<E\nhello\nE\n", "hello\n"),
        ("cat <<'E' | tr a-z A-Z\nhello $HOME\nE", "HELLO $HOME\n"),
        ("echo a \\", "a \\\n"),
        ("echo a\\\n b", "a b\n"),
        ("echo '\n'", "\n\n"),
        ("echo $#$1", "0\n"),
        ("echo $0", "bash\n"),
        ('echo "$(echo nested)"', "nested\n"),
        ("echo 'quo\"te'", 'quo"te\n'),
        ("\n\n  echo indented\n", "indented\n"),
        ("echo \u00e9\U0001f600", "\u00e9\U0001f600\n"),
        ("echo -n no newline", "no newline"),
        (":", ""),
    ],
)
def test_the_text_survives_as_it_is(shell, command, output):
    result = shell.run(command)
    eventually(lambda: shell.show(result.task_id).closed)
    assert shell.read(result.task_id).output == output
    assert result.exit_code == 0
    assert result.command == command


@pytest.mark.parametrize("command", ["cat <<E\nhello", "cat <<E | cat\nhello\n"])
def test_an_unterminated_here_document_ends_with_the_text(shell, command):
    result = shell.run(command)
    assert "hello" in result.output
    assert "outlast" not in result.output
    assert result.exit_code == 0


def test_an_error_shows_the_users_text_and_its_line(shell):
    assert shell.run("\n\nnonexisting_cmd").output == "bash: line 3: nonexisting_cmd: command not found\n"
    broken = shell.run("echo 'unclosed | cat")
    assert broken.exit_code == 2
    assert "outlast" not in broken.output


def test_a_command_of_the_greatest_length_runs_and_one_more_byte_does_not(shell):
    longest = "echo ok #" + "x" * ((1 << 20) - 9)
    assert shell.run(longest).output == "ok\n"
    with pytest.raises(BadInput, match="script file"):
        shell.run(longest + "x")


def test_another_shell_runs_it(shell):
    result = shell.run("echo ${0##*/}; [ -z ${BASH_VERSION:-} ] && echo plain", shell="/bin/sh")
    assert result.output.endswith("plain\n") or os.path.realpath("/bin/sh").endswith("bash")
    assert result.shell == "/bin/sh"
    assert shell.run("false | true", shell="sh").pipe_status is None


# --- environment ---------------------------------------------------------------------------


def test_a_machine_gets_no_pager_no_editor_and_no_colour(shell, monkeypatch):
    for name, value in {"PAGER": "less", "EDITOR": "vi", "FORCE_COLOR": "1", "TERM": "xterm", "LS_COLORS": "x"}.items():
        monkeypatch.setenv(name, value)
    result = shell.run(
        'echo "$PAGER $GIT_PAGER $EDITOR $VISUAL $TERM $NO_COLOR ${FORCE_COLOR-unset} ${LS_COLORS-unset}"'
    )
    assert result.output == "cat cat true true dumb 1 unset unset\n"


def test_what_the_caller_sets_wins(shell):
    env = {"PAGER": "more", "TERM": "xterm", "MINE": "a b\nc", "EMPTY": ""}
    result = shell.run('echo "$PAGER $TERM"; echo "$MINE${EMPTY-unset}"', env=env)
    assert result.output == "more xterm\na b\nc\n"


def test_colour_can_be_asked_for(shell):
    assert shell.run("echo ${FORCE_COLOR-unset} ${NO_COLOR-unset}", env={"FORCE_COLOR": "1"}).output == "1 unset\n"


def test_a_task_knows_its_id_and_its_session(shell):
    result = shell.run("echo $OUTLAST_TASK_ID $OUTLAST_SESSION", env={"OUTLAST_TASK_ID": "bash-00000000"})
    assert result.output == f"{result.task_id} default\n"


def test_the_directory_is_where_it_runs(shell, tmp_path):
    here = tmp_path / "a b"
    here.mkdir()
    assert shell.run("pwd; echo $PWD", cwd=here).output == f"{here}\n{here}\n"
    assert shell.run("pwd").output == os.getcwd() + "\n"


def test_the_umask_is_the_callers(shell, tmp_path):
    old = os.umask(0o027)
    try:
        assert shell.run("umask").output == "0027\n"
    finally:
        os.umask(old)


def test_dispositions_are_as_a_shell_expects(shell):
    word, *masks = shell.run("yes | head -1; sed -nE 's/^Sig(Ign|Blk):\\s*//p' /proc/self/status").output.split()
    assert word == "y"
    # 32 and 33 are the C library's own, and it hands them on ignored.
    assert [int(mask, 16) & ~(0b11 << 31) for mask in masks] == [0, 0]


def test_the_command_inherits_no_descriptor(shell):
    with open("/dev/null") as leak:
        os.set_inheritable(leak.fileno(), True)
        result = shell.run("ls -l /proc/self/fd | grep -o '[0-9]* ->' ")
    # 3 is the directory that ls itself reads.
    assert result.output.split() == ["0", "->", "1", "->", "2", "->", "3", "->"]


def test_the_text_is_in_no_argv_of_ours(shell):
    task = shell.start("sleep 60; : canary-$((40 + 2))")
    words = "canary-$"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            argv = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        assert words.encode() not in argv
    shell.kill(task.task_id)


# --- wait and limit ------------------------------------------------------------------------


def test_a_short_wait_returns_running_and_the_task_goes_on(shell, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    result = shell.run(f"echo first; read -r line < {gate}; echo $line; exit 4", wait=0.3)
    assert (result.status, result.reason, result.exit_code, result.ended_at) == ("running", None, None, None)
    assert result.output == "first\n"
    assert alive(result.pid)
    gate.write_text("second\n")
    ended = shell.wait(result.task_id, timeout=30)
    assert (ended.status, ended.exit_code) == ("failed", 4)
    assert shell.read(result.task_id).output == "first\nsecond\n"


def test_no_wait_at_all(shell):
    began = time.monotonic()
    result = shell.run("sleep 60", wait=0)
    assert result.status == "running"
    assert time.monotonic() - began < 10


def test_a_limit_ends_the_whole_tree_and_says_timeout(shell):
    result = shell.run("echo before; setsid sleep 61 & sleep 62; echo never", limit=0.4)
    assert (result.status, result.reason) == ("killed", "timeout")
    assert result.output == "before\n"
    assert "limit of 0.4 s" in result.ended_by
    assert 400 <= result.elapsed_ms < 10_000
    eventually(lambda: shell.show(result.task_id).closed)
    assert shell.show(result.task_id).children == ()


def test_a_limit_holds_in_the_background(shell):
    task = shell.start("sleep 60", limit=0.3)
    ended = shell.wait(task.task_id, timeout=30)
    assert (ended.status, ended.reason, ended.signal) == ("killed", "timeout", signal.SIGTERM)


def test_a_limit_that_was_asked_for_holds_after_the_wait(shell):
    result = shell.run("sleep 60", wait=0.1, limit=0.5)
    assert result.status == "running"
    assert shell.wait(result.task_id, timeout=30).reason == "timeout"


def test_a_limit_ends_what_ignores_it(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_KILL_GRACE_S", "0.2")
    with Shell.open(home=home) as shell:
        result = shell.run("trap '' TERM; while :; do sleep 60; done", limit=0.3)
        assert (result.status, result.reason, result.signal) == ("killed", "timeout", signal.SIGKILL)


def test_the_default_limit_strikes_only_in_the_foreground(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_FOREGROUND_LIMIT_S", "0.4")
    with Shell.open(home=home) as shell:
        ended = shell.run("echo out; sleep 60")
        assert (ended.status, ended.reason, ended.output) == ("killed", "timeout", "out\n")
        assert "default limit" in str(ended.ended_by)
        # Not waited for as long: nobody asked for a limit, so there is none.
        moved = shell.run("sleep 0.8; echo done", wait=0.1)
        assert moved.status == "running"
        assert shell.wait(moved.task_id, timeout=30).status == "completed"
        background = shell.start("sleep 0.8")
        assert shell.wait(background.task_id, timeout=30).status == "completed"


def test_a_wait_larger_than_allowed_is_cut_not_refused(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_MAX_WAIT_S", "0.3")
    with Shell.open(home=home) as shell:
        result = shell.run("sleep 60", wait=1e9, limit=50)
        assert result.status == "running"
        shell.kill(result.task_id)


@pytest.mark.parametrize("limit", [3e6, 1e12, 1e300, float("inf")])
def test_a_limit_longer_than_any_clock_is_no_limit(shell, limit):
    result = shell.run("echo a; sleep 0.1; exit 3", limit=limit)
    assert (result.status, result.exit_code, result.output) == ("failed", 3, "a\n")
    assert not os.path.exists(os.path.join(directory_of(result), "trouble.log"))


@pytest.mark.parametrize("timeout", [3e6, 1e12, 1e300, float("inf")])
def test_a_wait_longer_than_any_clock_waits(shell, timeout):
    task = shell.start("sleep 0.2; exit 3")
    assert shell.wait(task.task_id, timeout=timeout).exit_code == 3
    task = shell.start("sleep 0.2; exit 3")
    assert list(shell.follow(task.task_id, timeout=timeout)) == []
    assert shell.show(task.task_id).exit_code == 3


def test_a_wait_that_runs_out_returns_the_task_as_it_is(shell):
    task = shell.start("sleep 60")
    began = time.monotonic()
    assert shell.wait(task.task_id, timeout=0.2).status == "running"
    assert 0.2 <= time.monotonic() - began < 10


def test_a_waiter_learns_of_the_end_in_milliseconds(shell):
    late = []
    for _ in range(5):
        task = shell.start("sleep 0.2")
        ended = shell.wait(task.task_id)
        late.append(time.time() - ended.ended_at)
    assert min(late) < 0.05


def test_any_number_of_threads_wait_for_one_task(shell):
    task = shell.start("sleep 0.5; exit 5")
    codes: list[int | None] = []
    threads = [threading.Thread(target=lambda: codes.append(shell.wait(task.task_id).exit_code)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert codes == [5] * 20


def test_waiting_for_what_has_ended_returns_at_once(shell):
    result = shell.run("exit 6")
    assert shell.wait(result.task_id).exit_code == 6


# --- live ----------------------------------------------------------------------------------


def test_output_comes_to_the_callback_while_the_command_runs(shell, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    seen = []

    def hear(piece):
        seen.append(piece.data)
        if piece.data == b"one\n":
            gate.write_text("go\n")

    result = shell.run(f"echo one; read -r line < {gate}; echo two", on_output=hear, wait=60)
    assert b"".join(seen) == b"one\ntwo\n"
    assert len(seen) >= 2
    assert result.output == "one\ntwo\n"


def test_the_callback_sees_both_streams_of_a_split_task(shell):
    seen: dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def hear(piece):
        seen[piece.stream] += piece.data

    shell.run("echo out; echo err >&2", split=True, on_output=hear)
    assert seen == {"stdout": b"out\n", "stderr": b"err\n"}


def test_a_callback_does_not_wait_for_a_child_that_stays(shell):
    seen = []
    result = shell.run("sleep 60 & echo here", on_output=lambda piece: seen.append(piece.data))
    assert b"".join(seen) == b"here\n"
    assert result.status == "completed"


def test_an_error_in_a_callback_is_the_callers_and_the_task_goes_on(shell, tmp_path):
    done = tmp_path / "done"

    def hear(piece):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        shell.run(f"echo a; sleep 0.2; touch {done}", on_output=hear)
    eventually(done.exists)
    assert eventually(lambda: shell.list(status="completed"))


def test_following_yields_every_byte_to_the_end(shell):
    task = shell.start("for i in 1 2 3; do echo $i; sleep 0.05; done")
    assert b"".join(piece.data for piece in shell.follow(task.task_id)) == b"1\n2\n3\n"
    assert shell.show(task.task_id).closed


def test_following_starts_at_a_cursor(shell):
    result = shell.run("echo one; echo two")
    assert b"".join(piece.data for piece in shell.follow(result.task_id, cursor="4")) == b"two\n"
    assert list(shell.follow(result.task_id, cursor=result.cursor)) == []


def test_following_stops_when_its_time_is_over(shell):
    task = shell.start("echo a; sleep 60")
    began = time.monotonic()
    assert b"".join(piece.data for piece in shell.follow(task.task_id, timeout=0.5)) == b"a\n"
    assert 0.4 <= time.monotonic() - began < 10


def test_a_flood_does_not_hide_the_deadline(shell):
    task = shell.start("yes", limit=60)
    eventually(lambda: os.path.getsize(task.output_file) > 100_000)
    began = time.monotonic()
    size = sum(len(piece.data) for piece in shell.follow(task.task_id, timeout=0.3))
    assert size > 100_000
    assert time.monotonic() - began < 20
    shell.kill(task.task_id, grace=0)


# --- start ---------------------------------------------------------------------------------


def test_start_returns_a_running_task_that_is_on_disk(shell):
    began = time.monotonic()
    task = shell.start("sleep 60", description="later")
    assert time.monotonic() - began < 10
    assert task.status == "running"
    assert task.limit is None
    assert alive(task.pid)
    assert os.path.exists(os.path.join(directory_of(task), "launch.json"))
    assert shell.show(task.task_id).description == "later"


def test_a_task_goes_on_without_its_shell(home):
    with Shell.open(home=home) as shell:
        task = shell.start("sleep 0.3; echo done; exit 7")
    with Shell.open(home=home) as shell:
        assert shell.wait(task.task_id, timeout=30).exit_code == 7
        assert shell.read(task.task_id).output == "done\n"


def test_two_shells_see_the_same_truth(home):
    with Shell.open(home=home) as one, Shell.open(home=home) as two:
        task = one.start("sleep 60")
        assert two.show(task.task_id).status == "running"
        two.kill(task.task_id)
        assert one.show(task.task_id).status == "killed"


def test_a_shell_is_shared_by_threads(shell):
    results: dict[int, str] = {}

    def work(number):
        results[number] = shell.run(f"echo {number}; exit {number}").output

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: f"{number}\n" for number in range(16)}
    assert sorted(task.exit_code for task in shell.list()) == list(range(16))


def test_a_host_that_forks_can_start_tasks_in_the_child(home):
    with Shell.open(home=home) as shell:
        shell.run("true")
        pid = os.fork()
        if not pid:
            try:
                os._exit(shell.run("exit 9").exit_code or 0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        assert shell.run("echo still here").output == "still here\n"


# --- refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"command": ""}, "empty"),
        ({"command": " \n\t"}, "empty"),
        ({"command": "echo a\0b"}, "NUL"),
        ({"command": b"echo"}, "text"),
        ({"command": "echo \ud800"}, "surrogate"),
        ({"cwd": "/nowhere/at/all"}, "does not exist"),
        ({"cwd": "/etc/passwd"}, "not a directory"),
        ({"cwd": "/tmp\0"}, "NUL"),
        ({"shell": "/nowhere/bash"}, "no shell"),
        ({"shell": "/etc/passwd"}, "no shell"),
        ({"shell": "no-such-shell"}, "no shell"),
        ({"limit": -1}, "limit"),
        ({"limit": 0}, "limit"),
        ({"limit": float("nan")}, "limit"),
        ({"limit": "10"}, "limit"),
        ({"wait": -1}, "wait"),
        ({"wait": "soon"}, "wait"),
        ({"env": {"A=B": "c"}}, "name"),
        ({"env": {"": "c"}}, "name"),
        ({"env": {"A": "b\0c"}}, "NUL"),
        ({"env": {"A": 1}}, "text"),
        ({"description": "x" * 2001}, "2001"),
        ({"stdin": 5}, "not int"),
    ],
    ids=str,
)
def test_bad_input_gets_one_sentence_and_leaves_nothing_behind(shell, home, how, says):
    with pytest.raises(BadInput) as caught:
        shell.run(**{"command": "true", **how})
    message = caught.value.message
    assert says in message
    assert "\n" not in message
    assert message.endswith(".")
    assert os.listdir(os.path.join(home, "tasks")) == os.listdir(os.path.join(home, "staging")) == []


def test_an_unknown_policy_and_a_bad_session_are_refused(home):
    with pytest.raises(BadInput, match="policy"):
        Shell.open(home=home, policy="whatever")
    for name in ("", " ", "a/b", "../x", "x" * 65, "-a", "a\nb"):
        with pytest.raises(BadInput, match="session"):
            Shell.open(home=home, session=name or " ")


def test_a_variable_too_long_for_the_kernel_is_told(shell):
    with pytest.raises(StartFailed, match="too long"):
        shell.run("true", env={"HUGE": "x" * 200_000})
    assert not shell.list()


@pytest.mark.parametrize("name", ["broken", "\u00e9\u00e8\u00ea" * 20, "x" * 200], ids=["short", "accents", "long"])
def test_a_shell_that_the_kernel_refuses_is_told(shell, tmp_path, name):
    broken = tmp_path / name
    broken.write_bytes(b"#!/nowhere/at/all\n")
    broken.chmod(0o755)
    result = shell.run("true", shell=str(broken))
    assert (result.status, result.reason, result.exit_code) == ("failed", "spawn-error", None)
    assert "could not be started" in result.error
    assert not os.path.exists(os.path.join(directory_of(result), "trouble.log"))


def test_a_directory_that_goes_away_is_told(shell, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    here.chmod(0o700)
    task = shell.run("rmdir $PWD; cd /; true", cwd=here)
    assert task.exit_code == 0
    with pytest.raises(BadInput, match="does not exist"):
        shell.run("true", cwd=here)


def test_a_state_directory_that_cannot_be_written_is_told(home):
    with Shell.open(home=home) as shell:
        os.rmdir(os.path.join(home, "staging"))
        with pytest.raises(StartFailed, match="cannot be prepared"):
            shell.run("true")


def test_reading_and_waiting_for_what_is_unknown_is_an_error(shell):
    for ask in (shell.read, shell.wait, shell.show, shell.kill, lambda i: list(shell.follow(i)), shell.send):
        with pytest.raises(UnknownTask, match="no task 'bash-01234567'"):
            ask("bash-01234567")


def test_a_task_that_goes_away_while_it_is_waited_for_is_an_error_of_ours(shell):
    """Somebody cleans up between the end of a task and the look at it."""
    task = shell.start("sleep 60")
    errors: list[BaseException] = []

    def wait():
        try:
            list(shell.follow(task.task_id))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    os.rename(directory_of(task), directory_of(task) + ".gone")
    try:
        os.kill(task.pid, signal.SIGKILL)
        thread.join(30)
        assert not thread.is_alive()
        assert [type(error) for error in errors] == [UnknownTask]
    finally:
        eventually(lambda: not alive(task.pid))
        os.rename(directory_of(task) + ".gone", directory_of(task))


def test_a_task_that_goes_away_as_it_is_opened_to_follow_is_an_error_of_ours(shell, monkeypatch):
    task = shell.run("true")
    real = text_stream.LiveRedactor

    def vanish(*given):
        os.rename(directory_of(task), directory_of(task) + ".gone")
        return real(*given)

    monkeypatch.setattr(reader, "LiveRedactor", vanish)
    try:
        with pytest.raises(UnknownTask):
            list(shell.follow(task))
    finally:
        os.rename(directory_of(task) + ".gone", directory_of(task))


def test_every_error_of_ours_has_a_code(shell):
    with pytest.raises(OutlastError) as caught:
        shell.show("nothing")
    assert caught.value.code == "unknown-task"


# --- a warm task -----------------------------------------------------------------------------


def staged(home):
    return os.listdir(os.path.join(home, "staging"))


def wait_prepared(shell):
    """Wait until as many shells are prepared as there will be, and return the name of the next one's directory."""
    return os.path.basename(prepared_shells(shell)[0].staged)


def test_the_next_task_is_prepared_and_changes_nothing(shell):
    """It is used, it is not listed, and what it runs in is what the launch says."""
    for _ in range(2):
        shell.run("true")
    name = wait_prepared(shell)
    assert [task.task_id for task in shell.list() if name.startswith(task.task_id)] == []
    result = shell.run("echo $OUTLAST_TASK_ID $SECONDS $PWD; umask; ls /proc/$$/fd")
    assert name.startswith(result.task_id), "the prepared one was not used"
    task_id, seconds, cwd = result.output.splitlines()[0].split()
    assert (task_id, seconds, cwd) == (result.task_id, "0", os.getcwd())
    assert result.output.splitlines()[2:] == ["0", "1", "2"]


def test_a_prepared_shell_is_not_used_for_what_is_unlike_it(shell, tmp_path):
    for _ in range(2):
        shell.run("true")
    name = wait_prepared(shell)
    other = shell.run("pwd; echo $A", cwd=tmp_path, env={"A": "b"})
    assert other.output == f"{tmp_path}\nb\n"
    assert not name.startswith(other.task_id)
    assert shell.run("echo ${A-none}").output == "none\n"


def test_a_prepared_shell_that_was_killed_or_removed_costs_nothing(shell, home):
    for kill in (True, False):
        for _ in range(2):
            shell.run("true")
        wait_prepared(shell)
        paths = [os.path.join(home, "staging", name) for name in staged(home)]
        if kill:
            killed = [pid for pid, what in processes_of(home).items() if "/staging/" in what]
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            # Until they are reaped: while they die, what they hold is open, and they hear what they cannot do.
            eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in killed))  # noqa: B023
        else:
            for path in paths:
                os.rename(path, path + ".away")
        assert shell.run("echo still").output == "still\n"


def test_a_prepared_shell_leaves_with_its_host(home):
    with Shell.open(home=home) as shell:
        for _ in range(2):
            shell.run("true")
        wait_prepared(shell)
    eventually(lambda: not staged(home))
    eventually(lambda: not processes_of(home))


def test_a_fork_of_the_host_has_no_part_in_its_prepared_shell(home):
    with Shell.open(home=home) as shell:
        for _ in range(2):
            shell.run("true")
        name = wait_prepared(shell)
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                shell.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert shell.run("echo mine").output == "mine\n"
        assert any(name.startswith(task.task_id) for task in shell.list())


def test_the_first_command_finds_a_prepared_shell(home, monkeypatch):
    """It begins in the state that it would have without one: that of the moment of the command, not of the opening."""
    with Shell.open(home=home) as shell:
        name = wait_prepared(shell)
        assert shell.list() == []
        assert name.startswith(shell.run("cd /; a=1").task_id), "the prepared one was not used"
        assert shell.run("echo $PWD$a").output == "/1\n"
    with Shell.open(home=home) as shell:
        name = wait_prepared(shell)
        monkeypatch.setenv("SET_LATER", "seen")
        result = shell.run("echo $SET_LATER")
        assert not name.startswith(result.task_id)
        assert result.output == "seen\n"
    assert os.listdir(os.path.join(home, "sessions")) == []
    eventually(lambda: not staged(home))


def test_opening_a_shell_begins_no_session_and_runs_nothing(home, tmp_path, monkeypatch):
    with Shell.open(home=home, session="new") as shell:
        assert eventually(lambda: shell.starter._preparer._due == float("inf"))
        assert os.listdir(os.path.join(home, "sessions")) == []
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env"))
    (tmp_path / "env").write_text(f"touch {tmp_path}/ran\n")
    with Shell.open(home=home) as shell:
        assert eventually(lambda: shell.starter._preparer._due == float("inf"))
        assert not (tmp_path / "ran").exists()
        shell.run("true")
        assert (tmp_path / "ran").exists()


def test_a_fork_of_a_host_that_ran_nothing_has_a_state_of_its_own(home):
    with Shell.open(home=home) as shell:
        wait_prepared(shell)
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                shell.run("a=child")
            os._exit(0)
        os.waitpid(pid, 0)
        assert shell.run("echo ${a-none}").output == "none\n"


def test_a_fork_while_a_shell_is_prepared_can_run_commands(home):
    """It has copies of the locks of the thread that prepares, which nothing will unlock."""
    with Shell.open(home=home) as shell:
        wait_prepared(shell)
        local = shell.executor.local  # type: ignore[attr-defined]
        with local.prepared._lock, shell.starter._preparer._changed:
            pid = os.fork()
            if not pid:
                with contextlib.suppress(BaseException):
                    shell.run("true")
                    shell.close()
                    os._exit(0)
                os._exit(1)
        assert eventually(lambda: [end for end in [os.waitpid(pid, os.WNOHANG)] if end[0]]) == [(pid, 0)]


def test_commands_at_once_find_as_many_prepared_shells(home):
    with Shell.open(home=home) as shell, ThreadPoolExecutor(8) as threads:
        for _ in range(2):
            list(threads.map(shell.run, ["true"] * 8))
        names = [os.path.basename(one.published) for one in prepared_shells(shell)]
        assert len(names) == 4
        assert {task.task_id for task in threads.map(shell.run, ["true"] * 4)} == set(names)


def test_a_shell_that_is_dropped_takes_its_thread_and_prepared_shells_with_it(home):
    before = threading.active_count()
    shell = Shell.open(home=home)
    shell.run("true")
    wait_prepared(shell)
    del shell
    gc.collect()
    eventually(lambda: threading.active_count() == before)
    eventually(lambda: not staged(home))


def test_a_host_can_do_without_prepared_shells(home):
    with Shell.open(home=home, prepare=False) as shell:
        for _ in range(3):
            shell.run("true")
        assert not shell.executor.has_prepared()
        assert shell.starter._preparer._thread is None


@pytest.mark.parametrize(
    ("verb", "wrong", "hint"),
    [
        ("run", "limt", "did you mean 'limit'?"),
        ("run", "on_outptu", "did you mean 'on_output'?"),
        ("start", "startup_wai", "did you mean 'startup_wait'?"),
        ("read", "tial", "did you mean 'tail'?"),
        ("wait", "untli", "did you mean 'until'?"),
        ("list", "xyzzy", "it has ended_after, kind, most, session, status."),
    ],
)
def test_a_misspelt_option_names_the_method_and_the_nearest_one(shell, verb, wrong, hint):
    given = [] if verb == "list" else ["true"]
    with pytest.raises(TypeError) as caught:
        getattr(shell, verb)(*given, **{wrong: 3})
    assert str(caught.value) == f"Shell.{verb}() has no option {wrong!r}; {hint}"
    assert shell.list() == []


def test_a_task_stands_for_its_id(shell):
    task = shell.run("echo one", name="first")
    later = shell.start("cat", after=[task], stdin=Stdin(open=True))
    assert shell.read(task).output == "one\n"
    assert shell.show(task).task_id == task.task_id
    shell.send(later, "two\n")
    assert shell.wait(later, timeout=30, until="two").met
    assert [piece.data for piece in shell.follow(task)] == [b"one\n"]
    assert shell.kill(later).task_id == later.task_id
    assert shell.remove(later).task_id == later.task_id


def test_a_start_has_one_type_however_it_waits(shell):
    plain, ready = shell.start("sleep 30"), shell.start("echo up; exec sleep 30", ready="up")
    assert type(plain) is type(ready) is Waited
    assert (plain.met, plain.matched) == (False, None)
    assert (ready.met, ready.matched) == (True, "up")
    shell.kill_all([plain, ready])


def test_a_task_as_a_dictionary_has_the_names_of_json(shell):
    result = shell.run("echo one")
    assert result.to_dict() == fields(result)
    assert json.loads(json.dumps(result.to_dict()))["output"] == "one\n"


def test_what_is_exported(shell):
    for name in outlast.__all__:
        assert getattr(outlast, name).__name__ == name

    def codes(values):
        return {one.code for one in values if isinstance(one, type) and issubclass(one, OutlastError)}

    exported = [getattr(outlast, name) for name in outlast.__all__]
    assert codes(vars(errors).values()) - codes(exported) == {"session-moved"}  # never leaves the shell
    with pytest.raises(AttributeError, match="no attribute 'Shel'"):
        outlast.Shel  # noqa: B018


def test_both_shells_have_the_same_methods():
    def public(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(AsyncShell) == public(Shell)
    for name in sorted(public(Shell) - {"agent", "open"}):
        plain, other = (inspect.signature(getattr(kind, name)).parameters for kind in (Shell, AsyncShell))
        assert set(other) | ({"timeout"} if name == "events" else set()) == set(plain), name
