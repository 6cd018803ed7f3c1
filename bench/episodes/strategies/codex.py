"""Codex's own tools: exec_command returns output or the id of a session, write_stdin types into it or waits.

An empty write_stdin waits 5 s at least, so in shortened time it waits too long, but never for nothing.
"""

from __future__ import annotations

from typing import Any

from bench.episodes.play import Call, Strategy
from bench.episodes.strategies.common import (
    ARTIFACT,
    LIST_NEWEST,
    MOST_WAITS,
    QUESTION,
    READY,
    answer_to,
    find,
    has,
    look_at_output,
    newest_build,
    own_processes,
    shows_first_failure,
    wait_for,
)
from bench.episodes.world import World

_LOG = r"(?m)^(/\S+)$"
_SESSION = r"session ID (\d+)"


def _execute(command: str, **options: Any) -> Call:
    return Call("exec_command", {"cmd": command, **options})


def _start(world: World, command: str, seconds: float) -> Call:
    return _execute(command, yield_time_ms=world.milliseconds(seconds))


def _poll(world: World, session: str, seconds: float = 30) -> Call:
    return Call("write_stdin", {"session_id": int(session), "yield_time_ms": world.milliseconds(seconds)})


def dev_server(world: World) -> Strategy:
    """exec_command returns after a while what was printed; if the address is not there, wait on."""
    reply = yield _start(world, "./serve.py web", 15)
    session = find(_SESSION, reply)
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _poll(world, session)
    yield _execute(f"curl -s {find(READY, reply)}/version")


def failing_test(world: World) -> Strategy:
    """Output is cut at 10,000 tokens; if the first error is not shown, search for it."""
    reply = yield _execute("./run-tests")
    if not shows_first_failure(reply):
        yield _execute("./run-tests 2>&1 | grep -m1 -B12 -A6 '^E  '")


def watcher(world: World) -> Strategy:
    """An empty write_stdin shows what is new; if that has no build, wait on."""
    reply = yield _start(world, "./watch.py", 10)
    session, seen = find(_SESSION, reply), newest_build(reply)
    last = max(seen, 1) + 3
    for _ in range(3 * MOST_WAITS):
        if seen >= last:
            return
        reply = yield _poll(world, session, 10)
        seen = max(seen, newest_build(reply))


def prompts(world: World) -> Strategy:
    """With a terminal (tty) what write_stdin writes is typed; it returns what comes next."""
    reply = yield _execute("./install.py", tty=True, yield_time_ms=world.milliseconds(10))
    for _ in range(MOST_WAITS):
        if has("installed as|aborted", reply) or not has(_SESSION, reply):
            return
        typed = {"chars": f"{answer_to(reply)}\n"} if has(QUESTION, reply) else {}
        session = int(find(_SESSION, reply))
        reply = yield Call("write_stdin", {"session_id": session, **typed, "yield_time_ms": world.milliseconds(5)})


def large_log(world: World) -> Strategy:
    """Output is cut at 10,000 tokens: keep it in a file, see its end, search it."""
    yield _execute("./import.py > import.log 2>&1; echo exit $?; tail -n 20 import.log")
    yield _execute("grep -n -m5 -iE 'error|fatal' import.log")


def killed(world: World) -> Strategy:
    """A session that is left running."""
    yield _start(world, "./build.py --core", 1)


def restarted(world: World) -> Strategy:
    """No tool lists sessions: find the process, and see whether it writes into a file."""
    reply = yield _execute(LIST_NEWEST)
    if not (pids := own_processes(reply)):
        return
    reply = yield _execute(look_at_output(pids[0]))
    if has(_LOG, reply):
        yield _execute(wait_for(world, "artifact", find(_LOG, reply)))


def two_servers(world: World) -> Strategy:
    """Two sessions with a terminal, so that Ctrl-C can be typed to end one."""
    options = {"tty": True, "yield_time_ms": world.milliseconds(15)}
    web = yield _execute("./serve.py web", **options)
    reply = yield _execute("./serve.py api", **options)
    session = find(_SESSION, reply)
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _poll(world, session)
    yield Call("write_stdin", {"session_id": int(find(_SESSION, web)), "chars": "\u0003"})
    yield _execute(f"curl -s {find(READY, reply)}/version")


def slow_build(world: World) -> Strategy:
    """exec_command yields after 30 s at the latest; then wait with empty writes."""
    reply = yield _start(world, "./build.py", 30)
    for _ in range(MOST_WAITS):
        if has(ARTIFACT, reply) or not has(_SESSION, reply):
            return
        reply = yield _poll(world, find(_SESSION, reply), 60)


def child_left(world: World) -> Strategy:
    """If the reply says that a session is left it may be the child; what runs is seen in the system."""
    yield _execute("./check.sh")
    yield from clean_up(world)


def leave_running(world: World) -> Strategy:
    """A server in a session, and a command that detaches another one."""
    yield _start(world, "./serve.py web", 15)
    yield _start(world, "./detach.sh", 10)


def clean_up(world: World) -> Strategy:
    """No tool lists what runs, so ask the system."""
    listing = yield _execute(LIST_NEWEST)
    if pids := own_processes(listing):
        yield _execute(f"kill {' '.join(pids)}; sleep 1; {LIST_NEWEST}")
