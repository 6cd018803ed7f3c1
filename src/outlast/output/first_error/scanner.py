"""Search blocks of lines: find the lines that can begin an error, and let the rules read on from there."""

from __future__ import annotations

import re

from outlast.output.first_error.excerpt import Excerpt
from outlast.output.first_error.layout import make_excerpt
from outlast.output.first_error.rules import RULES, Rule
from outlast.output.first_error.takers import MESSAGE, REPORT, Found
from outlast.output.first_error.words import find_weak_message

LONGEST_LINE = 4000  # characters; the rest of a longer line is dropped
LINES_KEPT = 300  # of what was searched: the end of the output is searched once more, for weak messages
LINES_ABOVE = 60  # that a rule can look back at
LINES_SOON = 12  # in which the second part of an error has to begin, for some rules

# What container tools and CI systems write before each line. It hides the format of the line.
_PREFIX = re.compile(r"#\d+ (?:\d+\.\d+ )?|[\w.-]+ +\| |\d{4}-\d\d-\d\dT[\d:.]+Z ")

# In lines that begin no error, whatever else they say. They are many in some outputs, and this is fast.
_HARMLESS = (" PASSED", "... ok", " INFO ", " DEBUG ", "[INFO]", "WARN")

_RULES_OF_END = [rule for rule in RULES if not rule.needles]


class Scanner:
    """Sees the text as blocks of complete lines.

    Ordinary text contains none of the rules' needles. Searching for each of them with `bytes.find` is
    faster than searching for all of them with one regular expression: that reaches 40 to 70 MB/s.
    """

    def __init__(self) -> None:
        self._best: Found | None = None
        self._lines: list[tuple[int, str]] = []  # those of `_best`, with their numbers
        self._text = ""  # the lines that are kept, and those that are not searched yet
        self._number = 1  # of the first line of `_text`
        self._searched = 0  # the offset in `_text` where the search goes on: the start of a line
        self._use_rules_above(0)

    def _use_rules_above(self, rank: int) -> None:
        """Search only for what the rules of a higher rank begin with."""
        self._rank = rank
        needles = {needle for rule in RULES if rule.rank > rank for needle in rule.needles}
        # One that contains another one finds nothing that the shorter one does not.
        shortest = [one for one in needles if not any(other != one and other in one for other in needles)]
        self._rules_by_needle = {
            needle: [rule for rule in RULES if any(needle in longer for longer in rule.needles)] for needle in shortest
        }

    @property
    def is_final(self) -> bool:
        """Whether nothing better can come."""
        return self._best is not None and self._best.rank == REPORT

    def scan(self, block: str, is_last: bool) -> None:
        """Search more lines. Only the last block may end without a newline."""
        text = self._text = self._text + block
        for start, candidates in self._find_candidates():
            line = _clean(text[start : _skip_lines(text, start, 1)])
            rules = self._select_rules(candidates, _strip_prefix(line))
            if rules and (is_last or not _lacks_lines(text, start, LINES_SOON)):
                soon = _skip_lines(text, start, 1 + LINES_SOON)
                rules = [rule for rule in rules if not rule.soon or rule.soon.search(text, start, soon)]
            if not is_last and any(_lacks_lines(text, start, rule.below) for rule in rules):
                self._searched = start  # wait for the lines that the rules may read
                break
            self._read(rules, start)
            if self.is_final:
                return
        else:
            self._searched = len(text)
        if is_last:
            self._search_end()
        self._forget()

    def excerpt(self) -> Excerpt | None:
        """Return the best that was found."""
        return make_excerpt(self._lines, self._best.key) if self._best else None

    def _find_candidates(self) -> list[tuple[int, list[Rule]]]:
        """Return where the lines begin that contain a needle, with the rules that it is of."""
        text, first = self._text, self._searched
        folded = _fold(text[first:])
        candidates: dict[int, list[Rule]] = {}
        for needle, rules in self._rules_by_needle.items():
            at = folded.find(needle)
            while at >= 0:
                start = text.rfind("\n", 0, first + at) + 1
                candidates[start] = candidates[start] + rules if start in candidates else rules
                at = folded.find(needle, _skip_lines(text, first + at, 1) - first)
        return sorted(candidates.items())

    def _select_rules(self, candidates: list[Rule], line: str) -> list[Rule]:
        """Return the rules by which an error can begin with this line."""
        for mark in _HARMLESS:
            if mark in line:
                return []
        matching = [rule for rule in candidates if rule.rank > self._rank and rule.matches(line)]
        return [rule for rule in RULES if rule in matching] if len(matching) > 1 else matching

    def _read(self, rules: list[Rule], start: int) -> None:
        """Let the rules read the line at `start` and those around it."""
        if not rules:
            return
        text = self._text
        first = _skip_lines_back(text, start, LINES_ABOVE)
        end = _skip_lines(text, start, 1 + max(rule.below for rule in rules))
        shown = _split(text[first:end])
        at = text.count("\n", first, start)
        lines = [_strip_prefix(line) for line in shown] if _PREFIX.match(shown[at]) else shown
        for rule in rules:
            found = rule.take(lines[: at + 1 + rule.below], at)
            if found:
                self._keep(found, shown, self._number + text.count("\n", 0, first))
                break

    def _search_end(self) -> None:
        """Search the last lines for what is too rare, or too vague, to be searched for in the whole text."""
        first = start = _skip_lines_back(self._text, len(self._text), LINES_KEPT)
        lines = _split(self._text[first:])
        for line in lines:
            self._read(self._select_rules(_RULES_OF_END, _strip_prefix(line)), start)
            start = _skip_lines(self._text, start, 1)
        if self._rank < MESSAGE and (found := find_weak_message([_strip_prefix(line) for line in lines])):
            self._keep(found, lines, self._number + self._text.count("\n", 0, first))

    def _keep(self, found: Found, lines: list[str], number: int) -> None:
        """Keep what was found in `lines`, the first of which is line `number`."""
        if self._best is None or found.rank > self._best.rank:
            self._best = Found(found.rank, found.lines, found.key + number)
            self._lines = [(index + number, lines[index]) for index in sorted(set(found.lines))]
            self._use_rules_above(found.rank)

    def _forget(self) -> None:
        start = _skip_lines_back(self._text, self._searched, LINES_KEPT)
        self._number += self._text.count("\n", 0, start)
        self._searched -= start
        self._text = self._text[start:]


