"""Timing any number of contestants in turns, so that all of them see the same noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Turn = Callable[[], float]
"""One go of one contestant: the seconds that count."""


SETTLE_S = 0.03
"""Between two turns: what one contestant still does after its answer must not be paid for by the next."""


class Lacks(Exception):
    """This contestant has no such thing."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one thing, measured several times; or why there are none."""

    seconds: tuple[float, ...] = ()
    trouble: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]

    def as_dict(self) -> dict[str, object]:
        if not self.seconds:
            return {"trouble": self.trouble}
        found: dict[str, object] = {
            "ms": round(self.median * 1000, 3),
            "p95_ms": round(self.p95 * 1000, 3),
            "times": len(self.seconds),
        }
        return {**found, "trouble": self.trouble} if self.trouble else found


@dataclass(frozen=True)
class Effort:
    """How often, and when one of the others has had enough time to itself."""

    times: int = 30
    warm_ups: int = 1
    budget_s: float = 20.0


@dataclass
class _Lane:
    turn: Turn
    seconds: list[float] = field(default_factory=list)
    spent: float = 0.0
    trouble: str = ""

    def go(self, counted: bool) -> None:
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        try:
            took = self.turn()
        except Lacks:
            self.trouble = "-"
            return
        except Exception as error:  # whatever a peer does wrong must not end the run
            self.trouble = first_line(error)
            return
        finally:
            self.spent += time.perf_counter() - start
        if counted:
            self.seconds.append(took)


def first_line(error: Exception) -> str:
    """An error in one short line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:160] if lines[0] else type(error).__name__


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(turns: Mapping[str, Turn], effort: Effort, always: tuple[str, ...] = ()) -> dict[str, Timing]:
    """Each contestant once a round, for so many rounds; the first ones are not counted.

    One that fails leaves the race. So does one that has used up its time and has been counted
    at least once, unless it is named in `always`.
    """
    lanes = {name: _Lane(turn) for name, turn in turns.items()}
    for number in range(effort.warm_ups + effort.times):
        for name, lane in lanes.items():
            tired = lane.spent > effort.budget_s and name not in always and lane.seconds
            if not lane.trouble and not tired:
                lane.go(counted=number >= effort.warm_ups)
    return {name: Timing(tuple(lane.seconds), lane.trouble) for name, lane in lanes.items()}
