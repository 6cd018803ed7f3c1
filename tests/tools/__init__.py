"""Tools for models, as a model meets them: whole replies, compared with texts that were agreed on."""

from __future__ import annotations

import re
from typing import Any

from outlast import Shell

_TIME = r"\d+(?:\.\d+)?s|\d+m \d+s|\d+h \d+m"
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "{moment}"),
    (re.compile(r"since \d\d:\d\d:\d\d"), "since {moment}"),
    (re.compile(r'("elapsed_ms": )\d+'), r"\1{ms}"),
    (re.compile(r'("runtime": )"[^"]*"'), r'\1"{time}"'),
    (re.compile(rf"(after |last output |\(|, )(?:{_TIME})(?= ago|\)|,|\.|;| \(|\]| and was)"), r"\1{time}"),
    (re.compile(rf"\((?:{_TIME})( of CPU)?\)"), r"({time}\1)"),
    (re.compile(rf"(?<=[a-z)]) (?:{_TIME})(?=: \")"), " {time}"),
    (re.compile(r'("pid":|\bpid|\bPID:|\bPGID:) \d+'), r"\1 {pid}"),
    (re.compile(r"\bended \d+ process(?:es)? \([\d, ]+\)"), "ended {pids}"),
    (re.compile(r"kill by process \d+ of user \d+"), "kill by {whom}"),
    (re.compile(r"(Background PIDs:|still running:|left running:|still run:) [\d, ]+\d"), r"\1 {pids}"),
    (re.compile(rf"(no output for|usually takes) (?:{_TIME})"), r"\1 {time}"),
    (re.compile(r"\bended: \d+ process(?:es)?"), "ended: {pids}"),
    (
        re.compile(r", (busy|sleeping|waiting for [a-z ]+(: pid \S+ \(\S+\) [a-z ]+)?)(?=,|\.|\))"),
        "",
    ),  # between two of them it may be none
    (re.compile(r"(?<= running) \((busy|sleeping|stopped|waiting for [a-z ]+)\)"), ""),
    (re.compile(r"(?:^\d+\n){40,}", re.MULTILINE), "{numbers}\n"),
    (re.compile(r"[\d,]+ characters \([\d,]+ lines\)"), "{many} characters ({many} lines)"),
)


def normalised(text: str, places: dict[str, str]) -> str:
    """A reply without what differs from run to run: ids are `Ids`' business."""
    for place, name in places.items():
        text = text.replace(place, name)
    for pattern, better in _VARYING:
        text = pattern.sub(better, text)
    return text


class Ids:
    """The ids of a state directory's tasks, in the order they were made."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._known: list[str] = []

    def look(self) -> None:
        with Shell.open(home=self._home, operator=True) as shell:
            made = sorted(shell.list(), key=lambda task: task.started_at)
        self._known += [task.task_id for task in made if task.task_id not in self._known]

    def filled_in(self, given: Any) -> Any:
        """Arguments with ids for their numbers."""
        if isinstance(given, str):
            return re.sub(r"^\{(\d+)(~?)\}$", lambda found: _part(self._known[int(found[1]) - 1], found[2]), given)
        return {key: self.filled_in(value) for key, value in given.items()} if isinstance(given, dict) else given

    def numbered(self, text: str) -> str:
        """A text with numbers for its ids."""
        for number, task_id in enumerate(self._known, 1):
            text = text.replace(task_id, f"{{task {number}}}")
            text = text.replace(_part(task_id, "~"), f"{{part of task {number}}}")
        return text


def _part(task_id: str, of_it: str) -> str:
    return task_id[-6:] if of_it else task_id
