"""Claude Code: at a terminal it holds MCP tasks, whose end wakes the model; in print mode it holds none."""

from __future__ import annotations

import os
import subprocess
import time

from tests.clients.figures import Figures
from tests.clients.place import Place, binary, place
from tests.clients.scene import ASKED, CANCELLED, FAILED, PATIENCE_S, PROMPT, WAITING, WOKEN, counted, played
from tests.clients.scripted import Model, model
from tests.clients.terminal import Terminal, terminal
from tests.conftest import eventually

_SWALLOWED_S = 2.0  # so long after a line nothing has come of it


def at_a_terminal() -> Figures:
    with place() as here, model(WOKEN) as scripted:
        began = time.time()
        with terminal(here, _words(here), _env(here, scripted)) as seen:
            _prompt(here, seen, scripted)
            scripted.ended(PATIENCE_S)
            played(scripted, seen.screen)
            seen.shows("It is built.")
        return counted("Claude Code at a terminal", version(), here, scripted, began)


def with_failures() -> Figures:
    """A background command fails; then a person presses Esc while a foreground command runs."""
    with place() as here, model(FAILED) as scripted:
        began = time.time()
        with terminal(here, _words(here), _env(here, scripted)) as seen:
            _prompt(here, seen, scripted)
            scripted.ended(PATIENCE_S)
            played(scripted, seen.screen)
            eventually(lambda: _statuses(here, CANCELLED) == ["running"], what="the foreground command runs")
            seen.press("Escape", "Interrupted")
            eventually(lambda: _statuses(here, CANCELLED) != ["running"], what="the foreground command ends")
        figures = Figures("Claude Code, whose commands fail", version(), seconds=time.time() - began)
        figures.take(scripted, began)
        [cancelled] = [task for task in here.tasks() if task.command == CANCELLED]
        figures.notes.append(f"after Esc: {cancelled.status}, {cancelled.ended_by}")
        return figures


def _statuses(here: Place, command: str) -> list[str]:
    return [task.status for task in here.tasks() if task.command == command]


def in_print_mode() -> Figures:
    with place() as here, model(WAITING) as scripted:
        began = time.time()
        ran = subprocess.run(
            [*_words(here), "-p", PROMPT],
            cwd=here.work,
            env=_env(here, scripted),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        played(scripted, ran.stdout + ran.stderr)
        assert ran.stdout == "It is built.\n", ran.stdout
        return counted("Claude Code in print mode", version(), here, scripted, began)


def with_approval() -> Figures:
    """Under a policy that asks: a person says yes, then leaves the form."""
    with place() as here, model(ASKED) as scripted:
        began = time.time()
        with terminal(here, _words(here, OUTLAST_POLICY="ask"), _env(here, scripted)) as seen:
            _prompt(here, seen, scripted)
            seen.shows("Answer:")
            for key, then in (("Right", "yes"), ("Enter", "✔ Answer: yes"), ("Enter", "touch refused")):
                seen.press(key, then)
            seen.press("Escape", "It is built.")
            played(scripted, seen.screen)
        figures = Figures("Claude Code, whose user is asked", version(), seconds=time.time() - began)
        figures.take(scripted, began)
        figures.notes.append(f"made: {', '.join(os.listdir(here.work))}")
        return figures


def version() -> str:
    said = subprocess.run([binary("claude"), "--version"], capture_output=True, text=True, timeout=PATIENCE_S)
    return said.stdout.split(" ")[0]


def _words(here: Place, **variables: str) -> list[str]:
    # What it asks a person at the first start, answered; otherwise it looks for its makers' servers first.
    here.write(
        "home/.claude.json",
        {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": ["none"], "rejected": []},
            "projects": {str(here.work): {"hasTrustDialogAccepted": True}},
        },
    )
    config = here.write("mcp.json", here.mcp_json(**variables))
    return [binary("claude"), "--mcp-config", config, "--strict-mcp-config", "--allowedTools", "mcp__outlast"]


def _env(here: Place, scripted: Model) -> dict[str, str]:
    return {
        **here.env,
        "ANTHROPIC_BASE_URL": scripted.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",  # so that our tools are in each request
        "IS_SANDBOX": "1",  # it would not work for root otherwise
    }


def _prompt(here: Place, seen: Terminal, scripted: Model) -> None:
    """Say what to do, once it knows our tools: it takes a moment from having heard of them to offering them."""
    deadline = time.monotonic() + PATIENCE_S
    while not here.listed():
        assert time.monotonic() < deadline, f"it never asked for our tools:\n{seen.screen}"
        time.sleep(0.05)
    while time.monotonic() < deadline:
        known = len(scripted.aside)
        seen.type(PROMPT)
        while not scripted.heard(1, _SWALLOWED_S) and len(scripted.aside) == known and time.monotonic() < deadline:
            seen.tmux("send-keys", "Enter")  # the last one came before it was ready
        if scripted.heard(1, 0):
            return
    raise AssertionError(f"it never offered our tools to the model:\n{seen.screen}")
