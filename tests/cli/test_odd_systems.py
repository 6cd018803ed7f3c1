"""The command line on odd systems: no home directory, a read-only state directory, a full disk, a full output."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast import Shell
from outlast.types import Task
from tests.cli import the_running
from tests.conftest import Cli, eventually


def unshared(cli: Cli, options: str, words: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in new namespaces; skip the test where none can be made."""
    before = ["unshare", *options.split()]
    tried = subprocess.run([*before, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no such namespace can be made here: {tried.stderr.strip()}")
    return subprocess.run([*before, *words], capture_output=True, text=True, timeout=100, **how)  # type: ignore[call-overload, no-any-return]


# --- no home directory ---------------------------------------------------------------------

WITHOUT_PASSWD_ENTRY = "--user --map-user=54321"


@pytest.mark.parametrize("verb", [["ps"], ["run", "true"], ["run", "--bg", "true"], ["setup", "codex", "--yes"]])
def test_without_a_home_directory_one_sentence_says_what_to_set(cli: Cli, tmp_path: Path, verb: list[str]) -> None:
    hidden = ("HOME", "XDG_STATE_HOME", "OUTLAST_HOME")
    env = {name: value for name, value in cli.env.items() if name not in hidden}
    ran = unshared(cli, WITHOUT_PASSWD_ENTRY, [*cli.command, *verb], env=env, cwd=tmp_path)
    assert ran.returncode == 125, ran
    assert ran.stdout == ""
    assert ran.stderr == (
        "outlast: There is no place for the state: HOME is not set and user 54321 has no home directory; "
        "set OUTLAST_HOME.\n"
    )
    assert os.listdir(tmp_path) == [], "something was made in the working directory"


def test_without_a_home_directory_setup_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    env = {name: value for name, value in cli.env.items() if name != "HOME"}
    ran = unshared(cli, WITHOUT_PASSWD_ENTRY, [*cli.command, "setup", "codex"], env=env, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, ""), ran
    assert ran.stderr == "outlast: Your home directory is unknown; set HOME to it.\n"
    assert os.listdir(tmp_path) == []


def test_without_a_home_directory_a_given_state_directory_is_used(cli: Cli, tmp_path: Path) -> None:
    env = {**cli.env, "OUTLAST_HOME": str(tmp_path / "state")}
    del env["HOME"]
    ran = unshared(cli, WITHOUT_PASSWD_ENTRY, [*cli.command, "run", "echo hello"], env=env, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "hello\n"), ran
    assert os.listdir(tmp_path) == ["state"]


# --- an output that cannot be written ------------------------------------------------------


def _full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("stdout", [_full, _without_reader])
@pytest.mark.parametrize("options", [[], ["--json"], ["--startup-wait", "0.1"], ["--startup-wait", "0.1", "--json"]])
def test_the_id_of_a_background_task_is_told_on_stderr_if_stdout_cannot_be_written(
    cli: Cli, options: list[str], stdout: Callable[[], int], buffered: bool
) -> None:
    cli.env["PYTHONUNBUFFERED"] = "" if buffered else "1"
    fd = stdout()
    ran = cli.start("run", "--bg", *options, "sleep 60", stdout=fd)
    os.close(fd)
    told = ran.communicate(timeout=60)[1].decode()
    task = the_running(cli)
    why = "No space left on device" if stdout is _full else "Broken pipe"
    assert told == (
        f"outlast: {task['task_id']} is running, but its id could not be written to standard output: {why}; "
        f"`outlast show {task['task_id']}` shows it.\n"
    )
    assert ran.returncode == 125


def test_the_id_of_a_background_task_is_told_on_stderr_if_stdout_is_closed(cli: Cli) -> None:
    ran = cli.start("run", "--bg", "sleep 60", stdout=None, preexec_fn=lambda: os.close(1))
    told = ran.communicate(timeout=60)[1].decode()
    assert told.startswith(f"outlast: {the_running(cli)['task_id']} is running, but its id could not be written")
    assert ran.returncode == 125


# --- a state directory that cannot be written ----------------------------------------------


@pytest.fixture
def read_only(cli: Cli, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line where the state directory is mounted read-only."""
    script = 'mount --bind "$OUTLAST_HOME" "$OUTLAST_HOME" && mount -o remount,ro,bind "$OUTLAST_HOME" && exec "$@"'

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        ran = unshared(
            cli, "--user --map-root-user --mount", ["sh", "-c", script, "sh", *cli.command, *words], env=cli.env
        )
        if "mount:" in ran.stderr:
            pytest.skip(f"nothing can be mounted here: {ran.stderr}")
        return ran

    return run


@pytest.mark.parametrize("seen", [False, True], ids=["never looked at", "looked at before"])
@pytest.mark.parametrize("index", ["as it is", "removed", "open elsewhere"])
def test_reading_needs_no_writing(
    cli: Cli, home: str, read_only: Callable[..., subprocess.CompletedProcess[str]], index: str, seen: bool
) -> None:
    with Shell.open(home=home) as shell:
        done, running = shell.run("echo hello; exit 3"), shell.start("echo begun; sleep 1000")
        shell.wait(running.task_id, until="begun")
        eventually(lambda: shell.executor.has_reached(done.task_id, "closed"))
        if seen:
            assert len(shell.list()) == 2
            assert shell.read(done.task_id, new=True, reader="command line").output == "hello\n"
    if index == "removed":
        for path in Path(home).glob("index.sqlite*"):
            path.unlink()
    with Shell.open(home=home, prepare=False) as elsewhere:
        if index == "open elsewhere":
            assert len(elsewhere.list()) == 2
            assert os.path.exists(f"{home}/index.sqlite-wal")
        check_reading(read_only, home, done, running, seen)


def check_reading(
    read_only: Callable[..., subprocess.CompletedProcess[str]], home: str, done: Task, running: Task, seen: bool
) -> None:
    before = tree_of(home)
    for words, expected, code in [
        (["ps", "--all", "--json"], '"task_id"', 0),
        (["show", done.task_id], "exit code 3", 0),
        (["show", running.task_id], "running", 0),
        (["logs", done.task_id], "hello\n", 0),
        (["logs", "--new", done.task_id], "" if seen else "hello\n", 0),
        (["logs", "--new", "--json", done.task_id], "exit_code", 0),
        (["wait", done.task_id], "exit code 3", 3),
        (["wait", "--timeout", "0.1", running.task_id], "running", 124),
        (["tasks"], "echo hello", 0),
    ]:
        ran = read_only(*words)
        assert (ran.returncode, ran.stderr) == (code, ""), (words, ran)
        assert expected in ran.stdout, (words, ran)
    both = [json.loads(line)["task_id"] for line in read_only("ps", "--all", "--json").stdout.splitlines()]
    assert sorted(both) == sorted([done.task_id, running.task_id])
    assert tree_of(home) == before


def tree_of(home: str) -> dict[str, bytes]:
    """Every file of a state directory, but for what is about to become a task."""
    files = [path for path in Path(home).rglob("*") if path.is_file() and "staging" not in path.parts]
    return {str(path): path.read_bytes() for path in files if not path.name.endswith("-shm")}


def test_a_pending_task_can_be_waited_for_where_nothing_can_be_written(
    cli: Cli, home: str, read_only: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    with Shell.open(home=home) as shell:
        first = shell.start("sleep 1000")
        second = shell.start("echo second")
        assert read_only("show", second.task_id).stdout.count("pending")
        ran = read_only("wait", "--timeout", "0.5", second.task_id)
        assert (ran.returncode, ran.stderr) == (124, ""), ran
        shell.kill(first.task_id)
        ran = read_only("wait", "--timeout", "30", second.task_id)
        assert (ran.returncode, ran.stderr) == (0, ""), ran


def test_what_writes_is_refused_in_one_sentence(
    cli: Cli, home: str, read_only: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with Shell.open(home=home) as shell:
        task = shell.run("echo hello")
    for words in (["run", "true"], ["run", "--bg", "true"], ["clean", task.task_id], ["notices"]):
        ran = read_only(*words)
        assert ran.returncode == 125, (words, ran)
        assert "Read-only file system" in ran.stderr or "readonly database" in ran.stderr, (words, ran)
        assert ran.stderr.count("\n") == 1, (words, ran)
        assert "Traceback" not in ran.stderr
