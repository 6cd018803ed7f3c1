"""`outlast kill`, `send` and `clean`: a receipt for what was ended, input that arrives, only old things removed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli import listed, ran, the_running
from tests.conftest import Cli, eventually

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def started(cli: Cli, *words: str) -> str:
    return cli("run", "--bg", *words, check=0).stdout.strip()


def tree(cli: Cli, tmp_path: Path) -> tuple[str, set[int]]:
    """A task with a shell, a child, and one that left group and session; and their pids."""
    begun = tmp_path / "begun"
    command = (
        f"sleep 1000 & echo $! >>{begun}; setsid sh -c 'echo $$ >>{begun}; exec sleep 1000' & echo $$ >>{begun}; wait"
    )
    task_id = started(cli, command)
    pids = eventually(
        lambda: begun.exists() and len(found := begun.read_text().split()) == 3 and {int(p) for p in found}
    )
    return task_id, pids


# --- kill --------------------------------------------------------------------------------


def test_the_receipt_names_every_process_that_ended(cli: Cli, tmp_path: Path) -> None:
    task_id, pids = tree(cli, tmp_path)
    receipt = cli.json("kill", task_id)
    assert set(receipt["ended"]) >= pids
    assert receipt["survivors"] == []
    assert (receipt["task_id"], receipt["status"], receipt["reason"]) == (task_id, "killed", "killed")
    assert not [pid for pid in pids if alive(pid)], "it returns when they are gone"


def test_the_receipt_in_words(cli: Cli) -> None:
    task_id = started(cli, "exec sleep 1000")
    pid = the_running(cli)["pid"]
    assert cli("kill", task_id, check=0).stdout == f"{task_id}: ended 1 process ({pid})\n"


def test_what_ignores_the_request_is_ended_by_force_after_the_grace(cli: Cli, tmp_path: Path) -> None:
    task_id = started(cli, f"trap '' TERM; touch {tmp_path}/begun; while :; do sleep 0.02; done")
    eventually((tmp_path / "begun").exists)
    begun = time.monotonic()
    receipt = cli.json("kill", "--grace", "0.3", task_id)
    assert time.monotonic() - begun >= 0.3
    assert (receipt["signal"], receipt["survivors"]) == (9, [])


def test_a_grace_without_end_never_uses_force(cli: Cli, tmp_path: Path) -> None:
    """It ends when the command is ready to, however long that takes."""
    cli.env["OUTLAST_KILL_GRACE_S"] = "0"
    until = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    task_id = started(cli, f"trap 'touch {tmp_path}/asked' TERM; touch {tmp_path}/begun; {until}; exit 0")
    eventually((tmp_path / "begun").exists)
    killing = cli.start("kill", "--grace", "inf", "--json", task_id)
    eventually((tmp_path / "asked").exists)
    assert killing.poll() is None
    (tmp_path / "go").touch()
    receipt = json.loads(killing.communicate(timeout=60)[0])
    assert (receipt["exit_code"], receipt["signal"], receipt["status"]) == (0, None, "killed")


def test_several_at_once_each_with_a_receipt(cli: Cli) -> None:
    ids = [started(cli, "exec sleep 1000") for _ in range(3)]
    receipts = [json.loads(line) for line in cli("kill", "--json", *ids, check=0).stdout.splitlines()]
    assert [receipt["task_id"] for receipt in receipts] == ids
    assert all(len(receipt["ended"]) == 1 for receipt in receipts)


def test_options_may_stand_between_the_ids(cli: Cli) -> None:
    one, two = (started(cli, "exec sleep 1000") for _ in range(2))
    assert len(cli("kill", one, "--grace", "1", two, check=0).stdout.splitlines()) == 2


def test_nothing_is_ended_if_one_of_them_is_wrong(cli: Cli) -> None:
    task_id = started(cli, "exec sleep 1000")
    cli("kill", task_id, "nosuchtask", check=1)
    done = ran(cli, "true")["task_id"]
    cli("kill", task_id, done, check=1)
    assert the_running(cli)["task_id"] == task_id


def test_children_that_outlived_their_command_can_be_ended(cli: Cli) -> None:
    task = ran(cli, "sleep 1000 &")
    assert cli.json("kill", task["task_id"])["ended"] == task["children"]
    after = cli.json("show", task["task_id"])
    assert (after["status"], after["exit_code"], after["children"]) == ("completed", 0, []), (
        "the command itself had ended well"
    )


def test_a_part_of_an_id_is_enough_and_an_ambiguous_one_ends_nothing(cli: Cli) -> None:
    ids = [started(cli, "exec sleep 1000") for _ in range(2)]
    assert "fits 2 tasks" in cli("kill", "bash-", check=1).stderr
    assert len(listed(cli, "--status", "running")) == 2
    cli("kill", ids[0][-6:], check=0)
    assert the_running(cli)["task_id"] == ids[1]


def test_a_session_cannot_end_anothers_task(cli: Cli) -> None:
    task_id = started(cli, "--session", "mine", "exec sleep 1000")
    cli("kill", "--session", "other", task_id, check=1)
    cli.env["OUTLAST_SESSION"] = "other"
    cli("kill", task_id, check=1)
    cli("send", task_id, "x", check=1)
    cli.env["OUTLAST_SESSION"] = "mine"
    assert cli.json("kill", task_id)["status"] == "killed"


# --- send --------------------------------------------------------------------------------


def fed(cli: Cli, command: str = "cat") -> str:
    return started(cli, "--stdin", "open", command)


def said(cli: Cli, task_id: str) -> str:
    return cli("logs", "--raw", task_id).stdout


def test_a_line_is_sent(cli: Cli) -> None:
    task_id = fed(cli, 'while read -r line; do echo "<$line>"; done; echo end')
    cli("send", task_id, "hello world", check=0)
    eventually(lambda: said(cli, task_id) == "<hello world>\n")
    cli("send", task_id, "", check=0)
    eventually(lambda: said(cli, task_id) == "<hello world>\n<>\n")
    cli("send", "--eof", task_id, check=0)
    cli("wait", task_id, check=0)
    assert said(cli, task_id) == "<hello world>\n<>\nend\n"


def test_raw_text_is_sent_as_it_is(cli: Cli) -> None:
    task_id = fed(cli)
    cli("send", "--raw", task_id, "no line end\\n", check=0)
    cli("send", task_id, "--raw", "--eof", "--", "-- more", check=0)
    cli("wait", task_id, check=0)
    assert said(cli, task_id) == "no line end\\n-- more"


def test_our_own_input_is_sent_as_it_is(cli: Cli, tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    task_id = fed(cli, f"cat > {tmp_path}/got")
    cli("send", "--eof", task_id, "-", stdin=data, check=0)
    cli("wait", task_id, check=0)
    assert (tmp_path / "got").read_bytes() == data


def test_a_command_that_does_not_read_does_not_hold_us(cli: Cli) -> None:
    task_id = fed(cli, "exec sleep 1000")
    told = cli("send", task_id, "-", stdin=b"x" * 1_000_000, check=1).stderr
    assert told.startswith(f"outlast: {task_id} does not read its input: ")
    assert told.endswith(" of 1000000 bytes were taken.\n")


def test_a_command_that_closed_its_input_is_told(cli: Cli) -> None:
    task_id = fed(cli, "exec sleep 1000 <&-")

    def refused() -> str:
        return cli("send", task_id, "hello").stderr

    assert "input" in eventually(refused)
    assert cli("send", task_id, "hello", check=1).stderr.startswith(f"outlast: {task_id} ")


# --- clean -------------------------------------------------------------------------------


def aged(cli: Cli, hours: float) -> str:
    """A finished task that looks as if it had ended some time ago."""
    from outlast.storage import record

    task: dict[str, Any] = ran(cli, "echo kept")
    directory = os.path.dirname(task["output_file"])
    eventually(lambda: cli.json("show", task["task_id"])["closed"])
    outcome = record.read(directory)["outcome"]
    record.write("outcome", {**outcome, "ended": outcome["ended"] - hours * 3600}, directory)
    with sqlite3.connect(os.path.join(cli.env["OUTLAST_HOME"], "index.sqlite")) as index:
        index.execute("UPDATE tasks SET ended = NULL, view = NULL WHERE id = ?", (task["task_id"],))
    index.close()
    cli("show", task["task_id"], check=0)
    return str(task["task_id"])


def kept(cli: Cli, home: str) -> set[str]:
    assert {task["task_id"] for task in listed(cli, "--all")} == set(os.listdir(f"{home}/tasks"))
    return set(os.listdir(f"{home}/tasks"))


def test_clean_removes_what_ended_a_day_ago_with_its_output(cli: Cli, home: str) -> None:
    cli.env["OUTLAST_RETENTION_HOURS"] = "1000"
    aged(cli, hours=25)
    young = aged(cli, hours=23)
    del cli.env["OUTLAST_RETENTION_HOURS"]
    assert cli("clean", check=0).stdout == "Removed 1 finished task.\n"
    assert kept(cli, home) == {young}
    assert os.listdir(f"{home}/staging") == []


def test_clean_takes_an_age(cli: Cli, home: str) -> None:
    aged(cli, hours=3)
    young = aged(cli, hours=1)
    assert cli.json("clean", "--older-than", "2") == {"removed": 1}
    assert kept(cli, home) == {young}
    assert cli.json("clean", "--older-than", "0.5") == {"removed": 1}
    assert kept(cli, home) == set()


def test_clean_removes_only_what_has_ended(cli: Cli, home: str) -> None:
    for _ in range(2):
        ran(cli, "true")
    running = started(cli, "exec sleep 1000")
    left = ran(cli, "sleep 1000 &")["task_id"]
    assert cli("clean", "--all-finished", check=0).stdout == "Removed 2 finished tasks.\n"
    assert kept(cli, home) == {running, left}, "one of them runs, of the other a child does"
    assert cli("clean", "--all-finished", check=0).stdout == "Removed 0 finished tasks.\n"


def test_clean_in_a_session_spares_the_others(cli: Cli, home: str) -> None:
    ran(cli, "--session", "mine", "true")
    other = ran(cli, "--session", "other", "true")["task_id"]
    assert cli.json("clean", "--all-finished", "--session", "mine") == {"removed": 1}
    assert kept(cli, home) == {other}


def test_clean_removes_what_is_damaged(cli: Cli, home: str) -> None:
    task = ran(cli, "true")
    Path(task["output_file"]).with_name("launch.json").write_text("{")
    assert "`outlast clean` removes it" in cli("show", task["task_id"], check=125).stderr
    cli("clean", check=0)
    assert os.listdir(f"{home}/tasks") == []


def test_every_start_removes_what_is_old(cli: Cli, home: str) -> None:
    old, young = aged(cli, hours=3), aged(cli, hours=1)
    cli.env["OUTLAST_RETENTION_HOURS"] = "2"
    fresh = ran(cli, "true")["task_id"]
    assert old not in kept(cli, home)
    assert kept(cli, home) == {young, fresh}


def test_looking_removes_nothing(cli: Cli, home: str) -> None:
    old = aged(cli, hours=1000)
    for words in (["ps", "--all"], ["show", old], ["logs", old], ["wait", old]):
        cli(*words, check=0)
    assert kept(cli, home) == {old}


def test_calls_at_the_same_time_do_not_harm_each_other(cli: Cli) -> None:
    """What is listed may be removed before it is shown, and a start may come in between: nobody fails."""
    for _ in range(8):
        started(cli, "true")
    calls = [
        ["ps", "--all"],
        ["clean", "--all-finished"],
        ["ps", "--all", "--json"],
        ["run", "--bg", "exec sleep 1000"],
    ] * 3
    running = [cli.start(*words) for words in calls]
    told = [one.communicate(timeout=60)[1] for one in running]
    assert [(one.returncode, err) for one, err in zip(running, told, strict=True)] == [(0, b"")] * len(calls)
    assert len(listed(cli, "--status", "running")) == 3


def test_cleaning_spares_what_a_foreground_run_has_yet_to_report(cli: Cli, tmp_path: Path) -> None:
    """The run is stopped when its command ends, and told of it only after the clean-up."""
    run = cli.start("run", f"echo begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 7")
    assert run.stdout is not None
    assert run.stdout.readline() == b"begun\n"
    os.kill(run.pid, signal.SIGSTOP)
    (tmp_path / "go").touch()
    eventually(lambda: listed(cli)[0]["closed"])
    assert cli("clean", "--all-finished", check=0).stdout == "Removed 0 finished tasks.\n"
    os.kill(run.pid, signal.SIGCONT)
    assert run.wait(timeout=30) == 7
    assert cli("clean", "--all-finished", check=0).stdout == "Removed 1 finished task.\n"


def test_all_tasks_of_the_session_are_ended_and_no_others(cli: Cli) -> None:
    ours = [cli("run", "--bg", "sleep 100", check=0).stdout.strip() for _ in range(2)]
    other = cli("run", "--session", "other", "--bg", "sleep 100", check=0).stdout.strip()
    ended = cli("kill", "--all", "--grace", "1", check=0).stdout
    assert sorted(line.partition(":")[0] for line in ended.splitlines()) == sorted(ours)
    assert cli.json("show", "--session", "other", other)["status"] == "running"
    assert "No task runs" in cli("kill", "--all", check=0).stderr
    assert "not both" in cli("kill", "--all", ours[0], check=2).stderr
