"""Find the first error in the output of a failed command, with the lines that explain it.

`FirstError` takes the text in pieces of any size. It holds a bounded part of it and reads it once, and
its answer does not depend on where the pieces begin and end.

The best excerpt is not always the first line that says "error": a report of a test runner or of a
compiler explains more than an uncaught exception, that more than a line with "error:", and that more
than `make: *** [all] Error 1`. The first excerpt of the highest rank that occurs is the answer (`found`
names the ranks). After one of the highest rank the rest is not looked at.
"""

from __future__ import annotations

from outlast.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.first_error.scanner import Scanner

MAX_LINES = 15  # of an excerpt
MAX_CHARS = 1500  # of an excerpt
BLOCK = 1 << 16  # characters that are searched at once
LONGEST_LINE = 1000  # characters; the rest of a longer line is not looked at


@frozen
class Excerpt:
    """The lines that explain an error; "..." stands for lines that were left out between them."""

    text: str  # without a newline at its end
    line: int  # number of the line that names the error in the whole text; the first line is 1


class FirstError:
    """Searches text that arrives in pieces."""

    def __init__(self) -> None:
        self._parts: list[str] = []  # not searched yet: less than BLOCK
        self._chars = 0
        self._scanner: Scanner | None = None

    def feed(self, text: str) -> None:
        """Search the next piece of the text."""
        for start in range(0, len(text), BLOCK):
            if self._is_done():
                return
            piece = text[start : start + BLOCK]
            self._parts.append(piece)
            self._chars += len(piece)
            if self._chars >= BLOCK:
                self._search_complete_lines()

    def finish(self) -> Excerpt | None:
        """Return the excerpt, or None if nothing looks like an error. Call it once, after the last piece."""
        block = "".join(self._parts)
        self._parts.clear()
        if self._scanner is None and not block:
            return None
        scanner = self._start()
        if not scanner.done:
            scanner.scan(block)
        return scanner.finish()

    def _is_done(self) -> bool:
        return self._scanner is not None and self._scanner.done

    def _start(self) -> Scanner:
        if self._scanner is None:
            from outlast.first_error.scanner import Scanner

            self._scanner = Scanner()
        return self._scanner

    def _search_complete_lines(self) -> None:
        block = "".join(self._parts)
        end = block.rfind("\n") + 1
        if end:
            self._start().scan(block[:end])
        # The start of an unfinished line is enough: nothing after LONGEST_LINE is looked at.
        rest = block[end : end + LONGEST_LINE]
        self._parts = [rest] if rest else []
        self._chars = len(rest)
