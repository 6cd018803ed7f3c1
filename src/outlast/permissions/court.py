"""Where the rules meet the parts of a line."""

from __future__ import annotations

import re
from operator import attrgetter

from outlast.permissions import builtins
from outlast.permissions.candidates import (
    ORDINARY_NAME,
    canonical,
    deny_candidates,
    expected,
    is_plain_name,
    open_ended,
    shown,
)
from outlast.permissions.interpreters import may_read_program, reads_program
from outlast.permissions.judge import Known, Part, Rules, Verdict
from outlast.permissions.options import is_known, offences, spelled
from outlast.permissions.patterns import UNKNOWN, Index
from outlast.permissions.places import may_write
from outlast.permissions.quoting import quoted
from outlast.permissions.scan import DEEPEST
from outlast.permissions.secondopinion import Asked, disagreement
from outlast.permissions.simple import Assignment, Command, Redirection, plain_words
from outlast.permissions.syntax import Text, read
from outlast.permissions.variables import is_harmless, steers
from outlast.permissions.words import Problem, Word
from outlast.permissions.wrappers import is_wrapper, loose_start, unwrap
from outlast.permissions.wrapping import Code, Run, Wrapped, base, is_static

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_./:,+@%^= -]*")
_NEUTRAL_TARGETS = frozenset(["/dev/null", "/dev/stdout", "/dev/stderr"])
_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")
_READS = frozenset(["<", "<<", "<<-", "<<<", "<&"])
_WRITES = frozenset([">", ">>", ">|", "&>", "&>>"])
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b|-C\b|--chdir")
_MOST_SUFFIXES = 64
_NO_NAME = "the name of the program is not static"
_MOST_TEXTS = 32  # bash is started for each
_MOST_WORK = 512 * 1024  # characters and words looked at, texts within texts included: no line can make it slow
_BOTH = frozenset(["bash", "sh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/sh", "/bin/dash", "ash"])


