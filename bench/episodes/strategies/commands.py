"""mcp-server-commands: run_command(command, workdir, stdin), and nothing else.

The description names no limit of time or output and no way to leave something running, so the shell has to do it:
`nohup … > file &`, and a loop that looks into the file.
"""

from __future__ import annotations

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
    newest_build,
    own_processes,
    wait_for,
)
from bench.episodes.world import World


def _run(command: str, **options: str) -> Call:
    return Call("run_command", {"command": command, **options})


def _start(program: str, log: str) -> Call:
    return _run(f"nohup {program} > {log} 2>&1 & echo $!")


def _until(world: World, text: str, log: str) -> Call:
    return _run(wait_for(world, text, log))


def dev_server(world: World) -> Strategy:
    """Start it in the shell's background, wait for the line in the file, use the address."""
    yield _start("./serve.py web", "web.log")
    reply = yield _until(world, "ready on", "web.log")
    yield _run(f"curl -s {find(READY, reply)}/version")


def failing_test(world: World) -> Strategy:
    """Output without a limit: keep it in a file, see the end of it, then look for the first error."""
    yield _run("./run-tests > test.log 2>&1; echo exit $?; tail -n 40 test.log")
    yield _run("grep -n -m1 -B12 -A6 '^E  ' test.log")


def watcher(world: World) -> Strategy:
    """A file, and a loop for each round that ends when one more build is in it."""
    yield _start("./watch.py", "watch.log")
    reply = yield _until(world, "build #", "watch.log")
    seen = newest_build(reply)
    last = seen + 3
    for _ in range(3 * MOST_WAITS):
        if seen >= last:
            return
        reply = yield _until(world, f"build #{seen + 1}", "watch.log")
        seen = max(seen, newest_build(reply))


def prompts(world: World) -> Strategy:
    """Input has to be known before the start: run it with what is known, read the next question, run it again."""
    reply = yield _run("./install.py")
    if has("timed out", reply):
        reply = yield _run("./install.py < /dev/null")
    given = ""
    for _ in range(MOST_WAITS):
        if has("installed as", reply) or not has(QUESTION, reply):
            return
        given += answer_to(reply) + "\n"
        reply = yield _run("./install.py", stdin=given)


def large_log(world: World) -> Strategy:
    """As with the tests."""
    yield _run("./import.py > import.log 2>&1; echo exit $?; tail -n 20 import.log")
    yield _run("grep -n -m5 -iE 'error|fatal' import.log")


def killed(world: World) -> Strategy:
    """The shell's background, as everywhere here."""
    yield _start("./build.py --core", "build.log")


def restarted(world: World) -> Strategy:
    """See what runs and which files are new; then wait for the process and read the file."""
    reply = yield _run(f"{LIST_NEWEST}; ls -t | head")
    log = find(r"(?m)^(\S+\.log)$", reply)
    for pid in own_processes(reply):
        yield _run(f"timeout {world.seconds(50):g} tail --pid={pid} -f /dev/null")
    yield _run(f"tail -n 20 {log}")


def two_servers(world: World) -> Strategy:
    """Two files, and the pid that the shell gave for the one to end."""
    web = yield _start("./serve.py web", "web.log")
    yield _start("./serve.py api", "api.log")
    yield _until(world, "ready on", "web.log")
    reply = yield _until(world, "ready on", "api.log")
    yield _run(f"kill {find(r'[0-9]+', web)}")
    yield _run(f"curl -s {find(READY, reply)}/version")


def slow_build(world: World) -> Strategy:
    """No limit is named, so run it; if the client does not wait, run it in the background and look into the file."""
    reply = yield _run("./build.py")
    if has(ARTIFACT, reply):
        return
    yield _start("./build.py", "build.log")
    for _ in range(MOST_WAITS):
        reply = yield _until(world, "artifact", "build.log")
        if has(ARTIFACT, reply):
            return


def child_left(world: World) -> Strategy:
    """If the reply does not come, what holds it up is the output: put it into a file. Then see what was left."""
    reply = yield _run("./check.sh")
    if not has("check passed", reply):
        yield _run("./check.sh > check.log 2>&1; cat check.log")
    yield from clean_up(world)


def leave_running(world: World) -> Strategy:
    """A server in the shell's background, and a command that detaches another one."""
    yield _start("./serve.py web", "web.log")
    yield _run("./detach.sh")


def clean_up(world: World) -> Strategy:
    """The tool knows nothing of what runs, so ask the system."""
    listing = yield _run(LIST_NEWEST)
    if pids := own_processes(listing):
        yield _run(f"kill {' '.join(pids)}; sleep 1; {LIST_NEWEST}")
