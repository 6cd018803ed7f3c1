"""Runs contestants side by side, each in a process (and, where possible, in namespaces) of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.episodes import alone
from bench.episodes.places import ROOT
from bench.episodes.results import Outcome, Standing, from_dict
from bench.episodes.world import PLACE, kill_processes, roomy

_LONGEST_S = 1800.0  # for all episodes of a contestant; the slowest needs about seven minutes


class BrokeDown(Exception):
    """A contestant did not play all its episodes."""


@dataclass
class Run:
    """One run of the episodes `keys`, with all times multiplied by `scale`."""

    keys: Sequence[str]
    scale: float
    transcripts: str = ""
    """The directory for the transcripts, or nothing."""
    on_outcome: Callable[[str, Outcome], None] = lambda name, outcome: None
    _children: set[subprocess.Popen[str]] = field(default_factory=set)
    _stopped: bool = False

    def play_all(self, names: Sequence[str], jobs: int) -> dict[str, Standing | BrokeDown]:
        """Play these contestants, at most `jobs` at a time."""
        with ThreadPoolExecutor(jobs) as pool:
            futures = {name: pool.submit(self.play, name) for name in names}
            try:
                return {name: _result_of(future) for name, future in futures.items()}
            except BaseException:
                self.stop()  # otherwise the pool would wait for the end of all of them
                raise

    def stop(self) -> None:
        """Kill what is running, and start nothing more."""
        self._stopped = True
        for child in list(self._children):
            child.kill()

    def play(self, name: str) -> Standing:
        """Play one contestant to the end, or raise BrokeDown."""
        words = [sys.executable, "-m", "bench.episodes.contestant", name, f"{self.scale:g}", self.transcripts]
        words += self.keys
        standing: Standing | None = None
        for line in self._lines(alone.in_own_namespaces(words) if alone.is_possible() else words):
            found = json.loads(line)
            if "standing" in found:
                standing = from_dict(found["standing"])
            elif standing is not None:
                standing.outcomes.append(Outcome(**found["outcome"]))
                self.on_outcome(name, standing.outcomes[-1])
        if standing is None or len(standing.outcomes) != len(self.keys):
            raise BrokeDown("it broke down before the last episode")
        return standing

    def _lines(self, words: list[str]) -> Iterator[str]:
        """Run a command for a limited time; yield the lines that it prints."""
        with _place() as place:
            env = {**os.environ, PLACE: place}
            with subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as child:
                self._children.add(child)
                limit = threading.Timer(_LONGEST_S, child.kill)
                limit.start()
                try:
                    if self._stopped:  # `stop` may have come between the start and the entry in the set
                        child.kill()
                    assert child.stdout is not None
                    yield from child.stdout
                finally:
                    limit.cancel()
                    # SIGKILL, because unshare blocks SIGTERM. The kernel then kills its namespace (--kill-child).
                    child.kill()
                    self._children.discard(child)


def _result_of(future: Future[Standing]) -> Standing | BrokeDown:
    try:
        return future.result()
    except BrokeDown as error:
        return error


@contextmanager
def _place() -> Iterator[str]:
    """Make a directory for worlds; at the end, kill the processes of these worlds and remove them."""
    with tempfile.TemporaryDirectory(prefix="ep-", dir=roomy(), ignore_cleanup_errors=True) as place:
        try:
            yield place
        finally:
            kill_processes(place)
