"""`make episodes`: ten episodes, played by a scripted model with the tools of each contestant that is installed.

Prints a table, and writes the figures to `build/episodes.json` and the page and its picture to `docs`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from bench.episodes import alone, picture, report, tokens
from bench.episodes.catalogue import EPISODES
from bench.episodes.contestant import CONTESTANTS
from bench.episodes.places import ROOT
from bench.episodes.results import Outcome, Standing
from bench.episodes.run import Run

FAST = 0.1
_JOBS = len(CONTESTANTS)  # all of them: they wait for most of the time


def _parse(words: list[str]) -> argparse.Namespace:
    keys = [episode.key for episode in EPISODES]
    parser = argparse.ArgumentParser(prog="make episodes", description="Play ten episodes with several sets of tools.")
    parser.add_argument("--fast", action="store_true", help=f"multiply all times by {FAST:g}; does not write to docs")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"contestants: {', '.join(CONTESTANTS)}")
    parser.add_argument("--episode", action="append", choices=keys, metavar="KEY", help=f"episodes: {', '.join(keys)}")
    parser.add_argument("--jobs", type=int, default=_JOBS, help=f"contestants at a time (default {_JOBS})")
    parser.add_argument("--transcripts", type=Path, metavar="DIRECTORY", help="write every call and reply there")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="play nothing, read an episodes.json")
    parser.add_argument("--into", type=Path, help="write episodes.json, episodes.md and episodes.svg there")
    options = parser.parse_args(words)
    if unknown := [name for name in options.only or () if name not in CONTESTANTS]:
        parser.error(f"there is no {', '.join(unknown)}; known are {', '.join(CONTESTANTS)}")
    return options


def main(words: list[str]) -> None:
    options = _parse(words)
    if options.source:
        _write_pages(options.into or ROOT / "docs", *report.from_json(options.source.read_text()))
        return
    if lacking := tokens.missing():
        sys.exit(f"episodes: tokens cannot be counted without {lacking}.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("episodes: ended by a signal"))
    if options.transcripts:
        options.transcripts.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    standings, missing = _play(options)
    print(f"\n{report.table(standings)}")
    for remark in report.remarks(standings, missing):
        print(remark)
    print(f"It took {time.monotonic() - began:.0f} s.")
    _write_all(options, standings, missing)
    if not standings:
        sys.exit("episodes: no contestant could be played.")


def _play(options: argparse.Namespace) -> tuple[list[Standing], dict[str, str]]:
    """Play all contestants that were asked for; return what they did, and why others did not take part."""
    names = [name for name in CONTESTANTS if not options.only or name in options.only]
    missing = {name: why for name in names if (why := CONTESTANTS[name].missing())}
    run = Run(
        keys=options.episode or [episode.key for episode in EPISODES],
        scale=FAST if options.fast else 1.0,
        transcripts=str(options.transcripts.resolve()) if options.transcripts else "",
        on_outcome=_print_outcome,
    )
    # Without namespaces the contestants would see each other's processes.
    jobs = max(1, options.jobs) if alone.is_possible() else 1
    found = run.play_all([name for name in names if name not in missing], jobs)
    missing |= {name: str(error) for name, error in found.items() if not isinstance(error, Standing)}
    return [standing for standing in found.values() if isinstance(standing, Standing)], missing


def _print_outcome(name: str, outcome: Outcome) -> None:
    print(f"{name:<20} {report.outcome_line(outcome)}", flush=True)


def _write_all(options: argparse.Namespace, standings: list[Standing], missing: dict[str, str]) -> None:
    scale = FAST if options.fast else 1.0
    _write(options.into or ROOT / "build", "episodes.json", report.as_json(standings, missing, scale))
    # The page in docs shows a complete run in real time, and nothing less.
    is_part = options.only or options.episode or options.fast
    into = options.into or (None if is_part else ROOT / "docs")
    if into:
        _write_pages(into, standings, missing, scale)


def _write_pages(into: Path, standings: list[Standing], missing: dict[str, str], scale: float) -> None:
    _write(into, "episodes.md", report.page(standings, missing, scale))
    _write(into, "episodes.svg", picture.draw(standings))


def _write(into: Path, name: str, text: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    (into / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
