"""Notices over MCP: behind the replies of tools, as a resource, and told of to who subscribes."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as wire
import pytest

from outlast import Shell
from tests.mcp_server import LEGACY, MODERN, connected, eventually, play, shell

URI = "outlast://notices"


async def read(client: Any) -> str:
    [content] = (await client.read_resource(URI, cache_mode="bypass")).contents
    return str(content.text)


async def said(client: Any, command: str, **how: Any) -> tuple[str, Any]:
    """The text of a reply, and its data."""
    reply = await client.call_tool(*shell(command, **how))
    return str(reply.content[-1].text), reply.structured_content


async def ended(client: Any, place: str) -> str:
    """A task that ended when nobody looked."""
    _, data = await said(client, "read go; exit 3", background=True, stdin_open=True)
    task_id = str(data["task_id"])
    with Shell.open(home=place, operator=True) as operator:
        operator.send(task_id, "go\n")

    async def over() -> bool:
        return task_id in await read(client)

    await eventually(over, "it has ended")
    return task_id


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_reply_carries_them_once(place: str, mode: str) -> None:
    with Shell.open(home=place, session="other") as other:
        strange = other.start("true").task_id

    async def scene() -> None:
        async with connected(place, mode=mode) as client:
            assert await read(client) == "No notices.\n"
            task_id = await ended(client, place)
            texts = [(await said(client, "echo hi"))[0] for _ in range(3)]
            telling = [text for text in texts if f'{task_id} ("read go; exit 3") failed: exit code 3' in text]
            assert len(telling) == 1
            assert "not the user's words" in telling[0]
            assert "[outlast notice" not in texts[-1]
            latest = await read(client)
            assert task_id in latest
            assert strange not in latest

    play(scene())


def test_the_next_server_does_not_repeat_what_the_last_one_told(place: str) -> None:
    async def scene() -> None:
        async with connected(place) as client:
            task_id = await ended(client, place)
            assert f'{task_id} ("read go; exit 3")' in (await said(client, "echo hi"))[0]
        async with connected(place) as client:
            assert task_id in await read(client)  # it is the same session
            assert "[outlast notice" not in (await said(client, "echo hi"))[0]

    play(scene())


def test_a_handshake_client_is_told_that_there_is_one(place: str) -> None:
    updated: list[str] = []

    async def heard(message: Any) -> None:
        if isinstance(message, wire.ResourceUpdatedNotification):
            updated.append(message.params.uri)

    async def scene() -> None:
        async with connected(place, how={"message_handler": heard}) as client:
            await client.subscribe_resource(URI)

            await ended(client, place)

            async def told() -> bool:
                return updated[:1] == [URI]

            await eventually(told, "it is told of")

    play(scene())


def test_a_modern_client_is_told_that_there_is_one(place: str) -> None:
    async def scene() -> None:
        async with connected(place, mode=MODERN) as client:
            heard: list[str] = []
            async with client.listen(resource_subscriptions=[URI]) as events:

                async def hear() -> None:
                    async for event in events:
                        heard.append(type(event).__name__)

                hearing = asyncio.create_task(hear())

                await ended(client, place)

                async def told() -> bool:
                    return "ResourceUpdated" in heard

                await eventually(told, "an update")
                hearing.cancel()

    play(scene())
