"""Agents that are commands: what they print is text, what they told is known, and ending one ends all of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.errors import BadInput, Refused
from outlast.linux import process, process_tree
from outlast.linux.process import Stat
from outlast.storage import record
from tests.agent_tasks import settings, template
from tests.conftest import Cli, end_all, eventually


@pytest.fixture
def agents(home: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell that knows one agent of each format."""
    monkeypatch.setenv("OUTLAST_HOME", home)  # for those that start tasks themselves
    with Shell.open(home=home) as shell:
        shell.agent.register("claude-like", template("claude_like"), format="stream-json")
        shell.agent.register("codex-like", template("codex_like", "exec", "--json", "-"))
        shell.agent.register("acp-like", template("acp_like"), format="acp")
        shell.agent.register("plain", "cat")
        yield shell
        end_all(shell)


def ran(shell: Shell, type: str, prompt: str, **how: Any) -> Any:
    task = shell.agent.start(type, prompt, **how)
    shell.wait(task.task_id, timeout=60)
    return shell.read(task.task_id)


def test_stream_json(agents: Shell) -> None:
    found = ran(agents, "claude-like", "count 'to' \"three\" $HOME", description="counts")
    assert found.output == "I look around.\n[Bash] ls -l\nYou said: count 'to' \"three\" $HOME\n"
    assert (found.status, found.exit_code, found.kind) == ("completed", 0, "agent")
    assert found.description == "counts"
    assert found.metadata == {
        "type": "claude-like",
        "prompt": "count 'to' \"three\" $HOME",
        "agent_session": "5e55",
        "model": "claude-like",
        "input_tokens": 123,
        "output_tokens": 7,
        "turns": 2,
        "cost_usd": 0.0125,
        "result": "You said: count 'to' \"three\" $HOME",
    }
    assert agents.agent.result(found.task_id) == "You said: count 'to' \"three\" $HOME"


def test_stream_json_of_an_agent_that_fails(agents: Shell) -> None:
    found = ran(agents, "claude-like", "fail")
    assert (found.status, found.reason, found.exit_code) == ("failed", "exit", 1)
    assert found.error == "The model is overloaded."
    assert found.output == "[error] The model is overloaded.\n"


def test_an_agent_that_says_it_failed_has_failed_whatever_its_exit_code(agents: Shell) -> None:
    found = ran(agents, "claude-like", "lie")
    assert (found.status, found.exit_code, found.error) == ("failed", 1, "first; second")
    assert found.metadata["agent_exit_code"] == 0


def test_broken_huge_and_unknown_events_end_nothing(agents: Shell) -> None:
    found = ran(agents, "claude-like", "broken")
    assert found.status == "completed"
    assert found.metadata["result"] == "still here"
    lines = found.output.splitlines()
    assert lines[:4] == ["Warning: this line is no JSON", '{"type":"assistant","message":', '["a list"]', '"text"']
    assert lines[4] == "[" * 5000
    assert lines[5:] == ["\ufffd\ufffd not UTF-8", "still here"]


def test_an_event_beyond_all_bounds_is_left_out(agents: Shell, tmp_path: Path) -> None:
    script = tmp_path / "huge.sh"
    script.write_text('head -c 40000000 /dev/zero | tr \'\\0\' x; echo; echo \'{"type":"result","result":"small"}\'\n')
    agents.agent.register("huge", f"bash {script}", format="stream-json")
    found = ran(agents, "huge", "go")
    assert found.output == "[an event of 40000000 bytes was left out]\nsmall\n"


def test_an_agent_that_dies_in_the_midst_of_an_event(agents: Shell) -> None:
    found = ran(agents, "claude-like", "halfway")
    assert (found.status, found.reason, found.signal, found.exit_code) == ("failed", "signal", 9, None)
    assert found.output == '{"type":"assistant","message":{"content":[{"type":"te'


