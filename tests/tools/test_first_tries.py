"""What a model writes at first that knows other shell tools: it is understood, or one sentence says what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.errors import BadInput
from outlast.tools import Toolbox
from outlast.tools.arguments import check
from outlast.tools.profiles import profile_named
from tests.conftest import end_all

TOOLS = {tool.name: tool for tool in profile_named("default").tools}
RUNS: dict[str, list[dict[str, Any]]] = {
    # What is given, what it means; what the reply has to say is under "says".
    "Claude Code: Bash": [
        {"command": "pwd", "description": "where", "timeout": 120000, "->": {"timeout": 120}},
        {"command": "pwd", "run_in_background": True, "->": {"background": True}},
        {
            "command": "pwd",
            "run_in_background": True,
            "timeout": 5000,
            "->": {"timeout": 5},
            "says": "ended after 5.0s",
        },
        {"command": "pwd", "timeout": 600000, "->": {"timeout": 600}},
        {"command": "pwd", "timeout": 1200000, "->": {"timeout": 600}, "says": "at most 600 s"},
        {"command": "pwd", "dangerouslyDisableSandbox": True, "says": "'dangerouslyDisableSandbox' is no parameter"},
    ],
    "Codex: exec_command": [
        {"cmd": "pwd", "workdir": "/usr", "->": {"command": "pwd", "cwd": "/usr"}},
        {"cmd": "pwd", "yield_time_ms": 1000, "->": {"command": "pwd", "wait": 1}},
        {"cmd": "pwd", "max_output_tokens": 100, "->": {"command": "pwd", "max_chars": 400}},
        {
            "cmd": "pwd",
            "yield_time_ms": 30000,
            "shell": "/bin/zsh",
            "->": {"command": "pwd", "wait": 30},
            "says": "'shell'",
        },
        {"cmd": "pwd", "justification": "to see", "->": {"command": "pwd", "description": "to see"}},
        {"cmd": "pwd", "tty": False, "login": True, "->": {"command": "pwd"}, "says": "'login'"},
    ],
    "Codex: shell": [
        {"command": ["bash", "-lc", "pwd | cat"], "->": {"command": "pwd | cat"}},
        {"command": ["ls", "-l", "a b"], "->": {"command": "ls -l 'a b'"}},
        {
            "command": ["pwd"],
            "workdir": "/usr",
            "timeout_ms": 10000,
            "->": {"command": "pwd", "cwd": "/usr", "timeout": 10},
        },
    ],
    "Gemini CLI: run_shell_command": [
        {"command": "pwd", "is_background": True, "->": {"background": True}},
        {"command": "pwd", "directory": "/usr", "->": {"cwd": "/usr"}},
        {"command": "pwd", "dir_path": "/usr", "->": {"cwd": "/usr"}},
        {"command": "pwd", "is_background": False, "description": "where", "->": {"background": False}},
    ],
    "Cursor: run_terminal_cmd": [
        {"command": "pwd", "is_background": "true", "->": {"background": True}},
        {"command": "pwd", "explanation": "to see", "->": {"description": "to see"}},
        {"command": "pwd", "working_directory": "/usr", "block_until_ms": 5000, "->": {"cwd": "/usr", "wait": 5}},
        {"command": "pwd", "required_permissions": ["all"], "says": "'required_permissions'"},
    ],
    "VS Code: run_in_terminal": [
        {"command": "pwd", "isBackground": True, "explanation": "x", "->": {"background": True, "description": "x"}},
        {"command": "pwd", "explanation": "x", "goal": "y", "timeout": 0, "->": {"description": "x"}, "says": "'goal'"},
    ],
    "Cline: execute_command": [
        {"command": "pwd", "requires_approval": False, "says": "'requires_approval'"},
        {"command": "pwd", "timeout": "30", "->": {"timeout": 30}},
    ],
    "OpenHands: execute_bash": [
        {"command": "pwd", "timeout": 30.0, "->": {"timeout": 30}},
        {"command": "pwd", "is_input": "false", "says": "'is_input'"},
    ],
    "Desktop Commander: start_process": [
        {"command": "pwd", "timeout_ms": 8000, "->": {"timeout": 8}},
        {"command": "pwd", "timeout_ms": 8000, "shell": "bash", "->": {"timeout": 8}, "says": "'shell'"},
        {"command": "pwd", "verbose_timing": True, "says": "'verbose_timing'"},
    ],
    "mcp-server-commands: run_process": [
        {"command_line": "pwd", "cwd": "/usr", "->": {"command": "pwd", "cwd": "/usr"}},
        {"argv": ["-l"], "command": "ls", "->": {"command": "ls -l"}},
        {"command": "ls", "args": ["a b"], "->": {"command": "ls 'a b'"}},
        {"command": "cat", "stdin_text": "x", "says": "'stdin_text'"},
    ],
    "by itself": [
        {"script": "pwd", "->": {"command": "pwd"}},
        {"command": "pwd", "timeout": 900, "->": {"timeout": 600}, "says": "at most 600 s"},
        {"command": "pwd", "timeout": 3600, "background": True, "->": {"timeout": 3600}, "says": "ended after 1h 0m"},
        {"command": "pwd", "timeout_seconds": 20, "->": {"timeout": 20}},
        {"command": "pwd", "wait": "2", "->": {"wait": 2}},
        {"command": "pwd", "env": {"A": "1"}, "says": "'env'"},
        {"command": "pwd", "cwd": None, "timeout": None},
    ],
}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("bash_output", {"bash_id": "x", "filter": "e", "->": {"task_id": "x", "filter": "e"}}),
    ("bash_output", {"task_id": "x", "block": True, "timeout": 30000, "->": {"wait": 30}}),
    ("bash_output", {"task_id": "x", "block": True, "->": {"wait": 30}}),
    ("bash_output", {"task_id": "x", "block": False, "timeout": 30000, "->": {"wait": 0}}),
    ("bash_output", {"session_id": 7, "yield_time_ms": 250, "->": {"task_id": "7", "wait": 0.25}}),
    ("bash_output", {"shell_id": "x", "wait": "5", "tail": "20", "->": {"task_id": "x", "wait": 5, "tail": 20}}),
    ("bash_output", {"pid": 12, "timeout_ms": 100, "->": {"task_id": "12", "wait": 0.1}}),
    ("bash_output", {"id": "x", "cursor": 0, "->": {"task_id": "x", "cursor": "0"}}),
    ("bash_output", {"terminalId": "x", "lines": 50, "->": {"task_id": "x", "tail": 50}}),
    ("bash_output", {"task_id": "x", "pattern": "e", "->": {"filter": "e"}}),
    ("bash_output", {"task_id": "x", "offset": 0, "length": 5, "says": "'offset', 'length' are no parameters"}),
    ("bash_output", {"task_id": "x", "wait": 1200, "->": {"wait": 600}, "says": "at most 600 s"}),
    ("bash_input", {"session_id": "x", "chars": "y\n", "->": {"task_id": "x", "text": "y\n"}}),
    ("bash_input", {"session_id": "x", "chars": "", "yield_time_ms": 500, "->": {"text": "", "wait": 0.5}}),
    ("bash_input", {"pid": 3, "input": "y", "timeout_ms": 500, "->": {"task_id": "3", "text": "y", "wait": 0.5}}),
    ("bash_input", {"task_id": "x", "data": "y", "press_enter": "false", "->": {"text": "y", "newline": False}}),
    ("bash_input", {"task_id": "x", "eof": True, "->": {"end": True}}),
    ("bash_kill", {"shell_id": "x", "->": {"task_id": "x"}}),
    ("bash_kill", {"pid": 4, "force": True, "->": {"task_id": "4"}, "says": "'force'"}),
    ("bash_kill", {"jobId": "x", "->": {"task_id": "x"}}),
    ("bash_list", {"state": "running", "->": {"status": "running"}}),
    ("bash_list", {"random_string": "x", "says": "'random_string'"}),
]
TRIES = [
    *(
        pytest.param("bash", given, id=f"{other} {number}")
        for other, all in RUNS.items()
        for number, given in enumerate(all)
    ),
    *(pytest.param(tool, given, id=f"{tool} {number}") for number, (tool, given) in enumerate(OTHERS)),
]


@pytest.mark.parametrize(("tool", "given"), TRIES)
def test_a_first_try_is_understood(tool: str, given: dict[str, Any]) -> None:
    arguments = {key: value for key, value in given.items() if key not in ("->", "says")}
    taken, remarks = check(TOOLS[tool], arguments)
    meant = given.get("->", {})
    assert {key: taken.get(key) for key in meant} == meant
    assert len(remarks) == ("says" in given)
    assert given.get("says", "") in "".join(remarks)


def test_there_are_sixty_of_ten_tools() -> None:
    assert len(TRIES) >= 60
    assert len(RUNS) >= 10


@pytest.mark.parametrize(
    ("tool", "given", "sentence"),
    [
        ("bash", {}, "bash needs 'command'; give it."),
        ("bash", {"comand": "ls"}, "bash needs 'command'; 'comand' is not known; give it."),
        ("bash", {"command": "ls", "timeout": "soon"}, "'timeout' must be a number, not the text 'soon'."),
        ("bash", {"command": "ls", "timeout": -5}, "'timeout' must be 0 or more, not -5."),
        ("bash", {"command": ["ls", 1]}, "'command' must be text, not a list."),
        ("bash_output", {"wait": 5}, "bash_output needs 'task_id'; give it."),
        ("bash_output", {"task_id": "x", "tail": "many"}, "'tail' must be a whole number, not the text 'many'."),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_named(tool: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^{re.escape(sentence)}$"):
        check(TOOLS[tool], given)


@pytest.fixture
def box(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toolbox]:
    monkeypatch.chdir(tmp_path)
    with Toolbox.open(home=home, session="s") as box:
        yield box
        with Shell.open(home=home, operator=True) as shell:
            end_all(shell)


def test_the_other_names_do_what_they_do_there(box: Toolbox) -> None:
    """Through the whole tool, not only its check."""
    assert "/usr\n" in box.call("bash", {"cmd": "pwd", "workdir": "/usr", "timeout_ms": "5000"}).text
    began = box.call("bash", {"command": "cat", "run_in_background": "true", "interactive": True})
    task_id = began.data["task_id"]
    assert began.data["status"] == "running"
    assert "```\nhello\n```" in box.call("bash_input", {"session_id": task_id, "chars": "hello\n"}).text
    assert box.call("bash_output", {"shell_id": task_id, "block": False}).data["status"] == "running"
    assert box.call("bash_kill", {"bash_id": task_id}).data["status"] == "killed"
    assert not os.listdir(".")
