"""MCP tasks: a client that can hold a task gets one for what goes on, also from the next server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import Any

import mcp_types as wire
import pytest
from mcp.shared.exceptions import MCPError

from outlast import Shell
from outlast.faces.mcp.tasks import TaskParams, UpdateParams, poll_interval_ms
from tests.conftest import eventually as until
from tests.mcp_server import (
    MODERN,
    Cancel,
    Holding,
    Update,
    connected,
    ended,
    inside,
    play,
    printed,
    server_pid,
    session_of,
    shell,
    state_of,
    text,
)


def holding(place: str, holds: Holding, *words: str, apart: bool = False, **variables: str) -> Any:
    """A client that holds tasks; `apart`: of a server that is a process of its own."""
    reached = connected if apart else inside
    return reached(place, *words, mode=MODERN, how={"extensions": [holds]}, **variables)


def final(state: Any) -> wire.CallToolResult:
    return wire.CallToolResult.model_validate(state.result)


def test_what_is_soon_over_is_an_ordinary_result(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds) as client:
            assert "hi" in text(await client.call_tool(*shell("echo hi")))
            ready = await client.call_tool(*shell("echo up; sleep 60", background=True, ready="up"))
            assert ready.structured_content["status"] == "running"
            assert not holds.held

    play(scene())


def test_a_background_run_is_held_and_a_wait_for_it_is_not(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, OUTLAST_MCP_WAIT_S="1") as client:
            name, given = shell("echo begun; read go; echo done; exit 3", background=True, stdin_open=True)
            await client.call_tool(name, given)
            [held] = holds.held
            assert re.fullmatch(r"bash-[0-9a-f]{8}-[0-9a-f]{48}", held.task_id)
            assert held.status == "working"
            assert held.model_extra is not None
            assert held.model_extra["pollIntervalMs"] == 250
            with Shell.open(home=place, operator=True, early=False) as opened:
                [task] = opened.list()
                opened.wait(task.task_id, timeout=20, until="begun")
            state = await state_of(client, held.task_id)
            assert (state.status, state.status_message, state.result) == ("working", "begun", None)
            await client.session.send_request(
                Update(params=UpdateParams(task_id=held.task_id, input_responses={"none": {}})), wire.EmptyResult
            )

            # To wait for it takes longer than an answer may: the answer is how it stands, and no second token.
            waited = await client.call_tool("bash_output", {"task_id": task.task_id, "wait": 60, "until": "done"})
            assert f"{task.task_id} running" in text(waited)
            assert "No line has matched yet." in text(waited)
            assert holds.held == [held]

            await client.call_tool("bash_input", {"task_id": task.task_id, "text": "go"})
            state = await ended(client, held.task_id)
            assert (state.status, state.status_message) == ("completed", "done")
            assert final(state).is_error  # it failed
            assert "begun\ndone\n" in text(final(state))  # all of it, whatever was read before
            assert (await ended(client, held.task_id)).result == state.result

    play(scene())


def test_what_has_run_for_long_need_not_be_asked_for_often() -> None:
    assert [poll_interval_ms(age) for age in (0, 4, 10, 3600)] == [250, 250, 500, 1000]


def test_a_failed_command_is_an_error_in_every_profile(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, "--profile", "spec") as client:
            await client.call_tool("Bash", {"command": "echo oops; sleep 0.2; exit 3", "run_in_background": True})
            state = await ended(client, holds.held[0].task_id)
            assert state.status == "completed"
            assert final(state).is_error
            assert "oops" in text(final(state))

    play(scene())


def test_a_foreground_run_that_takes_long_is_held_and_keeps_its_session(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, OUTLAST_MCP_WAIT_S="0.5") as client:
            await client.call_tool(*shell("sleep 3; export KEPT=yes; echo out"))
            state = await ended(client, holds.held[0].task_id)
            assert not final(state).is_error
            assert "out" in text(final(state))
            assert "yes" in text(await client.call_tool(*shell("echo $KEPT")))

    play(scene())


@pytest.mark.parametrize("how", [{"background": True}, {}])
def test_cancelling_ends_what_was_launched(place: str, how: dict[str, Any]) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, OUTLAST_MCP_WAIT_S="0.5") as client:
            await client.call_tool(*shell("sleep 60", **how))
            [run] = holds.held
            with Shell.open(home=place, operator=True, early=False) as opened:
                [task] = opened.list()
                assert task.status == "running"
                await client.session.send_request(Cancel(params=TaskParams(task_id=run.task_id)), wire.EmptyResult)
                assert (await state_of(client, run.task_id)).status == "cancelled"
                assert opened.show(task.task_id).status == "killed"

    play(scene())


@pytest.mark.parametrize(
    "how", [{}, {"ready": "end"}, {"background": True, "ready": "end"}, {"background": True, "wait": 30}, {"wait": 30}]
)
def test_what_ends_within_the_wait_is_answered_with_its_output(place: str, how: dict[str, Any]) -> None:
    """No longer than other clients has this one to wait, and no shorter."""

    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds) as client:
            ran = await client.call_tool(*shell("echo begin; sleep 3; echo end", **how))
            assert printed(ran) == "begin\nend\n"
            assert not holds.held

    play(scene())


@pytest.mark.parametrize(("client", "flat"), [("claude-code", True), ("mine", False)])
def test_a_failure_stays_readable_where_errors_are_shown_on_one_line(place: str, client: str, flat: bool) -> None:
    async def scene() -> None:
        holds = Holding()
        who = {"extensions": [holds], "client_info": wire.Implementation(name=client, version="1")}
        async with inside(place, mode=MODERN, how=who) as opened:
            await opened.call_tool(*shell("echo one; echo two; exit 3", background=True))
            state = await ended(opened, holds.held[0].task_id)
            assert final(state).is_error is not flat
            assert "failed: exit code 3" in text(final(state))
            assert printed(final(state)) == "one\ntwo\n"

    play(scene())


def test_the_token_names_the_task(place: str) -> None:
    """It is all that some clients show their model."""

    async def scene() -> None:
        holds = Holding()
        who = {"extensions": [holds], "client_info": wire.Implementation(name="claude-code", version="1")}
        async with inside(place, mode=MODERN, how=who) as client:
            await client.call_tool(*shell("echo up; read go; echo done", background=True, stdin_open=True))
            [held] = holds.held
            task_id = held.task_id.rpartition("-")[0]
            assert f"{task_id} running" in text(await client.call_tool("bash_output", {"task_id": task_id}))
            waits = asyncio.create_task(
                client.call_tool("bash_output", {"id": held.task_id, "wait": 30, "until": "done"})
            )
            await client.call_tool("bash_input", {"task_id": held.task_id, "text": "go"})
            assert "A line matches." in text(await waits)
            state = await ended(client, held.task_id)
            assert "up\ndone\n" in text(final(state))
            assert final(state).structured_content is None  # this client would show nothing else

    play(scene())


def test_who_may_ask(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, "--session", "one") as client:
            await client.call_tool(*shell("sleep 60", background=True))
            token = holds.held[0].task_id
            for wrong in ("0" * 48, "../../config", token[:-1]):
                with pytest.raises(MCPError) as refused:
                    await state_of(client, wrong)
                assert refused.value.error.code == wire.INVALID_PARAMS
        async with inside(place, "--session", "one", mode=MODERN) as client:  # does not say that it knows tasks
            with pytest.raises(MCPError) as refused:
                await state_of(client, token)
            assert refused.value.error.code == wire.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert (await client.call_tool(*shell("true"))).structured_content["status"] == "completed"
        async with holding(place, Holding(), "--session", "two") as client:
            with pytest.raises(MCPError) as refused:
                await state_of(client, token)
            assert refused.value.error.code == wire.INVALID_PARAMS

    play(scene())


def test_switched_off_there_are_none(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, OUTLAST_MCP_TASKS="no") as client:
            began = await client.call_tool(*shell("sleep 60", background=True))
            assert began.structured_content["status"] == "running"
            assert not client.server_capabilities.extensions

    play(scene())


@pytest.mark.parametrize("how", ["kill -9", "goodbye"])
def test_the_end_of_the_server_loses_nothing(place: str, how: str) -> None:
    """The next one finds tasks, output, the reader's place, variables, and the MCP tasks that clients hold."""
    holds = Holding()
    seen: dict[str, Any] = {}

    async def before() -> None:
        async with holding(place, holds, apart=True, OUTLAST_MCP_WAIT_S="1") as client:
            await client.call_tool(*shell("export SEEN=1; cd /usr"))
            began = await client.call_tool(
                *shell("echo one; read go; echo two; sleep 60", ready="one", stdin_open=True)
            )
            seen["task"] = began.structured_content["task_id"]  # "one" was read
            await client.call_tool(*shell("sleep 1; echo $SEEN; exit 4", background=True))
            await client.call_tool(*shell("sleep 4; echo foreground; exit 5"))
            seen["pid"] = server_pid()
            if how == "kill -9":
                os.kill(seen["pid"], signal.SIGKILL)

    async def after() -> None:
        async with holding(place, holds, apart=True) as client:
            assert "1 /usr" in text(await client.call_tool(*shell("echo $SEEN $PWD")))
            background, foreground = holds.held
            state = await ended(client, background.task_id)
            assert final(state).is_error
            assert "1\n" in text(final(state))
            await client.call_tool("bash_input", {"task_id": seen["task"], "text": "go"})
            read = await client.call_tool("bash_output", {"task_id": seen["task"], "until": "two"})
            assert printed(read) == "two\n"  # "one" was read by the last server's client
            state = await ended(client, foreground.task_id)
            assert final(state).is_error
            assert "failed: exit code 5" in text(final(state))
            assert "foreground" in text(final(state))
            assert server_pid() != seen["pid"]
            [running] = (await client.call_tool("bash_list", {"status": "running"})).structured_content["tasks"]
            assert running["task_id"] == seen["task"]

    play(before())
    until(lambda: not os.path.exists(f"/proc/{seen['pid']}"), what="the server is gone")
    play(after())


def test_the_reader_s_place_outlives_the_server(place: str) -> None:
    async def before() -> str:
        async with connected(place) as client:
            began = await client.call_tool(*shell("echo one; read go; echo two", ready="one", stdin_open=True))
            return str(began.structured_content["task_id"])

    async def after(task_id: str) -> None:
        async with connected(place) as client:
            assert "Nothing new" in text(await client.call_tool("bash_output", {"task_id": task_id}))
            await client.call_tool("bash_input", {"task_id": task_id, "text": "go"})
            new = await client.call_tool("bash_output", {"task_id": task_id, "wait": 20})
            assert printed(new) == "two\n"

    play(after(play(before())))


def test_two_servers_at_once_are_two_sessions_and_the_next_finds_the_first(place: str) -> None:
    async def sessions() -> tuple[str, str]:
        async with connected(place) as one, connected(place) as other:
            asked = [client.call_tool(*shell("true")) for client in (one, other)]
            first, second = await asyncio.gather(*asked)
            return session_of(place, first), session_of(place, second)

    async def session() -> str:
        async with connected(place) as client:
            return session_of(place, await client.call_tool(*shell("true")))

    first, second = sorted(play(sessions()))
    assert second == f"{first}-2"
    assert play(session()) == first
