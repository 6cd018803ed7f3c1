"""The command line on odd systems: no home directory, a read-only state directory, a full disk, a full output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import the_running
from tests.conftest import Cli


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


@pytest.mark.parametrize("stdout", [_full, _without_reader])
@pytest.mark.parametrize("options", [[], ["--json"], ["--startup-wait", "0.1"], ["--startup-wait", "0.1", "--json"]])
def test_the_id_of_a_background_task_is_told_on_stderr_if_stdout_cannot_be_written(
    cli: Cli, options: list[str], stdout: Callable[[], int]
) -> None:
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
