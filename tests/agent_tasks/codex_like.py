"""Speaks the events of `codex exec --json`; the prompt is its input, if `-` is its argument."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any


def tell(kind: str, **event: Any) -> None:
    print(json.dumps({"type": kind, **event}), flush=True)


def item(stage: str, number: int, kind: str, **more: Any) -> None:
    tell(f"item.{stage}", item={"id": f"item_{number}", "type": kind, **more})


def work(prompt: str) -> None:
    item("completed", 0, "reasoning", text="**Thinking**")
    command = {"command": "bash -lc 'false'", "aggregated_output": "", "exit_code": None, "status": "in_progress"}
    item("started", 1, "command_execution", **command)
    item("completed", 1, "command_execution", **{**command, "exit_code": 1, "status": "failed"})
    item("started", 2, "todo_list", items=[{"text": "one", "completed": True}, {"text": "two", "completed": False}])
    item("completed", 3, "file_change", changes=[{"path": "a.py", "kind": "update"}], status="completed")
    item("completed", 4, "mcp_tool_call", server="docs", tool="find", arguments={"query": "x"}, status="completed")
    item("completed", 5, "agent_message", text="Half of it is done.")
    tell("error", message="Reconnecting... 1/5")
    item("completed", 6, "agent_message", text=f"You said: {prompt}")
    tell("turn.completed", usage={"input_tokens": 1000, "cached_input_tokens": 900, "output_tokens": 50})


def main() -> int:
    prompt = sys.stdin.read() if sys.argv[-1] == "-" else sys.argv[-1]
    print("Reading prompt from stdin...", file=sys.stderr, flush=True)
    tell("thread.started", thread_id="th-1")
    tell("turn.started")
    match prompt.split()[0]:
        case "fail":
            tell("error", message="You've hit your usage limit.")
            tell("turn.failed", error={"message": "You've hit your usage limit."})
            return 1
        case "wait":
            subprocess.Popen(["setsid", "sleep", "302"], stdout=subprocess.DEVNULL)
            item("completed", 0, "agent_message", text="waiting")
            time.sleep(300)
        case _:
            work(prompt)
    return 0


sys.exit(main())