def test_what_an_agent_leaves_behind_is_still_heard(agents: Shell) -> None:
    task = agents.agent.start("claude-like", "leave")
    assert agents.wait(task.task_id, timeout=60).status == "completed"
    eventually(lambda: agents.show(task.task_id).closed)
    assert agents.read(task.task_id).output == "left\nsaid later\n"


def test_codex(agents: Shell) -> None:
    found = ran(agents, "codex-like", "do --this")
    assert found.output == (
        "Reading prompt from stdin...\n"
        "[command] bash -lc 'false'\n[exit code 1]\n[files] update a.py\n[docs.find] x\nHalf of it is done.\n"
        "[error] Reconnecting... 1/5\nYou said: do --this\n"
    )
    assert found.status == "completed"
    assert found.metadata == {
        "type": "codex-like",
        "prompt": "do --this",
        "agent_session": "th-1",
        "progress": "1 of 2: two",
        "result": "You said: do --this",
        "input_tokens": 1000,
        "output_tokens": 50,
        "turns": 1,
    }


def test_codex_that_fails(agents: Shell) -> None:
    found = ran(agents, "codex-like", "fail")
    assert (found.status, found.exit_code, found.error) == ("failed", 1, "You've hit your usage limit.")
    assert found.output.count("usage limit") == 1


def test_acp(agents: Shell) -> None:
    found = ran(agents, "acp-like", "hello")
    assert found.output == ("I look around.\n[execute] List the files\n[failed] List the files\nYou said: hello\n")
    assert (found.status, found.exit_code) == ("completed", 0)
    assert found.metadata == {
        "type": "acp-like",
        "prompt": "hello",
        "agent_session": "acp-1",
        "result": "You said: hello",
        "context_tokens": 10,
        "cost_usd": 0.25,
        "input_tokens": 30,
        "output_tokens": 3,
    }


def test_acp_that_fails(agents: Shell) -> None:
    tasks = [agents.agent.start("acp-like", prompt) for prompt in ("die", "refuse")]
    died, refused = (agents.wait(task.task_id, timeout=60) for task in tasks)
    assert (died.status, died.exit_code) == ("failed", 3)
    assert died.error is not None
    assert died.error.startswith("it ended before it answered")
    assert (refused.status, refused.exit_code, refused.error) == ("failed", 1, "it stopped: refusal")


def test_acp_that_asks_is_refused_unless_the_settings_allow_it(home: str) -> None:
    settings(home)
    acp = template("acp_like")
    Path(home, "config.toml").write_text(
        f"[agents.careful]\ncommand = '''{acp}'''\nformat = 'acp'\n"
        f"[agents.bold]\ncommand = '''{acp}'''\nformat = 'acp'\nallow = true\n"
    )
    with Shell.open(home=home) as shell:
        tasks = [shell.agent.start(type, "ask") for type in ("careful", "bold")]
        said = [shell.read(shell.wait(task.task_id, timeout=60).task_id).output for task in tasks]
    assert said == [
        "[permission refused] Delete everything\nanswered: n\n",
        "[permission given] Delete everything\nanswered: y\n",
    ]


def test_plain_text(agents: Shell) -> None:
    found = ran(agents, "plain", "as it is\nwithout an end")
    assert found.output == "as it is\nwithout an end"
    assert found.metadata == {"type": "plain", "prompt": "as it is\nwithout an end"}


@pytest.mark.parametrize("type", ["claude-like", "codex-like", "acp-like"])
def test_ending_an_agent_ends_everything_it_started(agents: Shell, type: str) -> None:
    task = agents.agent.start(type, "wait")
    assert agents.wait(task.task_id, timeout=60, until="waiting").met
    guards = record.guards_of(os.path.dirname(task.output_file))

    def sleepers() -> list[Stat]:
        members = process_tree.look(guards, record.is_foreign_guard, process.Table).members
        return [who for who in members.values() if who.name == "sleep"]

    members = eventually(sleepers)
    assert len(members) == 1
    receipt = agents.kill(task.task_id)
    assert not receipt.survivors
    assert members[0].pid in receipt.ended
    assert (receipt.status, receipt.reason) == ("killed", "killed")
    assert not process.stat_of(members[0].pid)


