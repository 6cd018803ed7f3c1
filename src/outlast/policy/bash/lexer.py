"""Words as bash reads them, with their static parts resolved: `r\\m`, `r''m` and `$'\\x72m'` are all `rm`."""

from __future__ import annotations

import re

from outlast.policy.bash.expansions import Expansions
from outlast.policy.bash.words import Pieces, Unreadable, Word
from outlast.policy.patterns import UNKNOWN

_PLAIN = re.compile(r"[A-Za-z0-9_./:,+@%^=-]++(?=[ \t\n;&|()]|[<>](?!\()|\Z)")
_ENDS = frozenset(" \t\n;&|()<>")
_RUN = re.compile(r"[^\\'\"$`<>|&;() \t\n*?\[{},~.]+")
# Most words that are not plain are one of these as a whole.
_WHOLE = re.compile(
    r"""(?:'(?P<single>[^']*+)'|"(?P<double>[^"\\$`]*+)"|(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*+)"""
    r"""|(?P<quoted_variable>"\$[A-Za-z_][A-Za-z0-9_]*+")"""
    r"""|(?P<run>[^\\'"$`<>|&;() \t\n*?\[{~]++)"""
    r"""|(?P<glob>[^\\'"$`<>|&;() \t\n*?\[{~]*+[*?\[][^\\'"$`<>|&;() \t\n{~]*+))(?=[ \t\n;&|()]|\Z)"""
)
BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
BLANK_OR_COMMENT = frozenset(" \t\\#")
_EXPANDS = re.compile(r"[\\`]|\$(?![A-Za-z_])")  # more than the name of a variable
_GLOB = re.compile(r"[*?\[]")
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


class Lexer(Expansions):
    """Whole words, and everything up to the next one."""

    def word(self, *, loose: bool = False) -> Word:
        """The word that begins here; empty if none does. `loose`: parentheses and bars belong to it."""
        text, start = self.text, self.at
        if not loose and (match := _PLAIN.match(text, start)):
            self.at = match.end()
            return Word(match[0], start, self.at)
        if not loose and (match := _WHOLE.match(text, start)) and (word := _whole(match, start)):
            self.at = match.end()
            return word
        pieces = Pieces()
        while self.at < len(text):
            char = text[self.at]
            if char in _ENDS and not (loose and char in "()|<>&;") and text[self.at : self.at + 2] not in ("<(", ">("):
                break
            self._step(pieces, char, start)
        if self.at - start == 1 and text[start] == "[":
            return Word("[", start, self.at)
        word = pieces.word(start, self.at)
        if word.unknown:
            word.source = text[start : self.at]
        return word

    def _step(self, pieces: Pieces, char: str, start: int) -> None:
        if char == "\\":
            self._backslash(pieces)
        elif char == "'":
            self._single(pieces)
        elif char == '"':
            pieces.quoted = True
            self._expand(pieces, '"')
        elif char in "<>" and self.text[self.at + 1 : self.at + 2] == "(":
            self.process(pieces)
        elif not self._expansion(pieces, char, quoted=False):
            self._read_unquoted(pieces, char, start)

    def _read_unquoted(self, pieces: Pieces, char: str, start: int) -> None:
        if char in "*?[":
            pieces.add_glob(char)
            self.at += 1
        elif char == "~" and self.at == start:
            pieces.add_glob(char)
            pieces.lead, pieces.splits = "~", False
            self.at += 1
        elif char in "{},.":
            self._brace(pieces, char)
        else:
            match = _RUN.match(self.text, self.at)  # none for one of ()|<>&;~
            run = match[0] if match else char
            if not run.isascii() and STRANGE.search(run):
                self.problem("it has characters outside quotes that cannot be seen", hides=True)
            pieces.parts.append(run)
            self.at += len(run)

    def _brace(self, pieces: Pieces, char: str) -> None:
        self.at += 1
        seen = pieces.braces
        if char == "{":
            pieces.braces = max(seen, 1)
            pieces.settle()
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
        if follows != "\n":
            pieces.quoted = True
            pieces.parts.append(follows)
        elif self.peek() in ("<", ">", "("):  # what is joined must not become another token than what is read here
            raise Unreadable("a line is continued in the middle of an operator")

    # --- what stands between words: blanks, comments, newlines, here-documents behind a newline ---

    def blanks(self) -> None:
        if match := BLANKS.match(self.text, self.at):
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
            self.at += 1
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
