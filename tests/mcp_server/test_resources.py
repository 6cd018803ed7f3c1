"""Each task's output as a resource, and being told when it grows."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import mcp_types as wire
import pytest
from mcp.shared.exceptions import MCPError

from outlast import AsyncShell, Shell
from tests.mcp_server import LEGACY, MODERN, Raw, eventually, inside, play, shell


async def started(client: Any, then: str = "") -> tuple[str, str]:
    began = await client.call_tool(*shell(f"echo one; read go; echo two{then}", ready="one", stdin_open=True))
    task_id = began.structured_content["task_id"]
    return task_id, f"outlast://tasks/{task_id}/output"


async def read(client: Any, uri: str) -> str:
    [content] = (await client.read_resource(uri, cache_mode="bypass")).contents
    return str(content.text)


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_outputs_are_listed_and_read(place: str, mode: str) -> None:
    with Shell.open(home=place, session="other") as other:
        strange = other.run("echo secret").task_id

    async def scene() -> None:
        async with inside(place, mode=mode) as client:
            assert not (await client.list_resources(cache_mode="bypass")).resources
            task_id, uri = await started(client)
            [listed] = (await client.list_resources(cache_mode="bypass")).resources
            assert (listed.uri, listed.name, listed.mime_type) == (uri, task_id, "text/plain")
            [template] = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "outlast://tasks/{id}/output"
            assert await read(client, uri) == "one\n"
            await client.call_tool("bash_input", {"task_id": task_id, "text": "go"})
            await client.call_tool("bash_output", {"task_id": task_id, "wait": 20})
            assert await read(client, uri) == "one\ntwo\n"
            for wrong in (f"outlast://tasks/{strange}/output", "outlast://tasks/nothing/output", "file:///etc/passwd"):
                with pytest.raises(MCPError) as refused:
                    await read(client, wrong)
                assert refused.value.error.code == wire.INVALID_PARAMS

    play(scene())


def test_a_long_list_comes_in_pages(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlast.mcp import resources

    monkeypatch.setattr(resources, "_PAGE", 2)

    class Here:
        """Just enough of the clients and of one of them."""

        def __init__(self, shell: Any) -> None:
            self.shell = shell

        async def find(self, ctx: object) -> Any:
            return self

    async def scene() -> None:
        async with AsyncShell.open(home=place) as opened:
            made = [(await opened.run(f"echo {n}")).task_id for n in range(5)][::-1]
            pages, cursor = [], None
            while True:
                params = wire.PaginatedRequestParams(cursor=cursor)
                page = await resources.Resources(Here(opened)).list(None, params)  # type: ignore[arg-type]
                pages.append([one.name for one in page.resources])
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert pages == [made[:2], made[2:4], made[4:]]

    play(scene())


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_handshake_client_subscribes(place: str) -> None:
    updated: list[str] = []

    async def heard(message: Any) -> None:
        if isinstance(message, wire.ResourceUpdatedNotification):
            updated.append(message.params.uri)

    async def scene() -> None:
        async with inside(place, how={"message_handler": heard}) as client:
            task_id, uri = await started(client, "; sleep 60")
            await client.subscribe_resource(uri)
            await client.subscribe_resource(uri)
            with pytest.raises(MCPError):
                await client.subscribe_resource("outlast://tasks/nothing/output")
            assert not updated
            await client.call_tool("bash_input", {"task_id": task_id, "text": "go"})

            async def told() -> bool:
                return updated[:1] == [uri]

            await eventually(told, "it is told of")
            other, uri = await started(client)
            await client.subscribe_resource(uri)
            await client.unsubscribe_resource(uri)
            await client.call_tool("bash_input", {"task_id": other, "text": "go"})
            await client.call_tool("bash_output", {"task_id": other, "wait": 20})
            assert uri not in updated

    play(scene())


def test_a_modern_client_listens(place: str) -> None:
    async def scene() -> None:
        async with inside(place, mode=MODERN) as client:
            task_id, uri = await started(client, "; sleep 60")
            heard: list[str] = []
            async with client.listen(resource_subscriptions=[uri], resources_list_changed=True) as events:

                async def hear() -> None:
                    async for event in events:
                        heard.append(type(event).__name__)

                hearing = asyncio.create_task(hear())
                await client.call_tool("bash_input", {"task_id": task_id, "text": "go"})

                async def told(what: str) -> bool:
                    return what in heard

                await eventually(lambda: told("ResourceUpdated"), "an update")
                assert "ResourcesListChanged" not in heard
                began = time.monotonic()
                await client.call_tool(*shell("true"))
                await eventually(lambda: told("ResourcesListChanged"), "one more to list")
                for _ in range(5):
                    await client.call_tool(*shell("true"))

                async def told_again() -> bool:
                    return heard.count("ResourcesListChanged") > 1

                await eventually(told_again, "there were more since")
                assert heard.count("ResourcesListChanged") <= 2 + time.monotonic() - began  # not of each by itself
                hearing.cancel()

    play(scene())


def test_what_is_printed_right_after_the_acknowledgement_is_announced(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that found out later how far the output is would take this line for an old one."""
    printed, read = asyncio.Event(), AsyncShell.read

    async def read_late(self: AsyncShell, *words: Any, **options: Any) -> Any:
        if options.get("tail") == 1:
            with suppress(TimeoutError):
                await asyncio.wait_for(printed.wait(), 1)
        return await read(self, *words, **options)

    async def scene() -> None:
        async with inside(place, mode=MODERN) as client:
            task_id, uri = await started(client, "; sleep 60")
            monkeypatch.setattr(AsyncShell, "read", read_late)
            async with client.listen(resource_subscriptions=[uri]) as events:
                await client.call_tool("bash_input", {"task_id": task_id, "text": "go"})
                async with AsyncShell.open(home=place, operator=True) as other:
                    await other.wait(task_id, until="two", timeout=30)
                printed.set()
                event = await asyncio.wait_for(anext(aiter(events)), 20)
                assert type(event).__name__ == "ResourceUpdated"

    play(scene())


def test_who_listens_for_tasks_has_to_say_that_it_knows_them(place: str) -> None:
    raw = Raw(place)
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    said = raw.ask("subscriptions/listen", notifications={"taskIds": ["x"]}, _meta=meta)
    assert said["error"]["code"] == wire.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert raw.close() == 0
