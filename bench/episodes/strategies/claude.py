"""Claude Code's own tools: Bash (also in the background), Read; Monitor and TaskStop after ToolSearch has fetched them.

A background command's output goes into a file that the reply names. A wait for a line is a foreground command that
looks into that file in a loop: that is one call, where Monitor would have to be fetched first. TaskStop ends a
background command by its id.
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

_ID = r"with ID: (\w+)"
_FILE = r"(/\S+\.output)"


def _bash(command: str, description: str, **options: Any) -> Call:
    return Call("Bash", {"command": command, "description": description, **options})


def _start(command: str, description: str) -> Call:
    return _bash(command, description, run_in_background=True)


def _until(world: World, text: str, file: str) -> Call:
    return _bash(wait_for(world, text, file), "Wait for the next line")


def dev_server(world: World) -> Strategy:
    """Started in the background, awaited by a loop over its file."""
    reply = yield _start("./serve.py web", "Start the development server")
    reply = yield _until(world, "ready on", find(_FILE, reply))
    yield _bash(f"curl -s {find(READY, reply)}/version", "Ask the server for its version")


def failing_test(world: World) -> Strategy:
    """Long output is cut, and kept in a file; if the first error is not shown, search for it."""
    reply = yield _bash("./run-tests", "Run the tests")
    if not shows_first_failure(reply):
        yield _bash("./run-tests 2>&1 | grep -m1 -B12 -A6 '^E  '", "Show the first failure")


def watcher(world: World) -> Strategy:
    """A loop over the file for each round."""
    reply = yield _start("./watch.py", "Start the watcher")
    file = find(_FILE, reply)
    reply = yield _until(world, "build #1", file)
    seen = newest_build(reply)
    last = seen + 3
    for _ in range(3 * MOST_WAITS):
        if seen >= last:
            return
        reply = yield _until(world, f"build #{seen + 1}", file)
        seen = max(seen, newest_build(reply))


def prompts(world: World) -> Strategy:
    """Interactive programs are not supported: run it with what is known, read the next question, run it again."""
    given, reply = "", ""
    for _ in range(MOST_WAITS):
        command = f"printf '{given}' | ./install.py" if given else "./install.py"
        reply = yield _bash(command, "Run the installer")
        if has("installed as", reply) or not has(QUESTION, reply):
            return
        given += answer_to(reply) + "\\n"


def large_log(world: World) -> Strategy:
    """50 MB are too much for a reply: keep them in a file, see its end, search it."""
    yield _bash("./import.py > import.log 2>&1; echo exit $?; tail -n 20 import.log", "Run the import")
    yield _bash("grep -n -m5 -iE 'error|fatal' import.log", "Search the log for errors")


def killed(world: World) -> Strategy:
    """The user wants it in the background, and that is a parameter."""
    yield _start("./build.py --core", "Build in the background")


def restarted(world: World) -> Strategy:
    """No tool lists what was started before: find the process, and the file that it writes into."""
    reply = yield _bash(LIST_NEWEST, "Look for the running build")
    if not (pids := own_processes(reply)):
        return
    reply = yield _bash(look_at_output(pids[0]), "See where the build writes to")
    if not has(_FILE, reply):
        return
    file = find(_FILE, reply)
    for _ in range(MOST_WAITS):
        reply = yield _until(world, "artifact", file)
        if has(ARTIFACT, reply):
            return


def two_servers(world: World) -> Strategy:
    """Two in the background; TaskStop, which has to be fetched first, ends one by its id."""
    web = yield _start("./serve.py web", "Start the web server")
    api = yield _start("./serve.py api", "Start the api server")
    yield _until(world, "ready on", find(_FILE, web))
    reply = yield _until(world, "ready on", find(_FILE, api))
    yield Call("ToolSearch", {"query": "select:TaskStop", "max_results": 1})
    yield Call("TaskStop", {"task_id": find(_ID, web)})
    yield _bash(f"curl -s {find(READY, reply)}/version", "Ask api for its version")


def slow_build(world: World) -> Strategy:
    """Run as the user has named it; at the limit of 60 s, go on with the file that the reply names.

    If the reply names none, start again in the background.
    """
    reply = yield _bash("./build.py", "Build")
    if has(ARTIFACT, reply):
        return
    if not has(_FILE, reply):
        reply = yield _start("./build.py", "Build in the background")
    file = find(_FILE, reply)
    for _ in range(MOST_WAITS):
        reply = yield _until(world, "artifact", file)
        if has(ARTIFACT, reply):
            return


def child_left(world: World) -> Strategy:
    """A reply does not say what a command has left, so look at the system."""
    yield _bash("./check.sh", "Run the check")
    yield from clean_up(world)


def leave_running(world: World) -> Strategy:
    """A server in the background, and a command that detaches another one."""
    yield _start("./serve.py web", "Start the web server")
    yield _bash("./detach.sh", "Start the cache")


def clean_up(world: World) -> Strategy:
    """No tool lists what runs, so ask the system."""
    listing = yield _bash(LIST_NEWEST, "List the newest processes")
    if pids := own_processes(listing):
        yield _bash(f"kill {' '.join(pids)}; sleep 1; {LIST_NEWEST}", "End what is left and look again")
