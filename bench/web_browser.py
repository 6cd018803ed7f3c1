"""The page in a real browser: how long it takes to open with many tasks. Left out without chromium or playwright."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack

from bench.measure import Timing, timed
from bench.much import LONG, multiply_task
from bench.peers import Ours
from bench.rows import Goal, Race, Row

MANY = 10_000
_PATIENCE_MS = 120_000
_FIRST_GOAL_MS = 1000.0  # until one can read
_ALL_GOAL_MS = 5000.0  # until one can search, filter and scroll in all of them


def page_opens(race: Race) -> Row | None:
    """Until the first tasks can be read."""
    return _row(race, "web-open", "first tasks can be read", ".row.task", _FIRST_GOAL_MS)


def page_has_all(race: Race) -> Row | None:
    """Until the page has every task."""
    many = _many(race)
    return _row(race, "web-open-all", "all are there", f'.is-all .number:text-is("{many:,}")', _ALL_GOAL_MS)


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