class Court:
    """Judges one line and keeps the parts in the order in which they are written."""

    def __init__(self, rules: Rules, known: Known) -> None:
        self.rules = rules
        self.known = known
        self.allow = Index(rules.allow)
        self.deny = Index(rules.deny)
        self.lenient = rules.otherwise == "allow"
        self.steering = sorted(one for one in known.variables if steers(one))
        self.parts: list[Part] = []
        self.texts: list[Text] = []
        self.depth = 0
        self.inside = ""
        self.budget = _MOST_WORK
        self.moves = False  # whether the line may change its directory
        # What was said of a command or a text, by how it is written and where it stands.
        self.seen: dict[object, list[Part]] = {}
        self.noted: dict[tuple[str, bool, int, str], list[Part]] = {}  # and of problems
        self.suspected: dict[object, list[Part]] = {}
        self.ordinary: dict[str, bool] = {}
        self.deniable: dict[str, bool] = {}

    # --- what is said about a part -------------------------------------------------------------

    def say(self, verdict: Verdict, command: str, why: str, rule: str = "") -> None:
        self.parts.append(Part(command, verdict, rule, why, self.depth, self.inside))

    def ask(self, command: str, why: str) -> None:
        self.say("ask", command, why)

    def doubt(self, command: str, why: str, *, hides: bool) -> None:
        """Something is not known. Where all is allowed by default it counts only if it can hide something."""
        if hides or not self.lenient:
            self.ask(command, why)

    # --- texts -----------------------------------------------------------------------------------

    def hear(self, line: str, shell: str) -> None:
        """Judge a whole line."""
        if match := _CONTROL.search(line):
            self.ask("", f"it has a control character, number {ord(match[0])}")
        if "\0" in line:
            line = line.replace("\0", "\ufffd")
        self.moves = bool(self.rules.write) and _MOVES.search(line) is not None
        self.text(line, shell)
        if all(part.verdict == "allow" for part in self.parts):
            self.last_word()

    def last_word(self) -> None:
        """Nothing stands against it: the other readers are heard."""
        texts = [text for text in self.texts if not (text.plain or _PLAIN_WORDS.fullmatch(text.source))]
        if len({text.source for text in texts}) > _MOST_TEXTS:
            self.ask("", f"it has more than {_MOST_TEXTS} texts for a shell in it")
            return
        asked = Asked(text.source for text in texts)
        try:
            for text in texts:
                why = disagreement(text, strict=not self.lenient)
                if not why and not asked.accepted(text.source):
                    why = "bash cannot read it"
                if why:
                    self.ask("", why)
                    return
        finally:
            asked.close()

    def _spend(self, amount: int) -> bool:
        """Whether there is still time to look at so much more; asks if not."""
        self.budget -= amount
        if self.budget < 0:
            self.ask("", "it is too much to analyse")
        return self.budget >= 0

    def text(self, source: str, shell: str) -> None:
        if not self._spend(3 * len(source)):
            return
        if base(shell) in _BOTH and (words := plain_words(source)):
            self.simple(words, shown(words), [], fed=False)  # as most are, and nobody reads them in another way
            return
        text = read(source, self.depth, self.inside)
        self.texts.append(text)
        if base(shell) not in _BOTH:
            self.ask("", f"a line for {shell} cannot be read")
        elif text.bashisms and base(shell) not in ("bash", "rbash"):
            self.doubt("", f"{shell} may read it in another way than bash", hides=False)
        outer = (self.depth, self.inside)
        items: list[Command | Problem] = [*text.commands, *text.problems]
        if text.problems:
            items.sort(key=attrgetter("at"))
        for item in items:
            self.depth, self.inside = item.depth, item.inside
            if isinstance(item, Command):
                self.command(item)
            else:
                self._problem(item)
        self.depth, self.inside = outer

    def _problem(self, problem: Problem) -> None:
        written = (problem.why, problem.hides, self.depth, self.inside)
        if written not in self.noted:
            before = len(self.parts)
            self.doubt("", problem.why, hides=problem.hides)
            self.noted[written] = self.parts[before:]
        else:
            self.parts += self.noted[written]

    def enclosed(self, code: Code, label: str) -> None:
        """A text inside an argument."""
        outer = (self.depth, self.inside)
        self.depth, self.inside = self.depth + 1, label
        if self.depth > DEEPEST:
            self.ask("", f"it is nested deeper than {DEEPEST}")
        else:
            self._enclosed(code, (code.text, code.shell, code.known, self.depth, label))
        self.depth, self.inside = outer

    def _enclosed(self, code: Code, written: object) -> None:
        if said := self.seen.get(written):
            self.parts += said
            return
        before = len(self.parts)
        if not code.known:
            self.doubt("", "the text that it runs is not known", hides=True)
        self.text(code.text.replace(UNKNOWN, "$_"), code.shell)
        self.seen[written] = self.parts[before:]

    # --- simple commands ---------------------------------------------------------------------------

    def command(self, command: Command) -> None:
        # Long lists hold the same command again and again.
        written = (command.source, tuple(command.bodies), command.fed, self.depth, self.inside)
        if command.source and (said := self.seen.get(written)):
            self.parts += said
            return
        before = len(self.parts)
        text = shown(command.words)
        if command.words:
            self.simple(command.words, text, command.bodies, command.fed)
        for one in command.assignments:
            self.assignment(one, text)
        for redirection in command.redirections:
            self.redirection(redirection, text)
        if len(self.parts) == before and (command.assignments or command.redirections):
            self.say("allow", text, "it needs no rule")
        if command.source:
            self.seen[written] = self.parts[before:]

    def assignment(self, assignment: Assignment, text: str) -> None:
        name = assignment.name
        if not self.lenient and not (is_harmless(name) and assignment.static):
            self.ask(text or f"{name}=…", f"it sets {name}")
        if assignment.text and steers(name):
            self._suspect(Code(assignment.text, "bash", True), name)  # it may name a command: PROMPT_COMMAND, PAGER

    def redirection(self, redirection: Redirection, text: str) -> None:
        target, operator = redirection.target, redirection.operator
        writes = operator not in _READS and not (operator == ">&" and target.text.isdigit())
        if writes and self.rules.hazard and (why := self.rules.hazard((">", expected(target)))):
            self.say("deny", text or f"> {target.source}", why)
        allowed = operator in _WRITES and may_write(target.value, self._write())
        if not (self.lenient or allowed) and (why := _redirection_doubt(redirection)):
            self.ask(text, why)

    def _write(self) -> tuple[str, ...]:
        """The files that may be written. They are seen from here, so a line that goes elsewhere may write none."""
        return () if self.moves else self.rules.write

    def simple(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> None:
        """One simple command without its assignments and redirections, and all that it runs."""
        if not self._spend(len(words)):
            return
        if not words[0].static:
            self._unnamed(words, text, bodies, fed)
        elif not self._is_ordinary(words[0].text):
            self._special(words, text, bodies, fed)
        elif not self.denied(words, text):
            self._by_rule(words, text)

    def _unnamed(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> None:
        """A command whose name only a run can tell."""
        name = words[0]
        if not self.denied(words, text):
            self.doubt(text, _NO_NAME, hides=not self._tail_is_known(name))
        if self._tail_is_known(name):
            self.simple([Word(base(name.text), name.at, name.end), *words[1:]], text, bodies, fed)

    def _special(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> None:
        """A command that may run others, or that is more to a shell than a program."""
        name, wrapped = words[0].text, unwrap(words, bodies)
        before = len(self.parts)
        if not self.denied(words, text):
            if is_plain_name(name):
                self._own(words, text, wrapped, fed)
            else:
                self.doubt(text, _NO_NAME, hides=not self._tail_is_known(words[0]))
        if wrapped:
            self._inner(words, wrapped, bodies, fed)
        elif (start := loose_start(words)) is not None:
            self._suffixes(words, start)
            for body in bodies:
                self._suspect(Code(body, "sh", True), base(name))
        if self.rules.any_arguments and self.allow.matching(canonical(words)):
            own, *inner = self.parts[before:]
            self.parts[before:] = [own, *(part for part in inner if part.verdict == "deny" and part.rule)]

    def _is_ordinary(self, name: str) -> bool:
        """Whether only the rules have anything to say about a program, whatever its arguments are."""
        known = self.ordinary.get(name)
        if known is None:
            special = is_wrapper(base(name)) or builtins.is_known(name) or may_read_program(base(name))
            changed = not self.lenient and self._redefined(name)
            known = self.ordinary[name] = is_plain_name(name) and not (special or changed)
        return known

    def _tail_is_known(self, name: Word) -> bool:
        """ "$VENV/bin/python" can be no other program than python."""
        return self.lenient and not name.splits and "/" in name.text and UNKNOWN not in base(name.text)

    def _inner(self, words: list[Word], wrapped: Wrapped, bodies: list[str], fed: bool) -> None:
        label = base(words[0].text)
        for inner in wrapped.inners:
            if isinstance(inner, Code):
                self.enclosed(inner, label)
            elif inner.words:
                self._run(inner, label, bodies, fed)
        suspects = [] if wrapped.inners or not wrapped.doubt else [Code(body, "sh", True) for body in bodies]
        for code in [*wrapped.suspects, *suspects]:
            self._suspect(code, label)
        if wrapped.suffixes:
            self._suffixes(words, wrapped.suffixes)

    def _suspect(self, code: Code, label: str) -> None:
        """A text that may be run: only what is denied in it counts."""
        before, texts, seen = len(self.parts), len(self.texts), self.seen
        self.seen = self.suspected  # apart: what is said here is not followed by a second opinion on the texts inside
        self.enclosed(code, label)
        self.seen = seen
        del self.texts[texts:]
        self.parts[before:] = [part for part in self.parts[before:] if part.verdict == "deny"]
        self._spend(0)  # asks if it was too much

    def _run(self, inner: Run, label: str, bodies: list[str], fed: bool) -> None:
        outer = (self.depth, self.inside)
        self.depth, self.inside = self.depth + 1, label
        if self.depth > DEEPEST:
            self.ask("", f"it is nested deeper than {DEEPEST}")
            self._suffixes(inner.words, 0)
        else:
            self.simple(inner.words, shown(inner.words), bodies, fed)
        self.depth, self.inside = outer

    def _suffixes(self, words: list[Word], start: int) -> None:
        """Where the inner command begins is not certain: nothing denied may begin anywhere."""
        for index in range(start, min(len(words), start + _MOST_SUFFIXES)):
            word = words[index]
            if word.static and word.text and (" " in word.text or "\n" in word.text):
                self._suspect(Code(word.text, "bash", True), base(words[0].text))
            elif word.static and self._spend(len(words) - index) and self.denied(words[index:], word.text):
                return

    def _is_deniable(self, name: str) -> bool:
        """Whether there is a rule that may deny a program of this name."""
        known = self.deniable.get(name)
        if known is None:
            plain = ORDINARY_NAME.fullmatch(name) is not None
            known = self.deniable[name] = not plain or self.deny.knows(name) or self.deny.knows(base(name))
        return known

    def denied(self, words: list[Word], text: str) -> bool:
        for candidate in deny_candidates(words) if self._is_deniable(words[0].text) else ():
            for pattern in self.deny.matching(candidate):
                self.say("deny", text, f"denied by {pattern.text}", pattern.text)
                return True
        if self.rules.hazard and (
            why := self.rules.hazard(tuple([expected(word) if word.unknown else word.text for word in words]))
        ):
            self.say("deny", text, why)
            return True
        return False

    # --- whether a command itself is allowed --------------------------------------------------------

    def _own(self, words: list[Word], text: str, wrapped: Wrapped | None, fed: bool) -> None:
        if self.rules.any_arguments and not self._redefined(words[0].text) and self.allow.matching(canonical(words)):
            self._by_rule(words, text)
            return
        if found := self._unanalysable(words, wrapped, fed):
            why, hides = found
            if hides or not self.lenient:
                self.ask(text, why)
                return
        redefined = "" if self.lenient else self._redefined(words[0].text)
        if self._may_be_denied(words):
            self.ask(text, "it could turn out to be denied")
        elif redefined:
            self.ask(text, redefined)
        elif wrapped and wrapped.transparent and not wrapped.doubt:
            self.say("allow", text, "what it runs is judged by itself")
        elif words[0].text in ("[", "test", "wait") or builtins.is_neutral(words):
            self.say("allow", text, "it needs no rule")
        else:
            self._by_rule(words, text)

    def _unanalysable(self, words: list[Word], wrapped: Wrapped | None, fed: bool) -> tuple[str, bool] | None:
        if wrapped and wrapped.doubt:
            # A shell that is fed, or words that are not known, may be anything.
            open_ended = (fed and not wrapped.inners) or any(word.unknown for word in words)
            return wrapped.doubt, wrapped.hides or open_ended
        name = base(words[0].text)
        if doubt := builtins.doubt(words):
            why, evaluated = doubt
            if evaluated:
                self._suspect(Code(evaluated.replace(UNKNOWN, "$_"), "bash", True), name)
            return why, "$(" in evaluated or "`" in evaluated or builtins.reads_computed(words)
        if name == words[0].text == "wait" and not builtins.is_neutral(words):
            return "it sets a variable", False
        if reads_program(words, name, fed):
            return "its program comes from its input", False
        return None

    def _may_be_denied(self, words: list[Word]) -> bool:
        if not self.deny.patterns or is_static(words):
            return False
        name = words[0]
        if not (self.deny.beginning_as(name.canonical) or self.deny.beginning_as(quoted(base(name.text)))):
            return False
        return any(map(self.deny.could_match, deny_candidates([name, *map(open_ended, words[1:])])))

    def _redefined(self, name: str) -> str:
        known = self.known
        if name in known.functions:
            return f"the session has a function {name}"
        if name in known.aliases:
            return f"the session has an alias {name}"
        if name in builtins.BUILTINS:
            return ""
        if known.path_changed:
            return "the session has changed PATH"
        return f"the session has set {self.steering[0]}" if self.steering else ""

    def _by_rule(self, words: list[Word], text: str) -> None:
        if self._may_be_denied(words):
            self.ask(text, "it could turn out to be denied")
            return
        fitting = self.allow.matching(canonical(words))
        if not fitting and text == "nproc":
            self.say("allow", text, "it needs no rule")
            return
        if not fitting:
            listed = "it is not on the list of programs" if self.rules.any_arguments else "no rule allows it"
            why = "no rule forbids it" if self.lenient else listed
            self.say(self.rules.otherwise, text, why)
            return
        against = [] if self.lenient or self.rules.any_arguments else offences(words, self._write())
        for pattern in fitting:
            if not against or all(spelled(pattern, one, words) for one in against):
                trusts = not (self.lenient or self.rules.any_arguments or pattern.exact or is_known(words[0].text))
                why = f", which trusts {words[0].text} with any arguments: nothing is known about it" if trusts else ""
                self.say("allow", text, f"allowed by {pattern.text}{why}", pattern.text)
                return
        self.ask(text, against[0][2])


def _redirection_doubt(redirection: Redirection) -> str:
    """Why a redirection asks; "" if it is neutral."""
    operator, target = redirection.operator, redirection.target
    if redirection.descriptor.startswith("{"):
        return "a redirection sets a variable"
    if operator in ("<<", "<<-", "<<<"):
        return ""
    if not target.static and not (target.lead == "~" and not target.unknown and not target.splits):
        process = target.lead == "/dev/fd/" and target.text == UNKNOWN
        return "" if process and operator == "<" else _process_or_unknown(process, operator)
    if _NETWORK.match(target.text):
        return "it opens a network connection"
    if operator == "<" or (operator in ("<&", ">&") and re.fullmatch(r"[0-9]+-?|-", target.text)):
        return ""
    return "" if target.text in _NEUTRAL_TARGETS and operator != "<>" else f"it writes {target.text}"


def _process_or_unknown(process: bool, operator: str) -> str:
    return "" if process and operator in (">", ">>") else "the target of a redirection is not static"
