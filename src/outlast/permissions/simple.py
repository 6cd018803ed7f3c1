"""Simple commands: their words, assignments and redirections."""

from __future__ import annotations

import re

from outlast.permissions.wordreader import WordReader
from outlast.permissions.words import Unreadable, Word, names

_REDIRECTION = re.compile(r"([0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)|(&>>|&>)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_ELEMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[")
_ELEMENT_SET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*?\]\+?=", re.DOTALL)
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,+@%^=-]+")
_PLAIN_COMMAND = re.compile(r"([A-Za-z0-9_./:,+@%^-]+)(?:[ \t]+[A-Za-z0-9_./:,+@%^=-]+)*[ \t]*(?=[;\n|)]|&(?!>)|\Z)")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")
CLOSING = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}"])
RESERVED = CLOSING | names("if while until for case select function { [[ ! time coproc in")
_DECLARING = frozenset(["declare", "typeset", "local", "export", "readonly"])


class Assignment:
    __slots__ = ("name", "static", "text")

    def __init__(self, name: str, static: bool, text: str = "") -> None:
        self.name, self.static, self.text = name, static, text


class Redirection:
    __slots__ = ("descriptor", "operator", "target")

    def __init__(self, operator: str, descriptor: str, target: Word) -> None:
        self.operator, self.descriptor, self.target = operator, descriptor, target


class Command:
    """One simple command, or the redirections of a compound one."""

    __slots__ = ("assignments", "at", "bodies", "depth", "fed", "inside", "keyword", "redirections", "words")

    def __init__(self, at: int, depth: int, inside: str, fed: bool) -> None:
        self.at, self.depth, self.inside = at, depth, inside
        self.fed = fed  # its standard input is a pipe, a file or a here-document
        self.keyword = False  # `time` or `coproc` stands before it
        self.words: list[Word] = []
        self.assignments: list[Assignment] = []
        self.redirections: list[Redirection] = []
        self.bodies: list[str] = []  # static texts on its standard input


