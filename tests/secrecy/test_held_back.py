"""Twenty canaries in the environment of the caller: where they are not, and how a command gets one."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from outlast import AsyncShell, Shell
from outlast.errors import BadInput
from outlast.linux import process
from tests.cli import ran
from tests.conftest import Cli, eventually
from tests.secrecy import CANARIES, leaks, told

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

PRINT_ALL = "env; set; cat /proc/self/environ; cat /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline"


@pytest.fixture
def canaries(monkeypatch) -> dict[str, str]:
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    return CANARIES


def files_with_a_canary(home: str) -> list[str]:
    paths = [Path(directory, name) for directory, _, names in os.walk(home) for name in names]
    return [str(path) for path in paths if path.is_file() and leaks(read_if_there(path))]


def read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""  # the guard of a prepared shell that is not needed any more removed its directory meanwhile


def raw(shell: Shell, task_id: str) -> bytes:
    return b"".join(piece.data for piece in shell.follow(task_id, raw=True))


def environs_of_ours(home: str) -> dict[str, bytes]:
    """Arguments and environments of the guards of a state directory, by what each guards and its name."""
    found = {}
    for pid, stat in process.Table().by_pid.items():
        base = Path(f"/proc/{pid}")
        try:
            place = os.readlink(base / "cwd")
            if stat.name.startswith("outlast-") and place.startswith(f"{home}/"):
                name = f"{os.path.basename(os.path.dirname(place))} {stat.name}"
                found[name] = (base / "cmdline").read_bytes() + (base / "environ").read_bytes()
        except OSError:
            continue
    return found


@pytest.mark.parametrize("session", [None, "work"])
def test_a_command_sees_none_of_them_and_neither_does_the_disk(home, canaries, session):
    with Shell.open(home, session=session) as shell:
        assert not leaks(raw(shell, shell.start(PRINT_ALL).task_id))  # before there is any state
        assert not leaks(raw(shell, shell.run(PRINT_ALL).task_id))
        assert not leaks(raw(shell, shell.start(PRINT_ALL).task_id))
        assert not leaks(raw(shell, shell.run(PRINT_ALL, shell="/bin/sh").task_id))
        assert files_with_a_canary(home) == []
        assert shell.run("true").held_back == tuple(sorted(CANARIES))
    index = sqlite3.connect(os.path.join(home, "index.sqlite"))
    tables = [name for (name,) in index.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert "tasks" in tables
    for table in tables:
        assert not leaks(repr(index.execute(f"SELECT * FROM {table}").fetchall()))


def test_they_are_in_no_argument_list_and_no_environment_of_ours(home, canaries):
    with Shell.open(home) as shell:
        task = shell.start("sleep 100", pass_secrets=["GITHUB_TOKEN"])
        for _ in range(3):
            shell.run("true")  # so that a shell is prepared, too
        guards = {f"{place} {name}" for place in ("tasks", "staging") for name in ("outlast-sup", "outlast-keeper")}
        seen = eventually(lambda: (found := environs_of_ours(home)).keys() == guards and found)
        assert not any(leaks(data) for data in seen.values())
        shell.kill(task.task_id, grace=0.2)


def test_a_pending_task_has_on_disk_only_what_was_asked_for(home, canaries, monkeypatch):
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    with Shell.open(home) as shell:
        first = shell.start("sleep 100")
        waits = shell.start("echo $PGPASSWORD", pass_secrets=["PGPASSWORD"])
        assert waits.status == "pending"
        (file,) = files_with_a_canary(home)
        assert file.endswith(f"{waits.task_id}/environ")
        assert os.stat(file).st_mode & 0o777 == 0o600
        assert leaks(Path(file).read_bytes()) == [CANARIES["PGPASSWORD"]]
        shell.kill(first.task_id, grace=0.2)
        assert shell.wait(waits.task_id, timeout=30).exit_code == 0
        assert not os.path.exists(file)
        assert raw(shell, waits.task_id) == b"canary-of-postgres\n"
        assert shell.read(waits.task_id).output == "***\n"


@pytest.mark.parametrize("session", [None, "work"])
def test_a_call_asks_for_one_and_gets_it_once(home, canaries, session):
    with Shell.open(home, session=session) as shell:
        given = shell.run("echo $PGPASSWORD", pass_secrets=["PGPASSWORD"])
        assert raw(shell, given.task_id) == b"canary-of-postgres\n"
        assert "PGPASSWORD" not in given.held_back
        assert "GITHUB_TOKEN" in given.held_back
        assert shell.run("echo ${PGPASSWORD-none}").output == "none\n"
        assert [file for file in files_with_a_canary(home) if not file.endswith("/output")] == []


def test_a_pattern_asks_for_several(home, canaries):
    with Shell.open(home) as shell:
        assert shell.run("env | grep -c ^AWS_[AS][CE]", pass_secrets=["AWS_*"]).output == "3\n"
        assert shell.run("true", pass_secrets=["*"]).held_back == ()


def test_settings_let_through_name_and_switch_off(home, canaries, monkeypatch):
    monkeypatch.setenv("ORDINARY", "thing")
    count = f"env | grep -c {' '.join(f'-e ^{name}=' for name in (*CANARIES, 'ORDINARY'))}"
    for variable, value, seen in (
        ("OUTLAST_PASS_SECRETS", "GITHUB_TOKEN AWS_*", 5),
        ("OUTLAST_SECRET_NAMES", "ORDIN*", 0),
        ("OUTLAST_HOLD_SECRETS", "off", 21),
    ):
        with monkeypatch.context() as only:
            only.setenv(variable, value)
            for session in (None, f"of-{variable}"):
                with Shell.open(home, session=session) as shell:
                    assert shell.run(count).output == f"{seen}\n", (variable, session)


def test_what_the_caller_gives_by_hand_always_wins(home, canaries):
    with Shell.open(home) as shell:
        task = shell.run("echo $GITHUB_TOKEN", env={"GITHUB_TOKEN": "something-else"})
        assert raw(shell, task.task_id) == b"something-else\n"
        assert task.output == "***\n"
        assert "GITHUB_TOKEN" not in task.held_back


def test_what_a_session_sets_is_its_own(home, canaries, monkeypatch):
    monkeypatch.setenv("OUTLAST_PASS_SECRETS", "GITHUB_TOKEN")
    with Shell.open(home, session="work") as shell:
        assert raw(shell, shell.run("echo $GITHUB_TOKEN").task_id).decode().strip() == CANARIES["GITHUB_TOKEN"]
        shell.run("export GITHUB_TOKEN=set-by-hand")
        again = shell.run("echo $GITHUB_TOKEN")
        assert raw(shell, again.task_id) == b"set-by-hand\n"
        assert again.output == "***\n"
        assert shell.sessions.state().variables["GITHUB_TOKEN"] == "***"
        assert raw(shell, shell.run("echo $GITHUB_TOKEN", pass_secrets=["GITHUB_TOKEN"]).task_id) != b"set-by-hand\n"
        shell.sessions.reset()
        assert [file for file in files_with_a_canary(home) if not file.endswith("/output")] == []


def test_a_variable_that_is_not_there_cannot_be_passed_on(shell):
    with pytest.raises(BadInput, match="'NOT_THERE' is not set here"):
        shell.run("true", pass_secrets=["NOT_THERE"])
    for wrong in ("GITHUB_TOKEN", ["A=b"], [""], [1]):
        with pytest.raises(BadInput, match="list of names"):
            shell.run("true", pass_secrets=wrong)
    assert shell.list() == []


async def _asynchronously(home: str) -> tuple[str, str]:
    async with AsyncShell.open(home) as shell:
        plain = await shell.run("echo ${PGPASSWORD-none}")
        given = await shell.run("echo ${PGPASSWORD:0:6}", pass_secrets=["PGPASSWORD"])
        return plain.output, given.output


def test_asyncio_is_the_same(home, canaries):
    import asyncio

    assert asyncio.run(_asynchronously(home)) == ("none\n", "canary\n")


# --- the command line --------------------------------------------------------------------


def test_the_command_line_holds_back_and_passes_on(cli: Cli):
    cli.env.update(CANARIES)
    assert cli("run", "echo ${GITHUB_TOKEN-none}").stdout == "none\n"
    assert cli("run", "--pass", "GITHUB_TOKEN", "echo ${GITHUB_TOKEN:0:4}").stdout == "ghp_\n"
    assert cli("run", "--pass", "NOPE", "true", check=2).stderr.startswith("outlast: The variable 'NOPE' is not set")
    assert ran(cli, "true")["held_back"] == sorted(CANARIES)


def test_the_command_line_while_it_runs_shows_no_secret(cli: Cli):
    cli.env.update(CANARIES)
    running = cli.start("run", "--env", f"A_TOKEN={told('npm')}", "--pass", "GITHUB_TOKEN", "echo begun; sleep 100")
    assert running.stdout is not None
    assert running.stdout.readline() == b"begun\n"
    assert not leaks(Path(f"/proc/{running.pid}/cmdline").read_bytes())
    assert '"running"' in cli("ps", "--json").stdout
    running.send_signal(2)
    running.communicate(timeout=30)


def test_who_failed_for_want_of_a_secret_is_told_its_name(cli: Cli):
    cli.env.update({"GITHUB_TOKEN": told("GitHub"), "MY_PASSWORD": "a-password-1"})
    failed = cli("run", "echo 'gh: authentication required' >&2; exit 4", check=4)
    note = "outlast: held back from it: GITHUB_TOKEN, MY_PASSWORD (`--pass NAME` lets it have one).\n"
    assert failed.stderr == note
    assert cli("run", ": ${GITHUB_TOKEN:?}").stderr.endswith(note)
    # Only then.
    assert cli("run", "echo no such file; exit 1", check=1).stderr == ""
    assert cli("run", "echo authentication required").stderr == ""
    assert cli("run", "--pass", "*", "echo authentication required; exit 1", check=1).stderr == ""
    shown = cli("show", ran(cli, "true")["task_id"]).stdout
    assert "held back    GITHUB_TOKEN, MY_PASSWORD\n" in shown
