"""The conformance suite of the protocol's makers: the scenarios that a server like ours can be asked to play.

The others want tools that draw, sing or sample, lists of prompts, resources of agreed names. The
tools that the scenarios about MCP tasks want are commands here: the doorman translates.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.clients.doorman import served
from tests.clients.figures import Figures
from tests.clients.place import Place, binary, place

SCENARIOS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tools-call-with-progress",
    "tools-call-simple-text",
    "tools-call-error",
    "tools-list",
    "server-initialize",
    "server-session-lifecycle",
    "server-sse-multiple-streams",
    "ping",
    "resources-list",
    "sep-2164-resource-not-found",
    "input-required-result-unsupported-methods",
    "dns-rebinding-protection",
    "http-header-validation",
)
# The ones that say most, for those who are in a hurry.
FEW = ("tools-list", *(one for one in SCENARIOS if one.startswith(("tasks-", "dns-", "http-"))))
# One check of these wants a call that ends in an error of the protocol after it has become a task. None of ours does.
NOT_OURS = frozenset({"sep-2663-tasks-get-status-failed"})
_AT_ONCE = 3
_PATIENCE_S = 90.0


def _run(command: str, background: bool) -> dict[str, Any]:
    return {"command": command, "run_in_background": background}


_TOOL = "Bash"
_WANTED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "greet": lambda given: _run(f"printf %s {shlex.quote('Hello, ' + given['name'] + '!')}", background=False),
    "slow_compute": lambda given: _run(f"sleep {given['seconds']}; echo {given['label']}", background=True),
    "failing_job": lambda given: _run("sleep 0.2; exit 1", background=True),
    "test_simple_text": lambda given: _run("printf 'This is a simple text response for testing.'", background=False),
    "test_error_handling": lambda given: _run("echo It fails on purpose; exit 1", background=False),
    "test_tool_with_progress": lambda given: _run("sleep 3.5", background=False),
}


def translated(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """A call of a tool that the suite wants as a call of one that we have."""
    try:
        asked = json.loads(body)
        name = asked["params"]["name"]
        asked["params"] |= {"name": _TOOL, "arguments": _WANTED[name](asked["params"]["arguments"])}
    except (ValueError, KeyError, TypeError):
        return headers, body
    named = {key: _TOOL if key.lower() == "mcp-name" and value == name else value for key, value in headers.items()}
    return named, json.dumps(asked).encode()


def suite(scenarios: Sequence[str] = SCENARIOS) -> Figures:
    """What came of them. `calls` are the checks that passed; `notes` are those that did not."""
    began = time.time()
    with place() as here, served(here, "--profile", "spec", translate=translated) as url:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            checks = [check for part in pool.map(lambda one: _played(one, url, here), scenarios) for check in part]
        version = subprocess.run([binary("conformance"), "--version"], env=here.env, capture_output=True, text=True)
    figures = Figures("MCP conformance suite", version.stdout.strip(), seconds=time.time() - began)
    figures.counted, figures.turns = "{turns} scenarios, {calls} checks passed", len(scenarios)
    figures.calls = sum(check["status"] == "SUCCESS" for check in checks)
    wrong = [check for check in checks if check["status"] in ("FAILURE", "WARNING") and check["id"] not in NOT_OURS]
    figures.notes = [f"{check['status']}: {check['id']}: {check.get('errorMessage')}" for check in wrong]
    return figures


def _played(scenario: str, url: str, here: Place) -> list[dict[str, Any]]:
    """The checks of one scenario."""
    into = here.root / "checks" / scenario
    words = [binary("conformance"), "server", "--url", url, "--scenario", scenario, "-o", str(into)]
    ran = subprocess.run(words, env=here.env, capture_output=True, text=True, timeout=_PATIENCE_S)
    found = list(Path(into).glob("*/checks.json"))
    assert len(found) == 1, ran.stdout + ran.stderr
    checks: list[dict[str, Any]] = json.loads(found[0].read_text())
    assert checks, scenario
    return checks
