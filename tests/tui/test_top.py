"""`outlast top`, driven by its keys: the real application over real tasks, without a terminal and in one."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from textual.pilot import Pilot

from outlast import AsyncShell, Shell
from outlast.errors import BadInput, OutlastError
from outlast.tui.app import Top
from outlast.tui.dialogs import AskText, Confirm, Help
from outlast.tui.output_pane import _render_line
from outlast.types import Stdin
from tests.conftest import PATIENCE_S, end_all, eventually

GOLDEN = Path(__file__).parents[1] / "golden"

Drive = Callable[[Callable[[Top, "Pilot[None]"], Awaitable[None]]], None]


@pytest.fixture
def drive(home: str, shell: Shell) -> Drive:
    """Runs the application and hands it, with its keyboard, to a coroutine."""

    def run(work: Callable[[Top, Pilot[None]], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncShell.open(home=home, operator=True) as seen:
                app = Top(seen)
                async with app.run_test(size=(100, 30), notifications=True) as pilot:
                    await work(app, pilot)

        try:
            asyncio.run(main())
        finally:
            end_all(shell)

    return run


async def until(pilot: Pilot[None], look: Callable[[], Any], what: str) -> Any:
    """Wait for a condition, with a bound."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"did not come true: {what}\n{text_of(pilot.app)}"
        await pilot.pause(0.01)
    return found


def text_of(app: Any) -> str:
    """What is on the screen, row by row."""
    rows: dict[float, list[tuple[float, str]]] = {}
    found = re.findall(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', app.export_screenshot())
    for x, y, text in found:
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    lines = []
    for y in sorted(rows):
        line = ""
        for x, text in sorted(rows[y]):
            line = line.ljust(round(x / 12.2)) + text
        lines.append(line.rstrip())
    return "\n".join(lines)


def compare(app: Any, golden: str) -> None:
    """Compare what is on the screen with the file, without what differs each time."""
    shown = re.sub(r"bash-[0-9a-f]{8}", "bash-########", text_of(app))
    shown = re.sub(r"\d+m \d+s", "0m 0s", shown) + "\n"
    assert shown == (GOLDEN / golden).read_text(), shown


def test_tasks_come_and_end_while_one_looks(drive: Drive, shell: Shell) -> None:
    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "No tasks yet" in text_of(app), "the hint what to do")
        task = await asyncio.to_thread(shell.start, "echo begun; exec sleep 1000", description="a server")
        await until(pilot, lambda: "● Running" in text_of(app), "a running task is listed")
        await until(pilot, lambda: "begun" in text_of(app), "its output is shown")
        await asyncio.to_thread(shell.kill, task.task_id)
        await until(pilot, lambda: "⊘ Stopped" in text_of(app), "its end is shown")

    drive(look)


def test_what_it_looks_like(drive: Drive, shell: Shell) -> None:
    shell.run("printf 'one\\n\\033[31mtwo\\033[0m\\n'; echo three >&2; exit 3")
    shell.start("printf 'Sure? '; read -r answer", description="asks", stdin=Stdin(open=True))
    shell.start("echo Listening on 3000; exec sleep 1000", description="the dev server")

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.table.row_count == 3, "all tasks")
        await until(pilot, lambda: "Needs input" in text_of(app), "what waits for input comes first")
        await pilot.press("k", "k")  # the task that was selected stays so
        await until(pilot, lambda: "(needs input)" in text_of(app) and "Sure?" in text_of(app), "what it does")
        await pilot.press("j", "j")
        await until(pilot, lambda: "three" in text_of(app), "the output of the last task")
        compare(app, "top.txt")
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help), "the keys")
        compare(app, "top-keys.txt")

    drive(look)


def test_keys_move_filter_and_search(drive: Drive, shell: Shell) -> None:
    for name in ("lint", "unit", "docs"):
        shell.run(f"echo output of {name}", description=f"the {name} job")
    failed = shell.run("exit 3", description="the failing one")

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.table.row_count == 4, "all tasks")
        await pilot.press("f", "f", "f")
        await until(pilot, lambda: app.table.row_count == 1, "only what failed")
        assert app.table.selected is not None
        assert app.table.selected.task_id == failed.task_id
        await pilot.press("f")
        await until(pilot, lambda: app.table.row_count == 4, "all again")
        await pilot.press("slash", *"job unit", "enter")
        await until(pilot, lambda: app.table.row_count == 1, "what was searched for")
        await until(pilot, lambda: "output of unit" in text_of(app), "its output")
        await pilot.press("escape")
        await until(pilot, lambda: app.table.row_count == 4, "the search is left")
        await pilot.press("enter")
        await until(pilot, lambda: "WHAT" not in text_of(app), "the output has the whole page")
        await pilot.press("escape")
        await until(pilot, lambda: "WHAT" in text_of(app), "the list is back")
        await pilot.press("question_mark")
        await until(pilot, lambda: "Run again" in text_of(app), "the keys are explained")

    drive(look)