def test_the_tasks_that_an_agent_started_are_ended_with_it(agents: Shell) -> None:
    task = agents.agent.start("claude-like", "wait")
    assert agents.wait(task.task_id, timeout=60, until="waiting").met
    own = next(one for one in agents.list() if one.command == "sleep 301")
    assert (own.parent, own.status) == (task.task_id, "running")
    agents.kill(task.task_id)
    ended = agents.wait(own.task_id, timeout=30)
    assert (ended.status, ended.ended_by) == ("killed", f"ended with {task.task_id}, which started it")


def test_a_limit_ends_the_tasks_of_an_agent_too(agents: Shell) -> None:
    task = agents.agent.start("claude-like", "wait", limit=3)
    assert agents.wait(task.task_id, timeout=60, until="waiting").met
    own = next(one for one in agents.list() if one.command == "sleep 301")
    assert agents.wait(task.task_id, timeout=60).reason == "timeout"
    assert agents.wait(own.task_id, timeout=60).status == "killed"


def test_what_a_command_started_outlasts_it(agents: Shell, home: str) -> None:
    import sys

    agents.run(f"{sys.executable} -m outlast run --bg 'sleep 305'")
    own = next(one for one in agents.list() if one.command == "sleep 305")
    assert own.parent
    assert own.status == "running"


# --- the way there -----------------------------------------------------------------------


def test_a_prompt_is_no_option_and_no_shell_reads_it(agents: Shell, tmp_path: Path) -> None:
    script = tmp_path / "words.py"
    script.write_text("import sys; print(sys.argv[1:])\n")
    agents.agent.register("words", f"python3 {script} -p {{prompt}} --about=x{{prompt}}")
    found = ran(agents, "words", "--dangerous $(touch pwned) `id`; rm 'x'")
    said = "--dangerous $(touch pwned) `id`; rm 'x'"
    assert found.output == f"{['-p', ' ' + said, '--about=x' + said]}\n"


def test_a_prompt_too_long_for_an_argument(agents: Shell) -> None:
    agents.agent.register("words", "echo {prompt}")
    with pytest.raises(BadInput, match="too long for an argument"):
        agents.agent.start("words", "x" * 200_000)
    assert ran(agents, "plain", "x" * 200_000).metadata["prompt"].endswith("…")
    assert not [one for one in agents.list() if one.command.startswith("echo")]


