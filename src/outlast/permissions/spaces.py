"""What stands between words: blanks, comments, newlines, and the here-documents whose bodies follow a newline."""

from __future__ import annotations

import re

from outlast.permissions.wordreader import WordReader
from outlast.permissions.words import Unreadable

BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
BLANK_OR_COMMENT = frozenset(" \t\\#")
_EXPANDS = re.compile(r"[\\`]|\$(?![A-Za-z_])")  # more than the name of a variable


class SpaceReader(WordReader):
    """Everything up to the next word."""

    def blanks(self) -> None:
        char = self.text[self.at : self.at + 1]
        if char not in BLANK_OR_COMMENT:
            return
        match = BLANKS.match(self.text, self.at)
        if match:
            self.at = match.end()
        if self.text.startswith("#", self.at):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def lines(self) -> None:
        """Blanks, comments and newlines."""
        while True:
            self.blanks()
            if not self.text.startswith("\n", self.at):
                return
            self.newline()

    def newline(self) -> None:
        self.at += 1
        if not self.documents:
            return
        documents, self.documents = self.documents, []
        for delimiter, tabs, raw, bodies in documents:
            bodies.append(self._body(delimiter, tabs, raw))

    def _body(self, delimiter: str, tabs: bool, raw: bool) -> str:
        start = self.at
        while self.at < len(self.text):
            begin = self.at
            line = self._line(joined=not raw)
            if (line.lstrip("\t") if tabs else line) == delimiter:
                if not raw and _EXPANDS.search(self.text, start, begin):
                    self._within(self.text[start:begin], "here-document", start, document=True)
                return self.text[start:begin]
        raise Unreadable(f"the here-document up to {delimiter} is not closed")

    def _line(self, *, joined: bool) -> str:
        parts = []
        while True:
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            continued = joined and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            parts.append(line[:-1] if continued else line)
            if not continued or self.at >= len(self.text):
                return "".join(parts)

    def not_continued(self) -> None:
        """Behind an operator: a continued line must not make it longer."""
        if self.text.startswith("\\\n", self.at):
            match = BLANKS.match(self.text, self.at)
            assert match is not None
            if self.text[match.end() : match.end() + 1] in ("&", "|", ";", "<", ">", "(", "-", "!"):
                raise Unreadable("a line is continued in the middle of an operator")