class SimpleReader(WordReader):
    """Simple commands, redirections, assignments and here-documents."""

    keyword = False  # the next simple command follows `time` or `coproc`

    def blanks(self) -> None:
        char = self.text[self.at : self.at + 1]
        if char and char not in " \t\\#":
            return
        match = _BLANKS.match(self.text, self.at)
        if match:
            self.at = match.end()
        if self.peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def lines(self) -> None:
        """Blanks, comments and newlines."""
        while True:
            self.blanks()
            if self.peek() != "\n":
                return
            self.newline()

    def newline(self) -> None:
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
                if not raw:
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
        if self.peek(2) == "\\\n":
            match = _BLANKS.match(self.text, self.at)
            assert match is not None
            if self.text[match.end() : match.end() + 1] in ("&", "|", ";", "<", ">", "(", "-", "!"):
                raise Unreadable("a line is continued in the middle of an operator")

    def plain(self, fed: bool) -> bool:
        """A command of plain words, if one begins here."""
        match = _PLAIN_COMMAND.match(self.text, self.at)
        if not match or match[1] in RESERVED:
            return False
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        command.words = [Word(word[0], *word.span()) for word in _PLAIN_WORD.finditer(self.text, self.at, match.end())]
        self.found.append(command)
        self.at = match.end()
        return True

    def simple(self, fed: bool) -> None:
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        command.keyword, self.keyword = self.keyword, False
        start = self.at
        self.found.append(command)
        while True:
            self.blanks()
            char = self.peek()
            if char in ("", "\n", ";", "|", ")") or (char == "&" and self.peek(2) != "&>"):
                break
            if char == "(":
                if self._opens(command):
                    return
            elif not (self.redirection(command) or self._assignment(command)):
                command.words.append(self._next_word(command))
        if self.at == start:
            raise Unreadable(f"{self.peek()} stands where a command should begin")
        if command.words:
            command.at = self.base + command.words[0].at

    def _next_word(self, command: Command) -> Word:
        start = self.at
        word = self.word()
        if self.at == start:
            raise Unreadable(f"{self.peek()} stands where a word should be")
        source = self.text[start : self.at]
        if self.documents and "\n" in source:
            raise Unreadable("a here-document begins inside a word")
        if not command.words and "\\\n" in source and ("=" in source or word.text in RESERVED):
            raise Unreadable("a line is continued in the middle of a name")
        return word

    def _opens(self, command: Command) -> bool:
        """A parenthesis behind a word: a function, or the list that a declaration assigns."""
        words = command.words
        match = _EMPTY_PARENTHESES.match(self.text, self.at)
        if match and len(words) == 1 and not (command.assignments or command.redirections):
            self.at = match.end()
            self.found.remove(command)
            self.define(words[0], command.fed)
            return True
        touches = words and self.base + words[-1].end == self.base + self.at and words[-1].text.endswith("=")
        if not (touches and words[0].text in _DECLARING):
            raise Unreadable("a parenthesis stands where no command begins")
        self._list()
        words[-1].unknown = True
        return False

    def _assignment(self, command: Command) -> bool:
        if command.words:
            return False
        match = _ASSIGNMENT.match(self.text, self.at)
        if match:
            self.at = match.end()
            if self.peek() == "(":
                self._list()
                command.assignments.append(Assignment(match[1], static=False))
            else:
                value = self.word()
                static = value.static and ":~" not in value.text
                command.assignments.append(Assignment(match[1], static, value.text if static else ""))
            return True
        if (element := _ELEMENT.match(self.text, self.at)) is None:
            return False
        start = self.at
        word = self.word()
        source = self.text[start : self.at]
        if not _ELEMENT_SET.match(source):
            self.at = start
            raise Unreadable("a name with a subscript cannot be read")
        self.evaluated(source, start, "a subscript is evaluated as arithmetic")
        command.assignments.append(Assignment(element[1], word.static))
        return True

    def _list(self) -> None:
        """The words of a=( … )."""
        self.bashisms = True
        self.at += 1
        while True:
            self.lines()
            if self.peek() == ")":
                self.at += 1
                return
            start = self.at
            word = self.word()
            if self.at == start:
                raise Unreadable("a list cannot be read")
            if self.text[start] == "[" and "]=" in self.text[start : self.at]:
                self.evaluated(word.text, start, "a subscript is evaluated as arithmetic")

    def redirection(self, command: Command) -> bool:
        match = _REDIRECTION.match(self.text, self.at)
        if not match:
            return False
        operator = match[2] or match[3]
        if operator in ("<", ">") and self.text[match.end() : match.end() + 1] == "(":
            if match[1]:
                raise Unreadable("a number stands before a process substitution")
            return False
        self.at = match.end()
        self.not_continued()
        self.bashisms = self.bashisms or operator in ("<<<", "&>", "&>>")
        _BLANKS_AT = _BLANKS.match(self.text, self.at)
        if _BLANKS_AT:
            self.at = _BLANKS_AT.end()
        start = self.at
        target = self.word()
        if self.at == start:
            raise Unreadable("a redirection has no target")
        if self.documents and "\n" in self.text[start : self.at]:
            raise Unreadable("a here-document begins inside a word")
        if operator in ("<<", "<<-"):
            self._announce(operator, start, target, command)
        elif operator == "<<<":
            command.bodies.append(target.text)
        command.fed = command.fed or operator[0] == "<"
        command.redirections.append(Redirection(operator, match[1] or "", target))
        return True

    def _announce(self, operator: str, start: int, target: Word, command: Command) -> None:
        source = self.text[start : self.at]
        if any(char in source for char in "$`\n") or target.unknown:
            raise Unreadable("the delimiter of a here-document cannot be read")
        self.documents.append((target.text, operator == "<<-", target.quoted, command.bodies))

    def define(self, name: Word, fed: bool) -> None:
        raise NotImplementedError
