"""What the policy asks about is asked of the client's user, in both eras; never a silent yes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mcp_types as wire
import pytest

from tests.mcp_server import LEGACY, MODERN, Holding, Raw, inside, play, shell, text

pytest.importorskip("outlast.shell.gate", reason="there are no policies that ask")


class User:
    """Somebody who is asked, and answers in turn."""

    def __init__(self, *answers: wire.ElicitResult) -> None:
        self._answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, context: object, params: Any) -> wire.ElicitResult:
        self.asked.append(params)
        return self._answers.pop(0)


def says(answer: str) -> wire.ElicitResult:
    return wire.ElicitResult(action="accept", content={"answer": answer})


def asking(place: str, mode: str, user: User | None, *words: str, **how: Any) -> Any:
    how = {**how, **({"elicitation_callback": user} if user else {})}
    return inside(place, *words, mode=mode, how=how, OUTLAST_POLICY="ask")


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_yes_no_and_always(place: str, tmp_path: Path, mode: str) -> None:
    no = [says("no"), wire.ElicitResult(action="decline"), wire.ElicitResult(action="cancel"), says("perhaps")]
    user = User(says("yes"), *no, says("always"), says("no"))

    async def scene() -> None:
        async with asking(place, mode, user) as client:
            assert "done" in text(await client.call_tool(*shell("touch one; echo done", description="a try")))
            assert "touch one; echo done" in user.asked[0].message
            assert "a try" in user.asked[0].message
            assert os.path.realpath(tmp_path) in user.asked[0].message
            for number in range(len(no)):
                refused = await client.call_tool(*shell(f"touch two{number}"))
                assert refused.is_error
                assert refused.structured_content["code"] == "refused"
            await client.call_tool(*shell("touch three"))
            await client.call_tool(*shell("touch three"))  # not asked again
            assert (await client.call_tool(*shell("touch four"))).is_error

    play(scene())
    assert sorted(os.listdir(tmp_path)) == ["one", "three"]
    assert len(user.asked) == 7


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_client_that_cannot_ask_gets_a_refusal_that_says_so(place: str, tmp_path: Path, mode: str) -> None:
    async def scene() -> None:
        async with asking(place, mode, None) as client:
            refused = await client.call_tool(*shell("touch one"))
            assert refused.is_error
            assert "this client cannot ask" in text(refused)
            assert refused.structured_content["code"] == "needs-approval"
        async with asking(place, mode, None, "--yolo") as client:
            assert not (await client.call_tool(*shell("touch two"))).is_error

    play(scene())
    assert os.listdir(tmp_path) == ["two"]


def test_a_user_who_does_not_answer_in_time_has_not_said_yes(place: str, tmp_path: Path) -> None:
    import asyncio

    async def never(context: object, params: Any) -> Any:
        await asyncio.Event().wait()

    async def scene() -> None:
        how = {"elicitation_callback": never}
        async with inside(place, how=how, OUTLAST_POLICY="ask", OUTLAST_MCP_WAIT_S="0.5") as client:
            refused = await client.call_tool(*shell("touch one"))
            assert "The user did not answer within 0.5 s" in text(refused)

    play(scene())
    assert not os.listdir(tmp_path)


def test_what_is_held_is_asked_about_first(place: str) -> None:
    user = User(says("yes"))
    holds = Holding()

    async def scene() -> None:
        async with asking(place, MODERN, user, extensions=[holds]) as client:
            await client.call_tool(*shell("sleep 60", background=True))
            assert len(user.asked) == len(holds.held) == 1

    play(scene())


def test_an_answer_that_nobody_was_asked_for_counts_for_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_POLICY", "ask")
    raw = Raw(place)
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    call = {"name": "bash", "arguments": {"command": "touch one"}, "_meta": meta}
    asked = raw.ask("tools/call", **call)["result"]
    assert asked["resultType"] == "input_required"
    [key] = asked["inputRequests"]
    yes = {key: {"action": "accept", "content": {"answer": "yes"}}}
    assert raw.ask("tools/call", **call, inputResponses=yes)["result"]["resultType"] == "input_required"
    for state in (asked["requestState"][:-4] + "AAAA", '{"answered": {}}'):
        assert raw.ask("tools/call", **call, inputResponses=yes, requestState=state)["error"]["code"] == -32602
    other = {**call, "arguments": {"command": "touch two"}}
    stolen = raw.ask("tools/call", **other, inputResponses=yes, requestState=asked["requestState"])
    assert stolen["error"]["code"] == -32602
    assert not os.listdir(tmp_path)
    # And the same one, honestly, after the server was started anew.
    assert raw.close() == 0
    raw = Raw(place)
    done = raw.ask("tools/call", **call, inputResponses=yes, requestState=asked["requestState"])["result"]
    assert done["resultType"] == "complete"
    assert os.listdir(tmp_path) == ["one"]
    assert raw.close() == 0


def test_a_profile_that_asks_before_it_ends_something(place: str) -> None:
    user = User(says("yes"), says("no"), says("yes"))

    async def scene() -> None:
        async with inside(place, "--profile", "neovate", how={"elicitation_callback": user}) as client:
            began = await client.call_tool("bash", {"command": "sleep 60", "run_in_background": True})
            task_id = began.structured_content["task_id"]
            assert not (await client.call_tool("bash_output", {"task_id": task_id})).is_error  # nobody is asked
            refused = await client.call_tool("kill_bash", {"task_id": task_id})
            assert refused.structured_content["code"] == "refused"
            assert user.asked[1].message.startswith(f"End {task_id}?")
            ended = await client.call_tool("kill_bash", {"task_id": task_id})
            assert ended.structured_content["status"] == "killed"

    play(scene())
    assert len(user.asked) == 3