def cut_long_lines(text: str) -> str:
    """Cut each line to LONGEST_LINE characters."""
    start = 0
    while start + LONGEST_LINE < len(text):
        end = text.rfind("\n", start, start + LONGEST_LINE + 1)
        if end < 0:
            return "\n".join([line[:LONGEST_LINE] for line in text.split("\n")])
        start = end + 1
    return text


def _fold(text: str) -> bytes:
    """Make the case not matter. There is one byte for each character, so that offsets stay the same."""
    return text.replace("●", "\1").encode("ascii", "replace").lower()


def _skip_lines(text: str, start: int, count: int) -> int:
    """Return where the line begins that is `count` lines below the one at `start`, or the end of the text."""
    for _ in range(count):
        start = text.find("\n", start) + 1
        if not start:
            return len(text)
    return start


def _skip_lines_back(text: str, start: int, count: int) -> int:
    for _ in range(count):
        if start <= 0:
            return 0
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _lacks_lines(text: str, start: int, count: int) -> bool:
    """Whether fewer than `count` complete lines follow the one at `start`."""
    return _skip_lines(text, start, 1 + count) == len(text) and text.count("\n", start) <= count


def _split(text: str) -> list[str]:
    return [_clean(line) for line in text.removesuffix("\n").split("\n")]


def _strip_prefix(line: str) -> str:
    match = _PREFIX.match(line)
    return line[match.end() :] if match else line


def _clean(line: str) -> str:
    # What a progress bar wrote before the last carriage return is no longer on the screen.
    line = line.rstrip()
    return line.rpartition("\r")[2] if "\r" in line else line
