"""@mako10k/mcp-shell-server: shell_execute, process_get_execution, read_execution_output, terminal_operate …

shell_execute is adaptive: after 15 s a command goes on in the background, for 60 s in all unless more is asked for.
"""

from __future__ import annotations

from typing import Any

from bench.episodes.play import Call, Strategy
from bench.episodes.strategies.common import (
    ARTIFACT,
    LIST_NEWEST,
    MOST_LOOKS,
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

_EXECUTION = r'"execution_id":\s*"([^"]+)"'
_OUTPUT = r'"output_id":\s*"([^"]+)"'
_PID = r'"process_id":\s*(\d+)'
_TERMINAL = r'"terminal_id":\s*"([^"]+)"'
_LONGEST_S = 300  # the cap that the description names


def _execute(world: World, command: str, **options: Any) -> Call:
    return Call("shell_execute", {"command": command, **options, **_foreground(world, options)})


def _foreground(world: World, options: dict[str, Any]) -> dict[str, int]:
    # In real time the default of 15 s is right; in shortened time it has to be shortened.
    if world.scale == 1 or "execution_mode" in options:
        return {}
    return {"foreground_timeout_seconds": max(1, round(world.seconds(15)))}


def _long(world: World, command: str) -> Call:
    """Adaptive: the reply comes after 15 s with what was printed so far and the id of the output."""
    return _execute(world, command, timeout_seconds=_LONGEST_S)


def _read(output: str) -> Call:
    return Call("read_execution_output", {"output_id": output})


def _background(world: World, command: str) -> Call:
    return _execute(world, command, execution_mode="background", timeout_seconds=_LONGEST_S)


def dev_server(world: World) -> Strategy:
    """Background mode shows no output while it runs, adaptive mode does: 15 s are enough for a start."""
    reply = yield _long(world, "./serve.py web")
    output = find(_OUTPUT, reply)
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _read(output)
    yield _execute(world, f"curl -s {find(READY, reply)}/version")


def failing_test(world: World) -> Strategy:
    """Truncated output can be read by its id; if the first error is not in the reply, search for it."""
    reply = yield _execute(world, "./run-tests")
    if not shows_first_failure(reply):
        yield _execute(world, "./run-tests 2>&1 | grep -m1 -B12 -A6 '^E  '")


def watcher(world: World) -> Strategy:
    """Adaptive mode gives the id of an output that is said to grow; if it does not, start again with a file."""
    reply = yield _long(world, "./watch.py")
    output, pid, seen = find(_OUTPUT, reply), find(_PID, reply), newest_build(reply)
    for _ in range(MOST_LOOKS):
        reply = yield _read(output)
        if newest_build(reply) > seen:
            break
    else:
        yield _execute(world, f"kill {pid}")
        yield _background(world, "./watch.py > watch.log 2>&1")
        seen = 0
    last = seen + 3
    for _ in range(3 * MOST_WAITS):
        reply = yield _execute(world, wait_for(world, f"build #{seen + 1}", "watch.log", seconds=14))
        seen = max(seen, newest_build(reply))
        if seen >= last:
            return


def prompts(world: World) -> Strategy:
    """terminal_operate is for interactive programs: it creates, sends, and shows what comes."""
    reply = yield Call("terminal_operate", {"command": "./install.py", "working_directory": str(world.work)})
    terminal = find(_TERMINAL, reply)
    for _ in range(MOST_WAITS):
        if has("installed as|aborted", reply):
            return
        if has(QUESTION, reply):
            reply = yield Call("terminal_operate", {"terminal_id": terminal, "input": answer_to(reply)})
        else:
            reply = yield Call("terminal_operate", {"terminal_id": terminal})


def large_log(world: World) -> Strategy:
    """5 MB are said to be returned, so keep it in a file and search that."""
    yield _execute(world, "./import.py > import.log 2>&1; echo exit $?; tail -n 20 import.log")
    yield _execute(world, "grep -n -m5 -iE 'error|fatal' import.log")


def killed(world: World) -> Strategy:
    """The user wants it in the background, and that is a mode."""
    yield _background(world, "./build.py --core")


def restarted(world: World) -> Strategy:
    """The history of commands and the list of outputs are what could know it; else the system."""
    reply = yield Call("command_history_query", {"query": "build.py"})
    if has(_EXECUTION, reply):
        reply = yield Call("process_get_execution", {"execution_id": find(_EXECUTION, reply)})
    if not has(ARTIFACT, reply):
        reply = yield Call("list_execution_outputs", {})
        if has(_OUTPUT, reply):
            yield Call("read_execution_output", {"output_id": find(_OUTPUT, reply)})
        else:
            reply = yield _execute(world, LIST_NEWEST)
            if pids := own_processes(reply.replace("\\n", "\n")):
                yield _execute(world, look_at_output(pids[0]))


def two_servers(world: World) -> Strategy:
    """Two in adaptive mode; no tool ends one, so kill does, by the pid in the reply."""
    web = yield _long(world, "./serve.py web")
    reply = yield _long(world, "./serve.py api")
    output, pid = find(_OUTPUT, reply), find(_PID, web)
    for _ in range(MOST_WAITS):
        if has(READY, reply):
            break
        reply = yield _read(output)
    yield _execute(world, f"kill {pid}")
    yield _execute(world, f"curl -s {find(READY, reply)}/version")


def slow_build(world: World) -> Strategy:
    """Adaptive mode switches to the background by itself; if its output does not grow, build again with a file."""
    reply = yield _long(world, "./build.py")
    execution, output = find(_EXECUTION, reply), find(_OUTPUT, reply)
    for _ in range(MOST_WAITS):
        yield _execute(world, f"sleep {world.seconds(14):g}")
        reply = yield Call("process_get_execution", {"execution_id": execution})
        if not has('"status": "running"', reply):
            break
    reply = yield _read(output)
    if has(ARTIFACT, reply):
        return
    yield _background(world, "./build.py > build.log 2>&1")
    for _ in range(MOST_WAITS):
        reply = yield _execute(world, wait_for(world, "artifact", "build.log", seconds=14))
        if has(ARTIFACT, reply):
            return


def child_left(world: World) -> Strategy:
    """A reply does not say what a command has left, so look at the system."""
    reply = yield _execute(world, "./check.sh")
    if not has("check passed", reply):
        yield _read(find(_OUTPUT, reply))
    yield from clean_up(world)


def leave_running(world: World) -> Strategy:
    """A server in the background, and a command that detaches another one."""
    yield _long(world, "./serve.py web")
    yield _execute(world, "./detach.sh")


def clean_up(world: World) -> Strategy:
    """No tool lists what runs, so ask the system."""
    reply = yield _execute(world, LIST_NEWEST)
    if pids := own_processes(reply.replace("\\n", "\n")):
        yield _execute(world, f"kill {' '.join(pids)}; sleep 1; {LIST_NEWEST}")
