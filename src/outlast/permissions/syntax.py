"""The grammar of bash, as far as it decides which commands a line runs.

`read` returns every simple command of a text, wherever it stands, and every problem: what cannot be analysed. The reader
is strict. What it does not know is `Unreadable`, and the judge asks about it; before anything is allowed, two other readers
(`secondopinion`) must agree.
"""

from __future__ import annotations

import re

from outlast.permissions.scan import Problem, Scanner, Unreadable, Word
from outlast.permissions.variables import steers

_REDIRECTION = re.compile(r"([0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)|(&>>|&>)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_ELEMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[")
_ELEMENT_SET = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[.*?\]\+?=", re.DOTALL)
_RESERVED_AT = re.compile(r"(?:\[\[|[!{}]|[a-z]+)(?=[ \t\n;&|()<>]|\Z)")
# A command of plain words and nothing else: most of them are like this, and they need no further reading.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,+@%^=-]+")
_PLAIN_COMMAND = re.compile(
    r"([A-Za-z0-9_./:,+@%^-]+)(?:[ \t]+[A-Za-z0-9_./:,+@%^=-]+)*[ \t]*(?=[;\n|)]|&(?!>)|\Z)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_EMPTY_PARENTHESES = re.compile(r"\([ \t]*\)")
_CLOSING = frozenset(["then", "elif", "else", "fi", "do", "done", "esac", "}"])
RESERVED = _CLOSING | frozenset("if while until for case select function { [[ ! time coproc in".split())
_DECLARING = frozenset(["declare", "typeset", "local", "export", "readonly"])
_NUMERIC = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])
_NUMBER = re.compile(r"[-+]?[0-9]+")


class Assignment:
    __slots__ = ("appends", "name", "static")

    def __init__(self, name: str, static: bool, appends: bool) -> None:
        self.name, self.static, self.appends = name, static, appends


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


class Text:
    """What was read from one text."""

    __slots__ = ("bashisms", "commands", "fuzzy", "problems", "source")

    def __init__(self, source: str, reader: Reader) -> None:
        self.source = source
        self.commands = sorted((one for one in reader.found if isinstance(one, Command)), key=lambda one: one.at)
        self.problems = [one for one in reader.found if isinstance(one, Problem)]
        self.fuzzy = reader.fuzzy
        self.bashisms = reader.bashisms


def read(source: str, depth: int = 0, inside: str = "") -> Text:
    """All commands and problems of a text. It never raises."""
    reader = Reader(source, depth, inside, 0)
    try:
        closer = reader.statements()
        if closer:
            reader.problem(f"{closer} stands where no command begins", hides=True)
        elif reader.documents:
            reader.problem("a here-document has no body", hides=True)
    except Unreadable as error:
        reader.problem(str(error), hides=True)
    except RecursionError:
        reader.problem("it is nested too deeply", hides=True)
    return Text(source, reader)


