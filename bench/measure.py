"""Timing two things in turns, so that both see the same noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one thing, measured several times."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


@dataclass(frozen=True)
class Row:
    """One line of the table: ours beside raw, and the goal for their ratio."""

    what: str
    ours: Timing
    raw: Timing
    raw_is: str
    goal: float | None

    @property
    def ratio(self) -> float:
        return self.ours.median / self.raw.median

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.ratio <= self.goal else "missed"

    def as_dict(self) -> dict[str, object]:
        return {
            "what": self.what,
            "ours_ms": round(self.ours.median * 1000, 3),
            "ours_p95_ms": round(self.ours.p95 * 1000, 3),
            "raw_ms": round(self.raw.median * 1000, 3),
            "raw": self.raw_is,
            "ratio": round(self.ratio, 2),
            "goal": self.goal,
            "verdict": self.verdict,
        }


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(ours: Callable[[], object], raw: Callable[[], object], times: int) -> tuple[Timing, Timing]:
    """Both, one after the other, so many times; the first round is not counted."""
    pairs = [(timed(ours), timed(raw)) for _ in range(times + 1)][1:]
    return Timing(tuple(pair[0] for pair in pairs)), Timing(tuple(pair[1] for pair in pairs))