@pytest.mark.parametrize(
    ("type", "prompt", "why"),
    [
        ("nobody", "x", "There is no type of agent 'nobody'; known are claude, codex, gemini"),
        ("plain", " ", "The prompt is empty"),
        ("plain", "a\0b", "NUL byte"),
        ("plain", "\ud800", "surrogate"),
    ],
)
def test_bad_input(agents: Shell, type: str, prompt: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        agents.agent.start(type, prompt)
    assert agents.list() == []


def test_an_agent_that_is_not_installed(agents: Shell) -> None:
    agents.agent.register("missing", "no-such-agent --json")
    found = ran(agents, "missing", "x")
    assert (found.status, found.exit_code, found.error) == ("failed", 127, "there is no program no-such-agent")


def test_the_command_of_an_agent_is_judged(home: str) -> None:
    with Shell.open(home=home, policy="allowlist") as shell:
        shell.agent.register("reader", "cat")
        shell.agent.register("fetcher", "curl {prompt}")
        assert ran(shell, "reader", "hello").output == "hello"
        with pytest.raises(Refused, match="curl"):
            shell.agent.start("fetcher", "http://example.invalid")


def test_the_secrets_of_its_type_are_passed_to_it(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-real-one")
    monkeypatch.setenv("OTHER_API_KEY", "another")
    settings(home)
    Path(home, "config.toml").write_text(
        '[agents]\nclaude = \'sh -c "test -n \\"$ANTHROPIC_API_KEY\\" && echo ${OTHER_API_KEY-none}"\'\n'
    )
    with Shell.open(home=home) as shell:
        assert ran(shell, "claude", "x").output == "none\n"


def test_what_an_agent_told_is_masked(agents: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "ghp_" + "a1B2" * 9
    found = ran(agents, "claude-like", f"tell {token}")
    assert token not in json.dumps(found.metadata)
    assert token not in (agents.agent.result(found.task_id) or "")


def test_agents_take_places_and_wait_for_each_other(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_MAX_RUNNING", "1")
    with Shell.open(home=home) as shell:
        shell.agent.register("slow", "sleep {prompt}")
        first, second = shell.agent.start("slow", "60"), shell.agent.start("slow", "0")
        assert (first.status, second.status) == ("running", "pending")
        assert second.metadata == {"type": "slow", "prompt": "0"}
        shell.kill(first.task_id)
        assert shell.wait(second.task_id, timeout=30).status == "completed"


# --- settings ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("agents = 3", "must be a table"),
        ("[agents]\nx = 3", "a command line, or a table"),
        ("[agents.x]\ncommand = 'a'\ncolour = 1", "no key 'colour'"),
        ("[agents.x]\ncommand = 'a'\nformat = 'xml'", "no format 'xml'"),
        ("[agents.x]\ncommand = 'a'\npass = 'A'", "list of names"),
        ("[agents.x]\ncommand = 'a'\nallow = 'y'", "true or false"),
        ('[agents]\nx = "a \'b"', "close the quotes"),
        ("[agents]\nx = ''", "is empty"),
    ],
)
def test_bad_settings(home: str, text: str, why: str) -> None:
    settings(home)
    Path(home, "config.toml").write_text(text)
    with pytest.raises(BadInput, match=why), Shell.open(home=home) as shell:
        shell.agent.start("x", "go")


def test_the_settings_of_a_project_are_not_read(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text("[agents]\nevil = 'touch pwned'\n")
    (tmp_path / ".outlast").mkdir()
    (tmp_path / ".outlast" / "config.toml").write_text("[agents]\nevil = 'touch pwned'\n")
    monkeypatch.chdir(tmp_path)
    assert "no type of agent 'evil'" in cli("agent", "start", "evil", "go", check=2).stderr
    assert not os.path.exists("pwned")


# --- around it ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_in_a_sandbox(home: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_SANDBOX_KIND", kind)
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "agent.sh"
    event = json.dumps({"type": "result", "result": "wrote", "total_cost_usd": 1})
    script.write_text(
        f"echo mine > here; (echo theirs > {home}/config.toml) 2>/dev/null && exit 9; cat; echo '{event}'\n"
    )
    with Shell.open(home=home, sandbox=True) as shell:
        shell.agent.register("careful", f"bash {script}", format="stream-json")
        found = ran(shell, "careful", "the prompt\n")
    assert (found.output, found.status) == ("the prompt\nwrote\n", "completed")
    assert found.metadata["result"] == "wrote"
    assert found.metadata["cost_usd"] == 1
    assert (tmp_path / "here").read_text() == "mine\n"


def test_in_the_state_of_its_session(home: str, tmp_path: Path) -> None:
    with Shell.open(home=home, session="work") as shell:
        shell.run(f"cd {tmp_path}; export GREETING=hello; HIDDEN=1")
        shell.agent.register("looker", "sh -c 'pwd; echo $GREETING $HIDDEN; GREETING=changed'")
        assert ran(shell, "looker", "look").output == f"{tmp_path}\nhello\n"
        assert shell.run("echo $GREETING").output == "hello\n"
