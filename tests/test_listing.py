"""Listing tasks: in order, by the page, and what is recent, however many there are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from outlast import Shell
from outlast.errors import BadInput
from outlast.shell import reader
from outlast.storage.index import Index
from outlast.types import Task
from tests.conftest import eventually

MANY = 12


@pytest.fixture
def tasks(home: str) -> Iterator[list[Task]]:
    """Finished ones, newest first; every third failed."""
    with Shell.open(home) as shell:
        found = [shell.run("false" if number % 3 == 0 else "true") for number in range(MANY)]
        eventually(lambda: all(shell.show(task.task_id).closed for task in found))
        yield shell.list()


def ids(tasks: list[Task]) -> list[str]:
    return [task.task_id for task in tasks]


@pytest.mark.parametrize("page", [1, 2, 5, 100])
def test_pages_are_what_the_whole_begins_with(
    home: str, tasks: list[Task], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PAGE", page)
    with Shell.open(home) as shell:
        for most in (1, 3, MANY, MANY + 1):
            assert ids(shell.list(most=most)) == ids(tasks)[:most]
            failed = ids([task for task in tasks if task.status == "failed"])
            assert ids(shell.list(most=most, status="failed")) == failed[:most]
        assert shell.list() == tasks


def test_pages_go_on_among_tasks_of_one_moment(tmp_path: str) -> None:
    index = Index(os.path.join(tmp_path, "index"), lambda: ())
    names = sorted(f"bash-{number:08x}" for number in range(9))
    for number, name in enumerate(names):
        index.add((name, "s" if number % 2 else "t", 5.0, 0))
    found, last = [], None
    while page := index.newest(after=last, most=2):
        found += [mark[0] for mark in page]
        last = page[-1]
    assert found == names
    assert [mark[0] for mark in index.newest("s", most=2)] == names[1:4:2]
    index.close()


def test_what_goes_on_and_what_just_ended(home: str, tasks: list[Task]) -> None:
    with Shell.open(home) as shell:
        running = shell.start("sleep 100")
        eventually(lambda: shell.show(running.task_id).status == "running")
        border = tasks[5].ended_at
        assert border is not None
        assert ids(shell.list(ended_after=border)) == [running.task_id, *ids(tasks[:5])]
        assert ids(shell.list(ended_after=border, most=2)) == [running.task_id, *ids(tasks[:2])]
        assert ids(shell.list(ended_after=time.time())) == [running.task_id]
        assert ids(shell.list(ended_after=border, status="running")) == [running.task_id]
        shell.kill(running.task_id)


def test_another_session_sees_its_own_page(home: str, tasks: list[Task]) -> None:
    with Shell.open(home, "other") as other:
        mine = other.run("true")
        assert ids(other.list(most=5)) == [mine.task_id]
        assert ids(other.list(ended_after=0.0)) == [mine.task_id]


def test_what_was_removed_is_in_no_page(home: str, tasks: list[Task]) -> None:
    with Shell.open(home) as shell, Shell.open(home) as another:
        assert len(shell.list(most=MANY)) == MANY
        assert another.executor.registry.remove(tasks[0].task_id)
        assert ids(shell.list(most=3)) == ids(tasks)[1:4]


def test_nothing_is_no_page(shell: Shell) -> None:
    with pytest.raises(BadInput, match="must be 1 or more"):
        shell.list(most=0)


def test_a_listing_that_another_one_empties_the_cache_of_reads_no_files(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tasks are in the cache as the listing begins, and are not when it comes to them."""
    tasks = [shell.run("true") for _ in range(4)]
    registry = shell.context.executor.registry
    eventually(lambda: all(task.closed for task in shell.list()))
    shell.list()  # from here on all are in the index
    registry._closed.pop(tasks[0].task_id)
    real = registry.index.views_of

    def empty(ids: list[str]) -> dict[str, str]:
        registry._closed.clear()
        return real(ids)

    monkeypatch.setattr(registry.index, "views_of", empty)
    monkeypatch.setattr(registry, "_read", None)
    assert {task.task_id for task in shell.list()} == {task.task_id for task in tasks}
