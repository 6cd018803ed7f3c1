"""Outlast's own replies, pure: what is said of a task in which state."""

from __future__ import annotations

from typing import Any

from outlast.faces.tools.reply import LAST_LINES, Facts, headline, told
from outlast.model import Result, Task, Usual

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
        "closed": False,
        "output_file": "/state/output",
        "output": "",
        "truncated": False,
        "dropped_bytes": 0,
        "hidden_lines": 0,
        "cursor": "0",
    }
    return Result(**{**every, **known})


def said(task: Task, **facts: Any) -> str:
    return headline(task, Facts(**facts), NOW).partition(" (1m 30s), ")[2]


def test_what_is_said_of_a_running_task() -> None:
    task = result()
    assert said(task) == "pid 7, no output yet (it may be buffered)."
    assert said(result(elapsed_ms=90_000), printed_at=NOW - 12) == "pid 7, last output 12s ago."
    assert said(task, printed_at=NOW, activity="busy", usual=Usual(75_000, 1)) == (
        "pid 7, busy, last output 0.0s ago, usually takes 1m 15s (1 earlier run)."
    )


def test_how_it_ended() -> None:
    def ended(**known: Any) -> str:
        return headline(result(**known), Facts(), NOW).removeprefix("bash-00000001 ")

    assert ended(status="completed", reason="exit", exit_code=0) == "completed: exit code 0, after 1m 30s."
    assert ended(status="failed", reason="signal", signal=9, cpu_ms=1500) == (
        "failed: ended by SIGKILL, after 1m 30s (1.5s of CPU)."
    )
    assert ended(status="failed", reason="exit", exit_code=0, pipe_status=(1, 0)) == (
        "failed: exit code 0 (stages: 1 | 0), after 1m 30s."
    )
    assert ended(status="pending", waits_for=("bash-2",)) == "queued: waits for bash-2."


def test_what_was_left_behind_hidden_and_cut_is_said() -> None:
    task = result(
        status="completed", reason="exit", exit_code=0, children=(8, 9), hidden_lines=3, truncated=True, cursor="42"
    )
    assert told(task, Facts(), "hint").text.splitlines()[1:] == [
        "Left behind and still running: 8, 9.",
        "Lines that do not match and are not shown: 3",
        "Not all is shown; the whole output: /state/output",
        "Next cursor: 42",
        "(no output)",
    ]


def test_a_failure_leads_with_what_went_wrong() -> None:
    output = "".join(f"{number}\n" for number in range(100))
    reply = told(result(status="failed", reason="exit", exit_code=1, output=output), Facts(first_error="42"), "hint")
    lines = reply.text.splitlines()
    assert lines[1:6] == ["First line that looks like an error:", "```", "42", "```", f"Last {LAST_LINES} lines:"]
    assert lines[6:10] == ["```", "80", "81", "82"]
    assert lines[-2:] == ["79", "```"]
    assert reply.failed
    assert reply.data["error"] == "exit code 1"


def test_a_short_failure_is_just_shown() -> None:
    reply = told(result(status="failed", reason="exit", exit_code=1, output="no\n"), Facts(first_error="no"), "hint")
    assert reply.text.splitlines()[1:] == ["```", "no", "```"]
