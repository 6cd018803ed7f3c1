"""Words as bash reads them, with their static parts resolved: `r\\m`, `r''m` and `$'\\x72m'` are all `rm`."""

from __future__ import annotations

import re

from outlast.permissions.expansions import Expansions
from outlast.permissions.patterns import UNKNOWN
from outlast.permissions.words import Pieces, Unreadable, Word

_PLAIN = re.compile(r"[A-Za-z0-9_./:,+@%^=-]+")
_ENDS = frozenset(" \t\n;&|()<>")
_RUN = re.compile(r"[^\\'\"$`<>|&;() \t\n*?\[{},~.]+")
# Most words that are not plain are one of these as a whole.
_WHOLE = re.compile(
    r"""(?:'(?P<single>[^']*+)'|"(?P<double>[^"\\$`]*+)"|(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*+)"""
    r"""|(?P<quoted_variable>"\$[A-Za-z_][A-Za-z0-9_]*+")"""
    r"""|(?P<run>[^\\'"$`<>|&;() \t\n*?\[{~]++)"""
    r"""|(?P<glob>[^\\'"$`<>|&;() \t\n*?\[{~]*+[*?\[][^\\'"$`<>|&;() \t\n{~]*+))(?=[ \t\n;&|()]|\Z)"""
)
_GLOB = re.compile(r"[*?\[]")
_IN_DOCUMENT = re.compile(r"[^\\$`]+")
# Spaces that are none for bash, and characters that are not seen or turn the direction of what is seen.
STRANGE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def _whole(match: re.Match[str], start: int) -> Word | None:
    """A word that is one string, one variable, or has nothing but globs in it; None if it needs a closer look."""
    kind = match.lastgroup
    if kind in ("variable", "quoted_variable"):
        word = Word(UNKNOWN, start, match.end())
        word.unknown, word.lead, word.source = True, "", match[0]
        word.refs = ((match[0].strip('"$'), ()),)
        word.quoted = kind == "quoted_variable"
        word.splits = not word.quoted
        return word
    text = match[kind or 0]
    word = Word(text, start, match.end())
    if kind in ("single", "double"):
        word.quoted = True
        return word
    if not text.isascii() and STRANGE.search(text):
        return None
    if kind == "glob" and text != "[":
        word.glob = word.splits = True
        word.lead = _GLOB.split(text, maxsplit=1)[0]
    return word


class WordReader(Expansions):
    """Whole words, and the bodies of here-documents."""

    def word(self, *, loose: bool = False) -> Word:
        """The word that begins here; empty if none does. `loose`: parentheses and bars belong to it."""
        text, start = self.text, self.at
        match = _PLAIN.match(text, start)
        if match and (match.end() == len(text) or text[match.end()] in _ENDS) and not loose:
            end = match.end()
            if text[end : end + 2] not in ("<(", ">("):
                self.at = end
                return Word(match[0], start, end)
        if not loose and (match := _WHOLE.match(text, start)) and (word := _whole(match, start)):
            self.at = match.end()
            return word
        pieces = Pieces()
        while self.at < len(text):
            char = text[self.at]
            if char in _ENDS and not self._goes_on(char, loose):
                break
            self._step(pieces, char, start, loose)
        if self.at - start == 1 and text[start] == "[":
            return Word("[", start, self.at)
        word = pieces.word(start, self.at)
        if word.unknown:
            word.source = text[start : self.at]
        return word

    def _goes_on(self, char: str, loose: bool) -> bool:
        if char in "<>" and self.text[self.at + 1 : self.at + 2] == "(":
            return True
        return loose and char in "()|<>&;"

    def _step(self, pieces: Pieces, char: str, start: int, loose: bool) -> None:
        if char == "\\":
            self._backslash(pieces)
        elif char == "'":
            self._single(pieces)
        elif char == '"':
            pieces.quoted = True
            self._double(pieces)
        elif char == "$":
            self.dollar(pieces, quoted=False)
        elif char == "`":
            self.backticks(pieces, quoted=False)
        elif char in "<>" and self.text[self.at + 1 : self.at + 2] == "(":
            self.process(pieces)
        else:
            self._unquoted(pieces, char, start)

    def _unquoted(self, pieces: Pieces, char: str, start: int) -> None:
        if char in "*?[":
            pieces.add_glob(char)
            self.at += 1
        elif char == "~" and self.at == start:
            pieces.add_glob(char)
            pieces.lead, pieces.splits = "~", False
            self.at += 1
        elif char in "{},.":
            self._brace(pieces, char)
        elif char in "()|<>&;~":
            pieces.parts.append(char)
            self.at += 1
        else:
            match = _RUN.match(self.text, self.at)
            assert match is not None
            if not match[0].isascii() and STRANGE.search(match[0]):
                self.problem("it has characters outside quotes that cannot be seen", hides=True)
            pieces.parts.append(match[0])
            self.at = match.end()

    def _brace(self, pieces: Pieces, char: str) -> None:
        self.at += 1
        seen = pieces.braces
        if char == "{":
            pieces.braces = max(seen, 1)
            if pieces.lead is None:
                pieces.lead = "".join(pieces.parts)
        elif seen and (char == "," or (char == "." and self.peek() == ".")):
            pieces.braces = 2
        elif char == "}" and seen == 2:
            pieces.glob = pieces.splits = self.bashisms = True
        pieces.parts.append(char)

    def _backslash(self, pieces: Pieces) -> None:
        follows = self.text[self.at + 1 : self.at + 2]
        if not follows:
            raise Unreadable("it ends with a backslash")
        self.at += 2
        if follows == "\n":
            self._continued()
            return
        pieces.quoted = True
        pieces.parts.append(follows)

    def _continued(self) -> None:
        """A line goes on: what is joined must not become another token than what is read here."""
        if self.peek() in ("<", ">", "("):
            raise Unreadable("a line is continued in the middle of an operator")

    def document(self) -> None:
        """The body of a here-document whose delimiter is not quoted: the whole text."""
        pieces = Pieces()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self._escape(pieces, "$`\\")
            elif char == "$":
                self.dollar(pieces, quoted=True)
            elif char == "`":
                self.backticks(pieces, quoted=True)
            else:
                self._literal(pieces, _IN_DOCUMENT)
