"""Real agents with a scripted model, and the tools of the protocol's makers: each in a network of its own."""

from __future__ import annotations

import json
import re

import pytest

from tests.clients.__main__ import SCENES, played
from tests.clients.figures import Figures
from tests.clients.place import missing
from tests.clients.scene import TOLD

pytestmark = pytest.mark.clients


def figures_of(scene: str) -> Figures:
    if lacking := missing(SCENES[scene][0]):
        pytest.skip(lacking)
    figures = played(scene)
    print(figures.as_text())
    return figures


def _ran_and_failed(figures: Figures) -> None:
    """What the model read: our text and nothing else, a variable that lasted, a failure that is one."""
    ran, failed = figures.heard[1:3]
    assert "Exit code 0" in ran
    assert r"```\nhello\n```" in ran
    assert "Failed: exit code 3" in failed
    assert r"```\n1\n```" in failed
    assert "pipe_status" not in ran + failed


def test_claude_code_is_woken_by_the_end_of_a_task() -> None:
    figures = figures_of("claude")
    _ran_and_failed(figures)
    assert '"is_error": true' in figures.heard[2]
    began, told, listed = figures.heard[TOLD - 1 :]
    assert figures.holds_tasks
    assert "bash-" in began  # the token tells the model which task it is
    assert "task-notification" in told
    assert "the build is done" in told
    assert "Exit code 0" in told
    assert "the build" in listed
    assert figures.woken_ms is not None
    assert figures.woken_ms < 5000
    assert figures.notes == ["networks: lo"]


def test_claude_code_tells_a_failure_on_one_line_and_esc_ends_a_command() -> None:
    figures = figures_of("claude-fails")
    told = figures.heard[2]
    assert "task-notification" in told
    # As JSON: the quotes of our line have backslashes before them.
    assert re.search(r"Task failed: bash-[0-9a-f]{8} failed: exit code 3, after ", told)
    assert r"\"first\", \"second\". bash_output with task_id bash-" in told
    assert figures.notes == ["after Esc: killed, cancelled by the client", "networks: lo"]


def test_the_user_of_claude_code_is_asked() -> None:
    figures = figures_of("claude-asks")
    allowed, refused = figures.heard[1:]
    assert "Exit code 0" in allowed
    assert "and said no, so 'touch refused' was not run." in refused
    assert figures.notes == ["made: allowed", "networks: lo"]


def test_codex_runs_starts_and_waits() -> None:
    figures = figures_of("codex")
    _ran_and_failed(figures)
    began, told = figures.heard[TOLD - 1 :]
    assert "is running (" in began
    assert "the build is done" in told
    assert figures.woken_ms is not None
    assert figures.woken_ms < 5000
    assert figures.notes == ["networks: lo"]


def test_the_inspector_over_stdio_and_http() -> None:
    figures = figures_of("inspector")
    heard = [json.loads(one) for one in figures.heard]
    heard.remove("hello\n")  # the output as a resource
    assert len(heard) == 2
    for error, text, code in heard:
        assert (error, code) == (True, 3)
        assert "Failed: exit code 3" in text
    assert figures.tools == 5


def test_the_conformance_suite() -> None:
    figures = figures_of("conformance-few")
    assert figures.notes == ["networks: lo"]
    assert figures.calls > 40
