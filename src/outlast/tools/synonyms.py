"""What other shell tools call our parameters, so that a model that knows those tools is understood at its first try.

The names come from the tools of Claude Code, Codex, Gemini CLI, Cursor, VS Code, Cline, OpenHands, Desktop Commander
and other MCP servers. A name is put into snake_case, its unit (`_ms`, `_seconds`) is taken off, and it is looked up
here. A parameter that is not found is ignored, and the reply names it.

Our times are seconds. Claude Code's `timeout` is milliseconds, and models write it here too. A call waits at most
600 s and a foreground command runs at most 600 s, so a number of 10,000 or more can only be milliseconds; from 600
to 10,000 it is taken as seconds, cut, and the reply says so. A background command may run for a day.
"""

from __future__ import annotations

import re
import shlex

from outlast.output.duration import duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LONGEST_S = 600  # that a call waits, or a foreground command runs
SURELY_MS = 10_000
_LONGEST_BACKGROUND_S = 86_400
_DEFAULT_BLOCK_S = 30  # of tools with `block`, if there is no `timeout`
_CHARS_OF_A_TOKEN = 4

_OWNERS = "task session bash shell process job terminal exec command"
_ID = f"id pid {_OWNERS} {' '.join(f'{owner}_id' for owner in _OWNERS.split())}"
_WAIT = "yield_time block_until wait_for wait_time initial_wait max_wait poll_timeout"
_UNTIL = "wait_until wait_for_pattern wait_for_output wait_pattern ready_pattern"
_SIZES = {
    "max_chars": "max_output_length max_output_chars max_length max_characters",
    "max_tokens": "max_output_tokens token_limit",
}
_NAMES: dict[str, dict[str, str]] = {
    "bash": {
        "command": "cmd script code shell_command command_line commandline bash_command command_string",
        "background": "run_in_background is_background in_background run_background bg detach detached run_async",
        "cwd": "workdir work_dir working_directory working_dir directory dir dir_path path current_directory",
        "timeout": "time_limit max_time hard_timeout",
        "wait": _WAIT,
        "ready": f"until ready_when {_UNTIL}",
        "tty": "pty use_tty use_pty allocate_tty terminal",
        "stdin_open": "interactive keep_stdin_open open_stdin stdin",
        "description": "explanation reason justification purpose summary intent title",
        "args": "arguments argv",
        **_SIZES,
    },
    "bash_output": {
        "task_id": _ID,
        "wait": f"timeout {_WAIT}",
        "block": "blocking",
        "until": _UNTIL,
        "filter": "pattern regex grep search filter_regex filter_pattern",
        "tail": "lines last_lines tail_lines last_n_lines num_lines line_count n",
        "cursor": "since from from_cursor position",
        **_SIZES,
    },
    "bash_input": {
        "task_id": _ID,
        "text": "chars input data content stdin message value line characters",
        "keys": "key keystrokes special_keys send_keys keypress",
        "newline": "press_enter submit add_newline append_newline enter",
        "end": "eof close close_stdin end_of_input",
        "wait": f"timeout {_WAIT}",
        "until": _UNTIL,
        **_SIZES,
    },
    "bash_kill": {"task_id": _ID},
    "bash_list": {"status": "state filter"},
}
_OWN_NAME = {
    tool: {name: own for own, others in table.items() for name in (own, *others.split())}
    for tool, table in _NAMES.items()
}
_UNITS = (("_milliseconds", 0.001), ("_millis", 0.001), ("_ms", 0.001), ("_seconds", 1), ("_secs", 1), ("_sec", 1))
_SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh")


def normalise(tool: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments under our names and in our units, and what has to be said about them."""
    taken: dict[str, Any] = {}
    in_seconds: set[str] = set()
    for key, value in given.items():
        name, scale = _without_unit(key)
        own = _OWN_NAME[tool].get(name, key)
        if own != key and own in given:
            own = key  # our own name is there as well, and counts
        number = _number(value) if scale and own != key else None
        if number is not None:
            in_seconds.add(own)
        taken[own] = value if number is None else number * scale
    if tool == "bash":
        _join_command(taken)
    _convert_tokens(taken)
    _convert_block(taken, in_seconds)
    # Tools that say `run_in_background` count in milliseconds.
    counts_ms = "run_in_background" in given
    remarks = [_in_seconds(name, taken, in_seconds, counts_ms) for name in ("timeout", "wait")]
    return taken, [remark for remark in remarks if remark]


def _without_unit(key: str) -> tuple[str, float]:
    """Return a name in snake_case without its unit, and that unit in seconds (0 if there is none)."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()
    for unit, scale in _UNITS:
        if name.endswith(unit):
            return name.removesuffix(unit), scale
    return name, 0


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None


def _join_command(taken: dict[str, Any]) -> None:
    """Make one line of a command that is a list of words, or has its arguments apart."""
    command, words = taken.get("command"), taken.pop("args", None)
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        match command:
            case [shell, "-c" | "-lc", line] if shell in _SHELLS:
                taken["command"] = line
            case _:
                taken["command"] = shlex.join(command)
    if isinstance(command, str) and isinstance(words, list) and all(isinstance(word, str) for word in words):
        taken["command"] = f"{command} {shlex.join(words)}".strip()
    elif words is not None:
        taken["args"] = words


def _convert_tokens(taken: dict[str, Any]) -> None:
    tokens = _number(taken.get("max_tokens"))
    if tokens is not None:
        del taken["max_tokens"]
        taken.setdefault("max_chars", max(1, round(tokens * _CHARS_OF_A_TOKEN)))


def _convert_block(taken: dict[str, Any], in_seconds: set[str]) -> None:
    """Put `block` into `wait`: true waits for the end, as long as `timeout` says; false does not wait."""
    match str(taken.get("block", "")).lower():
        case "true":
            taken.setdefault("wait", _DEFAULT_BLOCK_S)
        case "false":
            taken["wait"] = 0
            in_seconds.add("wait")
        case _:
            return
    del taken["block"]


def _in_seconds(name: str, taken: dict[str, Any], in_seconds: set[str], counts_ms: bool) -> str:
    """Put one time into seconds; returns what has to be said about it."""
    asked = _number(taken.get(name))
    if asked is None or asked < 0:
        return ""  # the check of the schema says what is wrong with it
    seconds = asked
    may_be_long = name == "timeout" and str(taken.get("background", "")).lower() == "true"
    if name not in in_seconds:
        sure = _LONGEST_BACKGROUND_S if may_be_long and not counts_ms else 999 if counts_ms else SURELY_MS - 1
        seconds = asked / 1000 if asked > sure else asked
    taken[name] = seconds
    if may_be_long:
        return f"It is ended after {duration(round(seconds * 1000))}." if seconds else ""
    if seconds > LONGEST_S:
        taken[name] = LONGEST_S
        what = "timeout is at most" if name == "timeout" else "A call waits at most"
        return f"{what} {LONGEST_S} s{'; use background for longer' if name == 'timeout' else ''}."
    return ""
