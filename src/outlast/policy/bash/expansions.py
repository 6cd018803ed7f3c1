"""Quotes, expansions and substitutions: which commands are inside, and what is evaluated as code.

Subscripts, arithmetic over variables, `${x@P}` and the like evaluate data. They become problems.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from outlast.policy.bash.variables import is_run, is_safe
from outlast.policy.bash.words import Loop, Pieces, Problem, Ref, Unreadable, Word, ansi_c
from outlast.policy.patterns import UNKNOWN

DEEPEST = 64
_IN_DOUBLE = re.compile(r"[^\"\\$`]+")
_IN_DOCUMENT = re.compile(r"[^\\$`]+")
_NAMED = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"([!#]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
_SPECIAL = re.compile(r"[#!][}:+?=%-]")
_PATH_PRINTERS = frozenset(["realpath", "readlink", "dirname", "which"])
_CONSTANT = re.compile(r"(?:\s|0[xX][0-9a-fA-F]+|[0-9]+(?:#[0-9a-zA-Z@_]+)?(?![A-Za-z_])|[-+*/%<>=!&|^~?:,;()])*")
_DULL = re.compile(r"[^\\$`\"'<>()\[\]{}]+")
_INTEGER = re.compile(r"\s*[-+]?[0-9]+\s*")
_ANSI = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL)
_BACKTICK = re.compile(r"[^`\\]*(?:\\.[^`\\]*)*", re.DOTALL)


class Expansions:
    """Reads at `at`. What it finds on the way goes to `found`, in any order."""

    # The readers of words and commands supply these.
    statements: Callable[[], str]
    inner: Callable[[str, str, int], Expansions]

    def __init__(self, text: str, depth: int, inside: str, base: int) -> None:
        self.text, self.depth, self.inside, self.at = text, depth, inside, 0
        self.base = base  # where this text begins in the whole line
        self.found: list[object] = []
        self.fuzzy: list[tuple[int, int]] = []  # ranges in which places are not exact
        self.odd = 0  # places over which tree-sitter's grammar stumbles
        self.bashisms = False
        self.documents: list[tuple[str, bool, bool, list[str]]] = []  # here-documents that begin in the next line

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

    def _expand(self, pieces: Pieces, closer: str) -> None:
        """Text in which only expansions and backslashes count: in double quotes, or a here-document (no closer)."""
        text, plain = self.text, _IN_DOUBLE if closer else _IN_DOCUMENT
        self.at += len(closer)
        while self.at < len(text):
            char = text[self.at]
            if char == closer:
                self.at += 1
                return
            if char == "\\":
                follows = text[self.at + 1 : self.at + 2]
                kept = "" if follows and follows in f"\n$`\\{closer}" else "\\"
                pieces.parts.append(kept + follows.strip("\n"))
                self.at += 2
            elif not self._expansion(pieces, char, quoted=True):
                match = plain.match(text, self.at)
                assert match is not None
                pieces.parts.append(match[0])
                self.at = match.end()
        if closer:
            raise Unreadable("a double quote is not closed")

    def _expansion(self, pieces: Pieces, char: str, *, quoted: bool) -> bool:
        """Read what begins with a dollar sign or a backtick, if one stands here."""
        if char == "$":
            self.dollar(pieces, quoted=quoted)
        elif char == "`":
            self.backticks(pieces, quoted=quoted)
        return char in "$`"

    def enter(self, inside: str) -> None:
        self.depth += 1
        self.inside = inside
        if self.depth > DEEPEST:
            raise Unreadable(f"it is nested deeper than {DEEPEST}")

    # --- what begins with a dollar sign, a backtick, `<(` or `>(` ---

    def dollar(self, pieces: Pieces, *, quoted: bool) -> None:
        if name := _NAMED.match(self.text, self.at):
            self._behind_variable(pieces, name.end(), quoted, name[0][1:])
            return
        follows = self.text[self.at + 1 : self.at + 2]
        if follows == "(":
            self._parenthesis(pieces, quoted)
        elif follows == "{":
            self._parameter(pieces, quoted)
        elif follows == "[":
            self.at += 2
            self.bashisms = True
            self.arithmetic("]", "$[ ]")
            pieces.add_unknown(quoted)
        elif follows in ("'", '"') and not quoted:
            self._special_quotes(pieces, follows)
        elif follows == "\\" and self.text[self.at + 2 : self.at + 3] == "\n":
            raise Unreadable("a line is continued inside an expansion")
        elif match := _PARAMETER.match(self.text, self.at + 1):
            # `$#name` is `$#` and text, and `$12` is `$1` and `2`: only a name is longer than one character.
            # "$@" is as many words as there are parameters, in quotes too.
            self._behind_variable(pieces, self.at + 2, quoted and match[0] != "@", self.text[self.at + 1])
        else:
            pieces.parts.append("$")
            self.odd += not quoted
            self.at += 1

    def _behind_variable(self, pieces: Pieces, end: int, quoted: bool, name: str) -> None:
        self.at = end
        if self.text.startswith("\\\n", end):
            raise Unreadable("a line is continued inside an expansion")
        pieces.add_unknown(quoted, (name, ()))

    def _special_quotes(self, pieces: Pieces, quote: str) -> None:
        pieces.quoted = self.bashisms = True
        self.at += 1
        if quote == '"':
            self.problem('$"…" is translated before it is used')
            self._expand(pieces, '"')
            return
        match = _ANSI.match(self.text, self.at + 1)
        if match is None or match.end() >= len(self.text):
            raise Unreadable("a single quote is not closed")
        pieces.parts.append(ansi_c(match[0]))
        self.at = match.end() + 1

    def backticks(self, pieces: Pieces, *, quoted: bool) -> None:
        match = _BACKTICK.match(self.text, self.at + 1)
        if match is None or match.end() >= len(self.text):
            raise Unreadable("a backtick is not closed")
        inner = re.sub(r"\\([$`\\\"])" if quoted else r"\\([$`\\])", r"\1", match[0])
        if inner != match[0]:
            self.fuzzy.append((self.base + self.at, self.base + match.end()))
        mark = len(self.found)
        self._within(inner, "` `", self.at + 1)
        self.at = match.end() + 1
        pieces.add_unknown(quoted, _find_printed(self.found[mark:]))

    def _within(self, text: str, inside: str, at: int, *, document: bool = False) -> None:
        """Read a text that stands inside this one, or a here-document's body, and keep what it holds."""
        scanner = self.inner(text, inside, self.base + at)
        try:
            if document:
                scanner._expand(Pieces(), "")
            elif scanner.statements() or scanner.at < len(text):
                raise Unreadable("a substitution is not closed where it should be")
        finally:
            self.found += scanner.found
            self.fuzzy += scanner.fuzzy
            self.odd += scanner.odd
            self.bashisms = self.bashisms or scanner.bashisms

    def process(self, pieces: Pieces) -> None:
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

    def _parenthesis(self, pieces: Pieces, quoted: bool) -> None:
        start, mark = self.at, len(self.found)
        if self.text.startswith("$((", start):
            self.at += 3
            if self.arithmetic("))", "$(( ))"):
                pieces.add_unknown(quoted)
                return
            self.at = start
            del self.found[mark:]
            self.problem("$(( could be arithmetic or a command", hides=True)
        self.at = start + 2
        if self.peek(2) == "\\\n":
            raise Unreadable("a line is continued inside an expansion")
        mark = len(self.found)
        self.substitution("$( )")
        pieces.add_unknown(quoted, _find_printed(self.found[mark:]))

    def arithmetic(self, closer: str, what: str) -> bool:
        """Arithmetic up to its end; False if it does not end as arithmetic does."""
        pieces = Pieces()
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

    def _judge_arithmetic(self, pieces: Pieces, start: int) -> None:
        text = "".join([*pieces.parts, *(one for ref in pieces.refs if ref for one in ref[1])])
        if pieces.unknown or not _CONSTANT.fullmatch(text):
            self.evaluate_text(text, start)

    def evaluate_text(self, text: str, at: int, why: str = "arithmetic over variables evaluates their values") -> None:
        # Static text that holds a substitution runs it there, quoted or not.
        self.problem(why, at=at, hides="$(" in text or "`" in text, evaluates=True)

    def _inside_expansion(self, pieces: Pieces, char: str, *, quoted: bool) -> None:
        """One step inside ${ }, a subscript or arithmetic."""
        if char == "\\":
            follows = self.text[self.at + 1 : self.at + 2]
            pieces.parts.append("" if follows == "\n" else follows)
            self.at += 2
        elif self._expansion(pieces, char, quoted=quoted):
            pass
        elif char == '"':
            self._expand(pieces, '"')
        elif char == "'" and not quoted:
            self._single(pieces)
        elif char in "<>" and not quoted and self.text[self.at + 1 : self.at + 2] == "(":
            self.process(pieces)
        else:
            if char == "'":  # it quotes in a pattern, and is a plain character in a default value
                self.problem("a single quote inside ${ } inside double quotes means different things", hides=True)
            match = _DULL.match(self.text, self.at)
            pieces.parts.append(match[0] if match else char)
            self.at = match.end() if match else self.at + 1

    def _until(self, closer: str, quoted: bool) -> Pieces:
        pieces = Pieces()
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

    def _parameter(self, pieces: Pieces, quoted: bool) -> None:
        start = self.at
        self.at += 2
        match = _PARAMETER.match(self.text, self.at)
        if match and match[1] and match.end() == self.at + 1:
            match = None
        if _SPECIAL.match(self.text, self.at):
            prefix, name = "", self.peek()
            self.at += 1
        elif match is None:
            raise Unreadable("${ is not followed by a name")
        else:
            prefix, name = match[1], match[2]
            self.at = match.end()
        every = self._subscript(quoted)
        if prefix == "!" and not (every or self.peek(2) in ("*}", "@}")):
            self.problem("an indirect expansion evaluates the name that it finds", at=start, hides=True)
        ref = self._operation(name, quoted, start)
        pieces.add_unknown(quoted and "@" not in self.text[start : self.at], None if prefix else ref)

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
            self.evaluate_text(text, start, "a subscript is evaluated as arithmetic")
        return False

    def _operation(self, name: str, quoted: bool, start: int) -> Ref:
        """What follows a name inside ${ }, and what the whole stands for."""
        operator = self.peek()
        if operator == "}":
            self.at += 1
            return name, ()
        if operator == "\\" or not operator:
            raise Unreadable("${ is not closed")
        if operator == "@":
            self._transformation()
            return None
        following = self.text[self.at + 1 : self.at + 2]
        if operator == ":" and following not in "-=?+":
            self.bashisms = True
            self.at += 1
            begin = self.at
            self._judge_arithmetic(self._until("}", quoted), begin)
            return None
        if operator == "=" or (operator == ":" and following == "="):
            if not is_safe(name):
                self.problem(f"it assigns {name}", at=start, hides=is_run(name))
        elif operator in "/^,":
            self.bashisms = True
        elif operator not in ":-?+#%*":
            raise Unreadable("${ has an unknown operator")
        self.at += operator == ":"
        return self._instead(name, quoted, start)

    def _instead(self, name: str, quoted: bool, start: int) -> Ref:
        """The rest of ${ } behind its operator, which may be a value for a variable that has none."""
        given = self.peek()
        rest = self._until("}", quoted)
        text = "".join(rest.parts)[1:]
        if given == "=" and rest.unknown:
            value = Word(UNKNOWN, start, self.at)
            value.unknown, value.source = True, self.text[start : self.at]
            self.found.append(Loop(self.base + start, self.depth, self.inside, name, [value]))
        if given in "#%*/^,@" or rest.unknown:
            return None
        if given == "=":
            self.found.append(Loop(self.base + start, self.depth, self.inside, name, [Word(text, start, self.at)]))
        return (name, ()) if given == "?" else (name, (text,)) if given in "-=" else ("", (text, ""))

    def _transformation(self) -> None:
        self.bashisms = True
        letter = self.text[self.at + 1 : self.at + 2]
        if self.text[self.at + 2 : self.at + 3] != "}" and letter != "}":
            raise Unreadable("${ has an unknown operator")
        if letter == "P":
            self.problem("${…@P} runs what is in the value", hides=True)
        self.at += 2 if letter == "}" else 3


def _find_printed(found: list[object]) -> Ref:
    """What a substitution leaves, if it is one command that prints constants."""
    words = [word.value for one in found for word in getattr(one, "words", [])]
    if len(found) == 2 and words[:1] == ["cd"] and words[2:] == ["pwd"] and words[1]:
        return "", (words[1],)
    texts = [word.replace("\\n", "\n") for word in words[1:] if word is not None]
    if len(found) != 1 or None in words or not words or any("\\" in text for text in texts):
        return None
    if words[0] == "echo":
        return "", (" ".join(texts[1:] if texts[:1] in (["-n"], ["-e"], ["-ne"]) else texts),)
    if words[0] == "printf" and texts:
        form = texts[0].rstrip("\n")
        return "", (" ".join(texts[1:]),) if form == "%s" else (form,) if "%" not in form else ()
    if words[0] in _PATH_PRINTERS and len(texts) > 0:
        return "", tuple(os.path.dirname(one) if words[0] == "dirname" else one for one in texts if one[:1] != "-")
    if words in (["pwd"], ["git", "rev-parse", "--show-toplevel"]):
        return "PWD", ()
    # A new directory is somewhere below the one for temporary files.
    return ("", ("/tmp/new/tmp",)) if words[0] == "mktemp" else None
