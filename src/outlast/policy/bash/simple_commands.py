"""Simple commands: their words, assignments and redirections."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.policy.bash.lexer import BLANK_OR_COMMENT, BLANKS, Lexer
from outlast.policy.bash.words import Unreadable, Word, names

_REDIRECTION = re.compile(r"([0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)|(&>>|&>)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_ELEMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[")
_ELEMENT_SET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*?\]\+?=", re.DOTALL)
# Nothing is tried in two ways (`++`, `*+`): what does not fit is known after one look.
_PLAIN = r"[A-Za-z0-9_./:,+@%^-]++(?:[ \t]++[A-Za-z0-9_./:,+@%^=-]++)*+[ \t]*+"
_PLAIN_COMMAND = re.compile(_PLAIN)
# Commands of plain words and what stands between them, which cannot be read in two ways.
PLAIN_LIST = re.compile(rf"[ \t\n]*+{_PLAIN}(?:(?:&&|\|\|?|[;\n&])[ \t\n]*+{_PLAIN})*+[;&]?[ \t\n]*+")
_NEXT_WORD = re.compile(r"[ \t]*+([A-Za-z0-9_./:,+@%^=-]++)(?=[ \t\n;|)]|&(?!>)|\Z)")
_REDIRECTS = frozenset("<>&{0123456789")
_DOCUMENTS = ("<<", "<<-")
_ENDS_COMMAND = frozenset(["", "\n", ";", "|", ")"])
PARENTHESES = re.compile(r"\([ \t]*\)")
CLOSING = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}"])
RESERVED = CLOSING | names("if while until for case select function { [[ ! time coproc in")
_MOST_DOCUMENTS = 16  # bash itself reads no more, and tree-sitter takes long over them
DECLARING = names("declare typeset local export readonly")


class Assignment:
    """`values` are the words that are assigned, or added to what is there."""

    def __init__(self, name: str, static: bool, values: list[Word], adds: bool = False) -> None:
        self.name, self.static, self.values, self.adds = name, static, values, adds


class Function:
    """A function, and where its body begins and ends."""

    def __init__(self, name: str, at: int, end: int) -> None:
        self.name, self.at, self.end = name, at, end


class Redirection:
    """One redirection: what is done with which descriptor and which file."""

    def __init__(self, operator: str, descriptor: str, target: Word) -> None:
        self.operator, self.descriptor, self.target = operator, descriptor, target


class Command:
    """One simple command, or the redirections of a compound one."""

    __slots__ = tuple(names("assignments at bodies depth fed inside keyword parallel piped redirections words"))

    def __init__(self, at: int, depth: int, inside: str, fed: bool, words: list[Word] | None = None) -> None:
        self.at, self.depth, self.inside = at, depth, inside
        self.fed = fed  # its standard input is a pipe, a file or a here-document
        self.keyword = False  # `time` or `coproc` stands before it
        self.parallel = fed  # it runs beside others: in a pipe, or behind `&`
        self.piped = False  # it stands behind a `|`, perhaps inside a compound command
        self.words: list[Word] = [] if words is None else words
        self.assignments: list[Assignment] = []
        self.redirections: list[Redirection] = []
        self.bodies: list[str] = []  # static texts on its standard input


def plain_words(text: str) -> list[Word] | None:
    """The words of a text, if it is one command of plain words and nothing else."""
    if not _PLAIN_COMMAND.fullmatch(text):
        return None
    words = [Word(word, 0, len(word)) for word in text.split()]
    for word in words:
        word.shape = word.text  # plain words need no quotes
    return None if words[0].text in RESERVED else words


class SimpleCommandParser(Lexer):
    """Simple commands, redirections and assignments."""

    define: Callable[[Word, bool], None]  # a function; `parser` supplies it
    keyword = False  # the next simple command follows `time` or `coproc`
    in_function = False

    def simple(self, fed: bool) -> None:
        """The command that begins here."""
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        command.keyword, self.keyword = self.keyword, False
        start = self.at
        self.found.append(command)
        if self._read_into(command):
            return  # it is a function
        if self.at == start:
            raise Unreadable(f"{self.peek()} stands where a command should begin")
        if command.words:
            command.at = self.base + command.words[0].at

    def _read_into(self, command: Command) -> bool:
        """The words of a command and what stands between them; True if it turned out to be a function."""
        words, text = command.words, self.text
        while True:
            match = _NEXT_WORD.match(text, self.at)
            if match and (words or "=" not in match[1]):
                words.append(Word(match[1], match.start(1), match.end()))
                self.at = match.end()
                continue
            char = text[self.at : self.at + 1]
            if char in BLANK_OR_COMMENT:
                self.blanks()
                char = text[self.at : self.at + 1]
            if char in _ENDS_COMMAND or (char == "&" and not text.startswith("&>", self.at)):
                return False
            if char == "(":
                if self._opens(command):
                    return True
            elif not ((char in _REDIRECTS and self.redirection(command)) or (not words and self._assignment(command))):
                words.append(self._next_word(command))

    def _next_word(self, command: Command) -> Word:
        start = self.at
        word = self.word()
        if self.at == start:
            raise Unreadable(f"{self.peek()} stands where a word should be")
        if command.words and not self.documents:
            return word
        source = self.text[start : self.at]
        if self.documents and "\n" in source:
            raise Unreadable("a here-document begins inside a word")
        if not command.words and "\\\n" in source and ("=" in source or word.text in RESERVED):
            raise Unreadable("a line is continued in the middle of a name")
        return word

    def _opens(self, command: Command) -> bool:
        """A parenthesis behind a word: a function, or the list that a declaration assigns."""
        words = command.words
        match = PARENTHESES.match(self.text, self.at)
        if match and len(words) == 1 and not (command.assignments or command.redirections):
            self.at = match.end()
            at = len(self.found) - 1  # from the end, where it mostly is: a search from the beginning takes longer
            while self.found[at] is not command:
                at -= 1
            del self.found[at]
            self.define(words[0], command.fed)
            return True
        touches = words and words[-1].end == self.at and words[-1].text.endswith("=")
        if not (touches and words[0].text in DECLARING):
            raise Unreadable("a parenthesis stands where no command begins")
        word = words[-1]
        command.assignments.append(Assignment(word.text.rstrip("+="), False, self._list(), word.text.endswith("+=")))
        word.unknown = True
        return False

    def _assignment(self, command: Command) -> bool:
        match = _ASSIGNMENT.match(self.text, self.at)
        if match:
            self.at = match.end()
            if self.peek() == "(":
                command.assignments.append(Assignment(match[1], False, self._list(), match[2] == "+="))
            else:
                value = self.word()
                static = value.static and ":~" not in value.text
                command.assignments.append(Assignment(match[1], static, [value], match[2] == "+="))
            return True
        if (element := _ELEMENT.match(self.text, self.at)) is None:
            return False
        start = self.at
        word = self.word()
        source = self.text[start : self.at]
        if not _ELEMENT_SET.match(source):
            self.at = start
            raise Unreadable("a name with a subscript cannot be read")
        self.evaluate_text(source, start, "a subscript is evaluated as arithmetic")
        text = word.text.rpartition("]")[2] if "]=" not in word.text else word.text.partition("]=")[2]
        value = Word(text.removeprefix("+="), word.at, word.end)
        value.unknown = word.unknown
        command.assignments.append(Assignment(element[1], word.static, [value], adds=text != value.text))
        return True

    def _list(self) -> list[Word]:
        """The words of a=( … )."""
        words: list[Word] = []
        self.bashisms = True
        self.at += 1
        while True:
            self.lines()
            if self.peek() == ")":
                self.at += 1
                return words
            start = self.at
            word = self.word()
            words.append(word)
            if self.at == start:
                raise Unreadable("a list cannot be read")
            if self.text[start] == "[" and "]=" in self.text[start : self.at]:
                self.evaluate_text(word.text, start, "a subscript is evaluated as arithmetic")

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
        if blanks := BLANKS.match(self.text, self.at):
            self.at = blanks.end()
        start = self.at
        target = self.word()
        if self.at == start:
            raise Unreadable("a redirection has no target")
        if self.documents and "\n" in self.text[start : self.at]:
            raise Unreadable("a here-document begins inside a word")
        if operator in _DOCUMENTS:
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
        if len(self.documents) == _MOST_DOCUMENTS:
            self.problem(f"a line begins more than {_MOST_DOCUMENTS} here-documents", hides=True)
        self.odd += not command.words or any(one.operator in _DOCUMENTS for one in command.redirections)
        self.documents.append((target.text, operator == "<<-", target.quoted, command.bodies))

    def words_up_to_line_end(self) -> list[Word]:
        words: list[Word] = []
        while True:
            self.blanks()
            if self.peek() in ("", ";", "\n"):
                return words
            start = self.at
            words.append(self.word())
            if self.at == start:
                raise Unreadable(f"{self.peek()} stands where a word should be")
