"""What is kept in the outbox, and for how long; what another version left."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from outlast import Shell
from outlast.notices import gatherer
from outlast.storage import outbox, task_events
from outlast.storage.outbox import EVERYBODY, Found, Happened, Outbox
from outlast.storage.registry import Registry
from outlast.storage.task_events import Observation
from tests.conftest import eventually

FACTS = {"status": "completed"}


@pytest.fixture
def box(tmp_path: Path) -> Outbox:
    return Outbox(str(tmp_path))


def put(box: Outbox, *tasks: str, at: float) -> None:
    box.put([Found(task, "ended", 0, "s", at, FACTS) for task in tasks], [Happened("t", "x", "s", at, FACTS)])


def test_what_is_old_goes_unless_its_task_is_there(box: Outbox) -> None:
    put(box, "bash-1", "bash-2", at=time.time() - 100)
    put(box, "bash-3", at=time.time())
    assert box.forget(1000, lambda task: False) == 0
    box.forget(50, lambda task: task == "bash-2")
    assert [one.task for one in box.newest(EVERYBODY, -1)] == ["bash-2", "bash-3"]
    put(box, "bash-2", "bash-4", at=time.time())
    assert [one.number for one in box.newest(EVERYBODY, -1)] == [2, 3, 4]  # no number is used twice


def test_events_are_bounded(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "EVENTS_AT_MOST", 10)
    for _ in range(25):
        box.add(Happened(None, "tool.call", "s", time.time(), {}))
    box.forget(1000, lambda task: True)
    assert [one.number for one in box.events(EVERYBODY)] == list(range(16, 26))


def test_what_is_in_is_not_put_in_again(box: Outbox) -> None:
    one = Found("bash-1", "ended", 0, "s", 1.0, FACTS)
    assert [box.put([one]), box.put([one, one])] == [1, 0]


def test_a_newer_outbox_is_refused(home: str) -> None:
    with Shell.open(home=home) as shell:
        shell.notices()
    file = os.path.join(home, "outbox", "outbox.sqlite")
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with Shell.open(home=home) as shell:
        assert shell.run("echo still works").output == "still works\n"
        with pytest.raises(Exception, match="newer version of Outlast; update Outlast"):
            shell.notices()


def test_a_damaged_outbox_harms_nothing_else(home: str) -> None:
    os.makedirs(os.path.join(home, "outbox"), 0o700)
    Path(home, "outbox", "outbox.sqlite").write_bytes(b"this is no database, however one looks at it" * 100)
    with Shell.open(home=home) as shell:
        task = shell.start("true")
        shell.wait(task.task_id, timeout=30)
        with pytest.raises(Exception, match=r"outbox in .* cannot be used: .*; move it away"):
            shell.notices()
        eventually(lambda: shell.clean(all_finished=True) == 1)


def test_a_session_is_briefed_by_whoever_asks(home: str) -> None:
    with Shell.open(home=home, session="default") as shell:
        shell.wait(shell.start("true").task_id, timeout=30)
    with Shell.open(home=home, operator=True) as operator:
        assert "Ended since the last brief (1)" in operator.brief()
    with Shell.open(home=home, session="default") as shell:
        assert "Nothing has ended" in shell.brief()


def test_fifty_sessions_see_nothing_of_each_other(home: str) -> None:
    names = [f"session-{n}" for n in range(50)]
    with Shell.open(home=home, operator=True) as operator:
        box = operator.notice_board.board.outbox
        facts = {"reason": "exit", "exit_code": 0, "elapsed_ms": 1, "command": "true", "description": "", **FACTS}
        box.put([Found(f"bash-of-{name}", "ended", 0, name, time.time(), facts) for name in names])
        box.put([], [Happened(f"bash-of-{name}", "task.ended", name, time.time(), facts) for name in names])
        told = {notice.session: str(notice) for notice in operator.notices()}
    assert told.keys() == set(names)
    for name in names:
        with Shell.open(home=home, session=name) as shell, shell.subscribe("model") as subscription:
            seen = [subscription.text(), shell.brief(), *map(str, shell.notices()), *map(str, shell.events())]
            assert all(f"bash-of-{name}" in text for text in seen)
            assert not [text for text in seen for other in names if f"bash-of-{other} " in text and other != name]
            assert [one for one, text in told.items() if shell.verify(text)] == [name]


def test_a_task_that_runs_is_not_read_again_for_each_that_ends(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [shell.start("sleep 60").task_id for _ in range(3)]
    looked: list[str] = []
    look = task_events.observe

    def noted(registry: Registry, task_id: str) -> Observation | None:
        looked.append(task_id)
        return look(registry, task_id)

    monkeypatch.setattr(task_events, "observe", noted)
    with shell.subscribe("me") as subscription:

        def is_known() -> bool:
            looked.clear()
            subscription.take()
            return not looked

        eventually(is_known)
        task = shell.start("true")
        (notice,) = subscription.wait(30)
        assert notice.task_id == task.task_id
        assert set(looked) == {task.task_id}
        shell.kill_all(long)
        ended = {one.task_id for one in subscription.wait(30)}
        while len(ended) < 3:
            ended |= {one.task_id for one in subscription.wait(30)}
        assert ended == set(long)


def test_a_record_that_changes_while_it_is_looked_at_is_read_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of files is coarse: the time of the record tells two changes apart only if it was old at the look."""
    task = shell.start("sleep 60")
    directory = os.path.dirname(task.output_file)
    changed = os.stat(f"{directory}/record").st_mtime_ns
    look, clock = task_events.observe, [changed + 1]

    def look_and_wait(registry: Registry, task_id: str) -> Observation | None:
        seen = look(registry, task_id)
        if len(clock) == 1:
            shell.kill(task_id)
            eventually(lambda: shell.show(task_id).closed)
            os.utime(f"{directory}/record", ns=(changed, changed))  # as if it had changed within one tick
            clock.append(changed + 10**9)
        return seen

    monkeypatch.setattr(gatherer, "has_guard", lambda directory: True)  # as if something that it started still ran
    monkeypatch.setattr(task_events, "observe", look_and_wait)
    monkeypatch.setattr("outlast.notices.gatherer.time.time_ns", lambda: clock[-1])
    with shell.subscribe("me") as subscription:
        assert subscription.take() == []
        assert [one.task_id for one in subscription.take()] == [task.task_id]
