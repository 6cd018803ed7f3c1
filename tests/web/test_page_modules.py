"""The pure modules of the page, in a real browser: colours of terminals, and keys as the command line reads them."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.cli.agent import agent_parser
from outlast.cli.run import run_parser
from outlast.shell import keys

pytest.importorskip("playwright", reason="playwright is not installed")
from playwright.sync_api import Page

from tests.web import browser as chromium

pytestmark = [
    pytest.mark.skipif(chromium.PROGRAM is None, reason="chromium is missing (Debian package chromium)"),
    pytest.mark.timeout(60),
]
STYLES = {"fg", "bg", "bold", "dim", "italic", "underline", "inverse", "strike"}
_SEQUENCE = re.compile(r"\x1b\[[\d;:]*m")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with tempfile.TemporaryDirectory(prefix="outlast-test-") as place, chromium.launched() as browser:
        server = chromium.Server(f"{place}/state")
        try:
            yield chromium.open_page(browser, server.link)
        finally:
            server.stop()


def call(page: Page, module: str, function: str, given: Any) -> Any:
    code = "async ([module, name, given]) => (await import(`/static/${module}.js`))[name](given)"
    return page.evaluate(code, [module, function, given])


# --- colours --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("plain", [["plain", {}]]),
        ("", []),
        ("\x1b[31mred\x1b[0m no", [["red", {"fg": "ansi-1"}], [" no", {}]]),
        ("\x1b[1;92mx\x1b[22my", [["x", {"bold": True, "fg": "ansi-10"}], ["y", {"fg": "ansi-10"}]]),
        ("\x1b[38;5;196;1mx", [["x", {"fg": "#ff0000", "bold": True}]]),
        ("\x1b[38;5;9mx\x1b[48;5;232my", [["x", {"fg": "ansi-9"}], ["y", {"fg": "ansi-9", "bg": "#080808"}]]),
        ("\x1b[38;2;1;2;255mx", [["x", {"fg": "#0102ff"}]]),
        ("\x1b[38:2::1:2:255mx", [["x", {"fg": "#0102ff"}]]),
        ("\x1b[38;2;1;2;999mx", [["x", {}]]),
        ("\x1b[7;4mx\x1b[27;24m", [["x", {"inverse": True, "underline": True}]]),
        ("\x1b[mx\x1b[mx", [["x", {}], ["x", {}]]),
    ],
)
def test_colours(page: Page, line: str, runs: list[Any]) -> None:
    assert [[run["text"], run["style"]] for run in call(page, "ansi", "parse", line)] == runs


def test_no_control_character_is_left(page: Page) -> None:
    text = "".join(run["text"] for run in call(page, "ansi", "parse", "a\x1b]0;title\x07\x1b[2Jb\x00\x1b"))
    assert text == "a0;titleb"


SGR = st.lists(st.integers(0, 110) | st.sampled_from([38, 48, 2, 5]), max_size=6).map(
    lambda codes: f"\x1b[{';'.join(map(str, codes))}m"
)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=10)


@settings(max_examples=60)
@given(st.lists(SGR | TEXT, max_size=12).map("".join))
def test_no_text_is_lost_between_colours(page: Page, line: str) -> None:
    runs = call(page, "ansi", "parse", line)
    assert "".join(run["text"] for run in runs) == _SEQUENCE.sub("", line)
    for run in runs:
        assert set(run["style"]) <= STYLES
        for name in ("fg", "bg"):
            assert re.fullmatch(r"ansi-([0-9]|1[0-5])|#[0-9a-f]{6}|", run["style"].get(name, ""))


# --- keys -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1))
def test_typed_text_arrives_as_it_is(page: Page, text: str) -> None:
    parts = keys.parse(call(page, "keys", "typed", text))
    assert "".join("<" if isinstance(part, keys.Key) else part for part in parts) == text


EVENTS = [
    {"key": key, "ctrlKey": ctrl, "altKey": alt, "shiftKey": shift}
    for key in [
        "Enter",
        "Tab",
        "Escape",
        "Backspace",
        "Delete",
        "ArrowUp",
        "ArrowLeft",
        "Home",
        "PageDown",
        "Insert",
        "F1",
        "F12",
        "a",
        "Z",
        "1",
        "[",
        "<",
        "/",
        "@",
    ]
    for ctrl in (False, True)
    for alt in (False, True)
    for shift in (False, True)
]


def test_every_key_is_one_that_the_command_line_knows(page: Page) -> None:
    found = [call(page, "keys", "notation", event) for event in EVENTS]
    for event, text in zip(EVENTS, found, strict=True):
        if text is not None:
            assert len(keys.parse(text)) == 1, event
    names = dict(zip([str(event) for event in EVENTS], found, strict=True))

    def name(key: str, ctrl: bool = False, alt: bool = False, shift: bool = False) -> Any:
        return names[str({"key": key, "ctrlKey": ctrl, "altKey": alt, "shiftKey": shift})]

    assert name("a", ctrl=True) == "<C-a>"
    assert name("a", alt=True) == "<M-a>"
    assert name("Tab", shift=True) == "<S-Tab>"
    assert name("ArrowUp") == "<Up>"
    assert name("ArrowLeft", ctrl=True) == "<C-Left>"
    assert name("a") is None
    assert name("<") is None


# --- a task as a command line ---------------------------------------------------------------

_TASK = {
    "kind": "bash",
    "command": "echo 'a b'; ls",
    "session": "web",
    "cwd": "/a b",
    "description": "it's",
    "name": "",
    "limit": None,
    "executor": "local",
    "split": False,
    "tty": None,
}


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({}, "run --bg --session web --cwd '/a b' --description \"it's\" -- \"echo 'a b'; ls\""),
        (
            {"description": "", "name": "n", "limit": 2.5, "executor": "far", "tty": [80, 24], "command": "ls"},
            "run --bg --session web --cwd '/a b' --limit 2.5 --name n --executor far --tty --size 80x24 -- ls",
        ),
        (
            {"kind": "agent", "description": "", "metadata": {"type": "claude", "prompt": "fix it"}},
            "agent start --session web --cwd '/a b' claude 'fix it'",
        ),
    ],
)
def test_a_task_is_copied_as_the_command_line_that_starts_it(page: Page, task: dict[str, Any], words: str) -> None:
    copied = shlex.split(call(page, "task", "commandLine", {**_TASK, **task}))
    assert copied == ["outlast", *shlex.split(words)]
    parser = agent_parser() if copied[1] == "agent" else run_parser()
    parser.parse(copied[2:])  # the command line knows each option
