"""`outlast ps`, `show` and `wait`: what there is, how it stands, how it ended."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from outlast import Shell
from outlast.storage import record
from tests.cli import listed, ran, the_running
from tests.conftest import Cli, eventually


def rows(cli: Cli, *words: str) -> list[list[str]]:
    """The table, cell by cell."""
    head, *lines = cli("ps", *words, check=0).stdout.splitlines()
    starts = [head.index(name) for name in head.split()]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in [head, *lines]]


# --- ps ----------------------------------------------------------------------------------


def test_the_table_shows_everything_newest_first(cli: Cli) -> None:
    first = ran(cli, "printf 'a\\nb\\n'; exit 3")
    second = ran(cli, "--split", "--description", "two streams", "echo a; echo b >&2; echo c >&2")
    third = cli.json("show", cli("run", "--bg", "exec sleep 1000").stdout.strip())
    eventually(lambda: cli.json("show", third["task_id"])["activity"] == "sleeping")
    head, *table = rows(cli)
    assert head == ["STATUS", "ID", "PID", "TIME", "LINES", "CATEGORY", "COMMAND"]
    assert [row[1] for row in table] == [third["task_id"], second["task_id"], first["task_id"]]
    assert [row[0] for row in table] == ["running (sleeping)", "completed", "failed (3)"]
    assert [row[2] for row in table] == [str(third["pid"]), "-", "-"]
    assert [row[4] for row in table] == ["0", "1+2", "2"]
    assert [row[6] for row in table] == ["exec sleep 1000", "two streams", "printf 'a\\nb\\n'; exit 3"]


def test_json_is_one_object_a_line_with_the_counts_of_lines(cli: Cli) -> None:
    ran(cli, "--split", "echo a; echo b >&2; echo c >&2")
    ran(cli, "seq 5")
    newest, oldest = listed(cli)
    assert (newest["stdout_lines"], newest["stderr_lines"]) == (5, 0)
    assert (oldest["stdout_lines"], oldest["stderr_lines"]) == (1, 2)
    assert oldest["started_at"] <= newest["started_at"]


def test_lines_are_counted_on_while_a_task_prints(cli: Cli, tmp_path: Path) -> None:
    command = f"seq 3; until [ -e {tmp_path}/go ]; do sleep 0.02; done; seq 4"
    task_id = cli("run", "--bg", command).stdout.strip()
    eventually(lambda: listed(cli)[0]["stdout_lines"] == 3)
    (tmp_path / "go").touch()
    cli("wait", task_id, check=0)
    assert listed(cli)[0]["stdout_lines"] == 7


def test_the_category_is_found_from_the_command(cli: Cli) -> None:
    commands = {
        "cd app && npm test": "test",
        "FOO=1 pytest -x": "test",
        "make": "build",
        "npm run dev": "server",
        "python3 -m http.server": "server",
        "cargo run": "task",
        "echo hello": "bash",
    }
    for command in commands:
        cli("run", "--bg", f"false && {command}", check=0)
    assert [row[5] for row in rows(cli)[1:]] == list(reversed(commands.values()))


def test_nothing_to_list(cli: Cli) -> None:
    assert cli("ps", check=0).stdout == "No tasks found.\n"
    assert cli("ps", "--json", check=0).stdout == ""


def test_a_long_command_takes_one_line_of_the_screen(cli: Cli) -> None:
    cli.env["COLUMNS"] = "100"
    ran(cli, "echo " + "x" * 300 + "\necho \x1b[31mred")
    _, line = cli("ps").stdout.splitlines()
    assert len(line) <= 100
    assert "\x1b" not in line


def test_a_status_can_be_asked_for_by_any_of_its_names(cli: Cli) -> None:
    for command in ("true", "false"):
        ran(cli, command)
    cli("run", "--limit", "0.1", "exec sleep 1000", check=124)
    cli("run", "--bg", "exec sleep 1000")
    names = ("running", "completed", "failed", "error", "killed", "cancelled", "pending")
    shown = {name: [task["status"] for task in listed(cli, "--status", name)] for name in names}
    assert shown == {
        "running": ["running"],
        "completed": ["completed"],
        "failed": ["failed"],
        "error": ["failed"],
        "killed": ["killed"],
        "cancelled": ["killed"],
        "pending": [],
    }


def test_all_shows_every_session_and_every_age(cli: Cli) -> None:
    mine = ran(cli, "true")["task_id"]
    other = ran(cli, "--session", "other", "true")["task_id"]
    with Shell.open(home=cli.env["OUTLAST_HOME"], operator=True) as shell:
        old = shell.run("true").task_id
        eventually(lambda: shell.show(old).closed)
        directory = os.path.dirname(shell.show(old).output_file)
        _age(shell, old, directory, hours=2)
    assert [task["task_id"] for task in listed(cli)] == [mine], "two hours are not recent"
    assert {task["task_id"] for task in listed(cli, "--all")} == {mine, other, old}
    assert [task["task_id"] for task in listed(cli, "--session", "other")] == [other]
    assert {task["task_id"] for task in listed(cli, "--status", "completed")} == {mine, old}, (
        "asked for by status: any age"
    )


def _age(shell: Shell, task_id: str, directory: str, hours: float) -> None:
    """Make a task look as if all of it had happened earlier."""
    from outlast.storage import record

    shift = hours * 3600
    found = record.read(directory)
    record.write("guards", {**found["guards"], "started": found["guards"]["started"] - shift}, directory)
    record.write("outcome", {**found["outcome"], "ended": found["outcome"]["ended"] - shift}, directory)
    registry = shell.executor.registry
    registry.index._db.execute("UPDATE tasks SET ended = NULL, view = NULL WHERE id = ?", (task_id,))
    shell.show(task_id)


def test_a_session_sees_only_its_own(cli: Cli) -> None:
    mine = ran(cli, "--session", "mine", "true")["task_id"]
    ran(cli, "--session", "other", "true")
    cli.env["OUTLAST_SESSION"] = "mine"
    for words in ([], ["--all"], ["--status", "completed"]):
        assert [task["task_id"] for task in listed(cli, *words)] == [mine]


def test_a_task_that_both_guards_lost_is_shown_as_lost(cli: Cli) -> None:
    task_id = cli("run", "--bg", "exec sleep 1000").stdout.strip()
    directory = os.path.dirname(cli.json("show", task_id)["output_file"])
    guards = record.guards_of(directory)
    assert guards.keeper is not None
    # Stopped first: neither can replace the other.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for guard in (guards.keeper, guards.supervisor):
            os.kill(guard.pid, number)
    eventually(lambda: cli.json("show", task_id)["status"] == "failed")
    os.kill(guards.command.pid, signal.SIGKILL)
    task = cli.json("show", task_id)
    assert (task["reason"], task["exit_code"], task["signal"]) == ("lost", None, None)
    assert rows(cli)[1][0] == "failed (lost)"
    assert "unknown how it ended" in cli("show", task_id).stdout
    cli("wait", task_id, check=125)


def test_children_that_are_left_are_counted_in_the_table(cli: Cli) -> None:
    task = ran(cli, "sleep 1000 & sleep 1000 & true")
    assert len(task["children"]) == 2
    assert rows(cli)[1][0] == "completed +2"


def test_one_damaged_task_does_not_hide_the_others(cli: Cli) -> None:
    good, bad = (ran(cli, "true")["task_id"] for _ in range(2))
    listed(cli)
    Path(cli.json("show", bad)["output_file"]).with_name("launch.json").write_text("{")
    assert good in {task["task_id"] for task in listed(cli)}
    assert cli("ps", check=0).stderr == ""


# --- show --------------------------------------------------------------------------------


def test_show_tells_everything(cli: Cli, tmp_path: Path) -> None:
    task = ran(cli, "--cwd", str(tmp_path), "--description", "a pipe", "--limit", "60", "exit 2 | (echo hi; exit 3)")
    text = cli("show", task["task_id"], check=0).stdout
    shown = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert shown["id"] == task["task_id"]
    assert shown["status"] == "failed, exit code 3 (stages: 2 | 3)"
    assert (shown["description"], shown["directory"], shown["session"]) == ("a pipe", str(tmp_path), "default")
    assert (shown["limit"], shown["lines"], shown["output"]) == ("60 s", "1", task["output_file"])
    assert (shown["children"], shown["command"]) == ("none left", "exit 2 | (echo hi; exit 3)")


def test_show_tells_who_ended_it(cli: Cli) -> None:
    task_id = cli("run", "--bg", "exec sleep 1000").stdout.strip()
    cli("kill", task_id, check=0)
    assert "killed, kill by process" in cli("show", task_id).stdout
    assert f"of user {os.getuid()}" in cli.json("show", task_id)["ended_by"]


def test_any_part_of_an_id_will_do(cli: Cli) -> None:
    task_id = ran(cli, "true")["task_id"]
    for part in (task_id, task_id[5:], task_id[5:9], task_id[-4:], task_id.upper(), f" {task_id} "):
        assert cli.json("show", part)["task_id"] == task_id


def test_an_ambiguous_part_lists_the_candidates(cli: Cli) -> None:
    ids = [ran(cli, "true")["task_id"] for _ in range(2)]
    told = cli("show", "bash-", check=1).stderr
    assert "fits 2 tasks" in told
    assert all(task_id in told for task_id in ids)


def test_a_mistyped_id_is_answered_with_near_ones(cli: Cli) -> None:
    task_id = ran(cli, "true")["task_id"]
    mistyped = task_id[:-1] + ("0" if task_id[-1] != "0" else "1")
    told = cli("show", mistyped, check=1).stderr
    assert told == f"outlast: There is no task '{mistyped}' (any more); near it are {task_id}.\n"


def test_an_id_that_is_gone_is_unknown(cli: Cli) -> None:
    task_id = ran(cli, "true")["task_id"]
    cli("clean", "--all-finished", check=0)
    for words in (["show", task_id], ["logs", task_id], ["wait", task_id], ["kill", task_id], ["send", task_id, "x"]):
        assert f"There is no task '{task_id}'" in cli(*words, check=1).stderr


# --- wait --------------------------------------------------------------------------------


def test_wait_has_the_tasks_own_exit_code(cli: Cli) -> None:
    for code in (0, 3):
        task_id = cli("run", "--bg", f"exit {code}").stdout.strip()
        told = cli("wait", task_id, check=code).stdout
        assert told.startswith(f"{task_id} {'failed' if code else 'completed'} after ")
        assert told.endswith(f": exit code {code}\n")


def test_wait_returns_when_the_task_ends(cli: Cli, tmp_path: Path) -> None:
    task_id = cli("run", "--bg", f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 4").stdout.strip()
    waiting = cli.start("wait", task_id)
    assert cli.json("show", task_id)["status"] == "running"
    assert waiting.poll() is None
    (tmp_path / "go").touch()
    waiting.communicate(timeout=60)
    assert waiting.returncode == 4


def test_wait_after_a_signal_and_after_a_kill(cli: Cli) -> None:
    died = cli("run", "--bg", "kill -9 $$").stdout.strip()
    cli("wait", died, check=137)
    killed = cli("run", "--bg", "exec sleep 1000").stdout.strip()
    cli("kill", killed, check=0)
    cli("wait", killed, check=143)


def test_wait_that_runs_out_is_124_and_ends_nothing(cli: Cli) -> None:
    task_id = cli("run", "--bg", "exec sleep 1000").stdout.strip()
    begun = time.monotonic()
    assert "running" in cli("wait", "--timeout", "0.2", task_id, check=124).stdout
    assert 0.2 <= time.monotonic() - begun < 60
    assert the_running(cli)["task_id"] == task_id


def test_wait_for_several_has_the_code_of_the_first_that_failed(cli: Cli) -> None:
    ids = [cli("run", "--bg", f"exit {code}").stdout.strip() for code in (0, 5, 6)]
    told = cli("wait", "--json", *ids, check=5).stdout.splitlines()
    assert [json.loads(line)["task_id"] for line in told] == ids
    assert [json.loads(line)["exit_code"] for line in told] == [0, 5, 6]