class Reader(Scanner):
    """Recursive descent over one text."""

    found: list[object]
    keyword = False  # the next simple command follows `time` or `coproc`

    def inner(self, text: str, inside: str, at: int) -> Reader:
        reader = Reader(text, self.depth, self.inside, at)
        if inside != "here-document":
            reader.enter(inside)
        reader.found = []
        return reader

    # --- between commands --------------------------------------------------------------------

    def blanks(self) -> None:
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

    def statements(self) -> str:
        """Commands up to what closes them, which stays unread: a parenthesis, `;;` or a reserved word."""
        while True:
            self.lines()
            char = self.peek()
            if not char or char == ")":
                return char
            if char == ";" and self.peek(2) in (";;", ";&"):
                return ";;"
            if not self._plain(fed=False):
                if (word := self.reserved()) in _CLOSING:
                    return word
                self._pipeline()
            elif self.peek() == "|" and self.peek(2) != "||":
                self._rest_of_pipeline()
            self._separator()

    def _plain(self, fed: bool) -> bool:
        """A command of plain words, if one begins here."""
        match = _PLAIN_COMMAND.match(self.text, self.at)
        if not match or match[1] in RESERVED:
            return False
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        command.words = [Word(word[0], *word.span()) for word in _PLAIN_WORD.finditer(self.text, self.at, match.end())]
        self.found.append(command)
        self.at = match.end()
        return True

    def _separator(self) -> None:
        self.blanks()
        char = self.peek()
        if char in ("", "\n", ")") or (char == ";" and self.peek(2) in (";;", ";&")):
            return
        if char not in ";&|":
            raise Unreadable(f"{char} stands where a command should have ended")
        length = 2 if self.peek(2) in ("&&", "||") else 1
        self.at += length
        self._not_continued()

    def _not_continued(self) -> None:
        """Behind an operator: a continued line must not make it longer."""
        if self.peek(2) == "\\\n":
            match = _BLANKS.match(self.text, self.at)
            assert match is not None
            if self.text[match.end() : match.end() + 1] in ("&", "|", ";", "<", ">", "(", "-", "!"):
                raise Unreadable("a line is continued in the middle of an operator")

    def reserved(self) -> str:
        """The reserved word that stands here, unread."""
        match = _RESERVED_AT.match(self.text, self.at)
        return match[0] if match and match[0] in RESERVED else ""

    def take(self, word: str) -> None:
        if self.reserved() != word:
            raise Unreadable(f"{word} is missing")
        self.at += len(word)

    # --- commands ----------------------------------------------------------------------------

    def _pipeline(self) -> None:
        self.keyword = False
        self._before()
        self._command(fed=False)
        self._rest_of_pipeline()

    def _rest_of_pipeline(self) -> None:
        while True:
            self.blanks()
            if self.peek() != "|" or self.peek(2) == "||":
                return
            if self.peek(2) == "|&":
                self.bashisms = True
                self.at += 1
            self.at += 1
            self._not_continued()
            self.lines()
            if not self._plain(fed=True):
                self._command(fed=True)

    def _before(self) -> None:
        """`!` and `time`, which stand before a pipeline."""
        while (word := self.reserved()) in ("!", "time"):
            self.at += len(word)
            self.blanks()
            if word == "!" and self.peek() == "(":
                self.problem("!( is a pattern where extglob is on", hides=True)
            if word == "time":
                self.keyword = self.bashisms = True
                for option in ("-p", "--"):
                    if re.match(rf"{option}(?=[ \t\n;&|()<>]|\Z)", self.text[self.at : self.at + 3]):
                        self.at += 2
                        self.blanks()

    def _command(self, fed: bool) -> None:
        if self.peek() == "(":
            self._parentheses(fed)
            return
        word = self.reserved()
        compound = _COMPOUNDS.get(word)
        if compound is None:
            if word and word not in ("in", "!", "time"):
                raise Unreadable(f"{word} stands where a command should begin")
            self._simple(fed)
            return
        if word in ("[[", "function", "select", "coproc"):
            self.bashisms = True
        outer, start, keyword = (self.depth, self.inside), self.at, self.keyword
        self.at += len(word)
        self.enter({"{": "{ }", "[[": "[[ ]]"}.get(word, word))
        compound(self, fed)
        if keyword:
            # tree-sitter takes `time` for a program, and what follows for its arguments.
            self.fuzzy.append((self.base + start, self.base + self.at))
        self.depth, self.inside = outer
        if word not in ("coproc", "function"):
            self._after_compound(fed)

    def _after_compound(self, fed: bool) -> None:
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        while True:
            self.blanks()
            if not self._redirection(command):
                break
        if command.redirections:
            self.found.append(command)

    def _parentheses(self, fed: bool) -> None:
        start, mark = self.at, len(self.found)
        if self.peek(2) == "((":
            self.at += 2
            self.bashisms = True
            if self.arithmetic_command():
                self._after_compound(fed)
                return
            self.at = start
            del self.found[mark:]
            self.problem("(( could be arithmetic or two subshells", hides=True)
        self.at = start + 1
        self._not_continued()
        self.substitution("( )")
        self._after_compound(fed)

    def _group(self, fed: bool) -> None:
        self.statements()
        self.take("}")

    def _if(self, fed: bool) -> None:
        self.statements()
        self.take("then")
        while (closer := self.statements()) in ("elif", "else"):
            self.at += 4
            if closer == "elif":
                self.statements()
                self.take("then")
        self.take("fi")

    def _while(self, fed: bool) -> None:
        self.statements()
        self._body_of_loop()

    def _body_of_loop(self) -> None:
        self.take("do")
        self.statements()
        self.take("done")

    def _for(self, fed: bool) -> None:
        self.blanks()
        if self.peek(2) == "((":
            self.at += 2
            self.bashisms = True
            if not self.arithmetic_command():
                raise Unreadable("for (( is not closed")
            self._to_body()
            return
        match = _NAME.match(self.text, self.at)
        if not match:
            raise Unreadable("for has no variable")
        if steers(match[0]):
            self.problem(f"it sets {match[0]}")
        self.at = match.end()
        if self.peek() not in ("", " ", "\t", "\n", ";"):
            raise Unreadable("for has no variable")
        self.lines()
        if self.reserved() == "in":
            self.at += 2
            self._words_up_to_line_end()
        self._to_body()

    def _to_body(self) -> None:
        self.blanks()
        if self.peek() == ";":
            self.at += 1
        self.lines()
        self._body_of_loop()

    def _words_up_to_line_end(self) -> None:
        while True:
            self.blanks()
            if self.peek() in ("", ";", "\n"):
                return
            start = self.at
            self.word()
            if self.at == start:
                raise Unreadable(f"{self.peek()} stands where a word should be")

    def _case(self, fed: bool) -> None:
        self.blanks()
        self.word()
        self.lines()
        self.take("in")
        while True:
            self.lines()
            if self.reserved() == "esac":
                break
            self._patterns()
            closer = self.statements()
            if closer == ";;":
                self.at += 3 if self.peek(3) == ";;&" else 2
            elif closer != "esac":
                raise Unreadable("case is not closed")
        self.take("esac")

    def _patterns(self) -> None:
        if self.peek() == "(":
            self.at += 1
        while True:
            self.blanks()
            start = self.at
            self.word()
            self.blanks()
            if self.at == start or self.peek() not in ("|", ")"):
                raise Unreadable("a pattern of case cannot be read")
            self.at += 1
            if self.text[self.at - 1] == ")":
                return

    def _condition(self, fed: bool) -> None:
        words: list[Word] = []
        loose = False
        while True:
            self.lines()
            if self.reserved() == "]]" or re.match(r"\]\](?=[ \t\n;&|()<>]|\Z)", self.text[self.at : self.at + 3]):
                self.at += 2
                break
            if not self.peek():
                raise Unreadable("[[ is not closed")
            if not loose and (operator := re.match(r"&&|\|\||[()<>](?!\()", self.text[self.at : self.at + 2])):
                words.append(Word(operator[0], self.at, self.at))
                self.at += len(operator[0])
                continue
            start = self.at
            word = self.word(loose=loose)
            if self.at == start:
                raise Unreadable("a condition cannot be read")
            loose = word.text == "=~" and not word.quoted
            words.append(word)
        self._judge_condition(words)

    def _judge_condition(self, words: list[Word]) -> None:
        for index, word in enumerate(words):
            operand = words[index + 1] if index + 1 < len(words) else word
            if word.text in ("-v", "-R"):
                self.evaluated(operand.text, word.at, "-v evaluates a subscript")
            elif word.text in _NUMERIC:
                for side in (words[index - 1] if index else word, operand):
                    if not (side.static and _NUMBER.fullmatch(side.text)):
                        self.evaluated(side.text, word.at)

    def _function(self, fed: bool) -> None:
        self.blanks()
        name = self.word()
        self.blanks()
        if match := _EMPTY_PARENTHESES.match(self.text, self.at):
            self.at = match.end()
        self._define(name, fed)

    def _define(self, name: Word, fed: bool) -> None:
        self.problem(f"it defines the function {name.text}", at=name.at)
        outer = (self.depth, self.inside)
        if self.inside != "function":
            self.enter("function")
        self.lines()
        if self.peek() != "(" and self.reserved() not in _COMPOUNDS:
            raise Unreadable("a function has no body")
        self._command(fed=True)
        self.depth, self.inside = outer

    def _coproc(self, fed: bool) -> None:
        self.blanks()
        match = re.compile(r"[A-Za-z_][A-Za-z0-9_]*[ \t]+(?=[{(]|(?:if|while|until|for|case|select|\[\[)\b)").match(
            self.text, self.at
        )
        if match and not self.reserved():
            self.problem("coproc sets a variable")
            self.at = match.end()
        self.keyword = True
        self._command(fed=True)

    # --- simple commands -----------------------------------------------------------------------

    def _simple(self, fed: bool) -> None:
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
            elif not (self._redirection(command) or self._assignment(command)):
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
            self._define(words[0], command.fed)
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
                static = False
            else:
                value = self.word()
                static = value.static and ":~" not in value.text
            command.assignments.append(Assignment(match[1], static, match[2] == "+="))
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
        command.assignments.append(Assignment(element[1], word.static, False))
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

    def _redirection(self, command: Command) -> bool:
        match = _REDIRECTION.match(self.text, self.at)
        if not match:
            return False
        operator = match[2] or match[3]
        if operator in ("<", ">") and self.text[match.end() : match.end() + 1] == "(":
            if match[1]:
                raise Unreadable("a number stands before a process substitution")
            return False
        self.at = match.end()
        self._not_continued()
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


_COMPOUNDS = {
    "{": Reader._group,
    "if": Reader._if,
    "while": Reader._while,
    "until": Reader._while,
    "for": Reader._for,
    "select": Reader._for,
    "case": Reader._case,
    "[[": Reader._condition,
    "function": Reader._function,
    "coproc": Reader._coproc,
}
