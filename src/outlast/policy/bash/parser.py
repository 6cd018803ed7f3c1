"""The grammar of bash, as far as it decides which commands a line runs.

`read` returns every simple command of a text, wherever it stands, and every problem: what cannot be analysed. The
parser is strict. What it does not know is `Unreadable`, and the evaluator asks about it. Before a line is allowed, two
other parsers (`crosscheck`) must agree.
"""

from __future__ import annotations

import re
from operator import attrgetter

from outlast.policy.bash.simple_commands import (
    CLOSING,
    PARENTHESES,
    PLAIN_LIST,
    RESERVED,
    Command,
    Function,
    SimpleCommandParser,
)
from outlast.policy.bash.variables import alters_execution, is_run
from outlast.policy.bash.words import NUMBER, NUMERIC, Loop, Problem, Unreadable, Word

_RESERVED_AT = re.compile(r"(?:\[\[|[!{}]|[a-z]+)(?=[ \t\n;&|()<>]|\Z)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COPROC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*[ \t]+(?=[{(]|(?:if|while|until|for|case|select|\[\[)\b)")
_LONGEST_CONDITION = 1000  # words between [[ and ]]: over more of them tree-sitter takes long
_MOST_STAGES = 3000  # bash itself reads about 3,300, and tree-sitter takes long over them
_MAY_BE_RESERVED = frozenset("abcdefghijklmnopqrstuvwxyz!{}[(")  # what begins a compound command, or closes one
_ENDS_COMPOUND = frozenset(["", "\n", ")", ";", "|"])
_NO_SEPARATOR = frozenset(["", "\n", ")"])


class ParsedText:
    """What was read from one text."""

    def __init__(self, source: str, reader: Parser) -> None:
        self.source = source
        self.commands = sorted([one for one in reader.found if isinstance(one, Command)], key=attrgetter("at"))
        self.problems = [one for one in reader.found if isinstance(one, Problem)]
        self.loops = [one for one in reader.found if isinstance(one, Loop)]
        self.functions = [one for one in reader.found if isinstance(one, Function)]
        self.fuzzy, self.odd, self.bashisms = reader.fuzzy, reader.odd, reader.bashisms
        self.depth = reader.depth

    def is_plain(self) -> bool:
        """Whether it is nothing but a list of commands of plain words: there is nothing to read in another way."""
        if not PLAIN_LIST.fullmatch(self.source):
            return False
        reserved = any(one.words and one.words[0].text in RESERVED for one in self.commands)
        return not reserved and not any(one.depth > self.depth or one.keyword for one in self.commands)


def read(source: str, depth: int = 0, inside: str = "") -> ParsedText:
    """All commands and problems of a text. It never raises."""
    reader = Parser(source, depth, inside, 0)
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
    return ParsedText(source, reader)


