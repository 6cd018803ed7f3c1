"""Desktop Commander: start_process, read_process_output, interact_with_process, force_terminate, list_sessions.

start_process needs a time after which it returns what there is; the descriptions ask for absolute paths.
"""

from __future__ import annotations

import re
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
)
from bench.episodes.world import World

_PID = r"PID:? (\d+)"


def _start(world: World, command: str, seconds: float) -> Call:
    return Call("start_process", {"command": command, "timeout_ms": world.milliseconds(seconds)})


def _program(world: World, program: str, seconds: float) -> Call:
    return _start(world, f"{world.work}/{program}", seconds)


def _read(world: World, pid: str, **options: Any) -> Call:
    return Call("read_process_output", {"pid": int(pid), "timeout_ms": world.milliseconds(30), **options})


def dev_server(world: World) -> Strategy:
    """A server never ends by itself, so the start is given 15 s; then an ordinary command."""
    reply = yield _program(world, "serve.py web", 15)
    pid = find(_PID, reply)
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _read(world, pid)
    yield _start(world, f"curl -s {find(READY, reply)}/version", 10)


def failing_test(world: World) -> Strategy:
    """Output is said to be protected, so run it; if the first error is not in the reply, search for it."""
    reply = yield _program(world, "run-tests", 30)
    if not shows_first_failure(reply):
        yield _start(world, f"{world.work}/run-tests 2>&1 | grep -m1 -B12 -A6 '^E  '", 30)


def watcher(world: World) -> Strategy:
    """read_process_output waits for new output; if that has no build, look at the last lines."""
    reply = yield _program(world, "watch.py", 10)
    pid, seen = find(_PID, reply), newest_build(reply)
    last = max(seen, 1) + 3
    for _ in range(3 * MOST_WAITS):
        if seen >= last:
            return
        reply = yield _read(world, pid)
        if newest_build(reply) <= seen:
            reply = yield _read(world, pid, offset=-6)
        seen = max(seen, newest_build(reply))


def prompts(world: World) -> Strategy:
    """start_process sees that a process waits for input; interact_with_process answers and returns what comes next."""
    reply = yield _program(world, "install.py", 10)
    pid = find(_PID, reply)
    for _ in range(MOST_WAITS):
        if has("installed as|aborted", reply):
            return
        if has(QUESTION, reply):
            sent = {"pid": int(pid), "input": answer_to(reply)}
            # In real time the default of 8 s is right.
            shorter = {} if world.scale == 1 else {"timeout_ms": world.milliseconds(8)}
            reply = yield Call("interact_with_process", {**sent, **shorter})
        else:
            reply = yield _read(world, pid)


def large_log(world: World) -> Strategy:
    """start_process names no limit of output, so keep it in a file and search that."""
    log = f"{world.work}/import.log"
    yield _start(world, f"{world.work}/import.py > {log} 2>&1; echo exit $?; tail -n 20 {log}", 30)
    yield _start(world, f"grep -n -m5 -iE 'error|fatal' {log}", 30)


def killed(world: World) -> Strategy:
    """A start that does not wait for the end."""
    yield _program(world, "build.py --core", 5)


def restarted(world: World) -> Strategy:
    """list_sessions has what was started; where it has nothing, see in the system where the build writes to."""
    listing = yield Call("list_sessions", {})
    if not has(_PID, listing):
        listing = yield _start(world, LIST_NEWEST, 10)
        if pids := own_processes(listing):
            yield _start(world, look_at_output(pids[0]), 10)
        return
    pid = find(_PID, listing)
    for _ in range(MOST_WAITS):
        reply = yield _read(world, pid)
        if has(ARTIFACT, reply):
            return


def two_servers(world: World) -> Strategy:
    """Two starts, force_terminate for the one, an ordinary command for the other."""
    web = yield _program(world, "serve.py web", 15)
    reply = yield _program(world, "serve.py api", 15)
    api = find(_PID, reply)
    yield Call("force_terminate", {"pid": int(find(_PID, web))})
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _read(world, api)
    yield _start(world, f"curl -s {find(READY, reply)}/version", 10)


def slow_build(world: World) -> Strategy:
    """A time has to be given, so the 90 s that the user has named and some more; after an error find the session."""
    reply = yield _program(world, "build.py", 100)
    if not has(_PID, reply):
        reply = yield Call("list_sessions", {})
    pid = find(_PID, reply)
    for _ in range(MOST_WAITS):
        if has(ARTIFACT, reply):
            return
        reply = yield _read(world, pid)


def child_left(world: World) -> Strategy:
    """A reply does not say what a command has left, so look at the system."""
    yield _program(world, "check.sh", 20)
    listing = yield _start(world, LIST_NEWEST, 10)
    for pid in own_processes(listing):
        yield Call("kill_process", {"pid": int(pid)})


def leave_running(world: World) -> Strategy:
    """A server, and a command that detaches another one."""
    yield _program(world, "serve.py web", 15)
    yield _program(world, "detach.sh", 10)


def clean_up(world: World) -> Strategy:
    """list_sessions and force_terminate for what was started here, the system for what that has started."""
    listing = yield Call("list_sessions", {})
    for pid in re.findall(_PID, listing):
        yield Call("force_terminate", {"pid": int(pid)})
    listing = yield _start(world, LIST_NEWEST, 10)
    for pid in own_processes(listing):
        yield Call("kill_process", {"pid": int(pid)})
