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
from outlast.permissions.flow import Flow
from outlast.permissions.interpreters import may_read_program, reads_program
from outlast.permissions.judge import Doubtful, Known, Part, Rules, Verdict
from outlast.permissions.options import is_known, offences, spelled
from outlast.permissions.patterns import UNKNOWN, Index
from outlast.permissions.places import may_write
from outlast.permissions.quoting import quoted
from outlast.permissions.scan import DEEPEST
from outlast.permissions.secondopinion import Asked, disagreement
from outlast.permissions.shells import SHELLS
from outlast.permissions.simple import RESERVED, Assignment, Command, Function, Redirection, plain_words
from outlast.permissions.syntax import Text, read
from outlast.permissions.variables import is_harmless, is_run, keeps_note, steers, steers_shell
from outlast.permissions.words import Loop, Problem, Word, names
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
_DEEPEST_CALL = 8
_MOST_TEXTS = 32  # bash is started for each
_MOST_WORK = 512 * 1024  # characters and words looked at, texts within texts included: no line can make it slow
_SETS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_TOKEN = re.compile(r"[^\s;&|()<>'\"`$\\]+")
# What they run runs elsewhere: on another machine, or in a container.
_CONTAINERS = names("docker podman nerdctl kubectl oc lxc docker-compose")
_HOST_MOUNTED = re.compile(r"--privileged|(?:-v|--volume=?)?/(?:etc|usr|boot|home)?/?:.*|.*(?:source|src)=/(?:,.*)?")
_ELSEWHERE = _CONTAINERS | names("ssh vagrant mosh")
# Outlast's own verbs that run nothing; the others must not be called with another policy, or with none.
_OUTLAST_LOOKS = names("ps tasks show logs wait kill check session notices brief verify events doctor --version --help")
_READ_COMMANDS = names("at batch newgrp sg make gmake")
_BEGINS = re.compile(r"(?:\A|[;\n])[ \t\n]*\Z")
_LAUNCHERS = names("uv uvx pipx rye poetry hatch pdm pipenv conda nix")
_RESETS = names("env sudo doas su runuser pkexec exec setpriv ssh systemd-run")
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
        self.flow = Flow(known)
        self.elsewhere = ""
        self.expanding: set[str] = set()  # aliases and functions
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
        if self.known.traps or self.known.texts or self.known.variables or self.known.bodies:
            self._session(line)
        self.text(line, shell)
        if self.lenient:
            self._afterwards()
        if all(part.verdict == "allow" for part in self.parts):
            self.last_word()

    def _session(self, line: str) -> None:
        """What the session prepared for every line."""
        known = self.known
        for signal, action in known.traps:
            self.enclosed(Code(action, "bash", True), f"trap {signal}")
        for name in set(_TOKEN.findall(line)) & known.texts.keys():
            if name in RESERVED or known.texts[name][-1:].isspace():
                self.ask(name, f"the session has an alias {name}")
        if "command_not_found_handle" in known.bodies:
            self._suspect(Code(known.bodies["command_not_found_handle"], "bash", True), "command_not_found_handle")
        for name in known.variables if self.lenient else ():
            if name in known.values:
                self._steered(name, Word(known.values[name], 0, 0), "")

    def _afterwards(self) -> None:
        """What only the whole line shows."""
        flow = self.flow
        for text in flow.dangerous() if flow.evaluates else ():
            self._suspect(Code(text, "bash", True), "arithmetic")
            self.ask("", "a value that is evaluated as arithmetic holds a command")
        if (flow.evaluates and flow.decodes) or (flow.traces and flow.sets_unknown):
            self.ask("", "a value that is evaluated is not known")
        for file, command in flow.ran:
            for content in flow.written.get(file, []):
                if content is None:
                    self.ask(command, "it runs what it has just written")
                else:
                    self.enclosed(Code(content, "bash", True), file)
        if self.rules.hazard and flow.is_bomb():
            self.say("deny", "", "it starts itself again and again until the machine stands still")

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
            if self.flow.within:
                self.flow.call(words[0].text, self.inside, parallel=False)
            self.simple(words, shown(words), [], fed=False)  # as most are, and nobody reads them in another way
            return
        text = read(source, self.depth, self.inside)
        self.texts.append(text)
        if base(shell) not in _BOTH:
            self.ask("", f"a line for {shell} cannot be read")
        elif text.bashisms and base(shell) not in ("bash", "rbash"):
            self.doubt("", f"{shell} may read it in another way than bash", hides=False)
        for function in text.functions:
            self.flow.functions.setdefault(function.name, []).append((function, text))
        self._items(text)

    def _items(self, text: Text, of: Function | None = None) -> None:
        """Judge the commands of a text, or only those of a function in it."""
        outer, within = (self.depth, self.inside), self.flow.within
        items: list[Command | Problem | Loop] = [*text.commands, *text.problems, *text.loops]
        if len(items) > len(text.commands):
            items.sort(key=attrgetter("at"))
        for item in items:
            if of and not of.at <= item.at < of.end:
                continue
            self.depth, self.inside = item.depth, item.inside
            if text.functions:
                self.flow.within = [*within, *(one.name for one in text.functions if one.at <= item.at < one.end)]
            if isinstance(item, Command):
                self.flow.enter(item.depth, item.inside)
                if item.words and self.flow.within:
                    self.flow.call(item.words[0].text, item.inside, item.parallel)
                if item.assignments and (item.depth or not _BEGINS.search(text.source[max(0, item.at - 9) : item.at])):
                    self.flow.uncertain |= {
                        one.name for one in item.assignments
                    }  # only a run can tell if it is reached
                self.command(item)
            elif isinstance(item, Loop):
                self.flow.loop(item)
                if item.name in self.known.attributes:
                    self.doubt("", f"the session has declared {item.name}", hides=True)
            else:
                self._problem(item)
        self.depth, self.inside = outer
        self.flow.within = within

    def _problem(self, problem: Problem) -> None:
        self.flow.evaluates = self.flow.evaluates or problem.evaluates
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
            self._enclosed(code, (code.text, code.shell, code.known, self.depth, label, self.flow.version))
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
        written = (command.source, tuple(command.bodies), command.fed, self.depth, self.inside, self.flow.version)
        if command.source and (said := self.seen.get(written)):
            self.parts += said
            return
        before = len(self.parts)
        text = shown(command.words)
        if command.words:
            self._each(command, text)
        for one in command.assignments:
            self.assignment(one, text)
        for redirection in command.redirections:
            self.redirection(redirection, text)
            if self.lenient and redirection.operator not in _READS:
                self.flow.write(redirection.target.text, command.words, command.bodies)
        if len(self.parts) == before and (command.assignments or command.redirections):
            self.say("allow", text, "it needs no rule")
        if command.source and written[-1] == self.flow.version:
            self.seen[written] = self.parts[before:]

    def _each(self, command: Command, text: str) -> None:
        """Judge a command with all that its words may be."""
        words = command.words
        if not self.lenient or is_static(words):
            self.simple(words, text, command.bodies, command.fed)
            return
        for turn, variant in enumerate(self.flow.variants(words)):
            before = len(self.parts)
            self.simple(variant, text, command.bodies, command.fed)
            if turn:
                self.parts[before:] = [part for part in self.parts[before:] if part.verdict != "allow"]

    def assignment(self, assignment: Assignment, text: str) -> None:
        name, values = assignment.name, assignment.values
        attributes = self.known.attributes.get(name, "")
        fine = not attributes and ((is_harmless(name) and assignment.static) or (not text and keeps_note(name)))
        if not self.lenient and not fine:
            self.ask(text or f"{name}=…", f"it sets {name}")
        self.flow.evaluates = self.flow.evaluates or bool(attributes)
        target = self.known.values.get(name, "") if "n" in attributes else name
        for word in values if len(values) == 1 else [None, *values]:
            self._steered(target, word, text)
        if self.lenient:
            self.flow.assign(name, values, assignment.adds)

    def _steered(self, name: str, value: Word | None, text: str) -> None:
        """Something sets a variable: what its value runs is judged, and asked about if it is not known."""
        if name.startswith("OUTLAST_"):
            self.ask(text, "it changes which policy judges a nested command")
        if not steers(name):
            return
        known = value.value if value is not None else None
        if known is None:
            if is_run(name):
                self.doubt(text, f"it sets {name}, whose value is run", hides=True)
            return
        if known and (name.startswith("BASH_") or (name == "ENV" and re.search("[/$`]", known))):
            self.doubt(text, f"it sets {name}, which names a file that is run", hides=is_run(name) or name == "ENV")
        for code in dict.fromkeys((known.lstrip("|!- "), known.replace("'", "").partition("=")[2])):
            if code:
                self._suspect(Code(code, "bash", True), name)  # it may name a command: PROMPT_COMMAND, PAGER

    def redirection(self, redirection: Redirection, text: str) -> None:
        target, operator = redirection.target, redirection.operator
        writes = operator not in _READS and not (operator == ">&" and target.text.isdigit())
        if redirection.descriptor.startswith("{") and is_run(redirection.descriptor[1:-1]):
            self.doubt(text, "a redirection sets a variable", hides=True)
        if writes and self.rules.hazard:
            for path in self.flow.texts(target):
                self._hazard((">", expected(target) if path is None else path), text or f"> {target.source}")
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
        if self._noticed(words, text, bodies, fed):
            return
        if not words[0].static:
            self._unnamed(words, text, bodies, fed)
        elif not self._is_ordinary(words[0].text):
            self._special(words, text, bodies, fed)
        elif not self.denied(words, text):
            self._by_rule(words, text)

    def _noticed(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> bool:
        """Follow what a command sets, calls and runs; True if an alias of the session was judged in its place."""
        name = words[0].text
        if len(words) > 1:
            self._settings(words, text)
        if not self.lenient:
            return False
        self.flow.notice(words, bodies, fed)
        if name in (".", "source") or base(name) in SHELLS:
            script = next((word for word in words[1:] if word.text[:1] != "-"), None)
            if script and not any(re.match("-[A-Za-z]*c", word.text) for word in words[1:]):
                self.flow.ran.append((base(script.text), text))
        elif "/" in name:
            self.flow.ran.append((base(name), text))
        if name in self.known.texts and name not in self.expanding:
            self.expanding.add(name)
            rest = canonical(words[1:]).replace(UNKNOWN, "$_")
            self.enclosed(Code(f"{self.known.texts[name]} {rest}", "bash", True), f"alias {name}")
            self.expanding.discard(name)
            return True
        if name in self.flow.functions or name in self.known.bodies:
            self._call(name, words)
        return False

    def _settings(self, words: list[Word], text: str) -> None:
        """Words that set a variable, for whatever command; and Outlast's own command line."""
        name = words[0].text
        for word in words[1:]:
            if "=" in word.text and (found := _SETS.match(word.text)) and word.lead.startswith(found[0]):
                value = Word(word.text[found.end() :], word.at, word.end)
                value.unknown, value.refs, value.splits = word.unknown, word.refs, word.splits
                listed = word.unknown and not (value.text or word.refs)  # `declare -a x=(…)`
                if not listed:
                    self._steered(found[1], value, text)
                if self.lenient and name in builtins.DECLARING and not listed:
                    self.flow.assign(found[1], [value])
            elif name in builtins.DECLARING and (found := re.match("-[A-Za-z]*[nlucI]", word.text)):
                self.flow.fickle |= {"" if "n" in found[0] else one.text.partition("=")[0] for one in words[1:]}
        if base(name) == "outlast" or any(word.text == "outlast" for word in words[1:]):
            self._outlast(words, text)

    def _call(self, name: str, words: list[Word]) -> None:
        """Judge the body of a function with its arguments: only what they add counts."""
        if name in self.expanding or len(self.expanding) > _DEEPEST_CALL or not self._spend(100):
            return
        self._suffixes(words, 1)
        if name in self.known.bodies and name not in self.flow.functions:
            text = read(self.known.bodies[name], self.depth, "function")
            self.flow.functions[name] = [(Function(name, 0, len(text.source)), text)]
            before = len(self.parts)
            self._items(text)  # what it does anyway was judged when it was defined, or is in a file
            usual = self.parts[before:]
            self.parts[before:] = [part for part in usual if part.verdict == "deny"]
        else:
            usual = self.parts
        self.expanding.add(name)
        saved = {one: self.flow.values.pop(one, []) for one in (*"123456789@*",)}
        self.flow.parameters(words[1:])
        before, known = len(self.parts), {(part.command, part.why) for part in usual}
        for function, text in self.flow.functions[name]:
            self._items(text, function)
        news = [part for part in self.parts[before:] if part.verdict != "allow"]
        self.parts[before:] = [part for part in news if (part.command, part.why) not in known]
        self.flow.values.update(saved)
        self.flow.version += 1
        self.expanding.discard(name)

    def _outlast(self, words: list[Word], text: str) -> None:
        """Outlast's own command line, which would judge with another policy, or with none."""
        at = next(index for index, word in enumerate(words) if base(word.text) == "outlast")
        module = at and words[at - 1].text == "-m"
        if at and not (module or base(words[0].text) in _LAUNCHERS):
            return
        verb = next((word.text for word in words[at + 1 :] if word.text[:1] != "-" or word.text in _OUTLAST_LOOKS), "")
        changed = self.inside in _RESETS or any(word.text.startswith("--p") for word in words[at + 1 :])
        if verb not in _OUTLAST_LOOKS and (changed or not is_static(words[at + 1 :]) or "-" in [w.text for w in words]):
            self.doubt(text, "it runs a command under another policy", hides=True)
        if at:
            self._suffixes(words, at + 1)

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
        outer, where = self.elsewhere, self.flow.where
        if base(name) in _ELSEWHERE and not any(_HOST_MOUNTED.fullmatch(word.text) for word in words):
            self.elsewhere, self.flow.where = base(name), ""
        if wrapped:
            self._inner(words, wrapped, bodies, fed)
        elif (start := loose_start(words)) is not None:
            self._suffixes(words, start)
            for body in bodies:
                self._suspect(Code(body, "sh", True), base(name))
        if self.elsewhere != outer:
            self.elsewhere, self.flow.where = outer, where
        if self.rules.any_arguments and self.allow.matching(canonical(words)):
            own, *inner = self.parts[before:]
            self.parts[before:] = [own, *(part for part in inner if part.verdict == "deny" and part.rule)]

    def _is_ordinary(self, name: str) -> bool:
        """Whether only the rules have anything to say about a program, whatever its arguments are."""
        known = self.ordinary.get(name)
        if known is None:
            special = is_wrapper(base(name)) or builtins.is_known(name) or may_read_program(base(name))
            special = special or base(name) in _READ_COMMANDS
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
        hazard = self.rules.hazard is not None
        return hazard and self._hazard(tuple([expected(word) if word.unknown else word.text for word in words]), text)

    def _hazard(self, words: tuple[str | None, ...], text: str) -> bool:
        if self.rules.hazard is None or self.elsewhere in _CONTAINERS:
            return False
        why = self.rules.hazard(words, self.flow.where, bool(self.elsewhere))
        if why:
            self.say("ask" if isinstance(why, Doubtful) else "deny", text, why)
        return bool(why)

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
        elif words[0].text in ("[", "test", "wait") or builtins.is_neutral(words) or _exports(words):
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
            why, evaluated, kind = doubt
            if evaluated:
                self._suspect(Code(evaluated.replace(UNKNOWN, "$_"), "bash", True), name)
            self.flow.evaluates = self.flow.evaluates or kind in (builtins.EVALUATES, builtins.NAMES)
            self.flow.sets_unknown = self.flow.sets_unknown or kind == builtins.NAMES
            return why, kind == builtins.HIDES or "$(" in evaluated or "`" in evaluated
        declared = self.known.attributes and words[0].text in builtins.BUILTINS
        if declared and not self.known.attributes.keys().isdisjoint(word.text.partition("=")[0] for word in words):
            return "the session has declared what it sets", False
        if reads_program(words, name, fed):
            return "its program comes from its input", False
        if fed and name in _READ_COMMANDS and (name[-4:] != "make" or any(one.text == "-" for one in words)):
            return "its program comes from its input", True
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
            shells = [one for one in self.steering if steers_shell(one)]
            return f"the session has set {shells[0]}" if shells else ""
        if "command_not_found_handle" in known.functions:
            return "the session has a function command_not_found_handle"
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


def _exports(words: list[Word]) -> bool:
    """Whether it only sets variables that any line may set: `export NODE_ENV=test`."""
    return words[0].text == "export" and len(words) > 1 and all("=" in word.lead for word in words[1:])


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
