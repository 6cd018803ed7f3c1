"""The command line, as a person or a script meets it: real calls, real processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.conftest import Cli, eventually

GOLDEN = Path(__file__).parent.parent / "golden"


def agreed(name: str, now: str) -> str:
    """The text that was agreed on. `OUTLAST_GOLDEN=write` agrees on what there is `now`."""
    path = GOLDEN / name
    if os.environ.get("OUTLAST_GOLDEN") == "write":
        path.write_text(now)
    return path.read_text()


def ran(cli: Cli, *words: str) -> dict[str, Any]:
    """What `outlast run --json` prints."""
    result: dict[str, Any] = json.loads(cli("run", "--json", *words).stdout)
    return result


def listed(cli: Cli, *words: str) -> list[dict[str, Any]]:
    """What `outlast ps --json` lists."""
    return [json.loads(line) for line in cli("ps", "--json", *words, check=0).stdout.splitlines()]


def the_running(cli: Cli) -> dict[str, Any]:
    """The one task that runs, once it does."""
    found: list[dict[str, Any]] = eventually(lambda: listed(cli, "--status", "running"), what="a task runs")
    assert len(found) == 1
    return found[0]
