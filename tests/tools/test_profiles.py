"""Each profile by its own names: every reply as a whole text, from Python and from the command line.

The texts are in `tests/golden/tools`, to be read as a model would read them. After a change
on purpose: `OUTLAST_GOLDEN=write pytest tests/tools/test_profiles.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell
from outlast.cli.main import main
from outlast.notices.words import HEADER as NOTICES
from outlast.tools import PROFILES, Toolbox
from tests.agent_tasks import settings
from tests.cli import agreed
from tests.conftest import end_all
from tests.tools import Ids, normalised
from tests.tools.scenarios import SCENARIOS, TELLER, Step

HEAD = "What the tools of the profile {} answer. What differs from run to run stands in braces.\n"


@pytest.fixture
def place(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A state directory and a directory to be in; whatever still runs at the end is ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAST_HOME", home)
    monkeypatch.delenv("OUTLAST_SESSION", raising=False)
    settings(home, teller=TELLER)
    yield home
    with Shell.open(home=home, operator=True) as shell:
        end_all(shell)


def await_it(home: str, given: dict[str, Any], after: str) -> None:
    task_id = next(value for key, value in given.items() if key.endswith("id"))
    with Shell.open(home=home, operator=True) as shell:
        shell.wait(task_id, timeout=30, until=None if after == "end" else after)


def played(home: str, steps: list[Step], call: Callable[[str, Any], tuple[str, bool]]) -> str:
    """A whole scenario as one text."""
    ids, text = Ids(home), ""
    for tool, given in steps:
        asked = ids.filled_in(given)
        if isinstance(asked, dict) and (after := asked.pop("AFTER", None)):
            await_it(home, asked, after)
        said, error = call(tool, asked)
        ids.look()
        said, _, _ = said.partition(f"\n{NOTICES[:30]}")  # they come when they come
        told = normalised(said, {os.path.dirname(home): "{state}", os.getcwd(): "{here}"})
        head = f"> {tool} {json.dumps(asked)}{'   (error)' if error else ''}"
        text += f"\n{ids.numbered(head)}\n{ids.numbered(told)}"
    return text


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_from_python(place: str, profile: str) -> None:
    with Toolbox.open(home=place, session="default", profile=profile, consent=True) as box:

        def call(tool: str, given: Any) -> tuple[str, bool]:
            reply = box.call(tool, given)
            assert reply.data.keys() & {"status", "tasks", "removed"}
            if "output" in reply.data:  # in every reply about a task, whatever its text says
                assert reply.data.keys() >= {"elapsed_ms", "truncated", "exit_code", "status", "error"}
            return reply.text, reply.error

        text = HEAD.format(profile) + played(place, SCENARIOS[profile], call)
    assert text == agreed(f"tools/{profile}.txt", text)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_from_the_command_line(place: str, profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    def call(tool: str, given: Any) -> tuple[str, bool]:
        code = main(["call", tool, json.dumps(given), "--profile", profile])
        assert code in (0, 1)
        return capsys.readouterr().out, code == 1

    text = HEAD.format(profile) + played(place, SCENARIOS[profile], call)
    assert text == (Path(__file__).parent.parent / "golden" / "tools" / f"{profile}.txt").read_text()
