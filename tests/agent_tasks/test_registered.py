"""Agents that somebody else started: the six operations of profile C, from Python and by `outlast agent`."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlast import AsyncShell, Shell
from outlast.agents.types import Agent
from outlast.cli.main import main
from outlast.errors import AlreadyEnded, BadInput
from outlast.light import fields
from tests.agent_tasks import settings, template
from tests.conftest import Cli


class ByPython:
    """The six operations, each as plain data."""

    def __init__(self, home: str) -> None:
        self._home = home

    def _with(self, verb: Callable[[Shell], Any]) -> Any:
        with Shell.open(home=self._home) as shell:
            found = verb(shell)
        return [fields(one) for one in found] if isinstance(found, list) else fields(found) if found else found

    def register(self, id: str, type: str, file: str) -> Any:
        return self._with(lambda shell: shell.agent.register(id, type, file))

    def status(self, id: str) -> Any:
        return self._with(lambda shell: shell.agent.status(id))

    def done(self, id: str, failed: bool = False) -> Any:
        return self._with(lambda shell: shell.agent.done(id, failed=failed))

    def read(self, id: str) -> Any:
        with Shell.open(home=self._home) as shell:
            return shell.agent.read(id)

    def list(self) -> Any:
        return self._with(lambda shell: shell.agent.list())

    def stop(self, id: str) -> Any:
        return self._with(lambda shell: shell.agent.stop(id))


class ByAsyncio(ByPython):
    def _with(self, verb: Callable[[Any], Any]) -> Any:
        async def called() -> Any:
            async with AsyncShell.open(home=self._home) as shell:
                return await verb(shell)

        found = asyncio.run(called())
        return [fields(one) for one in found] if isinstance(found, list) else fields(found) if found else found


class ByCommand:
    """The same by `outlast agent`, in this process."""

    def __init__(self, said: pytest.CaptureFixture[str]) -> None:
        self._said = said

    def _json(self, *words: str) -> Any:
        main(["agent", *words, "--json"])
        return [json.loads(line) for line in self._said.readouterr().out.splitlines()]

    def register(self, id: str, type: str, file: str) -> Any:
        return self._json("register", id, type, file)[0]

    def status(self, id: str) -> Any:
        return self._json("status", id)[0]

    def done(self, id: str, failed: bool = False) -> Any:
        return self._json("done", id, *(["--failed"] if failed else []))[0]

    def read(self, id: str) -> str:
        return str(self._json("read", id)[0]["output"])

    def list(self) -> Any:
        return self._json("list")

    def stop(self, id: str) -> Any:
        return self._json("stop", id)[0]


@pytest.fixture(params=["python", "asyncio", "command"])
def by(
    request: pytest.FixtureRequest, home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    monkeypatch.setenv("OUTLAST_HOME", home)
    monkeypatch.delenv("OUTLAST_SESSION", raising=False)
    return {"python": ByPython(home), "asyncio": ByAsyncio(home), "command": ByCommand(capsys)}[request.param]


def test_an_agent_from_its_registration_to_its_end(by: Any, tmp_path: Path) -> None:
    file = tmp_path / "worker.log"
    made = by.register("worker-7", "review", str(file))
    assert (made["id"], made["type"], made["status"], made["kind"]) == ("worker-7", "review", "running", "agent")
    assert re.fullmatch(r"agent-[0-9a-f]{8}", made["task_id"])
    assert by.status("worker-7")["status"] == "running"
    assert by.read("worker-7") == "(no output yet)"
    file.write_text("reading the code\n")
    assert by.read("worker-7") == "reading the code\n"
    with file.open("a") as more:
        more.write("all is well\n")
    assert by.read("worker-7") == "reading the code\nall is well\n"
    assert by.done("worker-7")["status"] == "completed"
    assert [(one["id"], one["status"]) for one in by.list()] == [("worker-7", "completed")]
    stopped = by.stop("worker-7")
    assert (stopped["success"], stopped["status"]) == (False, "completed")
    assert "has ended already" in stopped["message"]


def test_one_that_failed(by: Any, tmp_path: Path) -> None:
    by.register("worker-8", "review", str(tmp_path / "x"))
    ended = by.done("worker-8", failed=True)
    assert (ended["status"], ended["exit_code"], ended["error"]) == ("failed", 1, "it was marked as failed")
    assert by.status("worker-8")["status"] == "failed"


def test_one_that_is_stopped_shows_as_failed(by: Any, tmp_path: Path) -> None:
    by.register("worker-9", "review", str(tmp_path / "x"))
    stopped = by.stop("worker-9")
    assert stopped["success"] is True
    assert by.status("worker-9")["status"] == "failed"
    assert by.status("worker-9")["reason"] == "killed"
    assert by.stop("worker-9")["success"] is False


def test_unknown_ones(by: Any) -> None:
    assert by.status("nobody") is None
    stopped = by.stop("nobody")
    assert (stopped["success"], stopped["status"]) == (False, "unknown")
    assert "There is no task 'nobody'" in stopped["message"]
    assert by.list() == []


def test_output_that_cannot_be_read_is_said_so(by: Any, tmp_path: Path) -> None:
    by.register("worker-1", "review", str(tmp_path))
    assert by.read("worker-1") == f"(the output cannot be read: it is no plain file: {tmp_path})"
    if os.geteuid() != 0:
        shut = tmp_path / "shut"
        shut.write_text("x")
        shut.chmod(0)
        by.register("worker-2", "review", str(shut))
        assert by.read("worker-2") == f"(the output cannot be read: Permission denied: {shut})"
        by.stop("worker-2")
    by.stop("worker-1")


# --- what is the same for all ------------------------------------------------------------


def test_it_is_a_task_like_any_other(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "worker.log"
    file.write_text("one\n")
    agent = shell.agent.register("worker", "review", file)
    assert isinstance(agent, Agent)
    assert shell.wait(agent.task_id, timeout=30, until="one").met
    file.write_text("2\n")  # it begins anew
    assert shell.wait(agent.task_id, timeout=30, until="^2").met
    file.unlink()
    file.write_text("three, in another file\n")
    assert shell.wait(agent.task_id, timeout=30, until="three").met
    with file.open("a") as more:
        more.write("the last word\n")
    shell.agent.done("worker")
    assert shell.show(agent.task_id).status == "completed"
    assert shell.read(agent.task_id).output == "one\n2\nthree, in another file\nthe last word\n"


def test_an_id_is_taken_while_its_agent_runs(shell: Shell, tmp_path: Path) -> None:
    shell.agent.register("worker", "review", tmp_path / "a")
    with pytest.raises(BadInput, match="is registered already"):
        shell.agent.register("worker", "review", tmp_path / "b")
    shell.agent.done("worker")
    second = shell.agent.register("worker", "review", tmp_path / "b")
    assert second is not None
    assert [getattr(shell.agent.status(one), "task_id", "") for one in ("worker", second.task_id)] == [
        second.task_id
    ] * 2
    assert shell.agent.stop("worker").success


def test_it_takes_no_place(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    with Shell.open(home=home) as shell:
        server = shell.start("sleep 300")
        for number in range(3):
            agent = shell.agent.register(f"worker-{number}", "review", tmp_path / "x")
            assert agent is not None
            assert agent.status == "running"
            shell.agent.done(agent.id)
        shell.kill(server.task_id)


def test_what_is_run_by_us_is_marked_by_nobody(shell: Shell) -> None:
    shell.agent.register("slow", "sleep {prompt}")
    task = shell.agent.start("slow", "300")
    with pytest.raises(BadInput, match="knows itself when it is done"):
        shell.agent.done(task.task_id)
    assert shell.agent.read(task.task_id) == "(no output yet)"
    stopped = shell.agent.stop(task.task_id)
    assert (stopped.success, stopped.status) == (True, "failed")
    assert shell.show(task.task_id).status == "killed"


def test_a_command_is_no_agent(shell: Shell) -> None:
    task = shell.start("sleep 300")
    assert shell.agent.read(task.task_id) is None
    assert shell.agent.done(task.task_id) is None
    assert shell.agent.status(task.task_id) is None
    assert shell.agent.stop(task.task_id).success is False
    assert shell.show(task.task_id).status == "running"


def test_marking_twice(shell: Shell, tmp_path: Path) -> None:
    shell.agent.register("worker", "review", tmp_path / "x")
    shell.agent.done("worker")
    with pytest.raises(AlreadyEnded):
        shell.agent.done("worker")


def test_a_session_sees_its_own_agents(home: str, tmp_path: Path) -> None:
    with Shell.open(home=home, session="one") as one, Shell.open(home=home, session="two") as two:
        one.agent.register("worker", "review", tmp_path / "x")
        assert two.agent.list() == []
        assert two.agent.status("worker") is None
        assert two.agent.stop("worker").success is False
        assert one.agent.stop("worker").success


# --- the command line --------------------------------------------------------------------


def test_outlast_agent(cli: Cli, home: str) -> None:
    settings(home, teller=template("claude_like"))
    Path(home, "config.toml").write_text(
        f"[agents.teller]\ncommand = '''{template('claude_like')}'''\nformat = 'stream-json'\n"
    )
    task_id = cli("agent", "start", "teller", "say something", "--description", "talks", check=0).stdout.strip()
    assert cli("wait", task_id, "--timeout", "60").returncode == 0
    assert cli("agent", "read", task_id, check=0).stdout.endswith("You said: say something\n")
    listed = cli("agent", "list", check=0).stdout.splitlines()
    assert re.fullmatch(r"STATUS +ID +TYPE +TIME +USED +WHAT", listed[0])
    assert re.fullmatch(rf"completed +{task_id} +teller +\S+ +130 tokens, \$0\.01 +talks", listed[1])
    assert "teller: talks (130 tokens, $0.01)" in cli("ps", check=0).stdout
    assert "teller: talks (130 tokens, $0.01)" in cli("tasks", check=0).stdout
    shown = cli("show", task_id, check=0).stdout
    assert re.search(r"^agent +teller$", shown, re.MULTILINE)
    assert re.search(r"^prompt +say something$", shown, re.MULTILINE)
    assert re.search(r"^used +130 tokens, \$0\.01$", shown, re.MULTILINE)
    assert re.search(r"^result +You said: say something$", shown, re.MULTILINE)
    assert cli.json("agent", "read", task_id)["result"] == "You said: say something"
    piped = cli("agent", "start", "teller", "-", stdin="from a pipe", check=0).stdout.strip()
    assert cli.json("show", piped)["metadata"]["prompt"] == "from a pipe"
    assert "claude" in cli("agent", "types", check=0).stdout


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["start", "nobody", "go"], 2, "There is no type of agent 'nobody'"),
        (["start", "claude"], 2, "required: PROMPT"),
        (["start", "claude", "two", "words"], 2, "quote a prompt that has blanks"),
        (["list", "--failed"], 2, "There is no option --failed; `outlast agent list --help`"),
        (["done", "nobody"], 1, "There is no agent 'nobody'"),
        (["read", "nobody"], 1, "There is no agent 'nobody'"),
        (["stop", "nobody"], 1, "There is no task 'nobody'"),
        (["register", "two words", "review", "/tmp/x"], 2, "no name for an agent"),
        (["fly"], 2, "There is no `outlast agent fly`; use one of start, list,"),
    ],
)
def test_wrong_words(cli: Cli, words: list[str], code: int, why: str) -> None:
    assert why in cli("agent", *words, check=code).stderr
