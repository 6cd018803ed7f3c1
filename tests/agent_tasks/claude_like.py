"""Speaks stream-json as `claude -p --output-format stream-json --verbose` does, of a prompt that it gets either way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any


def tell(**event: Any) -> None:
    print(json.dumps({"session_id": "5e55", **event}), flush=True)


def say(text: str, number: int = 1, **more: Any) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 2}
    message = {"id": f"msg_{number}", "role": "assistant", "content": [{"type": "text", "text": text}], "usage": usage}
    tell(type="assistant", message=message, parent_tool_use_id=None, **more)


def use(name: str, given: dict[str, Any], number: int = 1) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 2}
    content = [{"type": "tool_use", "id": "toolu_1", "name": name, "input": given}]
    tell(type="assistant", message={"id": f"msg_{number}", "role": "assistant", "content": content, "usage": usage})
    answer = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "SECRET OF THE TOOL"}]
    tell(type="user", message={"role": "user", "content": answer})


def finish(result: str, **more: Any) -> None:
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3, "output_tokens": 7}
    end = {"type": "result", "subtype": "success", "is_error": False, "duration_ms": 5, "num_turns": 2}
    tell(**{**end, "result": result, "total_cost_usd": 0.0125, "usage": usage, "modelUsage": {}, **more})


def broken() -> None:
    print("Warning: this line is no JSON", flush=True)
    print('{"type":"assistant","message":', flush=True)  # half an event
    print('["a list"]', flush=True)
    print('"text"', flush=True)
    tell(type="from_the_future", content={"deep": [1, 2, 3]})
    tell(type="assistant", message=None)
    tell(type="assistant", message={"content": [None, 7, {"type": "text"}, {"type": "thinking", "thinking": "hm"}]})
    tell(type="result", subtype=None, usage="none", result=None, total_cost_usd="free")
    sys.stdout.write("[" * 5000 + "\n")  # too deep for a parser
    tell(type="user", message={"content": "x" * 3_000_000})  # a picture
    sys.stdout.buffer.write(b"\xff\xfe not UTF-8\n")
    say("still here")
    finish("still here")


def main() -> int:
    prompt = " ".join(sys.argv[1:]) or sys.stdin.read()
    tell(type="system", subtype="init", model="claude-like", tools=["Bash"], cwd=os.getcwd())
    match prompt.split()[0]:
        case "fail":
            finish("The model is overloaded.", is_error=True)
            return 1
        case "lie":  # it failed, and its exit code does not say so
            finish("", subtype="error_during_execution", errors=["first", "second"])
        case "broken":
            broken()
        case "halfway":
            sys.stdout.write('{"type":"assistant","message":{"content":[{"type":"te')
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "leave":  # something that holds its output open
            subprocess.Popen(["bash", "-c", "sleep 0.5; echo said later"])
            finish("left")
        case "wait":
            # In its tree, out of its group; and as a task of its own.
            subprocess.Popen(["setsid", "sleep", "300"], stdout=subprocess.DEVNULL)
            run = [sys.executable, "-m", "outlast", "run", "--bg", "sleep 301"]
            subprocess.run(run, stdout=subprocess.DEVNULL, check=True)
            say("waiting")
            time.sleep(300)
        case _:
            say("I look around.")
            use("Bash", {"command": "ls -l", "description": "lists"})
            say(f"You said: {prompt}", 2)
            finish(f"You said: {prompt}")
    return 0


sys.exit(main())
