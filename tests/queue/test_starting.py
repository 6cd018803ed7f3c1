"""A guard that is killed while it starts a pending task: the task runs once, or it is still pending."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlast import Shell
from outlast.executors.local import queued
from outlast.executors.local.executor import LocalExecutor
from outlast.guard import client
from outlast.storage.queue import Queue
from tests.conftest import eventually
from tests.guard.test_kills import MOST_STOPS, stepper

__all__ = ["stepper"]  # a fixture


def read_if_any(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", ["supervisor", "keeper"])
def test_a_kill_at_every_system_call_of_a_guard_that_starts_a_pending_task(
    home: str, tmp_path: Path, stepper: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    guard, log, ran = client.find_guard(), tmp_path / "steps", tmp_path / "ran"
    stepped = tmp_path / "guard"
    monkeypatch.setattr(client, "find_guard", lambda: str(stepped))
    monkeypatch.setattr(LocalExecutor, "prepare", lambda *_: None)  # that guard would be stepped, too
    queue, not_begun, killed = Queue(home), 0, True
    with Shell.open(home=home) as shell:
        for at in range(1, MOST_STOPS):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Queue, "claim_slot", lambda *_: None)
                patch.setattr(Queue, "advance", lambda *_: None)
                task = shell.start(f"echo ran >> {ran}; exit 7")
            assert shell.show(task.task_id).status == "pending"
            stepped.write_text(f'#!/bin/bash\nexec {stepper} {role} {at} -- {guard} "$@" >{log}\n')
            stepped.chmod(0o700)
            turn = queue.next_turn()
            assert turn is not None
            queued.start_pending(queue, turn)
            killed = log.read_text().split()[0] != "0"
            if shell.show(task.task_id).status == "pending":
                assert read_if_any(ran) == "", at
                not_begun += 1
                stepped.write_text(f'#!/bin/bash\nexec {guard} "$@"\n')
                shell.executor.advance()
            found = shell.wait(task.task_id, timeout=30)
            assert (found.reason, found.exit_code, read_if_any(ran)) == ("exit", 7, "ran\n"), (at, found)
            eventually(lambda: shell.executor.has_reached(task.task_id, "closed"))  # noqa: B023
            os.unlink(ran)
            if not killed:
                break
    assert not killed
    assert not_begun > 10
