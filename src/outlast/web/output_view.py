"""What a page shows of a task's output: lines by their numbers, without secrets; and a search in them."""

from __future__ import annotations

import threading
import time

from outlast.errors import BadInput, BadPattern, quote
from outlast.output.redaction import LOOK_BACK
from outlast.output.secret_search import MASK
from outlast.web import coloured
from outlast.web.line_index import OutputIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from outlast.output.redaction import Mask
    from outlast.shell.shell import Shell
    from outlast.types import Task

MOST_LINES = 2000
_MOST_BYTES = 4 << 20  # of one reply
_AT_ONCE = 500  # lines that are searched at once
_SEARCH_S = 10.0
_SGR = "\x1b["


class OutputView:
    """The output of one task. Its methods may be called from several threads."""

    def __init__(self, shell: Shell, task: Task) -> None:
        self._shell, self.task_id, self._session = shell, task.task_id, task.session
        streams = ("stdout", "stderr") if task.split else ("stdout",)
        sources = {name: shell.executor.source(task.task_id, name) for name in streams}
        self._index = OutputIndex(task.output_file.rpartition("/")[0], sources)
        self._one_at_a_time = threading.Lock()

    def count(self) -> int:
        """Count on; return how many lines there are."""
        with self._one_at_a_time:
            return self._index.update()

    def read(self, stream: str, first: int, count: int) -> dict[str, Any]:
        """Return lines from number `first` on; below 0 it counts from the end. Lines have the numbers 1, 2, 3 ..."""
        with self._one_at_a_time:
            self._index.update()
            total = self._check_stream(stream)
            start = max(0, total + first if first < 0 else first - 1)
            lines = list(self._lines(stream, start, min(count, MOST_LINES)))
            complete = self._shell.executor.has_reached(self.task_id, "closed")
            return {"lines": lines, "total": total, "complete": complete, "dropped": self._index.dropped}

    def _check_stream(self, stream: str) -> int:
        if stream == "stderr" and "stderr" not in self._index.streams:
            raise BadInput("This task was not run with --split: its stderr is in its one output; read that one.")
        return self._index.total(stream)

    def _lines(self, stream: str, start: int, count: int) -> Iterator[dict[str, Any]]:
        mask, left = self._shell.context.redactor.mask_for(self._session), _MOST_BYTES
        for number, name, first, many in self._index.parts(stream, start, count):
            shown = self._read_run(name, first, many, left, mask)
            for at, (text, cut, size) in enumerate(shown):
                left -= size
                yield {
                    "n": number + at + 1,
                    "stream": name,
                    "text": text,
                    "at": self._index.seen_at(number + at) if stream == "both" else None,
                    "cut": cut,
                }
            if left <= 0:
                return

    def _read_run(self, stream: str, first: int, many: int, most: int, mask: Mask) -> list[tuple[str, int, int]]:
        """Return the text of lines of one stream, what was cut of each, and its bytes; at least one of them."""
        index = self._index.streams[stream]
        start, end = index.offset_of(first), index.offset_of(first + many)
        # Of a line of 100 MB only the beginning is read.
        pieces = [(piece.dropped, piece.data) for piece in index.source.chunks(start, min(end, start + max(most, 1)))]
        data = b"".join((b"\n" if dropped and at else b"") + data for at, (dropped, data) in enumerate(pieces))
        before = index.source.read(max(0, start - LOOK_BACK), min(start, LOOK_BACK)).data if start else b""
        lines = mask_lines(data, before, mask).split(b"\n")
        if len(lines) > 1 and not lines[-1]:
            lines.pop()
        shown = [coloured.show(line) for line in lines[:many]]
        texts = _mask_shown([text for text, _ in shown], mask)
        line_end = 1 if first < index.lines else 0
        over = max(0, end - line_end - start - len(data)) if many == 1 else 0
        return [(text, cut + over, len(raw)) for text, (_, cut), raw in zip(texts, shown, lines, strict=False)]

    # --- search ----------------------------------------------------------------------------

    def search(
        self, stream: str, pattern: str, *, regex: bool, case: bool, limit: int, first: int = 1
    ) -> dict[str, Any]:
        """Return where lines match, in characters of their text without colours; secrets are never matched.

        A search of a large output takes more than one request: `next` is the line to go on from.
        """
        find, found = _matcher(pattern, regex, case), list[dict[str, int]]()
        with self._one_at_a_time:
            self._index.update()
            total = self._check_stream(stream)
        deadline, at = time.monotonic() + _SEARCH_S, first - 1
        while at < total:
            with self._one_at_a_time:  # for a moment only: others read meanwhile
                lines = list(self._lines(stream, at, _AT_ONCE))
            for line in lines:
                text = without_colours(line["text"])
                for start, end in find(text):
                    if len(found) == limit:
                        return {"matches": found, "more": True, "next": line["n"]}
                    found.append({"n": line["n"], "start": start, "end": end})
            at += len(lines)
            if not lines or (time.monotonic() > deadline and at < total):
                return {"matches": found, "more": bool(lines), "next": at + 1 if lines else None}
        return {"matches": found, "more": False, "next": None}

    def find_first_error(self) -> tuple[int | None, int]:
        """Return the number of the first line of what explains the first error, and how many lines that is."""
        excerpt = self._shell.reader.first_error(self.task_id)
        if excerpt is None:
            return None, 0
        count = excerpt.lines.index("...") if "..." in excerpt.lines[1:] else len(excerpt.lines)
        line = next((one.strip() for one in excerpt.lines if one.strip()), "")
        with self._one_at_a_time:
            self._index.update()
            near = self._lines("both", max(0, excerpt.line_number - 1 - _AT_ONCE // 2), _AT_ONCE)
            same = [one["n"] for one in near if without_colours(one["text"]).strip() == line]
        # A redrawn line may count differently here; and each stream of a split task counts for itself.
        return min(same, key=lambda n: abs(n - excerpt.line_number), default=excerpt.line_number), max(1, count)


def without_colours(text: str) -> str:
    """Return a text without the sequences that set colours."""
    if _SGR not in text:
        return text
    first, *rest = text.split(_SGR)
    return first + "".join(one.partition("m")[2] for one in rest)


def mask_lines(data: bytes, before: bytes, mask: Mask) -> bytes:
    """Return bytes without secrets, also those that begin `before` them; each line end stays where it is."""
    if not mask.on or not data:
        return data
    shown, at = [], 0
    for start, end in mask.spans_in(before, data):
        shown += [data[at:start], MASK.encode(), b"\n" * data.count(b"\n", start, end)]
        at = end
    return b"".join((*shown, data[at:]))


def _mask_shown(texts: list[str], mask: Mask) -> list[str]:
    """Mask what only shows once a line is drawn: a secret with colours inside loses all colours of its line."""
    bare = [without_colours(text) for text in texts]
    if mask.text("\n".join(bare)) == "\n".join(bare):
        return texts
    masked = [mask.text(one) for one in bare]
    return [text if after == before else after for text, before, after in zip(texts, bare, masked, strict=True)]


def _matcher(pattern: str, regex: bool, case: bool) -> Callable[[str], list[tuple[int, int]]]:
    import re2

    options = re2.Options()
    options.case_sensitive, options.log_errors = case, False
    try:
        compiled = re2.compile(pattern if regex else re2.escape(pattern), options)
    except re2.error as error:
        said = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise BadPattern(f"{quote(pattern)} is no regular expression: {said}; correct it.") from None

    def find(text: str) -> list[tuple[int, int]]:
        try:
            return [found.span() for found in compiled.finditer(text)]
        except UnicodeEncodeError:
            return []

    return find
