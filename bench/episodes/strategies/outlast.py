"""Outlast's default tools: bash, bash_output, bash_input, bash_kill, bash_list."""

from __future__ import annotations

import re
from typing import Any

from bench.episodes.play import Call, Strategy
from bench.episodes.strategies.common import (
    ARTIFACT,
    MOST_WAITS,
    QUESTION,
    READY,
    answer_to,
    find,
    has,
    newest_build,
    shows_first_failure,
)
from bench.episodes.world import World

_TASK = r"\b(?:bash|task)-[0-9a-z-]+\b"
_SHORT_S = 1  # for a program that answers at once
_WAIT_S = 600  # the longest that the tools take; a call returns earlier if the client would not wait so long


def _bash(command: str, **options: Any) -> Call:
    return Call("bash", {"command": command, **options})


def _output(task: str, **options: Any) -> Call:
    return Call("bash_output", {"task_id": task, **options})


def _kill(task: str) -> Call:
    return Call("bash_kill", {"task_id": task})


def dev_server(world: World) -> Strategy:
    """`ready` waits for the line with the address; what comes next is an ordinary command."""
    reply = yield _bash("./serve.py web", ready="ready on")
    yield _bash(f"curl -s {find(READY, reply)}/version")


def failing_test(world: World) -> Strategy:
    """A failed command's reply leads with the first error; if it does not, `filter` finds it in the whole output."""
    reply = yield _bash("./run-tests")
    leading = "".join(reply.split("```")[:2])
    if not has(r"(?m)^E  ", leading) and not shows_first_failure(reply):
        yield _output(find(_TASK, reply), cursor="0", filter="^E  ")


def watcher(world: World) -> Strategy:
    """`until` waits for a line that was not read yet, so each round is one call."""
    reply = yield _bash("./watch.py", ready="build #")
    task, seen = find(_TASK, reply), newest_build(reply)
    last = seen + 3
    for _ in range(3 * MOST_WAITS):
        if seen >= last:
            return
        reply = yield _output(task, until="build #")
        seen = max(seen, newest_build(reply))


def prompts(world: World) -> Strategy:
    """`stdin_open` keeps the input open; bash_input returns what the program prints next."""
    reply = yield _bash("./install.py", stdin_open=True, ready="y/n")
    task, until = find(_TASK, reply), {"until": "y/n|installed"}
    for _ in range(MOST_WAITS):
        if has("installed as|aborted", reply):
            return
        if has(QUESTION, reply):
            sent = {"task_id": task, "text": answer_to(reply)}
            reply = yield Call("bash_input", {**sent, **until})
            if has("'until' is no parameter", reply):
                until = {}
                reply = yield Call("bash_input", sent)
        else:
            reply = yield _output(task, wait=_SHORT_S)


def large_log(world: World) -> Strategy:
    """As with the tests: the reply leads with the first error, and `filter` is there if it does not."""
    reply = yield _bash("./import.py")
    if not has("ERROR", reply):
        yield _output(find(_TASK, reply), cursor="0", filter="ERROR|FATAL")


def killed(world: World) -> Strategy:
    """The user wants it in the background, and that is a parameter."""
    yield _bash("./build.py --core", background=True)


def restarted(world: World) -> Strategy:
    """The server says that bash_list finds tasks again; `wait` waits for the end of the one found."""
    listing = yield Call("bash_list", {})
    [line, *_] = [line for line in listing.splitlines() if "build.py" in line]
    reply = yield _output(task := find(_TASK, line), wait=_WAIT_S)
    for _ in range(MOST_WAITS):
        if has(ARTIFACT, reply):
            return
        reply = yield _output(task, wait=_WAIT_S)


def two_servers(world: World) -> Strategy:
    """Two starts that wait for their line, one end by id, one ordinary command."""
    web = yield _bash("./serve.py web", ready="ready on")
    api = yield _bash("./serve.py api", ready="ready on")
    yield _kill(find(_TASK, web))
    yield _bash(f"curl -s {find(READY, api)}/version")


def slow_build(world: World) -> Strategy:
    """Within the limit of 120 s, so an ordinary command; if the reply says that it still runs, wait for it."""
    reply = yield _bash("./build.py")
    for _ in range(MOST_WAITS):
        if has(ARTIFACT, reply):
            return
        reply = yield _output(find(_TASK, reply), wait=_WAIT_S)


def child_left(world: World) -> Strategy:
    """The reply names what was left running; bash_kill ends a task and every process that it started."""
    reply = yield _bash("./check.sh")
    if has("left running|still run", reply):
        yield _kill(find(_TASK, reply))


def leave_running(world: World) -> Strategy:
    """A server in the background, and a command that detaches another one."""
    yield _bash("./serve.py web", ready="ready on")
    yield _bash("./detach.sh")


def clean_up(world: World) -> Strategy:
    """bash_list shows what runs and what commands have left running; bash_kill ends each."""
    listing = yield Call("bash_list", {})
    for line in listing.splitlines():
        if re.match(_TASK, line) and has(r"\brunning\b", line):
            yield _kill(find(_TASK, line))
