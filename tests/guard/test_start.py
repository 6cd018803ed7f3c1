"""From a launch description to a command that has exactly what was described."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from outlast.guard.client import encode_launch
from tests.guard.harness import Item, Launcher, find_words, ignore_signals, wait_until


@pytest.mark.parametrize("code", [0, 1, 7, 127, 255])
def test_exit_code(launcher: Launcher, code: int) -> None:
    task = launcher.start(f"exit {code}")
    assert task.run() == ["exit", str(code)]
    found = task.slot("code")
    assert found["exit"] == code
    assert 0 <= found["cpu"] < 5
    outcome = task.slot("outcome")
    assert outcome["alone"] is True
    assert "unheard" not in outcome
    assert 0 <= outcome["elapsed"] < 30


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_signal(launcher: Launcher, number: int) -> None:
    task = launcher.start(f"ulimit -c 0; kill -{int(number)} $$")
    assert task.run() == ["signal", str(int(number))]
    assert task.slot("code")["signal"] == number


def test_messages_and_record_name_the_same_processes(launcher: Launcher) -> None:
    task = launcher.start("read line", ("stdin", "open"))
    pid, tick, started = task.expect("started")
    guards = task.slot("guards")
    assert guards["command"] == [int(pid), int(tick)]
    assert guards["started"] == float(started)
    assert guards["pidns"] == os.stat("/proc/self/ns/pid").st_ino
    assert guards["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert Path(f"/proc/{guards['supervisor'][0]}/comm").read_text() == "outlast-sup\n"
    assert Path(f"/proc/{guards['keeper'][0]}/comm").read_text() == "outlast-keeper\n"
    assert task.is_alive()
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"x\n")
    assert task.expect("ended") == ["exit", "0"]
    task.wait_closed()


def test_the_caller_that_went_away_is_noted(launcher: Launcher) -> None:
    task = launcher.start("read line; exit 3", ("stdin", "open"), hang_up=True)
    wait_until(task.directory.exists, "the task was published")
    with open(task.directory / "stdin", "wb") as pipe:
        pipe.write(b"\n")
    wait_until(lambda: not task.is_alive(), "the task ended")
    assert task.slot("code")["exit"] == 3
    assert task.slot("outcome")["unheard"] is True


# --- what is refused, and that a refusal leaves nothing ---


@pytest.mark.parametrize(
    ("items", "number", "words"),
    [
        ([("cwd", "/no/such/place")], errno.ENOENT, "/no/such/place"),
        ([("program", "/no/such/program")], errno.ENOENT, "/no/such/program"),
        ([("program", "/etc/passwd")], errno.EACCES, "/etc/passwd"),
        ([("stdin", "file /no/such/file")], errno.ENOENT, "/no/such/file"),
        ([("hold", 999)], errno.EBADF, "descriptor"),
        ([("cgroup", "/no/such/group")], errno.ENOENT, "/no/such/group"),
        ([("landlock", 2)], errno.EINVAL, "landlock"),
        ([("nonsense", "1")], errno.EINVAL, "nonsense: unknown key"),
        ([("head", 0)], errno.EINVAL, "head"),
        ([("rlimit", "7 unlimited")], errno.EINVAL, "rlimit"),
    ],
)
def test_refusal(launcher: Launcher, items: list[Item], number: int, words: str) -> None:
    task = launcher.start("true", *items)
    found = task.expect("refused")
    assert int(found[0]) == number
    assert words in found[1]
    assert task.receive() == ("", [])
    assert not task.directory.exists()
    if (
        number not in (errno.EINVAL, errno.EBADF) or words == "rlimit"
    ):  # those come before the lock: the directory is still the caller's
        assert not task.staging.exists()


def test_a_place_that_is_taken_is_refused(launcher: Launcher) -> None:
    (launcher.place / "tasks" / "t0").mkdir()
    (launcher.place / "tasks" / "t0" / "file").touch()
    task = launcher.start("touch started")
    assert int(task.expect("refused")[0]) == errno.EEXIST
    assert not task.staging.exists()
    assert not (launcher.place / "started").exists()


def test_a_lock_that_is_held_is_refused_and_its_directory_stays(launcher: Launcher) -> None:
    lines = launcher.describe("held", "true", [])
    staging = launcher.place / "staging" / "held"
    with open(staging / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        task = launcher.start_bytes(encode_launch(lines), "held")
        assert int(task.expect("refused")[0]) == errno.EAGAIN
        assert staging.exists()


def test_a_lock_that_the_caller_holds_can_be_handed_over(launcher: Launcher) -> None:
    lines = launcher.describe("t0", "exit 4", [])
    with open(launcher.place / "staging" / "t0" / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launch = encode_launch([*lines, ("lock", lock.fileno())])
        task = launcher.start_bytes(launch, "t0", (lock.fileno(),))
        task.expect("started")
    assert task.expect("ended") == ["exit", "4"]
    task.wait_closed()


def test_a_program_that_cannot_be_executed_is_no_exit_code(launcher: Launcher) -> None:
    script = launcher.place / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    task = launcher.start("true", ("program", str(script)))
    assert task.run() == ["spawn", str(errno.ENOENT)]
    assert task.slot("code") == {"spawn": f"No such file or directory: {script}"[:79]}


def test_usage() -> None:
    for words in ([], ["x", "-"], ["0", "x"], ["0", ""], ["--check"]):
        assert subprocess.run([*find_words(), *words], stdin=subprocess.DEVNULL, capture_output=True).returncode == 2, (
            words
        )
    ran = subprocess.run([*find_words(), "--version"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "outlast-guard 1\n")


# --- standard input ---


def test_no_input(launcher: Launcher) -> None:
    task = launcher.start("cat; echo $?")
    task.run()
    assert task.output() == b"0\n"


@pytest.mark.parametrize("size", [0, 3, 3_000_000])
def test_input_text(launcher: Launcher, size: int) -> None:
    data = os.urandom(size)
    task = launcher.start("cat", ("stdin", "text"), ("stdin-text", data))
    task.run()
    assert task.output() == data


def test_input_file(launcher: Launcher) -> None:
    data = os.urandom(100_000)
    (launcher.place / "data").write_bytes(data)
    task = launcher.start("cat", ("stdin", f"file {launcher.place}/data"))
    task.run()
    assert task.output() == data


def test_open_input_stays_open_between_writers_until_its_end(launcher: Launcher) -> None:
    task = launcher.start("cat", ("stdin", "open"))
    task.expect("started")
    for word in (b"one ", b"two"):
        with open(task.directory / "stdin", "wb") as pipe:
            pipe.write(word)
    wait_until(lambda: task.output() == b"one two", "both were read")
    assert task.is_alive()
    (task.directory / "stdin.eof").touch()
    with open(task.directory / "wake", "wb") as wake:
        wake.write(b".")
    assert task.expect("ended") == ["exit", "0"]
    task.wait_closed()


# --- what else the command is given ---


def test_environment_arguments_and_directory(launcher: Launcher) -> None:
    odd = "a b\n'\"\\$x \udcff"
    task = launcher.start(
        None,
        ("program", "/usr/bin/python3"),
        ("arg", "called-so"),
        ("arg", "-Ic"),
        ("arg", "import os,sys; print([sys.argv[1:], dict(os.environ), os.getcwd()])"),
        ("arg", odd),
        ("env", f"ODD={odd}"),
        ("cwd", "/usr"),
    )
    task.run()
    words, env, cwd = eval(task.output())
    assert (words, env["ODD"], cwd) == ([odd], odd, "/usr")
    assert set(env) <= {"ODD", "LC_CTYPE"}  # which Python itself sets


def test_the_command_holds_no_other_descriptor(launcher: Launcher) -> None:
    task = launcher.start("ls /proc/self/fd; readlink /proc/$$/fd/*")
    task.run()
    lines = task.output().decode().split("\n")
    assert lines[:4] == ["0", "1", "2", "3"]  # 3 is of ls
    assert lines[4] == "/dev/null"
    assert lines[5] == lines[6]


def test_inherited_descriptors_even_when_their_numbers_cross(launcher: Launcher) -> None:
    one, two = os.memfd_create("one"), os.memfd_create("two")
    crossed: list[Item] = [("fd", f"{one} inherit {two}"), ("fd", f"{two} inherit {one}")]
    usual: list[Item] = [("fd", "0 stdin"), ("fd", "1 stdout"), ("fd", "2 stderr")]
    task = launcher.start(f"echo first >&{one}; echo second >&{two}", *usual, *crossed, fds=(one, two))
    assert task.run() == ["exit", "0"]
    assert os.pread(two, 99, 0) == b"first\n"
    assert os.pread(one, 99, 0) == b"second\n"
    os.close(one)
    os.close(two)


def test_umask_niceness_and_limits(launcher: Launcher) -> None:
    rlimit = f"{resource.RLIMIT_NOFILE} 50 60"
    task = launcher.start("umask; nice; ulimit -Sn; ulimit -Hn", ("umask", "027"), ("nice", "7"), ("rlimit", rlimit))
    task.run()
    assert task.output() == b"0027\n7\n50\n60\n"


def test_signals_are_as_a_new_program_expects(launcher: Launcher) -> None:
    launcher.preexec = ignore_signals
    task = launcher.start("grep -E 'Sig(Blk|Ign)' /proc/self/status")
    task.run()
    assert [int(line.split()[1], 16) for line in task.output().splitlines()] == [0, 0]


def test_a_session_of_its_own(launcher: Launcher) -> None:
    task = launcher.start("cut -d' ' -f5,6 /proc/$$/stat; echo $$")
    task.run()
    *ids, pid = task.output().split()
    assert ids == [pid, pid]


def test_names_to_remove_are_gone_when_the_command_runs(launcher: Launcher) -> None:
    lines = launcher.describe("t0", "ls tasks/t0", [("remove", "secret")])
    (launcher.place / "staging" / "t0" / "secret").write_text("x")
    task = launcher.start_bytes(encode_launch(lines), "t0")
    task.run()
    assert not (task.directory / "secret").exists()


def test_no_new_privileges_and_seccomp(launcher: Launcher) -> None:
    allow_all = (0x06).to_bytes(2, "little") + b"\0\0" + (0x7FFF0000).to_bytes(4, "little")
    task = launcher.start("grep -E 'NoNewPrivs|^Seccomp:' /proc/self/status", ("seccomp", allow_all))
    task.run()
    assert task.output().split() == [b"NoNewPrivs:", b"1", b"Seccomp:", b"2"]


def test_capabilities_are_dropped(launcher: Launcher) -> None:
    task = launcher.start("grep -E 'Cap(Eff|Prm|Amb)' /proc/self/status", ("drop-capabilities", 1))
    task.run()
    assert {line.split()[1] for line in task.output().splitlines()} == {b"0" * 16}


# --- a prepared shell ---

WAITS = 'echo r >&3; exec 3>&-; read -r line <&4 || exit 9; exec 4<&-; eval "$line"'
PREPARED: list[Item] = [
    ("prepare", 1),
    ("program-waits", 1),
    ("fd", "0 stdin"),
    ("fd", "1 stdout"),
    ("fd", "2 stderr"),
    ("fd", "3 ready"),
    ("fd", "4 go"),
]


def test_a_prepared_shell_begins_when_it_is_told(launcher: Launcher) -> None:
    task = launcher.start(WAITS, *PREPARED)
    pid = int(task.expect("prepared")[0])
    assert not task.directory.exists()
    task.begin(("go", b"echo $$; exit 6\n"), ("limit", 20.0))
    assert task.run() == ["exit", "6"]
    assert task.output() == b"%d\n" % pid


def test_a_prepared_shell_whose_caller_goes_leaves_nothing(launcher: Launcher) -> None:
    task = launcher.start(WAITS, *PREPARED)
    task.expect("prepared")
    task.line.close()
    wait_until(lambda: not task.staging.exists(), "the staging directory is removed")
    assert not task.directory.exists()


def test_bad_terms_are_refused(launcher: Launcher) -> None:
    task = launcher.start(WAITS, *PREPARED)
    task.expect("prepared")
    task.begin(("program", "/bin/sh"))
    assert "unknown key" in task.expect("refused")[1]
    assert not task.staging.exists()


def test_a_prepared_shell_that_dies_is_refused(launcher: Launcher) -> None:
    task = launcher.start(WAITS, *PREPARED)
    os.kill(int(task.expect("prepared")[0]), signal.SIGKILL)
    assert "prepared shell ended" in task.expect("refused")[1]
