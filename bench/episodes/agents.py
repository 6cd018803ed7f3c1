"""Contestants that are agents with shell tools of their own: the real programs, offline, with a scripted model."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from bench.episodes.catalogue import Episode
from bench.episodes.places import CLIENTS, NODE_BIN
from bench.episodes.play import MOST_CALLS, THINKING_S, Call, Reply, Strategy, Transcript, step
from bench.episodes.strategies import claude, codex
from bench.episodes.stub import Model, serve
from bench.episodes.world import World

_LONGEST_S = 300.0  # for one conversation; the longest needs about 120 s
_KILLED_S = 30.0  # for the runner to kill the agent, while the model's answer is held back


class _Conversation:
    """Plays the parts of an episode in order, over one or two processes of the agent."""

    def __init__(self, agent: Agent, episode: Episode, world: World, counted: Transcript) -> None:
        self._agent, self._episode, self._world, self._counted = agent, episode, world, counted
        self._left = list(episode.all_parts)
        self._strategy: Strategy | None = None
        self._transcript = counted
        self.finished = threading.Event()
        self.to_be_killed = threading.Event()
        self.was_killed = threading.Event()
        self.problem = "the agent ended before the model was done"

    def turn(self, new: str | None) -> Call | None:
        """Return the model's next call, or None if it makes no more."""
        if self.finished.is_set():
            return None
        if self._strategy is None:
            return self._begin()
        self._transcript.replies.append(Reply(new or ""))
        if self._episode.observer:
            self._episode.observer(self._world, new or "")
        time.sleep(self._world.seconds(THINKING_S))
        call = step(self._strategy, new or "") if len(self._transcript.calls) < MOST_CALLS else None
        return self._say(call)

    def _begin(self) -> Call | None:
        part = self._left.pop(0)
        self._strategy = getattr(self._agent.strategies, part)(self._world)
        self._transcript = Transcript() if part == self._episode.uncounted else self._counted
        self._part = part
        return self._say(step(self._strategy, None))

    def _say(self, call: Call | None) -> Call | None:
        if call is not None:
            self._transcript.calls.append(call)
            return call
        if self._part == self._episode.kill_after:
            self._strategy = None
            self.to_be_killed.set()
            self.was_killed.wait(_KILLED_S)
            return None
        if self._left:
            return self._begin()
        # While the agent still lives: what it ends at its own end counts neither for nor against it.
        self.problem = self._episode.check(self._world, self._counted.read)
        self.finished.set()
        return None


class Agent:
    """A contestant; a fresh home for each episode."""

    name = ""
    strategies: ModuleType
    binary = ""
    shell_tool = ""
    shell_tools: tuple[str, ...] = ()
    """Those of its tools that have to do with the shell."""
    instructions = ""

    @property
    def _binary(self) -> str:
        return str(CLIENTS / self.binary)

    def missing(self) -> str:
        from bench.episodes import alone

        if not os.path.exists(self._binary):
            return f"{self.name} is not installed (scripts/setup clients)"
        return "" if alone.is_possible() else "no namespaces of its own can be made here (unshare)"

    def version(self) -> str:
        said = subprocess.run([self._binary, "--version"], capture_output=True, text=True, timeout=60, env=_path())
        return next(word for word in said.stdout.split() if word[:1].isdigit())

    def words(self, world: World, prompt: str, model: Model) -> list[str]:
        raise NotImplementedError

    def variables(self, world: World, model: Model) -> dict[str, str]:
        return {}

    def tools(self) -> list[dict[str, Any]]:
        """The tools for the shell, as a request to the model offers them."""
        world = World(scale=1.0)
        model = Model(self.shell_tool, lambda new: None)
        try:
            with serve(model), self._running(world, "Say hello.", model) as process:
                process.wait(_LONGEST_S)
            return [tool for tool in model.tools if tool.get("name") in self.shell_tools]
        finally:
            world.remove()

    def play(self, episode: Episode, world: World) -> tuple[Transcript, str]:
        counted = Transcript()
        talk = _Conversation(self, episode, world, counted)
        self._converse(world, episode.prompt, talk)
        if talk.to_be_killed.is_set():
            talk.to_be_killed.clear()
            self._converse(world, episode.later_prompt, talk)
        return counted, talk.problem

    def _converse(self, world: World, prompt: str, talk: _Conversation) -> None:
        """One conversation in one process, which is killed at its end."""
        with serve(Model(self.shell_tool, talk.turn)) as model:
            with self._running(world, prompt, model) as process:
                _wait_for(process, talk)
            talk.was_killed.set()

    @contextmanager
    def _running(self, world: World, prompt: str, model: Model) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            self.words(world, prompt, model),
            cwd=world.work,
            env={**world.env, **_path(world.env["PATH"]), **self.variables(world, model)},
            stdin=subprocess.DEVNULL,
            stdout=(world.root / "agent.log").open("ab"),
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], talk: _Conversation) -> None:
    """Wait until the strategy or the agent has ended, for a limited time."""
    waits = int(_LONGEST_S / 0.1)
    for _ in range(waits):
        if talk.finished.is_set() or talk.to_be_killed.is_set() or process.poll() is not None:
            return
        talk.finished.wait(0.1)


def _path(path: str = "") -> dict[str, str]:
    return {"PATH": f"{NODE_BIN}:{path or os.environ['PATH']}"}


class ClaudeCode(Agent):
    name = "Claude Code"
    strategies = claude
    binary = "claude/claude_agent_sdk/_bundled/claude"
    shell_tool = "Bash"
    shell_tools = ("Bash", "Read", "ToolSearch")

    def words(self, world: World, prompt: str, model: Model) -> list[str]:
        # What it asks a person at the first start, answered.
        known = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": ["none"], "rejected": []},
            "projects": {str(world.work): {"hasTrustDialogAccepted": True}},
        }
        (world.root / "home" / ".claude.json").write_text(json.dumps(known))
        return [self._binary, "--dangerously-skip-permissions", "-p", prompt]

    def variables(self, world: World, model: Model) -> dict[str, str]:
        cut = str(round(world.cut_s * 1000))
        return {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # it would not work for root otherwise
            "BASH_DEFAULT_TIMEOUT_MS": cut,  # the time after which a call is cut
            "BASH_MAX_TIMEOUT_MS": cut,
        }


class Codex(Agent):
    name = "Codex"
    strategies = codex
    binary = "npm/codex/node_modules/.bin/codex"
    shell_tool = "exec_command"
    shell_tools = ("exec_command", "write_stdin")

    def words(self, world: World, prompt: str, model: Model) -> list[str]:
        top = {
            "model": "scripted",
            "model_provider": "scripted",
            "approval_policy": "never",
            "sandbox_mode": "danger-full-access",
            "check_for_update_on_startup": False,
        }
        provider = {"name": "scripted", "base_url": f"{model.url}/v1", "wire_api": "responses"}
        config = f"{_toml(top)}[model_providers.scripted]\n{_toml(provider)}[analytics]\nenabled = false\n"
        home = world.root / "home" / ".codex"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(config)
        return [self._binary, "exec", "--skip-git-repo-check", prompt]


def _toml(values: Mapping[str, object]) -> str:
    # JSON strings and booleans are also TOML.
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


AGENTS: tuple[Agent, ...] = (ClaudeCode(), Codex())
