"""Simple commands: their words, assignments and redirections."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.policy.bash.expansions import DEEPEST
from outlast.policy.bash.lexer import BLANK_OR_COMMENT, BLANKS, Lexer
from outlast.policy.bash.words import Unreadable, Word, names

_REDIRECTION = re.compile(r"([0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)|(&>>|&>)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_ELEMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[")
_ELEMENT_SET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*?\]\+?=", re.DOTALL)
# Nothing is tried in two ways (`++`, `*+`): what does not fit is known after one look.
_PLAIN_COMMAND = re.compile(
    r"(([A-Za-z0-9_./:,+@%^-]++)(?:[ \t]++[A-Za-z0-9_./:,+@%^=-]++)*+)[ \t]*+(?=[;\n|)]|&(?!>)|\Z)"
)
# The same with what stands between it and the next one, which must follow what is in the third group; a line that is
# continued there is not for here.
_LISTED = re.compile(
    r"[ \t\n]*+(([A-Za-z0-9_./:,+@%^-]++)(?:[ \t]++[A-Za-z0-9_./:,+@%^=-]++)*+)[ \t]*+"
    r"(?:[;\n](?![;&\\])|&(?![&>\\])|\Z|(&&(?!\\)|\|\|(?!\\)|\|(?![|&\\])))"
)
_SPACE = re.compile(r"[ \t\n]*+")
# What may be one command, with the character that ends it.
_PIECE = re.compile(r"(?:[^;\n&|<>()`]++|[<>]&?)++(?:[;\n|]|&(?=&))")
_LONGEST_PIECE = 120  # nobody writes longer ones again and again, and to look for them takes time too
_NEXT_WORD = re.compile(r"[ \t]*+([A-Za-z0-9_./:,+@%^=-]++)(?=[ \t\n;|)]|&(?!>)|\Z)")
_REDIRECTS = frozenset("<>&{0123456789")
_DOCUMENTS = ("<<", "<<-")
_ENDS_COMMAND = frozenset(["", "\n", ";", "|", ")"])
EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")
CLOSING = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}"])
RESERVED = CLOSING | names("if while until for case select function { [[ ! time coproc in")
_MOST_DOCUMENTS = 16  # bash itself reads no more, and tree-sitter takes long over them
_MOST_STAGES = 3000  # bash itself reads about 3,300, and tree-sitter takes long over them
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
    def __init__(self, operator: str, descriptor: str, target: Word) -> None:
        self.operator, self.descriptor, self.target = operator, descriptor, target


class Command:
    """One simple command, or the redirections of a compound one."""

    __slots__ = tuple(names("assignments at bodies depth fed inside keyword parallel redirections source words"))

    def __init__(self, at: int, depth: int, inside: str, fed: bool, words: list[Word] | None = None) -> None:
        self.at, self.depth, self.inside = at, depth, inside
        self.fed = fed  # its standard input is a pipe, a file or a here-document
        self.keyword = False  # `time` or `coproc` stands before it
        self.parallel = fed  # it runs beside others: in a pipe, or behind `&`
        self.source = ""  # how it is written, where two that are written alike are alike
        self.words: list[Word] = [] if words is None else words
        self.assignments: list[Assignment] = []
        self.redirections: list[Redirection] = []
        self.bodies: list[str] = []  # static texts on its standard input

    def again(self, at: int, depth: int, inside: str) -> Command:
        """The same command in another place."""
        other = Command(at, depth, inside, self.fed, self.words)
        other.source, other.bodies = self.source, self.bodies
        other.assignments, other.redirections = self.assignments, self.redirections
        return other


def _split(source: str, at: int) -> list[Word]:
    words = [Word(word, at, at + len(word)) for word in source.split()]
    for word in words:
        word.shape = word.text  # plain words need no quotes
    return words


def plain_words(text: str) -> list[Word] | None:
    """The words of a text, if it is one command of plain words and nothing else."""
    match = _PLAIN_COMMAND.fullmatch(text)
    return _split(text, 0) if match and match[2] not in RESERVED else None


class SimpleCommandParser(Lexer):
    """Simple commands, redirections and assignments."""

    define: Callable[[Word, bool], None]  # a function; `syntax` supplies it
    keyword = False  # the next simple command follows `time` or `coproc`
    all_listed = False  # the text is nothing but a list of plain commands
    in_function = False

    def __init__(self, text: str, depth: int, inside: str, base: int) -> None:
        super().__init__(text, depth, inside, base)
        self.plain_words: dict[str, list[Word]] = {}  # of commands of plain words, by how they are written
        self.readings: dict[tuple[str, bool], tuple[Command, int]] = {}  # of other commands

    def plain(self, fed: bool) -> bool:
        """A command of plain words, if one begins here."""
        match = _PLAIN_COMMAND.match(self.text, self.at)
        if not match or match[2] in RESERVED:
            return False
        self._found_plain(match[1], self.at, fed)
        self.at = match.end()
        return True

    def plain_inside(self, text: str, inside: str, at: int) -> bool:
        """The same for a whole text that stands inside this one."""
        match = _PLAIN_COMMAND.fullmatch(text)
        return match is not None and self._plain_deeper(match, inside, at)

    def plain_enclosed(self, inside: str) -> bool:
        """The same up to a closing parenthesis."""
        match = _PLAIN_COMMAND.match(self.text, self.at)
        if not (match and self.text.startswith(")", match.end()) and self._plain_deeper(match, inside, self.at)):
            return False
        self.at = match.end() + 1
        return True

    def _plain_deeper(self, match: re.Match[str], inside: str, at: int) -> bool:
        if match[2] in RESERVED or self.depth >= DEEPEST:
            return False
        outer = (self.depth, self.inside)
        self.enter(inside)
        self._found_plain(match[1], at, False)
        self.depth, self.inside = outer
        return True

    def listed(self) -> int:
        """Plain commands with what separates them, as many as there are; how many of them feed an open pipe."""
        text, start, at, stages = self.text, self.at, self.at, 0
        joined = None
        while (match := _LISTED.match(text, at)) and match[2] not in RESERVED:
            self._found_plain(match[1], match.start(1), stages > 0)
            at, joined = match.end(), match[3]
            stages = self.piped(stages) if joined == "|" else 0
        if not joined and (space := _SPACE.match(text, at)):
            at = space.end()
            self.all_listed = start == 0 and at == len(text)
        self.at = at
        return stages

    def piped(self, stages: int) -> int:
        """One more command feeds a pipe."""
        if stages == _MOST_STAGES:
            self.problem(f"a pipeline has more than {_MOST_STAGES} commands", hides=True)
        return stages + 1

    def _found_plain(self, source: str, at: int, fed: bool) -> None:
        # Those that are written alike share their words: nobody asks a plain word for its place.
        words = self.plain_words.get(source)
        if words is None:
            words = self.plain_words[source] = _split(source, at)
        command = Command(self.base + at, self.depth, self.inside, fed, words)
        command.source = source
        self.found.append(command)

    def simple(self, fed: bool) -> None:
        piece = _PIECE.match(self.text, self.at, self.at + _LONGEST_PIECE)
        if piece is None or self.documents or self.keyword:
            self._simple(fed)
            return
        # Long lists hold the same command again and again. If reading a piece ends where the piece ends, then nothing
        # behind it was looked at, and the same piece is read in the same way wherever it stands.
        written = (piece[0], fed)
        if known := self.readings.get(written):
            once, offset = known
            self.found.append(once.again(self.base + self.at + offset, self.depth, self.inside))
            self.at = piece.end() - 1
            return
        start, found, odd = self.base + self.at, len(self.found), self.odd
        command = self._simple(fed)
        alone = len(self.found) == found + 1 and self.odd == odd and not self.documents
        if command and alone and self.at == piece.end() - 1:
            self.readings[written] = (command, command.at - start)

    def _simple(self, fed: bool) -> Command | None:
        """The command that begins here; None if it is a function."""
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        command.keyword, self.keyword = self.keyword, False
        start = self.at
        self.found.append(command)
        if self._read_into(command):
            return None
        if self.at == start:
            raise Unreadable(f"{self.peek()} stands where a command should begin")
        if command.words:
            command.at = self.base + command.words[0].at
        command.source = self.text[start : self.at]
        return command

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
        match = EMPTY_PARENTHESES.match(self.text, self.at)
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
        self.evaluated(source, start, "a subscript is evaluated as arithmetic")
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
