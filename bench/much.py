"""Rows about much that is there already: a long output, many tasks. It is made as fast as can be, not by running it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from bench.measure import Turn, timed
from bench.peers import Ours, Peer, Raw
from bench.rows import OPENED_S, Goal, Race, Row
from outlast import Shell
from outlast.light import replace
from outlast.storage import task_directory
from outlast.storage.sessions import TEMPORARY_FILES
from outlast.types import Task

LONG = 10_000_000_000
MANY = 100_000
PAGE = 100
_LAST = b"one\ntwo\nthree\n"
_BEFORE = b"x" * 999 + b"\n"
_LINKS = 30_000  # a file of ext4 can have 65,000 names


def _lengthen(path: str, size: int) -> None:
    """Make a file that long; all but its last part is a hole, which no read with a cursor comes near."""
    with open(path, "r+b") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(_BEFORE * 100 + _LAST)


def new_lines_after_much(race: Race) -> Row:
    size = 100_000_000 if race.quick else LONG

    def look_at(peer: Peer) -> Turn:
        ticket = _long_output(peer, size)

        def turn() -> float:
            found: list[bytes] = []
            took = timed(lambda: found.append(peer.last_lines(ticket)))
            if b"three" not in found[0]:
                raise RuntimeError("the last line is not shown")
            return took

        return turn

    whole = Ours(output_limit_bytes=3 * LONG, state_limit_bytes=20 * LONG)
    try:
        whole.open()
        timings = race.run(look_at, race.effort(), [whole, race.raw])
    finally:
        whole.remove()
    what = f"three new lines after {size // 1_000_000_000 or size / 1e9:g} GB"
    return Row("new-lines-much", what, "read of a file", timings, Goal(2.0))


def _long_output(peer: Peer, size: int) -> object:
    if isinstance(peer, Raw):
        path = f"{peer.place}/long"
        open(path, "wb").close()
        _lengthen(path, size)
        return path
    assert isinstance(peer, Ours)
    task = _finished(peer)
    _lengthen(task.output_file, size)
    return task.task_id, str(os.stat(task.output_file).st_size - len(_LAST))


def _finished(ours: Ours) -> Task:
    """A task of which nothing is left."""
    return _finished_in(ours.opened)


def _finished_in(shell: Shell) -> Task:
    task_id = shell.start("true").task_id
    shell.wait(task_id)
    while not (task := shell.show(task_id)).closed:
        time.sleep(0.01)
    return task


def first_page(race: Race) -> Row:
    many = 1000 if race.quick else MANY
    ours = Ours(state_limit_bytes=20 * LONG)
    try:
        ours.open()
        multiply_task(ours.opened, many)

        def turn() -> float:
            ours.reopen()  # so that nothing of it is known yet
            time.sleep(OPENED_S)
            return timed(lambda: _check(ours.opened.list(most=PAGE)))

        timings = race.run(lambda peer: turn, race.effort(), [ours])
    finally:
        ours.remove()
    what = f"the newest {PAGE} of {many:,} tasks, the first time"
    return Row("first-page", what, "-", timings, Goal(20.0, is_ratio=False))


def _check(page: list[Task]) -> None:
    if len(page) != PAGE:
        raise RuntimeError(f"the page has {len(page)} tasks")


def multiply_task(shell: Shell, many: int) -> None:
    """As if one task had been run that many times: each with a directory, its files, and its place in the index."""
    task = _finished_in(shell)
    registry = shell.executor.registry
    model = registry.home.task(task.task_id)
    # Without those that another process may be removing at this moment.
    found = [entry.name for entry in os.scandir(model) if entry.is_file(follow_symlinks=False)]
    names = [name for name in found if name not in TEMPORARY_FILES]
    copies = dict(_copies(task, [registry.home.task(f"bash-{n * 2654435761 % (1 << 32):08x}") for n in range(1, many)]))
    for number, directory in enumerate(copies):
        os.mkdir(directory, 0o700)
        for name in names:
            if number % _LINKS:
                os.link(f"{model}/{name}", f"{directory}/{name}")
            else:
                with open(f"{model}/{name}", "rb") as old, open(f"{directory}/{name}", "xb") as new:
                    new.write(old.read())
        if not number % _LINKS:
            model = directory
    for one in copies.values():
        registry.index.add((one.task_id, one.session, one.started_at, 0))
        registry.index.finish(one.task_id, one.ended_at or 0.0, 32768, task_directory.dump_task(one))


def _copies(task: Task, directories: list[str]) -> Iterator[tuple[str, Task]]:
    for number, directory in enumerate(directories):
        at = task.started_at - 0.01 * number
        name = os.path.basename(directory)
        yield directory, replace(task, task_id=name, output_file=f"{directory}/output", started_at=at, ended_at=at)
