"""What happened, one line each: of tasks, of calls; under other names; followed; for one session only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlast import AsyncShell, Event, Shell
from outlast.tools import Toolbox
from tests.conftest import Cli, end_all, eventually

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SPEC = {
    *("task_id", "kind", "status", "reason", "exit_code", "signal", "command", "description", "session", "cwd"),
    *("pid", "pgid", "started_at", "ended_at", "elapsed_ms", "children", "output_file"),
}


def types(events: list[Event], task_id: str) -> list[str]:
    return [event.type for event in events if event.task_id == task_id]


def test_every_change_of_a_task(shell: Shell) -> None:
    first = shell.start("sleep 0.2; exit 3")
    second = shell.start("true", after=[first.task_id], after_failed="run")
    quick = shell.run("true")
    left = shell.run("sleep 0.2", wait=0.01)
    for task in (first, second, left):
        shell.wait(task.task_id, timeout=30)
    events = list(shell.events())
    assert types(events, first.task_id) == ["task.started", "task.ended"]
    assert types(events, second.task_id) == ["task.queued", "task.started", "task.ended"]
    assert types(events, quick.task_id) == ["task.started", "task.ended"]
    assert types(events, left.task_id) == ["task.started", "task.background", "task.ended"]
    over = next(event for event in events if event.task_id == first.task_id and event.type == "task.ended")
    assert (over.facts["status"], over.facts["exit_code"]) == ("failed", 3)
    assert [event.number for event in events] == sorted({event.number for event in events})
    assert list(shell.events()) == events  # the same again: nothing is claimed
    assert list(shell.events(after=events[3].number)) == events[4:]
    assert list(shell.events(after=None)) == []


def test_they_come_as_they_happen(cli: Cli, shell: Shell) -> None:
    following = cli.start("events", "-f", "--json", "--timeout", "60")
    assert following.stdout is not None
    task = shell.start("exit 2")
    lines: list[dict[str, Any]] = []
    while not lines or lines[-1]["type"] != "task.ended":
        lines.append(json.loads(following.stdout.readline()))
    following.kill()
    following.wait()
    assert [line["type"] for line in lines] == ["task.started", "task.ended"]
    assert all(line["v"] == 1 and line.keys() >= SPEC for line in lines)
    assert (lines[-1]["task_id"], lines[-1]["exit_code"]) == (task.task_id, 2)


def test_for_asyncio(home: str) -> None:
    async def go() -> list[str]:
        async with AsyncShell.open(home=home) as shell:
            seen = []
            following = shell.events(after=None, follow=True)
            coming = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0)
            task = await shell.run("true")
            while not coming.done():
                task = await shell.run("true")
                await asyncio.wait({coming}, timeout=0.2)
            seen.append((await coming).type)
            await following.aclose()
            async for event in shell.events():
                if event.task_id == task.task_id:
                    seen.append(event.type)
            return seen

    seen = asyncio.run(go())
    assert seen[0].startswith("task.")
    assert seen[1:] == ["task.started", "task.ended"]


def test_a_call_of_a_tool_is_an_event(home: str) -> None:
    with Toolbox.open(home=home, session="s") as box:
        reply = box.call("bash", {"command": "true"})
        box.call("bash", {"command": ""})
        calls = [event for event in box.events() if event.type == "tool.call"]
        assert [call.facts["tool"] for call in calls] == ["bash", "bash"]
        assert [call.facts["failed"] for call in calls] == [False, True]
        assert calls[0].task_id == reply.data["task_id"]
        assert calls[0].facts["elapsed_ms"] > 0


def test_profile_b_has_its_own_names(home: str, cli: Cli) -> None:
    with Toolbox.open(home=home, session="default", profile="jido") as box:
        ends = box.call("bash_background", {"command": "true"}).data["task_id"]
        runs = box.call("bash_background", {"command": "sleep", "args": ["60"]}).data["task_id"]
        box.shell.wait(ends, timeout=30)
        box.call("kill_shell", {"shell_id": runs})
        box.call("run_command", {"command": "true"})  # in the foreground: that design has no event for it
        events = list(box.events())
        prefix = "jido_code.shell."
        assert sorted(types(events, ends)) == [
            f"{prefix}{name}" for name in ("background_complete", "background_start", "bash_background")
        ]
        assert sorted(types(events, runs)) == [
            f"{prefix}{name}" for name in ("background_kill", "background_start", "bash_background", "kill_shell")
        ]
    lines = [json.loads(line) for line in cli("events", "--profile", "jido", "--json", check=0).stdout.splitlines()]
    assert [line["number"] for line in lines] == [event.number for event in events]
    assert {line["type"] for line in lines} == {event.type for event in events}


def test_a_session_sees_its_own_only(home: str) -> None:
    shells = {name: Shell.open(home=home, session=name) for name in ("one", "two")}
    ids = {name: shell.start("true").task_id for name, shell in shells.items()}
    for name, shell in shells.items():
        shell.wait(ids[name], timeout=30)
    with Shell.open(home=home, operator=True) as operator:
        assert {event.task_id for event in operator.events()} == set(ids.values())
        numbers = [notice for notice in operator.notices() if notice.task_id == ids["two"]]
    for name, shell in shells.items():
        assert {event.task_id for event in shell.events()} == {ids[name]}
        assert [notice.task_id for notice in shell.notices()] == [ids[name]]
        with shell.subscribe("me") as subscription:
            assert [notice.task_id for notice in subscription.wait(30)] == [ids[name]]
    assert shells["one"].verify(str(numbers[0])) is None
    assert shells["two"].verify(str(numbers[0])) is not None
    for shell in shells.values():
        shell.close()


@pytest.mark.parametrize("session", [None, "traced"])
def test_a_command_is_part_of_its_callers_trace(
    home: str, session: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", TRACE)
    with Shell.open(home=home, session=session) as shell:
        result = shell.run("echo $TRACEPARENT")
        assert result.output == f"{TRACE}\n"
        other = TRACE.replace("b7", "c8")
        monkeypatch.setenv("TRACEPARENT", other)
        assert shell.run("echo $TRACEPARENT").output == f"{other}\n"  # the caller's now, not the session's first
        monkeypatch.delenv("TRACEPARENT")
        assert shell.run("echo $TRACEPARENT").output == "\n"
        event = next(event for event in shell.events() if event.task_id == result.task_id)
        assert event.traceparent == TRACE


def test_secrets_are_masked(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "ghp_" + "a1B2" * 9
    with Shell.open(home=home) as shell:
        shell.start(f"echo {token}; true", description=f"uses {token}", notify="ghp")
        with shell.subscribe("me") as subscription:
            seen: list[str] = []
            while len(seen) < 2:
                seen += [f"{one} {dict(one.facts)}" for one in subscription.wait(30)]
        seen += [str(event.facts) for event in shell.events()]
        assert not [text for text in seen if token in text]
        end_all(shell)


def test_an_old_state_directory_gets_an_outbox(home: str, cli: Cli) -> None:
    with Shell.open(home=home) as shell:
        shell.wait(shell.start("true").task_id, timeout=30)
    assert not (Path(home) / "outbox").exists()  # nobody has asked: nothing is made
    assert "completed" in cli("notices", check=0).stdout
    assert oct((Path(home) / "outbox").stat().st_mode)[-3:] == "700"
    for file in (Path(home) / "outbox").iterdir():
        assert oct(file.stat().st_mode)[-3:] == "600", file


def test_nothing_polls(home: str) -> None:
    """Who follows sleeps in the kernel until something happens."""
    code = f"from outlast import Shell\nfor _ in Shell.open(home={home!r}).events(follow=True): pass"
    follower = subprocess.Popen([sys.executable, "-c", code])
    try:

        def cpu() -> int:
            fields = Path(f"/proc/{follower.pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        def sleeps() -> bool:
            return "poll" in Path(f"/proc/{follower.pid}/wchan").read_text()

        eventually(sleeps)
        before = cpu()
        with pytest.raises(subprocess.TimeoutExpired):
            follower.wait(1.0)
        assert cpu() == before
    finally:
        follower.kill()
        follower.wait()
