"""Outlast's own replies, pure: what is said of a task in which state."""

from __future__ import annotations

from typing import Any

from outlast.linux.activity import Activity
from outlast.storage.index import Usual
from outlast.tools.reply import Facts, headline, task_reply
from outlast.types import Result, Task

NOW = 1_700_000_000.0
BLANK: dict[str, Any] = {
    name: None for name in Result.__match_args__ if name in Task.__match_args__ or name in ("stdout", "stderr")
}


def result(**known: Any) -> Result:
    every: dict[str, Any] = {
        **BLANK,
        "task_id": "bash-00000001",
        "kind": "bash",
        "category": "bash",
        "status": "running",
        "command": "make",
        "description": "",
        "name": "",
        "session": "s",
        "cwd": "/",
        "shell": "/bin/bash",
        "executor": "local",
        "pid": 7,
        "pgid": 7,
        "started_at": NOW - 90,
        "elapsed_ms": 90_000,
        "children": (),
        "waits_for": (),
        "split": False,
        "tty": None,
        "closed": False,
        "output_file": "/state/output",
        "output": "",
        "truncated": False,
        "dropped_bytes": 0,
        "hidden_lines": 0,
        "cursor": "0",
    }
    return Result(**{**every, **known})


def said(task: Result, **facts: Any) -> str:
    return headline(task, Facts(**facts), NOW)


def test_what_is_said_of_a_running_task() -> None:
    assert said(result()) == "bash-00000001 is running (1m 30s, pid 7)."
    assert said(result(), printed_at=NOW - 12) == "bash-00000001 is running (1m 30s, pid 7, no output for 12s)."
    assert said(
        result(output="new\n"),
        printed_at=NOW,
        activity=Activity("busy", "pid 7 (make) computes"),
        usual=Usual(75_000, 1),
    ) == ("bash-00000001 is running (1m 30s, pid 7, busy, usually takes 1m 15s).")
    assert said(result(), activity=Activity("waiting for input", "pid 8 (bash) reads its terminal")) == (
        "bash-00000001 is running (1m 30s, pid 7, waiting for input: pid 8 (bash) reads its terminal)."
    )
    assert said(result(status="pending", waits_for=("bash-2",))) == "bash-00000001 is queued: it waits for bash-2."


def test_how_it_ended() -> None:
    def ended(**known: Any) -> str:
        return said(result(**known)).removesuffix(" (1m 30s).")

    assert ended(status="completed", reason="exit", exit_code=0) == "Exit code 0"
    assert ended(status="failed", reason="exit", exit_code=3) == "Failed: exit code 3"
    assert ended(status="failed", reason="signal", signal=9, cpu_ms=1500) == "Failed: ended by SIGKILL"
    assert ended(status="completed", reason="exit", exit_code=0, pipe_status=(1, 0)) == (
        "Exit code 0, but a stage of the pipeline failed: 1 | 0"
    )
    assert ended(status="failed", reason="exit", exit_code=1, pipe_status=(2, 1)) == "Failed: exit code 1, stages 2 | 1"
    assert ended(status="killed", reason="timeout", limit=5.0, ended_by="limit of 5 s") == (
        "Timed out: ended after 5 s"
    )
    assert ended(status="killed", reason="timeout", limit=None).startswith("Timed out: ended by the default timeout")
    assert ended(status="killed", reason="killed", ended_by="kill by process 7 of user 0") == "Killed"
    assert ended(status="failed", reason="lost", error="The machine was restarted.") == (
        "Failed: The machine was restarted"
    )


def test_what_was_left_behind_and_hidden_is_said() -> None:
    task = result(status="completed", reason="exit", exit_code=0, children=(8, 9), hidden_lines=3, truncated=True)
    assert task_reply(task, Facts(), "A remark.", "").text.splitlines() == [
        "bash-00000001: exit code 0 (1m 30s).",
        "A remark.",
        "Processes that it started still run: 8, 9. bash_kill ends them.",
        "Lines that do not match: 3.",
    ]


def test_nothing_to_show_is_said_in_three_ways() -> None:
    ended = {"status": "completed", "reason": "exit", "exit_code": 0}
    assert task_reply(result(), Facts()).text.endswith("No output yet.\n")
    assert task_reply(result(**ended), Facts()).text.endswith("No output.\n")
    assert task_reply(result(**ended, cursor="12"), Facts()).text.endswith("Nothing new.\n")
    assert task_reply(result(cursor="12"), Facts(last_line="42 %")).text.endswith(
        "Nothing new. Its last line:\n```\n42 %\n```\n"
    )


def test_a_long_failure_leads_with_its_first_error() -> None:
    known = Facts(first_error="a.c:1: error: no", error_line=7, last_lines="the\nend\n")
    reply = task_reply(result(status="failed", reason="exit", exit_code=1, output="much\n" * 100), known)
    assert reply.text.splitlines() == [
        "bash-00000001: failed: exit code 1 (1m 30s).",
        "First error, line 7:",
        *("```", "a.c:1: error: no", "```"),
        "Last lines (bash_output with filter or cursor shows others):",
        *("```", "the", "end", "```"),
    ]
    assert reply.failed
    assert reply.data["error"] == "exit code 1"
    assert reply.data["output"] == "much\n" * 100


def test_a_short_failure_is_just_shown() -> None:
    reply = task_reply(result(status="failed", reason="exit", exit_code=1, output="no\n"), Facts())
    assert reply.text.splitlines()[1:] == ["```", "no", "```"]
