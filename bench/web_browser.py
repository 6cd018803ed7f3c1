"""The page in a real browser: how long it takes to open with many tasks. Left out without chromium or playwright."""

from __future__ import annotations

import importlib.util
import time
from contextlib import ExitStack

from bench.measure import Timing, timed
from bench.much import LONG, multiply_task
from bench.peers import Ours
from bench.rows import Goal, Race, Row

MANY = 10_000
_PATIENCE_MS = 120_000
_FIRST_GOAL_MS = 1000.0  # until one can read
_ALL_GOAL_MS = 5000.0  # until one can search, filter and scroll in all of them
_LINE_GOAL_MS = 100.0  # what feels like at once
_BETWEEN_S = 0.3  # lines that come sooner are told together
# Notes the time of day at which a text is in the output that the page shows.
_NOTE_WHEN_SHOWN = """text => {
  window.shown = new Promise((done) => {
    const look = () => document.querySelector(".output").textContent.includes(text);
    new MutationObserver((_, observer) => {
      if (look()) observer.disconnect(), done(performance.timeOrigin + performance.now());
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
}"""


def page_opens(race: Race) -> Row | None:
    """Until the first tasks can be read."""
    return _row(race, "web-open", "first tasks can be read", ".row.task", _FIRST_GOAL_MS)


def page_has_all(race: Race) -> Row | None:
    """Until the page has every task."""
    many = _many(race)
    return _row(race, "web-open-all", "all are there", f'.is-all .number:text-is("{many:,}")', _ALL_GOAL_MS)


def line_shown(race: Race) -> Row | None:
    """From a line that a program gets, and prints, until it stands on the page of its task."""
    if importlib.util.find_spec("playwright") is None:
        return None
    from outlast.types import Stdin
    from tests.web import browser as chromium

    if chromium.PROGRAM is None:
        return None
    with ExitStack() as stack:
        shell = race.ours.opened
        task = shell.start("while read -r line; do echo $line; done", stdin=Stdin(open=True)).task_id
        stack.callback(shell.kill, task)
        server = chromium.Server(race.ours.home)
        stack.callback(server.stop)
        page = chromium.open_page(stack.enter_context(chromium.launched()), server.link)
        page.evaluate("id => { location.hash = `#/${id}`; }", task)
        page.wait_for_selector(".output", timeout=_PATIENCE_MS)
        count = 0

        def turn() -> float:
            nonlocal count
            count += 1
            time.sleep(_BETWEEN_S)
            page.evaluate(_NOTE_WHEN_SHOWN, f"line {count}.")
            began = time.time()
            shell.send(task, f"line {count}.\n")
            shown: float = page.evaluate("window.shown")
            return shown / 1000 - began

        timings: dict[str, Timing] = race.run(lambda peer: turn, race.effort(), [race.ours])
    what = "a printed line, from the input of its program until it stands on the page in chromium"
    return Row("web-shown", what, "-", timings, Goal(_LINE_GOAL_MS, is_ratio=False))


def _many(race: Race) -> int:
    return 1000 if race.quick else MANY


def _row(race: Race, key: str, until: str, selector: str, goal_ms: float) -> Row | None:
    if importlib.util.find_spec("playwright") is None:
        return None
    from tests.web import browser as chromium

    if chromium.PROGRAM is None:
        return None
    ours = Ours(state_limit_bytes=20 * LONG)
    with ExitStack() as stack:
        stack.callback(ours.remove)
        ours.open()
        multiply_task(ours.opened, _many(race))
        server = chromium.Server(ours.home)
        stack.callback(server.stop)
        browser = stack.enter_context(chromium.launched())

        def turn() -> float:
            page = browser.new_context().new_page()

            def open_it() -> None:
                page.goto(server.link)
                page.wait_for_selector(selector, timeout=_PATIENCE_MS)

            took = timed(open_it)
            page.context.close()
            return took

        timings: dict[str, Timing] = race.run(lambda peer: turn, race.effort(times=10), [ours])
    what = f"the page opens in chromium with {_many(race):,} tasks, until {until}"
    return Row(key, what, "-", timings, Goal(goal_ms, is_ratio=False))
