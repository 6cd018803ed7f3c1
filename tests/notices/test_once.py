"""Each notice once for each subscriber: none lost, none repeated but what somebody died with."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.executors.local import LocalExecutor
from outlast.storage.outbox import Outbox
from tests.conftest import eventually
from tests.faults.support import namespace
from tests.notices.chaos import contradictions

ROOT = Path(__file__).parent.parent.parent
SEED = int(os.environ["OUTLAST_SEED"])


def disturbed(home: str, tasks: int, subscribers: int, kills: int, patience: float) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.notices.chaos", home, *map(str, (tasks, subscribers, kills, SEED))],
        cwd=ROOT,
        env={**os.environ, "OUTLAST_MAX_RUNNING": "20"},
        capture_output=True,
        text=True,
        timeout=patience,
    )
    assert ran.returncode == 0, ran.stderr
    came = json.loads(ran.stdout)
    assert len(came["tasks"]) >= tasks
    assert len(came["killed"]) >= kills // 4  # how many are hit while they live is chance
    assert list(contradictions(came)) == []


def test_subscribers_and_hosts_are_killed(home: str) -> None:
    disturbed(home, tasks=60, subscribers=4, kills=25, patience=110)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_notices_to_twenty_subscribers(home: str) -> None:
    disturbed(home, tasks=1000, subscribers=20, kills=1000, patience=3500)


def ended_unheard(home: str, count: int) -> None:
    with Shell.open(home=home, session="busy") as shell:
        for _ in range(count):
            shell.start("true")
        # One listing: a task may be pending while the running ones are listed, and run while the pending ones are.
        eventually(lambda: all(task.finished for task in shell.list()), patience=3000)


def told_once(home: str, count: int) -> None:
    with Shell.open(home=home, operator=True) as shell:
        with shell.subscribe("late") as subscription:
            told = []
            while taken := subscription.take():
                told += [one.task_id for one in taken]
                subscription.acknowledge(*taken)
        assert len(told) == len(set(told)) == count
        with shell.subscribe("late") as subscription:
            assert subscription.take() == []


def test_what_ended_while_nobody_listened_is_told_once(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "50")
    ended_unheard(home, 60)
    told_once(home, 60)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_that_ended_while_nobody_listened(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "200")
    monkeypatch.setenv("OUTLAST_STATE_LIMIT_BYTES", str(10**12))
    ended_unheard(home, 10_000)
    told_once(home, 10_000)


def test_what_was_removed_before_anybody_listened_is_still_told(shell: Shell) -> None:
    task = shell.start("exit 7", description="gone")
    shell.wait(task.task_id, timeout=30)
    eventually(lambda: shell.clean(all_finished=True) == 1)
    with shell.subscribe("me") as subscription:
        (notice,) = subscription.take()
        assert (notice.task_id, notice.kind, notice.facts["exit_code"]) == (task.task_id, "ended", 7)
        subscription.acknowledge()
        assert subscription.take() == []


def test_a_full_disk_does_not_keep_a_task_from_being_removed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    task = shell.start("exit 7")
    shell.wait(task.task_id, timeout=30)
    put, tried = Outbox.put, []

    def refused(self: Outbox, *what: Any) -> int:
        tried.append(what)
        if os.path.isdir(os.path.dirname(task.output_file)):
            raise sqlite3.OperationalError("database or disk is full")
        return put(self, *what)

    monkeypatch.setattr(Outbox, "put", refused)
    eventually(lambda: shell.clean(all_finished=True) == 1)
    assert len(tried) == 2
    with shell.subscribe("me") as subscription:
        assert [one.task_id for one in subscription.take()] == [task.task_id]


def test_what_is_given_back_comes_again_with_its_number(shell: Shell) -> None:
    for _ in range(3):
        shell.wait(shell.start("true").task_id, timeout=30)
    with shell.subscribe("me") as subscription:
        first, second, third = subscription.wait(30)
        subscription.acknowledge(second)
    with shell.subscribe("me") as subscription:
        again = subscription.take()
        assert [one.number for one in again] == [first.number, third.number]
        assert all(one.repeated for one in again)
        assert not first.repeated


def test_two_holders_of_one_name_share_the_work(shell: Shell) -> None:
    for _ in range(4):
        shell.wait(shell.start("true").task_id, timeout=30)
    with shell.subscribe("me") as one, shell.subscribe("me") as other:
        mine, theirs = one.take(2), other.take(10)
        assert len(mine) == len(theirs) == 2
        assert one.acknowledge(*theirs) == 0  # they are not ours
        assert other.acknowledge(*theirs) == 2


CLAIMER = """
import os, sys
from outlast import Shell
with Shell.open(home=sys.argv[1]) as shell, shell.subscribe("me") as subscription:
    print(len(subscription.take()), flush=True)
    sys.stdin.read()
    os._exit(1)