class Parser(SimpleCommandParser):
    """Recursive descent over one text."""

    looked, stands = -1, ""  # where a reserved word was looked for last, and which one stands there

    def inner(self, text: str, inside: str, at: int) -> Parser:
        reader = Parser(text, self.depth, self.inside, at)
        if inside != "here-document":
            reader.enter(inside)
        return reader

    # --- between commands --------------------------------------------------------------------

    def statements(self) -> str:
        """Commands up to what closes them, which stays unread: a parenthesis, `;;` or a reserved word."""
        text = self.text
        while True:
            begun = len(self.found)
            self.lines()
            char = self.peek()
            if not char or char == ")":
                return char
            if char == ";" and text.startswith((";;", ";&"), self.at):
                return ";;"
            word = self.peek_reserved() if char in _MAY_BE_RESERVED else ""
            if word in CLOSING:
                return word
            if word or char == "(":
                self._pipeline()
            else:
                self.keyword = False
                self.simple(fed=False)
                self._rest_of_pipeline()
            self._separator(begun)

    def _separator(self, begun: int) -> None:
        text = self.text
        self.blanks()
        char = self.peek()
        if char in _NO_SEPARATOR or (char == ";" and text.startswith((";;", ";&"), self.at)):
            return
        if char not in ";&|":
            if self.peek_reserved() in CLOSING:
                return  # behind a compound command no separator is needed: `if (ls) then`
            raise Unreadable(f"{char} stands where a command should have ended")
        joined = text.startswith(("&&", "||"), self.at)
        if char == "&" and not joined and self.in_function:
            for one in self.found[begun:]:
                if isinstance(one, Command):
                    one.parallel = True
        self.at += 2 if joined else 1
        self.not_continued()

    def peek_reserved(self) -> str:
        """The reserved word that stands here, unread."""
        if self.looked != self.at:
            match = _RESERVED_AT.match(self.text, self.at)
            self.looked = self.at
            self.stands = match[0] if match and match[0] in RESERVED else ""
        return self.stands

    def take(self, word: str) -> None:
        if self.peek_reserved() != word:
            raise Unreadable(f"{word} is missing")
        self.at += len(word)

    # --- commands ----------------------------------------------------------------------------

    def _pipeline(self) -> None:
        self.keyword = False
        self._before()
        if self.keyword and self.peek() in ("", "\n", ";"):
            return  # `time` alone
        self._command(fed=False)
        self._rest_of_pipeline()

    def _rest_of_pipeline(self) -> None:
        stages = 0
        while True:
            self.blanks()
            if not self.text.startswith("|", self.at) or self.text.startswith("||", self.at):
                return
            if self.text.startswith("|&", self.at):
                self.bashisms = True
                self.at += 1
            self.at += 1
            self.not_continued()
            if stages == _MOST_STAGES:
                self.problem(f"a pipeline has more than {_MOST_STAGES} commands", hides=True)
            stages += 1
            self.lines()
            begun = len(self.found)
            self._command(fed=True)
            for one in self.found[begun:]:
                if isinstance(one, Command):
                    one.piped = True

    def _before(self) -> None:
        """`!` and `time`, which stand before a pipeline."""
        while (word := self.peek_reserved()) in ("!", "time"):
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
        word = self.peek_reserved()
        compound = _COMPOUNDS.get(word)
        if compound is None:
            if word and word not in ("in", "!", "time"):
                raise Unreadable(f"{word} stands where a command should begin")
            self.simple(fed)
            return
        if word in ("[[", "function", "select", "coproc"):
            self.bashisms = True
        outer, start, keyword = (self.depth, self.inside), self.at, self.keyword
        self.at += len(word)
        self.enter({"{": "{ }", "[[": "[[ ]]"}.get(word, word))
        compound(self, fed)
        if keyword:  # tree-sitter takes `time` for a program, and what follows for its arguments
            self.fuzzy.append((self.base + start, self.base + self.at))
        self.depth, self.inside = outer
        if word not in ("coproc", "function"):
            self._after_compound(fed)

    def _after_compound(self, fed: bool) -> None:
        if self.text[self.at : self.at + 1] in _ENDS_COMPOUND:
            return
        command = Command(self.base + self.at, self.depth, self.inside, fed)
        self.blanks()
        while self.redirection(command):
            self.blanks()
        if command.redirections:
            self.found.append(command)

    def _parentheses(self, fed: bool) -> None:
        start, mark = self.at, len(self.found)
        if self.peek(2) == "((":
            self.at += 2
            self.bashisms = True
            if self.arithmetic("))", "(( ))"):
                self._after_compound(fed)
                return
            self.at = start
            del self.found[mark:]
            self.problem("(( could be arithmetic or two subshells", hides=True)
        self.at = start + 1
        self.not_continued()
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

    def _for(self, fed: bool) -> None:
        self.blanks()
        if self.peek(2) == "((":
            self.at += 2
            self.bashisms = True
            if not self.arithmetic("))", "(( ))"):
                raise Unreadable("for (( is not closed")
        else:
            self._loop_variable()
        self.blanks()
        if self.peek() == ";":
            self.at += 1
        self.lines()
        if self.peek_reserved() == "{":
            self.at += 1
            self._group(fed=True)
        else:
            self._body_of_loop()

    def _body_of_loop(self) -> None:
        self.take("do")
        self.statements()
        self.take("done")

    def _loop_variable(self) -> None:
        match = _NAME.match(self.text, self.at)
        if not match:
            raise Unreadable("for has no variable")
        if alters_execution(match[0]):
            self.problem(f"it sets {match[0]}", hides=is_run(match[0]))
        loop = Loop(self.base + self.at, self.depth, self.inside, match[0], [])
        self.found.append(loop)
        self.at = match.end()
        if self.peek() not in ("", " ", "\t", "\n", ";"):
            raise Unreadable("for has no variable")
        self.lines()
        if self.peek_reserved() == "in":
            self.at += 2
            loop.values = self.words_up_to_line_end()

    def _case(self, fed: bool) -> None:
        self.blanks()
        self.word()
        self.lines()
        self.take("in")
        self.lines()
        while self.peek_reserved() != "esac":
            self._patterns()
            closer = self.statements()
            if closer == ";;":
                self.at += 3 if self.peek(3) == ";;&" else 2
            elif closer != "esac":
                raise Unreadable("case is not closed")
            self.lines()
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
            if re.match(r"\]\](?=[ \t\n;&|()<>]|\Z)", self.text[self.at : self.at + 3]):
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
            # On the right side of these, parentheses belong to a pattern.
            loose = word.text in ("=~", "==", "=", "!=") and not word.quoted
            words.append(word)
        if len(words) > _LONGEST_CONDITION:
            self.problem(f"a condition has more than {_LONGEST_CONDITION} words", hides=True)
        self._judge_condition(words)

    def _judge_condition(self, words: list[Word]) -> None:
        for index, word in enumerate(words):
            operand = words[index + 1] if index + 1 < len(words) else word
            if word.text in ("-v", "-R"):
                self.evaluate_text(operand.text, word.at, "-v evaluates a subscript")
            elif word.text in NUMERIC:
                for side in (words[index - 1] if index else word, operand):
                    if not (side.static and NUMBER.fullmatch(side.text)):
                        self.evaluate_text(side.text, word.at)

    def _function(self, fed: bool) -> None:
        self.blanks()
        name = self.word()
        self.blanks()
        if match := PARENTHESES.match(self.text, self.at):
            self.at = match.end()
        self.define(name, fed)

    def define(self, name: Word, fed: bool) -> None:
        self.problem(f"it defines the function {name.text}", at=name.at)
        outer = (self.depth, self.inside)
        if self.inside != "function":
            self.enter("function")
        self.lines()
        if self.peek() != "(" and self.peek_reserved() not in _COMPOUNDS:
            raise Unreadable("a function has no body")
        begins, within, self.in_function = self.base + self.at, self.in_function, True
        self._command(fed=True)
        self.found.append(Function(name.text, begins, self.base + self.at))
        self.depth, self.inside = outer
        self.in_function = within

    def _coproc(self, fed: bool) -> None:
        self.blanks()
        match = _COPROC_NAME.match(self.text, self.at)
        if match and not self.peek_reserved():
            self.problem("coproc sets a variable", hides=is_run(match[0].strip()))
            self.at = match.end()
        self.keyword = True
        self._command(fed=True)


_COMPOUNDS = {
    "{": Parser._group,
    "if": Parser._if,
    "while": Parser._while,
    "until": Parser._while,
    "for": Parser._for,
    "select": Parser._for,
    "case": Parser._case,
    "[[": Parser._condition,
    "function": Parser._function,
    "coproc": Parser._coproc,
}
