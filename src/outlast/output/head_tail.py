"""Keep the first and the last part of a text that is longer than its budget."""

from __future__ import annotations

from outlast.light import frozen

BUDGET = 30_000  # characters that a model is shown of one output


@frozen
class Cut:
    """A text in its budget, and exactly how much of what was seen of the whole is not in it."""

    text: str
    truncated: bool
    left_out_chars: int
    left_out_lines: int  # lines of which at least a part is left out


class HeadTail:
    """The first and the last part of a text that comes in pieces, in memory of its budget."""

    def __init__(self, budget: int = BUDGET, marks: tuple[str, str] = ("", "")) -> None:
        """`marks` stand before and after the line that says what is left out."""
        self.budget, self._marks = max(budget, 0), marks
        self._head: list[str] = []
        self._head_room = self.budget
        self._tail: list[str] = []
        self._tail_chars = 0
        self._chars = 0
        self._newlines = 0
        self._unseen = ""

    @property
    def chars(self) -> int:
        """How many characters all of it has, as far as it was seen; more than the budget if a part was skipped."""
        return max(self._chars, self.budget + 1) if self._unseen else self._chars

    @property
    def has_head(self) -> bool:
        """Whether no more text is needed for the first part."""
        return not self._head_room

    def skip(self, what: str) -> None:
        """The text goes on after a part that is never read, so `what` describes it, not a number of characters.

        Only when there is a head, and only if what follows is longer than the budget.
        """
        self._unseen = what
        self._tail.clear()
        self._tail_chars = 0

    def add(self, text: str) -> None:
        if not text:
            return
        self._chars += len(text)
        self._newlines += text.count("\n")
        if self._head_room:
            part = text[: self._head_room]
            self._head.append(part)
            self._head_room -= len(part)
        self._keep_tail(text)

    def _keep_tail(self, text: str) -> None:
        limit = max(self.budget, 1)  # the last character tells whether the last line is complete
        self._tail.append(text)
        self._tail_chars += len(text)
        if self._tail_chars > 2 * limit:
            self._tail = ["".join(self._tail)[-limit:]]
            self._tail_chars = limit

    def cut(self, rest: str = "", budget: int | None = None) -> Cut:
        """All of it if it fits, else both ends around a line that says what is left out, and where the `rest` is.

        An end is cut between lines if that costs it no more than half of its share. If the
        budget (by default the one it was made with, and never more) is too small for that line,
        it does without `rest`, or there is only a head.
        """
        most = self.budget if budget is None else min(max(budget, 0), self.budget)
        head = "".join(self._head)
        if self._chars <= most and not self._unseen:
            return Cut(head, False, 0, 0)
        # No number in the marker can be longer than those of the whole text.
        widest = self._marker(self._chars, self._newlines + 1, rest)
        room = most - len(widest) - sum(map(len, self._marks)) - 2  # its own newline, and one before it
        if room < 2:
            return self.cut("", most) if rest else self._without_tail(head[:most])
        head = _head_of(head, room // 2)
        kept = "".join(self._tail)
        tail = _tail_of(kept, room - room // 2)
        return self._join(head, tail, kept[len(kept) - len(tail) - 1] == "\n", rest)

    def _without_tail(self, head: str) -> Cut:
        newlines = self._newlines - head.count("\n")
        at_line_end = "".join(self._tail)[-1:] == "\n"
        return Cut(head, True, self._chars - len(head), newlines + (not at_line_end))

    def _join(self, head: str, tail: str, at_line_end: bool, rest: str) -> Cut:
        chars = self._chars - len(head) - len(tail)
        lines = self._newlines - head.count("\n") - tail.count("\n") + (not at_line_end)
        newline = "" if head.endswith("\n") else "\n"
        before, after = self._marks
        text = f"{head}{newline}{before}{self._marker(chars, lines, rest)}\n{after}{tail}"
        return Cut(text, True, chars, lines)

    def _marker(self, chars: int, lines: int, rest: str) -> str:
        what = self._unseen or f"{_count(chars, 'character')} ({_count(lines, 'line')})"
        return f"[... {what} left out{f'; {rest}' if rest else ''} ...]"


def where_the_rest_is(path: str, dropped: int = 0) -> str:
    """Says which file has what a reply leaves out; no file is called whole of which bytes were dropped."""
    if dropped:
        return f"{_count(dropped, 'byte')} of it dropped for good, what is kept: {path}"
    return f"the whole output: {path}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _head_of(text: str, room: int) -> str:
    end = text.rfind("\n", room // 2, room) + 1
    return text[: end or room]


def _tail_of(text: str, room: int) -> str:
    start = len(text) - room
    # From the character before: the part may already begin at the beginning of a line.
    newline = text.find("\n", start - 1, start + room // 2)
    return text[start if newline < 0 else newline + 1 :]
