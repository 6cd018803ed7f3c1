"""The server of the page, over real HTTP: how fast a line is told, how fast a page of many tasks comes, its memory."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.measure import Timing, timed
from bench.memory import private_kib
from bench.much import LONG, multiply_task
from bench.peers import Ours, Peer, Raw
from bench.rows import PAUSE_S, Goal, Race, Row

MANY = 10_000
VIEWERS = 100
PAGE = 100
_BETWEEN_S = 0.1  # lines that come sooner are told together
_PATIENCE_S = 30.0


class _Server:
    def __init__(self, home: str) -> None:
        words = [sys.executable, "-m", "outlast", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            words, env={**os.environ, "OUTLAST_HOME": home}, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        link, _, self._token = self.process.stdout.readline().strip().partition("/?token=")
        self._host = link.removeprefix("http://")

    def open(self, path: str) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection(self._host, timeout=_PATIENCE_S)
        line.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
        return line.getresponse()

    def get(self, path: str) -> Any:
        with self.open(path) as answer:
            return json.load(answer)

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate()


@contextmanager
def _serving(home: str) -> Iterator[_Server]:
    server = _Server(home)
    try:
        server.get("/api/state")  # it has read all tasks
        yield server
    finally:
        server.close()


def _until_lines(stream: http.client.HTTPResponse, total: int) -> None:
    """Read events until one says that there are so many lines."""
    name = b""
    for line in stream:
        if line.startswith(b"event: "):
            name = line[7:].strip()
        elif line.startswith(b"data: ") and name == b"lines" and json.loads(line[6:])["total"] >= total:
            return
    raise RuntimeError("the stream ended")


def line_told(race: Race) -> Row:
    """From a line that a program gets, and prints, to the event at a viewer; raw is a reader of the program's pipe."""
    echo = "while read -r line; do echo $line; done"
    with ExitStack() as stack:
        server = stack.enter_context(_serving(race.ours.home))
        shell = race.ours.opened
        from outlast.types import Stdin

        task = shell.start(echo, stdin=Stdin(open=True)).task_id
        stream = stack.enter_context(server.open(f"/api/tasks/{task}/follow"))
        raw = subprocess.Popen(["bash", "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert raw.stdin is not None
        assert raw.stdout is not None
        into, out = raw.stdin, raw.stdout
        total = 0

        def ours() -> float:
            nonlocal total
            total += 1
            time.sleep(_BETWEEN_S)

            def tell() -> None:
                shell.send(task, "line\n")
                _until_lines(stream, total)

            return timed(tell)

        def pipe() -> float:
            time.sleep(PAUSE_S)

            def tell() -> None:
                into.write(b"line\n")
                out.read(100)

            return timed(tell)

        timings = race.run(lambda peer: pipe if isinstance(peer, Raw) else ours, race.effort(), [race.ours, race.raw])
        raw.kill()
        raw.communicate()
        shell.kill(task)
    what = "a printed line, from the input of its program to an event at a viewer of the page"
    return Row("web-line", what, "reader of its pipe", timings, Goal(20.0, is_ratio=False))


def page_of_many(race: Race) -> Row:
    many = 1000 if race.quick else MANY
    ours = Ours(state_limit_bytes=20 * LONG)
    try:
        ours.open()
        multiply_task(ours.opened, many)
        with _serving(ours.home) as server:

            def turn_of(peer: Peer) -> Any:
                return lambda: timed(lambda: _check(server.get(f"/api/tasks?limit={PAGE}"), many))

            timings = race.run(turn_of, race.effort(), [ours])
    finally:
        ours.remove()
    what = f"the newest {PAGE} of {many:,} tasks for the page"
    return Row("web-page", what, "-", timings, Goal(100.0, is_ratio=False))


def _check(page: Any, many: int) -> None:
    if len(page["tasks"]) != PAGE or page["total"] != many:
        raise RuntimeError(f"the page has {len(page['tasks'])} of {page['total']} tasks")


def memory_of_server(race: Race) -> Row:
    """Half of the viewers look at all tasks, half at one."""
    task = race.ours.start("while sleep 0.2; do echo line; done")
    with ExitStack() as stack:
        server = stack.enter_context(_serving(race.ours.home))
        for number in range(VIEWERS):
            path = "/api/events" if number % 2 else f"/api/tasks/{task}/follow"
            stack.enter_context(server.open(path)).readline()
        time.sleep(1 if race.quick else 10)  # events come, and are not read: the kernel and the server hold them
        mib = private_kib(server.process.pid) / 1024
    race.ours.opened.kill(task)
    timings = {Ours.name: Timing((mib,))}
    return Row(
        "web-memory", f"private memory of the page's server, {VIEWERS} viewers", "-", timings, Goal(100.0, False), "MiB"
    )
