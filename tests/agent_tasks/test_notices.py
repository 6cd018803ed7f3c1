"""Who listens is told of agents as of every other task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outlast import Shell
from tests.agent_tasks import template


async def answers(prompt: str, agent: Any) -> str:
    if prompt == "fail":
        raise ValueError("it broke")
    return "the answer"


def test_the_end_of_an_agent_is_told_once(shell: Shell, tmp_path: Path) -> None:
    shell.agent.register("answers", answers)
    shell.agent.register("claude-like", template("claude_like"), format="stream-json")
    shell.agent.register("codex-like", template("codex_like", "exec", "--json", "-"))
    shell.agent.register("acp-like", template("acp_like"), format="acp")
    shell.agent.register("slow", "sleep {prompt}")
    with shell.subscribe("model") as subscription:
        ended = [
            shell.agent.start("answers", "go", "a coroutine"),
            shell.agent.start("answers", "fail", "one that breaks"),
            shell.agent.start("claude-like", "count", "a command"),
            shell.agent.start("codex-like", "count", "another command"),
            shell.agent.start("acp-like", "count", "one that speaks ACP"),
        ]
        for task in ended:
            shell.wait(task.task_id, timeout=60)
        stopped = shell.agent.start("slow", "300", "one that is stopped")
        shell.agent.stop(stopped.task_id)
        shell.agent.register("worker-7", "review", tmp_path / "worker.log")
        shell.agent.done("worker-7")
        text = subscription.text()
        assert not subscription.text()
    for said in (
        '("a coroutine") completed: exit code 0',
        '("one that breaks") failed: exit code 1',
        '("a command") completed: exit code 0',
        '("another command") completed: exit code 0',
        '("one that speaks ACP") completed: exit code 0',
        '("one that is stopped") killed: kill by process',
        '("agent review worker-7") completed: exit code 0',
    ):
        assert text.count(said) == 1, text
    assert "waits for input" not in text
