"""`make episodes`: ten episodes, played by a scripted model with the tools of each contestant that is installed.

The table goes to the screen, the figures to `bench/episodes.json`, the page and its picture to `docs`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.episodes import alone, picture, report, tokens
from bench.episodes.catalogue import EPISODES
from bench.episodes.contestant import CONTESTANTS, SHORT
from bench.episodes.results import Outcome, Standing, from_dict
from bench.episodes.world import PLACE, roomy

ROOT = Path(__file__).parent.parent.parent


def _arguments(words: list[str]) -> argparse.Namespace:
    keys = [episode.key for episode in EPISODES]
    parser = argparse.ArgumentParser(prog="make episodes", description="Play ten episodes with several sets of tools.")
    parser.add_argument("--full", action="store_true", help=f"in real time; otherwise all times are × {SHORT:g}")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"contestants: {', '.join(CONTESTANTS)}")
    parser.add_argument("--episode", action="append", choices=keys, metavar="KEY", help=f"episodes: {', '.join(keys)}")
    parser.add_argument("--structured", action="store_true", help="count structured content as read, too")
    parser.add_argument("--transcripts", type=Path, metavar="DIRECTORY", help="write every call and reply there")
    parser.add_argument("--into", type=Path, help="write episodes.json, episodes.md and episodes.svg there")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.only or () if name not in CONTESTANTS]:
        parser.error(f"there is no {', '.join(unknown)}; known are {', '.join(CONTESTANTS)}")
    return asked


def main(words: list[str]) -> None:
    asked = _arguments(words)
    if lacking := tokens.missing():
        sys.exit(f"episodes: tokens cannot be counted without {lacking}.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("episodes: ended by a signal"))
    if asked.transcripts:
        asked.transcripts.mkdir(parents=True, exist_ok=True)
    standings: list[Standing] = []
    missing: dict[str, str] = {}
    for name, contestant in CONTESTANTS.items():
        if asked.only and name not in asked.only:
            continue
        if why := contestant.missing():
            missing[name] = why
            continue
        print(f"{name}:", flush=True)
        standing = _played(name, asked)
        print(report.line(standing), flush=True)
        standings.append(standing)
    print(f"\n{report.table(standings)}")
    for remark in report.remarks(standings, missing):
        print(remark)
    _write_all(asked, standings, missing)


def _write_all(asked: argparse.Namespace, standings: list[Standing], missing: dict[str, str]) -> None:
    scale = 1.0 if asked.full else SHORT
    _write(asked.into or ROOT / "bench", "episodes.json", report.as_json(standings, missing, scale))
    # A part of a run is not what the page is about.
    into = asked.into or (None if asked.only or asked.episode or asked.structured else ROOT / "docs")
    if into:
        _write(into, "episodes.md", report.page(standings, missing, scale))
        _write(into, "episodes.svg", picture.draw(standings))


def _write(into: Path, name: str, text: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    (into / name).write_text(text)


def _played(name: str, asked: argparse.Namespace) -> Standing:
    """Play one contestant, in namespaces of its own where that is possible."""
    keys = asked.episode or [episode.key for episode in EPISODES]
    keep = str(asked.transcripts.resolve()) if asked.transcripts else ""
    words = [sys.executable, "-m", "bench.episodes.contestant", name, "1" if asked.full else f"{SHORT:g}", keep, *keys]
    standing: Standing | None = None
    for line in _lines(alone.in_own_namespaces(words) if alone.is_possible() else words):
        found = json.loads(line)
        if "standing" in found:
            standing = from_dict(found["standing"])
        elif standing is not None:
            outcome = Outcome(**found["outcome"])
            if asked.structured:
                outcome.read += outcome.structured
            standing.outcomes.append(outcome)
            print(report.outcome_line(outcome), flush=True)
    if standing is None or len(standing.outcomes) != len(keys):
        sys.exit(f"episodes: {name} was not played to the end; what it said is above.")
    return standing


@contextmanager
def _place() -> Iterator[str]:
    """A directory for worlds, of which nothing is left, also if a run is broken off."""
    with tempfile.TemporaryDirectory(prefix="outlast-episodes-", dir=roomy(), ignore_cleanup_errors=True) as place:
        yield place


def _lines(words: list[str]) -> Iterator[str]:
    with _place() as place:
        env = {**os.environ, PLACE: place}
        with subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as playing:
            try:
                assert playing.stdout is not None
                yield from playing.stdout
            finally:
                playing.terminate()


if __name__ == "__main__":
    main(sys.argv[1:])
