"""Agents that are coroutines: they run in their host, and are tasks like any other."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from outlast import AsyncShell, Shell
from outlast.errors import BadInput
from tests.conftest import eventually

PATIENCE_S = 30


class Like:
    """What became of a coroutine that waits."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    async def wait(self, prompt: str, agent: Any) -> None:
        agent.print("waiting")
        self.begun.set()
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            assert agent.cancelled
            agent.print("cancelled")
            self.cancelled.set()
            raise


async def count(prompt: str, agent: Any) -> str:
    """Counts."""
    agent.print("one", "two", sep=", ")
    agent.progress("half")
    agent.report_usage(input_tokens=5, output_tokens=6, cost_usd=0.5)
    await asyncio.to_thread(agent.print, "from a thread")
    return f"counted {prompt}"


def test_a_coroutine_is_a_task(shell: Shell) -> None:
    shell.agent.register("count", count)
    task = shell.agent.start("count", "to three", "counts for us")
    assert task.task_id.startswith("agent-")
    ended = shell.wait(task.task_id, timeout=PATIENCE_S)
    assert (ended.status, ended.exit_code, ended.kind, ended.description) == ("completed", 0, "agent", "counts for us")
    assert shell.read(task.task_id).output == "one, two\nfrom a thread\ncounted to three\n"
    assert ended.metadata == {
        "type": "count",
        "prompt": "to three",
        "progress": "half",
        "input_tokens": 5,
        "output_tokens": 6,
        "cost_usd": 0.5,
        "result": "counted to three",
    }
    assert [one.task_id for one in shell.list(kind="agent")] == [task.task_id]


def test_one_that_raises_has_failed_and_says_why(shell: Shell) -> None:
    async def breaks(prompt: str, agent: Any) -> None:
        raise ValueError("it broke")

    shell.agent.register("breaks", breaks)
    task = shell.agent.start("breaks", "now")
    ended = shell.wait(task.task_id, timeout=PATIENCE_S)
    assert (ended.status, ended.reason, ended.exit_code) == ("failed", "exit", 1)
    assert ended.error == "ValueError: it broke"
    assert "Traceback" in shell.read(task.task_id).output


def test_killing_the_task_cancels_the_coroutine(shell: Shell) -> None:
    like = Like()
    shell.agent.register("wait", like.wait)
    task = shell.agent.start("wait", "for ever")
    assert like.begun.wait(PATIENCE_S)
    receipt = shell.kill(task.task_id, grace=10)
    assert like.cancelled.is_set()  # by then, not some time later
    assert (receipt.status, receipt.reason) == ("killed", "killed")
    assert shell.read(task.task_id).output == "waiting\ncancelled\n"


def test_one_that_will_not_end_is_cut_off(shell: Shell) -> None:
    begun, let_go = threading.Event(), threading.Event()

    async def stubborn(prompt: str, agent: Any) -> None:
        begun.set()
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                agent.print("no")

    shell.agent.register("stubborn", stubborn)
    task = shell.agent.start("stubborn", "stay")
    assert begun.wait(PATIENCE_S)
    receipt = shell.kill(task.task_id, grace=0.3)
    assert (receipt.status, receipt.survivors) == ("killed", ())
    let_go.set()


def test_one_whose_process_is_killed_is_cancelled(shell: Shell) -> None:
    like = Like()
    shell.agent.register("wait", like.wait)
    task = shell.agent.start("wait", "for ever")
    assert like.begun.wait(PATIENCE_S)
    assert task.pid is not None
    os.kill(task.pid, signal.SIGKILL)
    assert like.cancelled.wait(PATIENCE_S)
    ended = shell.wait(task.task_id, timeout=PATIENCE_S)
    assert (ended.status, ended.reason, ended.signal) == ("failed", "signal", 9)


def test_an_agent_of_an_agent_is_ended_with_it(shell: Shell) -> None:
    like = Like()

    async def delegates(prompt: str, agent: Any) -> None:
        await asyncio.to_thread(agent.shell.agent.start, "wait", prompt)
        await asyncio.sleep(300)

    shell.agent.register("wait", like.wait)
    shell.agent.register("delegates", delegates)
    task = shell.agent.start("delegates", "go")
    assert like.begun.wait(PATIENCE_S)
    inner = next(one for one in shell.list(kind="agent") if one.task_id != task.task_id)
    assert inner.parent == task.task_id
    shell.kill(task.task_id)
    assert like.cancelled.is_set()
    assert shell.wait(inner.task_id, timeout=PATIENCE_S).status == "killed"


