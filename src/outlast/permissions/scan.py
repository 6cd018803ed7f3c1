"""Reading a text from left to right: where it is, what was found, and quotes."""

from __future__ import annotations

import re

from outlast.permissions.words import Pieces, Problem, Unreadable

DEEPEST = 64
_IN_DOUBLE = re.compile(r"[^\"\\$`]+")


class Scanner:
    """Reads words at `at`. What it finds on the way goes to `found`, in any order."""

    def __init__(self, text: str, depth: int, inside: str, base: int) -> None:
        self.text = text
        self.at = 0
        self.depth = depth
        self.inside = inside
        self.base = base  # where this text begins in the whole line
        self.found: list[object] = []
        self.fuzzy: list[tuple[int, int]] = []  # ranges in which places are not exact
        self.odd = 0  # places over which tree-sitter's grammar stumbles
        self.bashisms = False
        self.documents: list[tuple[str, bool, bool, list[str]]] = []  # here-documents that begin in the next line

    # What `syntax` and the texts within texts supply.

    def statements(self) -> str:
        raise NotImplementedError

    def inner(self, text: str, inside: str, at: int) -> Scanner:
        raise NotImplementedError

    def document(self) -> None:
        raise NotImplementedError

    def plain_inside(self, text: str, inside: str, at: int) -> bool:
        raise NotImplementedError

    def plain_enclosed(self, inside: str) -> bool:
        raise NotImplementedError

    def problem(self, why: str, *, hides: bool = False, at: int = -1, evaluates: bool = False) -> None:
        place = self.base + (self.at if at < 0 else at)
        self.found.append(Problem(why, place, self.depth, self.inside, hides, evaluates))

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def _single(self, pieces: Pieces) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a single quote is not closed")
        pieces.quoted = True
        pieces.parts.append(self.text[self.at + 1 : end])
        self.at = end + 1

    def _double(self, pieces: Pieces) -> None:
        text = self.text
        self.at += 1
        while self.at < len(text):
            char = text[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\":
                self._escape(pieces, '"$`\\')
            elif char == "$":
                self.dollar(pieces, quoted=True)
            elif char == "`":
                self.backticks(pieces, quoted=True)
            else:
                self._literal(pieces, _IN_DOUBLE)
        raise Unreadable("a double quote is not closed")

    def _literal(self, pieces: Pieces, run: re.Pattern[str]) -> None:
        match = run.match(self.text, self.at)
        assert match is not None
        pieces.parts.append(match[0])
        self.at = match.end()

    def _escape(self, pieces: Pieces, special: str) -> None:
        follows = self.text[self.at + 1 : self.at + 2]
        if follows == "\n":
            pass
        elif follows and follows in special:
            pieces.parts.append(follows)
        else:
            pieces.parts.append("\\" + follows)
        self.at += 2

    def enter(self, inside: str) -> None:
        self.depth += 1
        self.inside = inside
        if self.depth > DEEPEST:
            raise Unreadable(f"it is nested deeper than {DEEPEST}")

    # What `expansions` supplies.

    def dollar(self, pieces: Pieces, *, quoted: bool) -> None:
        raise NotImplementedError

    def backticks(self, pieces: Pieces, *, quoted: bool) -> None:
        raise NotImplementedError
