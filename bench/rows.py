"""What is measured, one function a row."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from bench.measure import Row, Timing, in_turns, timed
from outlast import Shell

TIMES = 30


def foreground(shell: Shell) -> Row:
    ours, raw = in_turns(lambda: shell.run("true"), lambda: subprocess.run(["bash", "-c", "true"]), TIMES)
    return Row("foreground `true`, back to back", ours, raw, "bash -c true", 2.5)


def background(shell: Shell) -> Row:
    started: list[subprocess.Popen[bytes]] = []
    ours, raw = in_turns(
        lambda: shell.start("true"), lambda: started.append(subprocess.Popen(["bash", "-c", "true"])), TIMES
    )
    for process in started:
        process.wait()
    return Row("background start until durable", ours, raw, "Popen", 4.0)


def wake_up(shell: Shell) -> Row:
    """From the moment the command writes the time as its last deed to the moment its waiter has it."""
    command = "sleep 0.05; date +%s.%N"

    def ours() -> float:
        task = shell.start(command)
        shell.wait(task.task_id)
        woke = time.time()
        return woke - float(shell.read(task.task_id).output)

    def raw() -> float:
        process = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE)
        process.wait()
        woke = time.time()
        assert process.stdout is not None
        with process.stdout as out:
            return woke - float(out.read())

    pairs = [(ours(), raw()) for _ in range(TIMES)]
    return Row(
        "wake-up of a blocked waiter",
        Timing(tuple(pair[0] for pair in pairs)),
        Timing(tuple(pair[1] for pair in pairs)),
        "Popen.wait",
        3.0,
    )


def flood(shell: Shell) -> Row:
    command = "head -c 1000000000 /dev/zero | tr '\\0' x"
    with tempfile.NamedTemporaryFile() as file:

        def raw() -> None:
            file.truncate(0)
            subprocess.run(["bash", "-c", f"{command} > {file.name}"], check=True)

        ours, plain = in_turns(lambda: shell.run(command, limit=120), raw, 3)
    return Row("1 GB of output, default bound", ours, plain, "> file", 1.0)


def new_lines(shell: Shell) -> Row:
    task = shell.run("head -c 90000000 /dev/zero | tr '\\0' x; echo; echo one; echo two; echo three")
    cursor = str(int(task.cursor) - 14)
    path = max(
        (entry.path for entry in os.scandir(os.path.dirname(task.output_file)) if entry.name.startswith("output")),
        key=lambda path: path,
    )

    def raw() -> bytes:
        with open(path, "rb") as file:
            file.seek(-14, os.SEEK_END)
            return file.read()

    ours, plain = in_turns(lambda: shell.read(task.task_id, cursor=cursor), raw, TIMES)
    return Row("three new lines after 90 MB", ours, plain, "read of a file", 2.0)


def end_of_a_tree(shell: Shell) -> Row:
    def ours() -> float:
        task = shell.start("for i in $(seq 19); do sleep 100 & done; echo up; wait")
        for piece in shell.follow(task.task_id):
            if b"up" in piece.data:
                break
        return timed(lambda: shell.kill(task.task_id))

    def raw() -> float:
        process = subprocess.Popen(
            ["bash", "-c", "for i in $(seq 19); do sleep 100 & done; echo up; wait"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout as out:
            out.readline()
        start = time.perf_counter()
        os.killpg(process.pid, 15)
        process.wait()
        return time.perf_counter() - start

    pairs = [(ours(), raw()) for _ in range(10)]
    return Row(
        "end of a tree of 20, verified",
        Timing(tuple(pair[0] for pair in pairs)),
        Timing(tuple(pair[1] for pair in pairs)),
        "killpg, not verified",
        None,
    )


def listing(shell: Shell) -> Row:
    for _ in range(max(0, 1000 - len(shell.list()))):
        shell.start("true")
    for task in shell.list(status="running"):
        shell.wait(task.task_id)
    home = os.path.dirname(os.path.dirname(shell.list()[0].output_file))
    ours, raw = in_turns(shell.list, lambda: [os.stat(entry.path) for entry in os.scandir(home)], TIMES)
    return Row("list 1,000 finished tasks", ours, raw, "stat of each", None)


def command_line(verb: list[str], goal: float) -> Row:
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "OUTLAST_HOME": f"{home}/state"}
        ours, raw = in_turns(
            lambda: subprocess.run([sys.executable, "-m", "outlast", *verb], env=env, stdout=subprocess.DEVNULL),
            lambda: subprocess.run([sys.executable, "-c", "pass"], env=env),
            TIMES,
        )
    return Row(f"`outlast {' '.join(verb)}`", ours, raw, "python3 -c pass", goal)


def all_rows(shell: Shell) -> Iterator[Row]:
    for row in (foreground, background, wake_up, new_lines, end_of_a_tree, flood, listing):
        yield row(shell)
    yield command_line(["ps"], 3.0)
    yield command_line(["run", "true"], 5.0)