def test_kill_asks_and_says_what_ended(drive: Drive, shell: Shell) -> None:
    task = shell.start("sleep 1000")

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.table.selected, "the task")
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "a question")
        await pilot.press("n")
        await until(pilot, lambda: not isinstance(app.screen, Confirm), "the answer")
        assert shell.show(task.task_id).status == "running"
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "a question")
        await pilot.press("y")
        await until(pilot, lambda: shell.show(task.task_id).status == "killed", "the end")
        await until(pilot, lambda: "processes" in text_of(app), "the receipt")
        await until(pilot, lambda: "Stopped" in text_of(app), "the new status")
        await pilot.press("x")
        await until(pilot, lambda: "has ended already" in text_of(app), "nothing to end")

    drive(look)


def test_send_a_line_to_what_asks(drive: Drive, shell: Shell) -> None:
    task = shell.start("printf 'Sure? '; read answer; echo got $answer", stdin=Stdin(open=True))

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Sure?" in text_of(app), "the prompt, which has no end of line")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, AskText), "a field")
        await pilot.press(*"yes", "enter")
        await until(pilot, lambda: "got yes" in text_of(app), "the answer")
        await until(pilot, lambda: shell.show(task.task_id).finished, "the end")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, AskText), "a field")
        await pilot.press("a", "enter")
        await until(pilot, lambda: "has ended" in text_of(app), "why it cannot be sent")

    drive(look)


def test_the_screen_of_a_terminal(drive: Drive, shell: Shell) -> None:
    shell.start("printf '\\033[2J\\033[3;11Hhello'; read x; printf '\\033[3;11H%s' $x; exec sleep 1000", tty=(40, 10))

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "           hello" in text_of(app), "the word at its place")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, AskText), "a field")
        await pilot.press(*"world", "enter")
        await until(pilot, lambda: "           world" in text_of(app), "the screen after the answer")

    drive(look)


def test_remove_a_finished_task(drive: Drive, shell: Shell) -> None:
    shell.run("true")

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.table.selected, "the task")
        await pilot.press("d")
        await until(pilot, lambda: "No tasks yet" in text_of(app), "it is gone")

    drive(look)
    assert shell.list() == []


def test_what_a_command_says_is_only_text(drive: Drive, shell: Shell) -> None:
    hostile = r"[red]markup[/red]\033]0;title\007\033[2J\033[10;10H\033P$q\033\\[@click=app.quit]x[/]\nlast line\n"
    shell.run(f"printf '{hostile}'", description="[bold]x[/bold] [link=a]")

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "last line" in text_of(app), "the output")
        shown = text_of(app)
        assert "[red]markup[/red][@click=app.quit]x[/]" in shown
        assert "[bold]x[/bold] [link=a]" in shown
        assert "\x1b" not in shown
        assert "title" not in shown

    drive(look)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("10%\r50%\r100%\r", "100%"),
        ("\x1b[31mred\x1b[0m plain", "red plain"),
        ("a\x1b[5Ab\x1b[?25lc\x1b7d\x07e\x9bf", "abcdef"),
        ("\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"),
        ("\x1b[31", ""),
        ("\x1b", ""),
    ],
)
def test_a_line_keeps_its_colours_and_nothing_else(line: str, shown: str) -> None:
    found = _render_line(line, "stdout")
    assert isinstance(found, Text)
    assert found.plain == shown


def test_without_a_terminal_it_says_what_to_use(cli: Any) -> None:
    ran = cli("top")
    assert ran.returncode == 2
    assert "outlast tasks" in ran.stderr


def test_attach_and_come_back_in_a_real_terminal(shell: Shell, home: str) -> None:
    task = shell.start("printf 'a question '; read -r answer; echo got $answer", tty=(60, 8), description="asks")
    top = f"env -u OUTLAST_SESSION OUTLAST_HOME={home} {sys.executable} -m outlast top"
    view = shell.start(top, tty=(100, 30), description="the view")

    def shown() -> str:
        return "\n".join(shell.screen(view).rows)

    try:
        eventually(lambda: "the view" in shown(), what="the list")
        shell.send(view, keys="/")
        eventually(lambda: "search in" in shown(), what="the field of the search")
        shell.send(view, keys="asks<Enter>")
        eventually(lambda: "the view" not in shown() and "a question" in shown(), what="the screen of the task")
        shell.send(view, keys="a")
        eventually(lambda: "STATUS" not in shown() and "a question" in shown(), what="the terminal of the task itself")
        shell.send(view, keys="yes<Enter>")
        eventually(lambda: "STATUS" in shown() and "got yes" in shown(), what="the view is back")
        assert shell.wait(task).exit_code == 0
        shell.send(view, keys="q")
        assert shell.wait(view).exit_code == 0
    finally:
        end_all(shell)


def test_errors_are_told_not_raised(drive: Drive, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("true")

    async def fail(*_: object, **__: object) -> None:
        raise BadInput("It cannot be done.")

    monkeypatch.setattr(AsyncShell, "remove", fail)

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.table.selected, "the task")
        await pilot.press("d")
        await until(pilot, lambda: "It cannot be done." in text_of(app), "the error")

    assert issubclass(BadInput, OutlastError)
    drive(look)
