"""The words of a bash line: quotes, expansions, substitutions, and what is static in them.

A word is read as bash reads it. Its static parts are resolved (`r\\m`, `r''m`, `$'\\x72m'` are all `rm`), commands inside
substitutions are found, and whatever evaluates data as code (subscripts, arithmetic, `${x@P}`) becomes a problem.
`syntax` builds the grammar on top of it.
"""

from __future__ import annotations

import re

from outlast.permissions.patterns import UNKNOWN
from outlast.permissions.quoting import ansi_c, quoted
from outlast.permissions.variables import is_harmless

DEEPEST = 64

_PLAIN = re.compile(r"[A-Za-z0-9_./:,+@%^=-]+")
_ENDS = frozenset(" \t\n;&|()<>")
_RUN = re.compile(r"[^\\'\"$`<>|&;() \t\n*?\[{},~.]+")
_IN_DOUBLE = re.compile(r"[^\"\\$`]+")
_IN_DOCUMENT = re.compile(r"[^\\$`]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"([!#]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_CONSTANT = re.compile(r"(?:\s|0[xX][0-9a-fA-F]+|[0-9]+(?:#[0-9a-zA-Z@_]+)?(?![A-Za-z_])|[-+*/%<>=!&|^~?:,;()])*")
_BLANK = re.compile(r"\s")
_DULL = re.compile(r"[^\\$`\"'<>()\[\]{}]+")
_INTEGER = re.compile(r"\s*[-+]?[0-9]+\s*")
_ANSI = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL)
_BACKTICK = re.compile(r"[^`\\]*(?:\\.[^`\\]*)*", re.DOTALL)
# Spaces that are none for bash, and characters that are not seen or turn the direction of what is seen.
STRANGE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class Unreadable(Exception):
    """The rest of the text cannot be read with certainty."""


class Word:
    """One word. `text` is its value, with `UNKNOWN` for what only a run can tell."""

    unknown = False  # holds a variable or a substitution
    glob = False  # holds a glob, a brace expansion or a tilde
    splits = False  # may become several words, or none
    quoted = False
    shape = ""  # how it stands in canonical text, once somebody asked

    def __init__(self, text: str, at: int, end: int) -> None:
        self.text = self.source = self.lead = text
        # `source` is how it was written, if that is not its value; `lead` is what it certainly begins with.
        self.at = at
        self.end = end

    @property
    def static(self) -> bool:
        return not (self.unknown or self.glob)

    @property
    def canonical(self) -> str:
        """How it stands in the text that patterns are compared with."""
        if not self.shape:
            if not self.unknown:
                self.shape = quoted(self.text)
            else:
                self.shape = f"'{self.text}'" if _BLANK.search(self.text) else self.text
        return self.shape

    @property
    def value(self) -> str | None:
        return None if self.unknown or self.glob else self.text


class Problem:
    """Something that cannot be analysed. `hides`: a denied program could be behind it."""

    __slots__ = ("at", "depth", "hides", "inside", "why")

    def __init__(self, why: str, at: int, depth: int, inside: str, hides: bool) -> None:
        self.why, self.at, self.depth, self.inside, self.hides = why, at, depth, inside, hides


class _Pieces:
    """A word in the making."""

    __slots__ = ("braces", "glob", "lead", "parts", "quoted", "splits", "unknown")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.unknown = self.glob = self.splits = self.quoted = False
        self.lead: str | None = None
        self.braces = 0  # how much of a brace expansion was seen: { then , then }

    def add_unknown(self, quoted: bool) -> None:
        self._settle()
        self.parts.append(UNKNOWN)
        self.unknown = True
        self.splits = self.splits or not quoted

    def add_glob(self, text: str) -> None:
        self._settle()
        self.parts.append(text)
        self.glob = self.splits = True

    def _settle(self) -> None:
        if self.lead is None:
            self.lead = "".join(self.parts)

    def word(self, at: int, end: int) -> Word:
        word = Word("".join(self.parts), at, end)
        word.unknown, word.glob, word.splits, word.quoted = self.unknown, self.glob, self.splits, self.quoted
        if self.lead is not None:
            word.lead = self.lead
        return word


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
        self.bashisms = False
        self.documents: list[tuple[str, bool, bool, list[str]]] = []  # here-documents that begin in the next line

    # What `syntax` and the texts within texts supply.

    def statements(self) -> str:
        raise NotImplementedError

    def inner(self, text: str, inside: str, at: int) -> Scanner:
        raise NotImplementedError

    def problem(self, why: str, *, hides: bool = False, at: int = -1) -> None:
        self.found.append(Problem(why, self.base + (self.at if at < 0 else at), self.depth, self.inside, hides))

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    # --- words -----------------------------------------------------------------------------

    def word(self, *, loose: bool = False) -> Word:
        """The word that begins here; empty if none does. `loose`: parentheses and bars belong to it."""
        text, start = self.text, self.at
        match = _PLAIN.match(text, start)
        if match and (match.end() == len(text) or text[match.end()] in _ENDS) and not loose:
            end = match.end()
            if text[end : end + 2] not in ("<(", ">("):
                self.at = end
                return Word(match[0], start, end)
        pieces = _Pieces()
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

    def _step(self, pieces: _Pieces, char: str, start: int, loose: bool) -> None:
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
            self._backticks(pieces, quoted=False)
        elif char in "<>" and not loose:
            self._process(pieces)
        else:
            self._unquoted(pieces, char, start)

    def _unquoted(self, pieces: _Pieces, char: str, start: int) -> None:
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

    def _brace(self, pieces: _Pieces, char: str) -> None:
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

    def _backslash(self, pieces: _Pieces) -> None:
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
        if self.peek() in ("<", ">", "(", "{", "[", "=", "#"):
            raise Unreadable("a line is continued in the middle of an operator")

    def _single(self, pieces: _Pieces) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a single quote is not closed")
        pieces.quoted = True
        pieces.parts.append(self.text[self.at + 1 : end])
        self.at = end + 1

    def _double(self, pieces: _Pieces) -> None:
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
                self._backticks(pieces, quoted=True)
            else:
                self._literal(pieces, _IN_DOUBLE)
        raise Unreadable("a double quote is not closed")

    def _literal(self, pieces: _Pieces, run: re.Pattern[str]) -> None:
        match = run.match(self.text, self.at)
        assert match is not None
        pieces.parts.append(match[0])
        self.at = match.end()

    def _escape(self, pieces: _Pieces, special: str) -> None:
        follows = self.text[self.at + 1 : self.at + 2]
        if follows == "\n":
            pass
        elif follows and follows in special:
            pieces.parts.append(follows)
        else:
            pieces.parts.append("\\" + follows)
        self.at += 2

    def document(self) -> None:
        """The body of a here-document whose delimiter is not quoted: the whole text."""
        pieces = _Pieces()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self._escape(pieces, "$`\\")
            elif char == "$":
                self.dollar(pieces, quoted=True)
            elif char == "`":
                self._backticks(pieces, quoted=True)
            else:
                self._literal(pieces, _IN_DOCUMENT)

    # --- expansions ------------------------------------------------------------------------

    def dollar(self, pieces: _Pieces, *, quoted: bool) -> None:
        follows = self.text[self.at + 1 : self.at + 2]
        if follows == "(":
            self._parenthesis(pieces, quoted)
        elif follows == "{":
            self._parameter(pieces, quoted)
        elif follows == "[":
            self.at += 2
            self.bashisms = True
            self._arithmetic("]", "$[ ]")
            pieces.add_unknown(quoted)
        elif follows in ("'", '"') and not quoted:
            self._special_quotes(pieces, follows)
        elif follows == "\\" and self.text[self.at + 2 : self.at + 3] == "\n":
            raise Unreadable("a line is continued inside an expansion")
        elif match := _PARAMETER.match(self.text, self.at + 1):
            self._variable(pieces, match, quoted)
        else:
            pieces.parts.append("$")
            self.at += 1

    def _variable(self, pieces: _Pieces, match: re.Match[str], quoted: bool) -> None:
        # `$#name` is `$#` and text, and `$12` is `$1` and `2`: only a name is longer than one character.
        name = _NAME.match(self.text, self.at + 1)
        self.at = name.end() if name else self.at + 2
        if self.text[self.at : self.at + 2] == "\\\n":
            raise Unreadable("a line is continued inside an expansion")
        # "$@" is as many words as there are parameters, in quotes too.
        pieces.add_unknown(quoted and match[0] != "@")

    def _special_quotes(self, pieces: _Pieces, quote: str) -> None:
        pieces.quoted = self.bashisms = True
        self.at += 1
        if quote == '"':
            self.problem('$"…" is translated before it is used')
            self._double(pieces)
            return
        match = _ANSI.match(self.text, self.at + 1)
        if match is None or match.end() >= len(self.text):
            raise Unreadable("a single quote is not closed")
        pieces.parts.append(ansi_c(match[0]))
        self.at = match.end() + 1

    def _backticks(self, pieces: _Pieces, *, quoted: bool) -> None:
        match = _BACKTICK.match(self.text, self.at + 1)
        if match is None or match.end() >= len(self.text):
            raise Unreadable("a backtick is not closed")
        source = match[0]
        special = r"\\([$`\\\"])" if quoted else r"\\([$`\\])"
        inner = re.sub(special, r"\1", source)
        if inner != source:
            self.fuzzy.append((self.base + self.at, self.base + match.end()))
        self._within(inner, "` `", self.at + 1)
        self.at = match.end() + 1
        pieces.add_unknown(quoted)

    def _within(self, text: str, inside: str, at: int, *, document: bool = False) -> None:
        """Read a text that stands inside this one, and keep what it holds."""
        scanner = self.inner(text, inside, self.base + at)
        try:
            if document:
                scanner.document()
            elif scanner.statements() or scanner.at < len(text):
                raise Unreadable("a substitution is not closed where it should be")
        finally:
            self.found += scanner.found
            self.fuzzy += scanner.fuzzy
            self.bashisms = self.bashisms or scanner.bashisms

    def _process(self, pieces: _Pieces) -> None:
        inside = "<( )" if self.peek() == "<" else ">( )"
        self.at += 2
        self.bashisms = True
        self.substitution(inside)
        pieces.add_unknown(quoted=True)
        pieces.lead = pieces.lead or "/dev/fd/"

    def substitution(self, inside: str) -> None:
        """Commands up to the closing parenthesis."""
        outer = (self.depth, self.inside, self.documents)
        start = self.at
        self.enter(inside)
        self.documents = []
        if self.statements() != ")":
            raise Unreadable("a parenthesis is not closed")
        if self.documents or (outer[2] and "\n" in self.text[start : self.at]):
            raise Unreadable("a here-document has no body where it should be")
        self.at += 1
        self.depth, self.inside, self.documents = outer

    def enter(self, inside: str) -> None:
        self.depth += 1
        self.inside = inside
        if self.depth > DEEPEST:
            raise Unreadable(f"it is nested deeper than {DEEPEST}")

    def _parenthesis(self, pieces: _Pieces, quoted: bool) -> None:
        start, mark = self.at, len(self.found)
        if self.text.startswith("$((", start):
            self.at += 3
            if self._arithmetic("))", "$(( ))"):
                pieces.add_unknown(quoted)
                return
            self.at = start
            del self.found[mark:]
            self.problem("$(( could be arithmetic or a command", hides=True)
        self.at = start + 2
        if self.peek(2) == "\\\n":
            raise Unreadable("a line is continued inside an expansion")
        self.substitution("$( )")
        pieces.add_unknown(quoted)

    def _arithmetic(self, closer: str, what: str) -> bool:
        """Arithmetic up to its end; False if it does not end as arithmetic does."""
        pieces = _Pieces()
        start, nested = self.at, 0
        opener = "[" if closer == "]" else "("
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closer[0] and not nested:
                if not self.text.startswith(closer, self.at):
                    return False
                self._judge_arithmetic(pieces, start)
                self.at += len(closer)
                return True
            nested += (char == opener) - (char == closer[0])
            self._inside_expansion(pieces, char, quoted=False)
        raise Unreadable(f"{what} is not closed")

    def arithmetic_command(self) -> bool:
        return self._arithmetic("))", "(( ))")

    def _judge_arithmetic(self, pieces: _Pieces, start: int) -> None:
        text = "".join(pieces.parts)
        if pieces.unknown or not _CONSTANT.fullmatch(text):
            self.evaluated(text, start)

    def evaluated(self, text: str, at: int, why: str = "arithmetic over variables evaluates their values") -> None:
        # Static text that holds a substitution runs it there, quoted or not.
        self.problem(why, at=at, hides="$(" in text or "`" in text)

    def _inside_expansion(self, pieces: _Pieces, char: str, *, quoted: bool) -> None:
        """One step inside ${ }, a subscript or arithmetic."""
        if char == "\\":
            follows = self.text[self.at + 1 : self.at + 2]
            pieces.parts.append("" if follows == "\n" else follows)
            self.at += 2
        elif char == "$":
            self.dollar(pieces, quoted=quoted)
        elif char == "`":
            self._backticks(pieces, quoted=quoted)
        elif char == '"':
            self._double(pieces)
        elif char == "'":
            self._single_inside(pieces, quoted)
        elif char in "<>" and not quoted and self.text[self.at + 1 : self.at + 2] == "(":
            self._process(pieces)
        elif match := _DULL.match(self.text, self.at):
            pieces.parts.append(match[0])
            self.at = match.end()
        else:
            pieces.parts.append(char)
            self.at += 1

    def _single_inside(self, pieces: _Pieces, quoted: bool) -> None:
        if not quoted:
            self._single(pieces)
            return
        # It quotes in a pattern and is a plain character in a default value. Whatever runs in either case is found.
        self.problem("a single quote inside ${ } inside double quotes means different things", hides=True)
        pieces.parts.append("'")
        self.at += 1

    def _until(self, closer: str, quoted: bool) -> _Pieces:
        pieces = _Pieces()
        nested = 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closer and not nested:
                self.at += 1
                return pieces
            if closer == "]":
                nested += (char == "[") - (char == "]")
            self._inside_expansion(pieces, char, quoted=quoted)
        raise Unreadable(f"{closer} is missing")

    def _parameter(self, pieces: _Pieces, quoted: bool) -> None:
        start = self.at
        self.at += 2
        match = _PARAMETER.match(self.text, self.at)
        if match and match[1] and match.end() == self.at + 1:
            match = None
        special = self.peek() in ("#", "!") and self.text[self.at + 1 : self.at + 2] in (
            "}",
            ":",
            "-",
            "+",
            "?",
            "=",
            "%",
        )
        if special or match is None:
            if not special:
                raise Unreadable("${ is not followed by a name")
            prefix, name = "", self.peek()
            self.at += 1
        else:
            prefix, name = match[1], match[2]
            self.at = match.end()
        every = self._subscript(quoted)
        if prefix == "!" and not (every or self.peek(2) in ("*}", "@}")):
            self.problem("an indirect expansion evaluates the name that it finds", at=start, hides=True)
        self._operation(name, quoted, start)
        pieces.add_unknown(quoted and "@" not in self.text[start : self.at])

    def _subscript(self, quoted: bool) -> bool:
        """Whether a subscript follows that means all elements."""
        if self.peek() != "[":
            return False
        self.bashisms = True
        start = self.at
        self.at += 1
        inner = self._until("]", quoted)
        text = "".join(inner.parts)
        if text in ("@", "*") and not inner.unknown:
            return True
        if inner.unknown or not _INTEGER.fullmatch(text):
            self.evaluated(text, start, "a subscript is evaluated as arithmetic")
        return False

    def _operation(self, name: str, quoted: bool, start: int) -> None:
        operator = self.peek()
        if operator == "}":
            self.at += 1
            return
        if operator == "\\" or not operator:
            raise Unreadable("${ is not closed")
        if operator == "@":
            self._transformation()
            return
        following = self.text[self.at + 1 : self.at + 2]
        if operator == ":" and following not in "-=?+":
            self.bashisms = True
            self.at += 1
            begin = self.at
            offset = self._until("}", quoted)
            self._judge_arithmetic(offset, begin)
            return
        if operator == "=" or (operator == ":" and following == "="):
            if not is_harmless(name):
                self.problem(f"it assigns {name}", at=start)
        elif operator in "/^,":
            self.bashisms = True
        elif operator not in ":-?+#%*":
            raise Unreadable("${ has an unknown operator")
        self._until("}", quoted)

    def _transformation(self) -> None:
        self.bashisms = True
        letter = self.text[self.at + 1 : self.at + 2]
        if self.text[self.at + 2 : self.at + 3] != "}" and letter != "}":
            raise Unreadable("${ has an unknown operator")
        if letter == "P":
            self.problem("${…@P} runs what is in the value", hides=True)
        self.at += 2 if letter == "}" else 3
