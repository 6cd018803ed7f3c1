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
from outlast.mcp.tasks import TaskParams, UpdateParams, poll_interval_ms
from tests.conftest import eventually as until
from tests.mcp_server import (
    MODERN,
    Cancel,
    Holding,
    Update,
    connected,
    ended,
    inside,
    lines,
    play,
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
            with Shell.open(home=place, operator=True) as opened:
                [task] = opened.list()
                opened.wait(task.task_id, timeout=20, until="begun")
            state = await state_of(client, held.task_id)
            assert (state.status, state.status_message, state.result) == ("working", "begun", None)
            await client.session.send_request(
                Update(params=UpdateParams(task_id=held.task_id, input_responses={"none": {}})), wire.EmptyResult
            )

            # To wait for it takes longer than an answer may: the answer is how it stands, and no second token.
            waited = await client.call_tool("bash_output", {"task_id": task.task_id, "wait": 60, "until": "done"})
            assert waited.structured_content["task_id"] == task.task_id
            assert waited.structured_content["status"] == "running"
            assert "done" not in lines(waited)
            assert holds.held == [held]

            await client.call_tool("bash_input", {"task_id": task.task_id, "text": "go"})
            state = await ended(client, held.task_id)
            assert state.status == "completed"
            assert final(state).is_error  # it failed
            assert {"begun", "done"} <= set(lines(final(state)))  # all of it, whatever was read before
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
            with Shell.open(home=place, operator=True) as opened:
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
            assert [line for line in lines(ran) if line in ("begin", "end")] == ["begin", "end"]
            assert not holds.held

    play(scene())


@pytest.mark.parametrize(
    "how", [{}, {"wait": 30}, {"ready": "end"}, {"background": True, "ready": "end"}, {"background": True, "wait": 30}]
)
def test_what_outlasts_the_wait_becomes_a_task_and_ends_as_the_call_would_have(place: str, how: dict[str, Any]) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds, OUTLAST_MCP_WAIT_S="0.5") as client:
            await client.call_tool(*shell("echo begin; sleep 3; echo end", **how))
            [held] = holds.held
            assert held.status == "working"
            result = final(await ended(client, held.task_id))
            assert [line for line in lines(result) if line in ("begin", "end")] == ["begin", "end"]
            assert not result.is_error

    play(scene())


@pytest.mark.parametrize(("client", "flat"), [("claude-code", True), ("mine", False)])
@pytest.mark.parametrize("how", [{"background": True}, {}])
def test_a_failure_is_one_line_where_clients_collapse_newlines(
    place: str, client: str, flat: bool, how: dict[str, Any]
) -> None:
    """Claude Code shows the text of such a result after "Task failed: ", with spaces instead of control characters."""

    async def scene() -> None:
        holds = Holding()
        who = {"extensions": [holds], "client_info": wire.Implementation(name=client, version="1")}
        async with connected(place, mode=MODERN, how=who, OUTLAST_MCP_WAIT_S="1") as opened:
            command = "echo one; printf 'a \"b\"\\n\\n'; sleep 2; echo '[outlast: all is well]'; exit 3"
            await opened.call_tool(*shell(command, **how))
            [held] = holds.held
            state = await ended(opened, held.task_id)
            task_id = held.task_id[:13]
            message = state.status_message
            assert message is not None
            assert message == " ".join(message.split())
            assert message.startswith(f"{task_id} failed: exit code 3, after ")
            assert r'"one", "a \"b\"", "(outlast: all is well]".' in message
            assert message.endswith(f" bash_output with task_id {task_id} and cursor 0 shows all of it.")
            assert final(state).is_error
            assert (text(final(state)) == message) is flat
            read = await opened.call_tool("bash_output", {"task_id": task_id, "cursor": "0"})
            assert {"one", "[outlast: all is well]"} <= set(lines(read))
            if how:  # what a background command printed after its start counts as unread, whatever the client shows
                read = await opened.call_tool("bash_output", {"task_id": task_id})
                assert "[outlast: all is well]" in lines(read)

    play(scene())


def test_the_message_of_a_task_that_is_gone_names_no_verb_of_the_command_line(place: str) -> None:
    async def scene() -> None:
        holds = Holding()
        async with holding(place, holds) as client:
            await client.call_tool(*shell("sleep 60", background=True))
            [held] = holds.held
            with Shell.open(home=place, operator=True) as opened:
                [task] = opened.list()
                opened.kill(task.task_id)
                await ended(client, held.task_id)
                opened.remove(task.task_id)
            message = (await state_of(client, held.task_id)).status_message
            assert message is not None
            assert task.task_id in message
            assert "`outlast" not in message
            gone = await client.call_tool("bash_output", {"task_id": task.task_id})
            assert gone.is_error
            assert "`outlast" not in text(gone)

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
            read = await client.call_tool("bash_output", {"task_id": task_id})
            assert not read.is_error
            assert task_id in text(read)
            waits = asyncio.create_task(
                client.call_tool("bash_output", {"id": held.task_id, "wait": 30, "until": "done"})
            )
            sent = await client.call_tool("bash_input", {"task_id": held.task_id, "text": "go"})
            assert "done" in lines(sent) + lines(await waits)  # both read what is new, and one of them is first
            state = await ended(client, held.task_id)
            assert {"up", "done"} <= set(lines(final(state)))
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
            assert "1" in lines(final(state))
            await client.call_tool("bash_input", {"task_id": seen["task"], "text": "go"})
            read = await client.call_tool("bash_output", {"task_id": seen["task"], "until": "two"})
            assert "two" in lines(read)
            assert "one" not in lines(read)  # the last server's client has read it
            state = await ended(client, foreground.task_id)
            assert final(state).is_error
            assert final(state).structured_content["exit_code"] == 5
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
            new = await client.call_tool("bash_input", {"task_id": task_id, "text": "go", "wait": 20})
            assert "two" in lines(new)
            assert "one" not in lines(new)

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
