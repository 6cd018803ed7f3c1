"""Find the first error in the output of a failed command, with the lines that explain it.

`FirstError` takes the text in pieces of any size, reads it once and holds a bounded part of it. Its
answer does not depend on where the pieces begin and end.

The first line that says "error" is often not the best one. `rules` gives each kind of message a rank: the
report of a compiler or of a test runner explains more than an uncaught exception, that more than a line
with "error:", and that more than `make: *** [all] Error 1`. The answer is the first excerpt of the highest
rank that occurs. After one of the highest rank (`is_final`) the rest is not searched.
"""

from __future__ import annotations

from outlast.output.first_error.excerpt import Excerpt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.output.first_error.scanner import Scanner

__all__ = ["Excerpt", "FirstError"]

BLOCK = 1 << 17  # characters that are searched at once


class FirstError:
    """Search text that arrives in pieces. The text contains no ANSI escape sequences."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # not searched yet
        self._size = 0  # of the pieces
        self._scanner: Scanner | None = None

    @property
    def is_final(self) -> bool:
        """Whether the answer is known: more text cannot change it."""
        return self._scanner is not None and self._scanner.is_final

    def feed(self, text: str) -> None:
        """Search the next piece of the output."""
        for start in range(0, len(text), BLOCK):
            if self.is_final:
                return
            piece = text[start : start + BLOCK]
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size >= BLOCK:
                self._search(is_last=False)

    def finish(self) -> Excerpt | None:
        """Return the excerpt, or None if nothing looks like an error. Call it once, after the last piece."""
        if not self.is_final:
            self._search(is_last=True)
        return self._scanner.excerpt() if self._scanner else None

    def _search(self, is_last: bool) -> None:
        # The rules compile about 60 regular expressions: do not load them for a command that prints nothing.
        from outlast.output.first_error.scanner import Scanner, cut_long_lines

        self._scanner = self._scanner or Scanner()
        text = "".join(self._pieces)
        end = len(text) if is_last else text.rfind("\n") + 1
        self._scanner.scan(cut_long_lines(text[:end]), is_last)
        rest = cut_long_lines(text[end:])
        self._pieces, self._size = [rest], len(rest)
