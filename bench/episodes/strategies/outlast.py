"""Outlast's default tools: bash, bash_output, bash_input, bash_kill, bash_list.

A reply that says that the command still runs is followed by a bash_output that waits for its end, with the longest wait
that the description allows; a call returns earlier if the client would not wait so long.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from bench.episodes.play import Call, Strategy
from bench.episodes.strategies.common import (
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
_WAIT_S = 600


def _bash(command: str, **options: Any) -> Call:
    return Call("bash", {"command": command, **options})


def _output(task: str, **options: Any) -> Call:
    return Call("bash_output", {"task_id": task, **options})


def _kill(task: str) -> Call:
    return Call("bash_kill", {"task_id": task})


def _is_running(reply: str) -> bool:
    """Return whether the first line of a reply says that the command still runs; children left behind do not count."""
    first = reply.partition("\n")[0]
    return has(r"\brunning\b", first.lower()) and not has("completed|failed|killed|exit code|left", first.lower())


def _finish(reply: str) -> Generator[Call, str, str]:
    """Wait for the end of a command that still runs; return all that was shown of it."""
    shown = reply
    for _ in range(MOST_WAITS):
        if not _is_running(reply):
            break
        reply = yield _output(find(_TASK, reply), wait=_WAIT_S)
        shown += reply
    return shown


def _serve(name: str) -> Generator[Call, str, str]:
    """`ready` waits for the line with the address; if the line is not complete yet, look at the last lines."""
    reply = yield _bash(f"./serve.py {name}", ready="ready on")
    task = find(_TASK, reply)
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _output(task, tail=2)
    return f"{task} {find(READY, reply)}"


def dev_server(world: World) -> Strategy:
    """`ready` waits for the line with the address; what comes next is an ordinary command."""
    _, address = (yield from _serve("web")).split()
    yield _bash(f"curl -s {address}/version")


def failing_test(world: World) -> Strategy:
    """A failed command's reply leads with the first error; if it does not, `filter` finds it in the whole output."""
    reply = yield from _finish((yield _bash("./run-tests")))
    leading = "\n".join(reply.splitlines()[:40])
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
    """`stdin_open` keeps the input open; bash_input returns what the program prints next, here up to a known text.

    If it returns earlier, read on.
    """
    reply = yield _bash("./install.py", stdin_open=True, ready="y/n")
    task = find(_TASK, reply)
    for _ in range(MOST_WAITS):
        if has("installed as|aborted", reply):
            return
        if has(QUESTION, reply):
            sent = {"task_id": task, "text": answer_to(reply), "until": "y/n|installed"}
            reply = yield Call("bash_input", sent)
        else:
            reply = yield _output(task, wait=_SHORT_S)


def large_log(world: World) -> Strategy:
    """As with the tests: the reply leads with the first error, and `filter` is there if it does not."""
    reply = yield from _finish((yield _bash("./import.py")))
    if not has("ERROR", reply):
        yield _output(find(_TASK, reply), cursor="0", filter="ERROR|FATAL")


def killed(world: World) -> Strategy:
    """The user wants it in the background, and that is a parameter."""
    yield _bash("./build.py --core", background=True)


def restarted(world: World) -> Strategy:
    """The server says that bash_list finds tasks again; `wait` waits for the end of the one found."""
    listing = yield Call("bash_list", {})
    line = next((line for line in listing.splitlines() if "build.py" in line), "")
    yield from _finish((yield _output(find(_TASK, line), wait=_WAIT_S)))


def two_servers(world: World) -> Strategy:
    """Two starts that wait for their line, one end by id, one ordinary command."""
    web, _ = (yield from _serve("web")).split()
    _, address = (yield from _serve("api")).split()
    yield _kill(web)
    yield _bash(f"curl -s {address}/version")


def slow_build(world: World) -> Strategy:
    """Within the limit of 120 s, so an ordinary command; if the reply says that it still runs, wait for it."""
    yield from _finish((yield _bash("./build.py")))


def child_left(world: World) -> Strategy:
    """The reply names what was left running; bash_kill ends a task and every process that it started."""
    reply = yield from _finish((yield _bash("./check.sh")))
    if has(r"(?i)left .*running|still run", reply):
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