"""


def test_what_another_container_claimed_is_left_to_it(shell: Shell, home: str) -> None:
    for _ in range(2):
        shell.wait(shell.start("true").task_id, timeout=30)
    words = [*namespace(), sys.executable, "-c", CLAIMER, home]
    inside = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert inside.stdin is not None
    assert inside.stdout is not None
    assert inside.stdout.readline() == "2\n"
    with shell.subscribe("me") as subscription:
        assert subscription.take() == []
        assert not subscription.is_any()
        inside.communicate()
        assert [one.repeated for one in subscription.take()] == [True, True]


def test_a_new_subscriber_can_begin_with_now(shell: Shell) -> None:
    shell.wait(shell.start("true").task_id, timeout=30)
    with shell.subscribe("me", from_now=True) as subscription:
        assert subscription.take() == []
        task = shell.start("true")
        assert [one.task_id for one in subscription.wait(30)] == [task.task_id]


def test_a_foreground_command_is_not_told_of(shell: Shell) -> None:
    shell.run("true")
    with shell.subscribe("me") as subscription:
        assert subscription.take() == []


def test_a_foreground_command_that_was_left_is(shell: Shell) -> None:
    result = shell.run("sleep 0.3", wait=0.05)
    with shell.subscribe("me") as subscription:
        assert [one.task_id for one in subscription.wait(30)] == [result.task_id]


def test_a_foreground_command_that_ends_while_it_is_left_is_told_of(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that the guards woke looks before the caller has noted that it left."""
    release, has_reached, left = LocalExecutor.release, LocalExecutor.has_reached, list[str]()

    def note(self: LocalExecutor, task_id: str) -> None:
        left.append(task_id)
        release(self, task_id)

    def look_late(self: LocalExecutor, task_id: str, phase: Any) -> bool:
        if not left:
            return has_reached(self, task_id, phase)
        eventually(lambda: not self.registry.index.is_notice_due(task_id))  # the listener saw that it ended
        return False

    monkeypatch.setattr(LocalExecutor, "release", note)
    monkeypatch.setattr(LocalExecutor, "has_reached", look_late)
    with shell.subscribe("me") as subscription, ThreadPoolExecutor() as threads:
        assert subscription.take() == []
        waiting = threads.submit(subscription.wait, 20)
        task_id = shell.run("sleep 0.3", wait=0.05).task_id
        assert [one.task_id for one in waiting.result(10)] == [task_id]  # woken, not by its timeout


def test_a_foreground_command_whose_host_died_is_told_of(home: str) -> None:
    code = f"from outlast import Shell\nShell.open(home={home!r}, session='s').run('sleep 0.5; exit 4')"
    host = subprocess.Popen([sys.executable, "-c", code])
    with Shell.open(home=home, session="s") as shell:
        eventually(lambda: shell.list(status="running"))
        host.kill()
        host.wait()
        with shell.subscribe("me") as subscription:
            (notice,) = subscription.wait(30)
            assert notice.facts["exit_code"] == 4


def test_a_lost_task_is_told_of_at_once(shell: Shell) -> None:
    from outlast.linux import process
    from outlast.storage import record
    from tests.faults.support import directory_of

    task = shell.start("sleep 60")
    with shell.subscribe("me") as subscription:
        assert subscription.take() == []
        guards = record.guards_of(directory_of(task))
        assert guards.keeper is not None
        for who in (guards.supervisor, guards.keeper):
            process.send(who, 19)  # both stopped, so that neither replaces the other
        for who in (guards.supervisor, guards.keeper):
            process.send(who, 9)
        died = time.monotonic()
        (notice,) = subscription.wait(30)
        assert time.monotonic() - died < 15  # nobody rang for it
        assert notice.facts["reason"] == "lost"
    process.send(guards.command, 9)
