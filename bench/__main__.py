"""`make bench`: ours beside raw and beside every other system that is installed, in one run.

The table goes to the screen, the figures to `bench/results.json`, the page and its picture to `docs`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bench.rows import Race, Row

ROOT = Path(__file__).parent.parent


def _arguments(words: list[str]) -> argparse.Namespace:
    from bench.rows import ROWS

    parser = argparse.ArgumentParser(prog="make bench", description="Measure Outlast beside others.")
    parser.add_argument("--quick", action="store_true", help="few repetitions, and nothing that is large")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ROW", help=f"rows whose key starts so: {', '.join(ROWS)}"
    )
    parser.add_argument("--peer", action="append", metavar="NAME", help="only these others; none: --peer ''")
    parser.add_argument("--into", type=Path, help="write results.json, bench.md and bench.svg there")
    return parser.parse_args(words)


def _prepare(quick: bool) -> None:
    """What is measured runs as it would anywhere: with compiled modules and without our own limits."""
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "OUTLAST_HOME", "OUTLAST_SESSION"):
        os.environ.pop(name, None)
    sys.dont_write_bytecode = False
    if quick:
        os.environ.setdefault("OUTLAST_BENCH_PATIENCE", "3")
    os.environ["OUTLAST_MAX_RUNNING"] = "100000"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended by a signal"))  # the peers end with us


def main(words: list[str]) -> None:
    _prepare("--quick" in words)
    from bench import picture, report
    from bench.rows import ROWS

    asked = _arguments(words)
    keys = [key for key in ROWS if not asked.only or any(key.startswith(one) for one in asked.only)]
    if not keys:
        sys.exit(f"bench: there is no such row; known are {', '.join(ROWS)}.")
    rows: list[Row] = []
    with ExitStack() as stack:
        race, missing = _contestants(stack, asked.peer, asked.quick)
        print(report.head(), flush=True)
        for row in _measured(keys, race, bool(asked.only)):
            rows.append(row)
            print(report.line(row), flush=True)
    print(f"\n{report.comparison(rows)}")
    for remark in [*report.troubles(rows), *(f"{name}: {why}" for name, why in missing.items())]:
        print(remark)
    # A part of a run is not what the page is about.
    partial = asked.quick or asked.only or asked.peer is not None
    into = asked.into or (None if partial else ROOT / "docs")
    _write(asked.into or ROOT / "bench", "results.json", json.dumps(report.as_json(rows, missing), indent=1) + "\n")
    if into:
        _write(into, "bench.md", report.page(rows, missing))
        _write(into, "bench.svg", picture.draw(rows))


def _write(into: Path, name: str, text: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    (into / name).write_text(text)


def _measured(keys: list[str], race: Race, by_name: bool) -> Iterator[Row]:
    from bench.rows import NOT_QUICK, ROWS

    for key in keys:
        if race.quick and key in NOT_QUICK and not by_name:
            continue
        row = ROWS[key](race)
        if row is not None:
            yield row


def _contestants(stack: ExitStack, wanted: list[str] | None, quick: bool) -> tuple[Race, dict[str, str]]:
    from bench.measure import first_line
    from bench.peers import OTHERS, Ours, Raw
    from bench.rows import Race

    race, missing = Race(Raw(), Ours(), quick=quick), {}
    for peer in (race.raw, race.ours):
        stack.callback(peer.remove)
        peer.open()
    for kind in OTHERS:
        if wanted is not None and kind.name not in wanted:
            continue
        if what := kind.missing():
            missing[kind.name] = f"{what} is not installed"
            continue
        other = kind()
        stack.callback(other.remove)
        try:
            other.open()
        except Exception as error:  # whatever a peer does wrong must not end the run
            missing[kind.name] = first_line(error)
            continue
        race.others.append(other)
    return race, missing


if __name__ == "__main__":
    main(sys.argv[1:])
