"""Fault 10: processes that try to escape a kill. Each is ended, or named as a survivor; the receipt is right.

Everything runs inside a pid namespace of its own, so that what is left over can be counted,
and ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from outlast import Shell
from outlast.linux import process
from outlast.types import Task
from tests.conftest import eventually
from tests.faults import wild
from tests.faults.support import closed, guards_of, inside, output, replace_guard

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

GRACE_S = 0.4

# Each process of the tree tells its pid: `tell` in a shell of the task, ME in one without its variables.
_TELL = "tell() {{ echo $BASHPID >> {side}/pids; }}; "
_ME = "'echo $$ >> {side}/pids; exec sleep 300'"
_STOPPED = "'echo $$ >> {side}/pids; kill -STOP $$; exec sleep 300'"

# name: (the command, how many processes tell their pid)
ESCAPES = {
    "nothing special": ("tell; sleep 300 & (tell; exec sleep 300)", 2),
    "setsid": (f"tell; setsid sh -c {_ME} & sleep 300", 2),
    "double fork": (f"tell; (setsid sh -c {_ME} &); sleep 300", 2),
    "cleared environment": (f"tell; (env -i setsid sh -c {_ME} &); sleep 300", 2),
    "closed descriptors": (f"tell; (setsid sh -c {_ME} <&- >&- 2>&- &); sleep 300", 2),
    "leader gone": (f"setsid sh -c {_ME} & sh -c {_ME} & exit 0", 2),
    "all of it": (f"(cd /; env -i setsid sh -c {_ME} <&- >&- 2>&- &); exit 0", 1),
    "a stopped member": (f"tell; sh -c {_STOPPED} & (setsid sh -c {_STOPPED} &); sleep 300", 3),
    "ignoring TERM": (f"trap '' TERM INT HUP; tell; (setsid sh -c {_ME} &); while :; do sleep 0.1; done", 2),
    "a new one for each that is asked to end": ("{wild} phoenix {side}/pids", 1),
    "the first thread gone": ("{wild} headless {side}/pids", 1),
    "named like a guard": ("{wild} disguised {side}/pids & tell; sleep 300", 2),
    "many": (f"for n in $(seq 1 60); do (setsid sh -c {_ME} &); done; tell; sleep 300", 61),
}
CHAINS = {"forks every 20 ms": 0.02, "forks every 2 ms": 0.002}

# --- inside a namespace ------------------------------------------------------------------


def told(side: str) -> list[int]:
    try:
        return [int(word) for word in Path(side, "pids").read_text().split()]
    except FileNotFoundError:
        return []


def others() -> dict[int, str]:
    """Every living process here but ourselves."""
    table = process.Table().by_pid
    return {pid: stat.name for pid, stat in table.items() if not stat.dead and pid != os.getpid()}


def start(shell: Shell, text: str, side: str, count: int) -> Task:
    task = shell.start((_TELL + text).format(side=side, wild=f"{sys.executable} {wild.__file__}"))
    eventually(lambda: len(told(side)) >= count, what=f"{count} processes")
    return task


def escape(home: str, side: str, name: str, *replaced: str) -> None:
    """Start one escape, kill it, and tell what came of it."""
    text, count = ESCAPES[name]
    with Shell.open(home=home, prepare=False) as shell:
        task = start(shell, text, side, count)
        for guard in replaced:
            replace_guard(task, guard)
        guards = guard_pids(task)
        before = sorted(others().keys() - guards)
        receipt = shell.kill(task.task_id, grace=GRACE_S)
        eventually(lambda: not any(name.startswith("outlast-") for name in others().values()), patience=5)
        seen = {"before": before, "guards": sorted(guards), "told": told(side), "left": others()}
        how = {name: getattr(receipt, name) for name in ("status", "closed", "ended", "survivors")}
        print(json.dumps({**seen, **how}))


def escape_chain(home: str, side: str, pause: str) -> None:
    text = f"{{wild}} chain {{side}}/pids {pause} & sleep 300"
    with Shell.open(home=home, prepare=False) as shell:
        task = start(shell, text, side, 1)
        receipt = shell.kill(task.task_id, grace=GRACE_S)
        print(json.dumps({"left": others(), "ended": receipt.ended, "survivors": receipt.survivors}))


def nested(home: str, side: str) -> None:
    """A task that starts another one: that one outlasts it, as it would outlast any caller."""
    with Shell.open(home=home, prepare=False) as shell:
        run = f"{sys.executable} -m outlast run --bg -- 'echo $$ >> {side}/pids; exec sleep 300'"
        env = {"OUTLAST_HOME": home, "PYTHONPATH": os.pathsep.join(sys.path)}
        outer = shell.start(f"echo inner: $({run}); sleep 300", env=env)
        eventually(lambda: told(side) and b"bash-" in output(outer))
        inner = shell.show(output(outer).decode().split()[1])
        receipt = shell.kill(outer.task_id, grace=GRACE_S)
        assert receipt.closed, receipt
        assert not set(receipt.ended + receipt.survivors) & {inner.pid, *guard_pids(inner)}, receipt
        assert shell.show(inner.task_id).status == "running"
        second = shell.kill(inner.task_id)
        assert (second.ended, second.survivors) == ((inner.pid,), ()), second
        eventually(lambda: not others())


def guard_pids(task: Task) -> set[int]:
    guards = guards_of(task)
    return {who.pid for who in (guards.supervisor, guards.keeper) if who}


def daemon_that_is_left_alone(home: str, side: str) -> None:
    """Nobody asks for its end: it stays a child of the task, and what it prints is kept."""
    with Shell.open(home=home, prepare=False) as shell:
        task = start(shell, "(setsid sh -c 'echo $$ >> {side}/pids; sleep 0.2; echo late' &); exit 0", side, 1)
        ended = shell.wait(task.task_id)
        assert ended.exit_code == 0
        assert not ended.closed
        assert closed(shell, task).children == ()
        assert output(task) == b"late\n"


# --- the tests ---------------------------------------------------------------------------


@pytest.fixture
def side(tmp_path: Path) -> str:
    return str(tmp_path)


def check(came: dict, count: int) -> None:
    assert came["left"] == {}, "something escaped"
    assert came["survivors"] == []
    assert came["status"] in ("killed", "completed")
    assert came["closed"]
    assert len(set(came["told"])) == count
    assert {*came["told"], *came["before"]} <= {*came["ended"]}, "the receipt does not name all"
    assert not {1, *came["guards"]} & {*came["ended"]}, "the receipt names others"


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_caught(home: str, side: str, name: str) -> None:
    came = json.loads(inside("tests.faults.test_escape.escape", home, side, name))
    check(came, ESCAPES[name][1])


@pytest.mark.parametrize("guard", ["supervisor", "keeper"])
@pytest.mark.parametrize("name", ["cleared environment", "all of it"])
def test_an_escape_is_caught_after_a_guard_was_replaced(home: str, side: str, name: str, guard: str) -> None:
    check(json.loads(inside("tests.faults.test_escape.escape", home, side, name, guard)), ESCAPES[name][1])


@pytest.mark.parametrize("name", ["double fork", "closed descriptors"])
def test_an_escape_is_caught_after_both_guards_were_replaced(home: str, side: str, name: str) -> None:
    """What went to init then is found by the task's id in its environment."""
    came = json.loads(inside("tests.faults.test_escape.escape", home, side, name, "supervisor", "keeper"))
    check(came, ESCAPES[name][1])


@pytest.mark.parametrize("name", CHAINS)
def test_a_process_that_never_stays_the_same_is_caught_or_reported(home: str, side: str, name: str) -> None:
    came = json.loads(inside("tests.faults.test_escape.escape_chain", home, side, str(CHAINS[name])))
    left = {pid for pid, name in came["left"].items() if not name.startswith("outlast-")}
    assert not left or came["survivors"], "something escaped, and the receipt does not say so"
    assert left or not came["survivors"]


def test_a_task_started_from_inside_a_task_is_its_own(home: str, side: str) -> None:
    inside("tests.faults.test_escape.nested", home, side)


def test_a_daemon_that_is_left_alone_stays_a_child_of_the_task(home: str, side: str) -> None:
    inside("tests.faults.test_escape.daemon_that_is_left_alone", home, side)