def test_a_limit_cancels_it_too(shell: Shell) -> None:
    like = Like()
    shell.agent.register("wait", like.wait)
    task = shell.agent.start("wait", "for ever", limit=0.5)
    assert shell.wait(task.task_id, timeout=PATIENCE_S).reason == "timeout"
    assert like.cancelled.wait(PATIENCE_S)


def test_what_it_started_is_ended_with_it(shell: Shell) -> None:
    started = threading.Event()

    async def starts(prompt: str, agent: Any) -> None:
        await agent.start("sleep 300")
        started.set()
        await agent.run("sleep 300")

    shell.agent.register("starts", starts)
    task = shell.agent.start("starts", "go")
    assert started.wait(PATIENCE_S)
    eventually(lambda: len(shell.list(status="running", kind="bash")) == 2)
    assert {one.parent for one in shell.list(kind="bash")} == {task.task_id}
    shell.kill(task.task_id)
    for one in shell.list(kind="bash"):
        ended = shell.wait(one.task_id, timeout=PATIENCE_S)
        assert (ended.status, ended.ended_by) == ("killed", f"ended with {task.task_id}, which started it")


def test_what_is_pending_of_it_is_ended_unrun(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    started = threading.Event()

    async def starts(prompt: str, agent: Any) -> None:
        await agent.start("sleep 300")
        started.set()
        await asyncio.sleep(300)

    with Shell.open(home=home) as shell:
        shell.agent.register("starts", starts)
        task = shell.agent.start("starts", "go")
        assert started.wait(PATIENCE_S)
        (own,) = shell.list(kind="bash")
        assert own.status == "pending"
        shell.kill(task.task_id)
        ended = shell.wait(own.task_id, timeout=PATIENCE_S)
        assert (ended.status, ended.pid) == ("killed", None)


def test_one_whose_task_is_pending_begins_with_it_or_never(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    begun: list[str] = []

    async def notes(prompt: str, agent: Any) -> None:
        begun.append(prompt)

    with Shell.open(home=home) as shell:
        shell.agent.register("notes", notes)
        first = shell.start("sleep 300")
        never, later = shell.agent.start("notes", "never"), shell.agent.start("notes", "later")
        assert (never.status, later.status) == ("pending", "pending")
        shell.kill(never.task_id)
        shell.kill(first.task_id)
        assert shell.wait(later.task_id, timeout=PATIENCE_S).status == "completed"
        assert begun == ["later"]


HOST = """
import asyncio, sys
from outlast import Shell

async def wait(prompt, agent):
    agent.print("waiting")
    await asyncio.sleep(300)

shell = Shell.open(home=sys.argv[1])
shell.agent.register("wait", wait)
print(shell.agent.start("wait", "for ever").task_id, flush=True)
sys.stdin.read()
"""


def test_one_whose_host_dies_is_lost_and_says_so(home: str) -> None:
    host = subprocess.Popen([sys.executable, "-c", HOST, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert host.stdout is not None
    task_id = host.stdout.readline().decode().strip()
    with Shell.open(home=home) as shell:
        assert shell.wait(task_id, timeout=PATIENCE_S, until="waiting").met
        os.kill(host.pid, signal.SIGKILL)
        host.wait()
        ended = shell.wait(task_id, timeout=PATIENCE_S)
        assert (ended.status, ended.reason, ended.exit_code) == ("failed", "lost", None)
        assert ended.error == "the process that ran it ended before it did, so it is unknown how far it came"
        assert shell.agent.list()[0].reason == "lost"
        assert shell.read(task_id).output == "waiting\n"
    for pipe in (host.stdin, host.stdout):
        if pipe:
            pipe.close()


def test_one_that_was_pending_when_its_host_died_is_lost_when_its_turn_comes(home: str) -> None:
    with Shell.open(home=home) as shell:
        first = shell.start("sleep 300")
        env = {**os.environ, "OUTLAST_MAX_RUNNING": "1"}
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        assert host.stdout is not None
        task_id = host.stdout.readline().decode().strip()
        assert shell.show(task_id).status == "pending"
        host.kill()
        host.communicate()
        shell.kill(first.task_id)
        ended = shell.wait(task_id, timeout=PATIENCE_S)
        assert (ended.reason, ended.error) == (
            "lost",
            "the process that was to run it had ended before it could begin",
        )


def test_closing_the_shell_ends_its_agents(home: str) -> None:
    like = Like()
    with Shell.open(home=home) as shell:
        shell.agent.register("wait", like.wait)
        task = shell.agent.start("wait", "for ever")
        assert like.begun.wait(PATIENCE_S)
    assert like.cancelled.is_set()
    with Shell.open(home=home) as shell:
        ended = shell.show(task.task_id)
        assert (ended.status, ended.ended_by) == ("killed", f"its shell was closed, in process {os.getpid()}")


def test_in_the_event_loop_of_its_host(home: str) -> None:
    async def scenario() -> None:
        where: list[object] = []

        async def notes(prompt: str, agent: Any) -> str:
            where.append(asyncio.get_running_loop())
            return prompt

        async with AsyncShell.open(home=home) as shell:
            await shell.agent.register("notes", notes)
            task = await shell.agent.start("notes", "hello")
            assert (await shell.wait(task.task_id, timeout=PATIENCE_S)).status == "completed"
            assert where == [asyncio.get_running_loop()]
            assert await shell.agent.result(task.task_id) == "hello"
            assert [one.id for one in await shell.agent.list()] == [task.task_id]
            like = Like()
            await shell.agent.register("wait", like.wait)
            task = await shell.agent.start("wait", "for ever")
            assert (await shell.wait(task.task_id, timeout=PATIENCE_S, until="waiting")).met
            assert (await shell.agent.stop(task.task_id)).success
            assert like.cancelled.is_set()

    asyncio.run(scenario())


def test_many_at_once(home: str) -> None:
    with Shell.open(home=home) as shell:
        shell.agent.register("count", count)
        tasks = [shell.agent.start("count", str(number)) for number in range(15)]
        for number, task in enumerate(tasks):
            assert shell.wait(task.task_id, timeout=60).status == "completed"
            assert shell.agent.result(task.task_id) == f"counted {number}"


def test_a_long_print_arrives_whole(shell: Shell) -> None:
    async def floods(prompt: str, agent: Any) -> None:
        for _ in range(20):
            agent.print("x" * 200_000)

    shell.agent.register("floods", floods)
    task = shell.agent.start("floods", "go")
    shell.wait(task.task_id, timeout=PATIENCE_S)
    assert Path(task.output_file).stat().st_size == 20 * 200_001


@pytest.mark.parametrize("how", [{"cwd": "/"}, {"env": {"A": "b"}}, {"sandbox": True}])
def test_what_is_for_commands_is_refused(shell: Shell, how: dict[str, Any]) -> None:
    shell.agent.register("count", count)
    with pytest.raises(BadInput, match="is for commands"):
        shell.agent.start("count", "x", **how)
    assert shell.list() == []


def test_types(shell: Shell) -> None:
    shell.agent.register("count", count)
    assert shell.agent.types()["count"] == "Counts."
    assert {"claude", "codex"} <= shell.agent.types().keys()
    with pytest.raises(BadInput, match="no name for an agent"):
        shell.agent.register("two words", count)
    with pytest.raises(BadInput, match="coroutine function or a command line"):
        shell.agent.register("count", 7)  # type: ignore[arg-type]


# --- a real framework --------------------------------------------------------------------


def test_pydantic_ai(home: str) -> None:
    """A model that is a function, a tool that is Outlast's own: run, output, result, kill."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from outlast.tools import Toolbox

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = messages[0].parts[-1].content  # type: ignore[union-attr]
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("bash", {"command": str(said)})])
        return ModelResponse(parts=[TextPart("done: " + str(messages[-1].parts[0].content))])  # type: ignore[union-attr]

    with Toolbox.open(home=home, session="default") as box:
        brain: Agent[None, str] = Agent(FunctionModel(model), tools=box.as_pydantic_ai())

        async def think(prompt: str, agent: Any) -> str:
            found = await brain.run(prompt)
            agent.report_usage(input_tokens=found.usage.input_tokens, output_tokens=found.usage.output_tokens)
            return found.output

        box.shell.agent.register("think", think)
        task = box.shell.agent.start("think", "echo from the tool")
        ended = box.shell.wait(task.task_id, timeout=60)
        assert ended.status == "completed", box.shell.read(task.task_id).output
        assert "from the tool" in (box.shell.agent.result(task.task_id) or "")
        assert ended.metadata is not None
        assert ended.metadata["output_tokens"] > 0
        assert "done: " in box.shell.read(task.task_id).output

        task = box.shell.agent.start("think", "echo begun; sleep 300")
        own = eventually(lambda: box.shell.list(status="running", kind="bash"))[0]
        assert own.parent == task.task_id
        assert box.shell.agent.stop(task.task_id).success
        assert box.shell.wait(own.task_id, timeout=PATIENCE_S).status == "killed"
