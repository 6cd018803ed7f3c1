"""Where the rules meet the parts of a line."""

from __future__ import annotations

import re
from bisect import bisect_left
from operator import attrgetter

from outlast.policy.bash.expansions import DEEPEST
from outlast.policy.bash.parser import ParsedText, read
from outlast.policy.bash.simple_commands import DECLARING, RESERVED, Assignment, Command, Function, plain_words
from outlast.policy.bash.words import Loop, Problem, Word, with_text
from outlast.policy.canonical import as_written, canonical
from outlast.policy.command_evaluator import READS
from outlast.policy.commands.inline_code import PROGRAMS, inline_commands, may_read_program
from outlast.policy.commands.nested import ShellText, base, is_static
from outlast.policy.commands.sensitive_files import runs_by_itself
from outlast.policy.commands.shells import SHELLS
from outlast.policy.nested_evaluator import RESETS, NestedEvaluator
from outlast.policy.patterns import UNKNOWN
from outlast.policy.rules import UNCHANGED, Decision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.policy.rules import Overrides, Rules, Verdict

LONGEST_BYTES = 64 * 1024
_RANK: tuple[Verdict, ...] = ("allow", "ask", "deny")  # from mild to strict

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b|-C\b|--chdir")
_COPIES = re.compile(r"\b(?:cp|mv|ln|rsync|scp|install|tar|unzip|cpio)\b")
_MOST_BODIES = 8
_MOST_STAGES = 32  # of a pipeline
_MOST_LISTED = 64  # words of a here-document
_SETS = re.compile(r"(?:-o)?([A-Za-z_][A-Za-z0-9_]*)\+?=")
_TOKEN = re.compile(r"[^\s;&|()<>'\"`$\\]+")
_SCHEDULE = re.compile(r"(?m)^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})\s*(?:root\s)?")  # when a line of a crontab runs
_BEGINS = re.compile(r"(?:\A|[;\n])[ \t\n]*\Z")
_BOTH = frozenset(["bash", "sh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/sh", "/bin/dash", "ash"])


class Evaluator(NestedEvaluator):
    """Judges one line and keeps the parts in the order in which they are written."""

    # --- texts -----------------------------------------------------------------------------------

    def evaluate_line(self, line: str, shell: str) -> None:
        """Judge a whole line."""
        if match := _CONTROL.search(line):
            self.ask("", f"it has a control character, number {ord(match[0])}")
        line = line.replace("\0", "\ufffd")
        self.copies = _COPIES.search(line) is not None
        self.moves = bool(self.rules.write) and _MOVES.search(line) is not None
        if self.overrides.traps or self.overrides.texts or self.overrides.variables or self.overrides.bodies:
            self._session(line)
        self.text(line, shell)
        if self.allows_by_default:
            self._afterwards()
        if all(part.verdict == "allow" for part in self.parts):
            self.cross_check()

    def _session(self, line: str) -> None:
        """What the session prepared for every line."""
        known = self.overrides
        for signal, action in known.traps:
            self.nested_text(ShellText(action, "bash", True), f"trap {signal}")
        for name in set(_TOKEN.findall(line)) & known.texts.keys():
            if name in RESERVED or known.texts[name][-1:].isspace():
                self.ask(name, f"the session has an alias {name}")
        if "command_not_found_handle" in known.bodies:
            self.scan_possible_code(
                ShellText(known.bodies["command_not_found_handle"], "bash", True), "command_not_found_handle"
            )
        for name in known.variables if self.allows_by_default else ():
            if name in known.values and not name.startswith("OUTLAST_"):
                self.check_variable(name, Word(known.values[name], 0, 0), "")

    def _afterwards(self) -> None:
        """What only the whole line shows."""
        flow = self.flow
        for text in flow.dangerous() if flow.evaluates else ():
            self.scan_possible_code(ShellText(text, "bash", True), "arithmetic")
            self.ask("", "a value that is evaluated as arithmetic holds a command")
        if (flow.evaluates and flow.decodes) or (flow.traces and flow.sets_unknown):
            self.ask("", "a value that is evaluated is not known")
        for file, command in dict.fromkeys(flow.ran):
            contents = flow.written.get(file, [])
            known = [one for one in contents if one is not None]
            for content in dict.fromkeys([*known, "".join(known)]):
                look = self.nested_text if command else self.scan_possible_code
                look(ShellText(_SCHEDULE.sub("", content), "bash", True), file)
            if len(known) < len(contents) and command:
                self.ask(command, "it runs what it has just written")
        if self.rules.hazard and flow.is_bomb():
            self.say("deny", "", "it starts itself again and again until the machine stands still")

    def text(self, source: str, shell: str) -> None:
        if not self._spend(3 * len(source)):
            return
        if base(shell) in _BOTH and (words := plain_words(source)):
            if self.flow.within:
                self.flow.call(words[0].text, self.inside, parallel=False)
            self.simple(words, as_written(words), [], fed=False)  # as most are; no reader takes them otherwise
            return
        text = read(source, self.depth, self.inside)
        self.texts.append(text)
        if base(shell) not in _BOTH:
            self.ask("", f"a line for {shell} cannot be read")
        elif text.bashisms and base(shell) not in ("bash", "rbash"):
            self.uncertain("", f"{shell} may read it in another way than bash", hides=False)
        self._items(text)

    def _items(self, text: ParsedText, only: list[Command | Problem | Loop] | None = None) -> None:
        """Judge the commands of a text, or only some of them: those of a function."""
        outer, within = (self.depth, self.inside), self.flow.within
        items: list[Command | Problem | Loop] = [*text.commands, *text.problems, *text.loops]
        if len(items) > len(text.commands):
            items.sort(key=attrgetter("at"))
        due, open_ = sorted(text.functions, key=attrgetter("at"), reverse=True), list[Function]()
        self.flow.given = [body for one in text.commands if not one.words for body in one.bodies]
        if only is None and due:
            self._define(text, items)
        for item in items if only is None else only:
            self.depth, self.inside = item.depth, item.inside
            while due and due[-1].at <= item.at:
                open_.append(due.pop())
            if open_:
                open_ = [one for one in open_ if item.at < one.end]
                self.flow.within = [*within, *(one.name for one in open_)]
            if isinstance(item, Command):
                self._follow(item, text)
                self.command(item)
            elif isinstance(item, Problem):
                self.flow.evaluates = self.flow.evaluates or item.evaluates
                self.uncertain("", item.why, hides=item.hides)
            else:
                self.flow.assign(item.name, item.values, each=True)
                if item.name in self.overrides.attributes:
                    self.uncertain("", f"the session has declared {item.name}", hides=True)
        self.depth, self.inside = outer
        self.flow.within = within

    def _follow(self, item: Command, text: ParsedText) -> None:
        self.flow.enter(item.depth, item.inside)
        if not self.allows_by_default:
            return
        if not (item.piped or text.depth):
            self.flow.pipeline = []
        flow = self.flow  # a command reads what those before it in the same pipeline print
        flow.stages = [*flow.stages[-_MOST_STAGES:], item] if item.piped else [item]
        for one in item.redirections:
            if one.operator == "<":
                self.flow.pipeline += self.flow.listings(one.target)
                self.flow.pipeline += self.flow.lists.get(f"<{base(one.target.text)}", [])
        self.flow.pipeline += [("echo", *body.split()[:_MOST_LISTED]) for body in item.bodies]
        if item.words and self.flow.within:
            self.flow.call(item.words[0].text, item.inside, item.parallel)
        if item.assignments and (item.depth or not _BEGINS.search(text.source[max(0, item.at - 9) : item.at])):
            self.flow.uncertain |= {one.name for one in item.assignments}  # only a run can tell if it is reached

    def _define(self, text: ParsedText, items: list[Command | Problem | Loop]) -> None:
        """Keep the bodies of functions, for what calls them; of each name a few that differ."""
        places = [item.at for item in items]
        for function in text.functions:
            known = self.flow.functions.setdefault(function.name, {})
            source = text.source[function.at : function.end]
            if len(known) < _MOST_BODIES and source not in known:
                known[source] = (text, items[bisect_left(places, function.at) : bisect_left(places, function.end)])

    def nested_text(self, code: ShellText, label: str) -> None:
        """A text inside an argument."""
        outer = (self.depth, self.inside)
        self.depth, self.inside = self.depth + 1, label
        if self.depth > DEEPEST:
            self.ask("", f"it is nested deeper than {DEEPEST}")
        else:
            if not code.known:
                self.uncertain("", "the text that it runs is not known", hides=True)
            if code.parameters and self.allows_by_default:
                self.flow.bind("0", self.flow.texts(code.parameters[0]))
                self.flow.parameters([*code.parameters[1:]])
            self.text(code.text.replace(UNKNOWN, "$_"), code.shell)
        self.depth, self.inside = outer

    # --- simple commands ---------------------------------------------------------------------------

    def command(self, command: Command) -> None:
        before, redirections = len(self.parts), command.redirections
        text = as_written(command.words)
        for one in command.assignments if self.allows_by_default else ():
            self.flow.assign(one.name, one.values, one.adds)
        if command.words:
            self._each(command, text)
        if command.bodies and not any(
            one.operator[:3] in ("<<", "<<-") and not one.target.quoted for one in redirections
        ):
            self.flow.bind("<<", [*command.bodies])  # what it holds may come back as the value of a variable
        for one in command.assignments:
            self.assignment(one, text)
        for redirection in redirections:
            self.redirection(redirection, text)
            if self.allows_by_default and redirection.operator not in READS:
                self.flow.write(redirection.target.text, command.words, command.bodies)
                if runs_by_itself(redirection.target.text):
                    self.flow.ran.append((base(redirection.target.text), ""))
        if len(self.parts) == before and (command.assignments or command.redirections):
            self.say("allow", text, "it needs no rule")

    def _each(self, command: Command, text: str) -> None:
        """Judge a command with all that its words may be; once, if it stands there again and nothing has changed."""
        words = command.words
        name = words[0].text  # what a path names may have become another program, and a name a function
        if (
            is_static(words)
            and "/" not in name
            and name not in self.flow.functions
            and not (command.fed or self.flow.within)
        ):
            place = (text, command.depth, command.inside, self.flow.version)
            if place not in self.repeated:
                before, version = len(self.parts), self.flow.version
                self.simple(words, text, command.bodies, fed=False)
                found = self.parts[before:]
                if version == self.flow.version and len(found) == 1 and self._is_ordinary(name):
                    self.repeated[place] = found[0]
            elif self._spend(len(words)):
                self.parts.append(self.repeated[place])
                self.flow.list_files(words)
            return
        if not self.allows_by_default or is_static(words):
            self.simple(words, text, command.bodies, command.fed)
            return
        for turn, variant in enumerate(self.flow.variants(words)):
            before = len(self.parts)
            self.simple(variant, text, command.bodies, command.fed)
            if turn:
                self.parts[before:] = [part for part in self.parts[before:] if part.verdict != "allow"]

    def simple(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> None:
        """One simple command without its assignments and redirections, and all that it runs."""
        if not self._spend(len(words)):
            return
        if self._notice(words, text, bodies, fed):
            return
        if not words[0].static:
            self.judge_unnamed(words, text, bodies, fed)
        elif not self._is_ordinary(words[0].text):
            self.special(words, text, bodies, fed)
        elif not self.is_denied(words, text):
            self._by_rule(words, text)

    def _notice(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> bool:
        """Follow what a command sets, calls and runs; True if an alias of the session was checked in its place."""
        name = words[0].text
        if len(words) > 1:
            self._settings(words, text)
        if not self.allows_by_default:
            if name in ("cd", "pushd", "popd"):
                self.flow.change_directory(words if name != "popd" else [words[0], Word("-", 0, 0)])
            return False
        self.flow.notice(words, bodies, fed)
        self._follow_files(words, text, bodies)
        if name in self.overrides.texts and name not in self.expanding:
            self.expanding.add(name)
            rest = canonical(words[1:]).replace(UNKNOWN, "$_")
            self.nested_text(ShellText(f"{self.overrides.texts[name]} {rest}", "bash", True), f"alias {name}")
            self.expanding.discard(name)
            return True
        if name in self.flow.functions or name in self.overrides.bodies:
            self._call(name, words)
        return False

    def _follow_files(self, words: list[Word], text: str, bodies: list[str]) -> None:
        """Follow what a command runs besides programs: text in its arguments, scripts, copies of programs."""
        name = words[0].text
        given = self.flow.contents(words[1:]) if may_read_program(base(name)) or base(name) in PROGRAMS else []
        for inside in inline_commands(words, [*bodies, *given]):
            self.scan_possible_code(ShellText(inside, "bash", True), base(name))
        if name in (".", "source") or base(name) in SHELLS:
            script = next((word for word in words[1:] if word.text[:1] != "-"), None)
            if script and not any(re.match("-[A-Za-z]*c", word.text) for word in words[1:]):
                self.flow.ran.append((base(script.text), text))
                self.flow.parameters(words[words.index(script) + 1 :])
        elif name == "trap" and len(words) > 1:
            self.flow.written.setdefault("trap", []).append(words[1].text)
            self.flow.ran.append(("trap", ""))
        elif base(name) in ("at", "batch", "crontab", "make", "gmake"):
            named = [base(word.text).removeprefix("-f") for word in words[1:]]
            files = ["GNUmakefile", "Makefile", "makefile", *named] if "make" in name else named
            self.flow.ran += [(file, "" if "make" in name else text) for file in files]
        elif "/" in name or name in self.flow.copies:
            self.flow.ran.append((base(name), text))
            for source in self.flow.copies.get(base(name), []):
                self.is_denied([Word(source, words[0].at, words[0].end), *words[1:]], text)

    def _settings(self, words: list[Word], text: str) -> None:
        """Words that set a variable, for whatever command; and Outlast's own command line."""
        name = words[0].text
        for word in words[1:]:
            if "=" in word.text and (found := _SETS.match(word.text)) and word.lead.startswith(found[0]):
                value = with_text(word, word.text[found.end() :])
                listed = word.unknown and not (value.text or word.refs)  # `declare -a x=(…)`
                if "keyword" in self.overrides.options:  # `set -k`: it is an assignment wherever it stands
                    self.assignment(Assignment(found[1], value.static, [value]), text)
                if not listed:
                    self.check_variable(found[1], value, text)
                if self.allows_by_default and (name in DECLARING or base(name) in RESETS) and not listed:
                    self.flow.assign(found[1], [value])
            elif name in DECLARING and word.text.startswith("OUTLAST_"):
                self.check_variable(word.text, None, text)
            elif name in DECLARING and (found := re.match("-[A-Za-z]*[nlucI]", word.text)):
                self.flow.fickle |= {"" if "n" in found[0] else one.text.partition("=")[0] for one in words[1:]}
        if base(name) == "outlast" or any(word.text == "outlast" for word in words[1:]):
            self.outlast(words, text)

    def _call(self, name: str, words: list[Word]) -> None:
        """Judge the body of a function with its arguments: only what they add counts."""
        given = (name, *(word.text for word in words[1:]), self.flow.version)
        if name in self.expanding or given in self.called or not self._spend(100):
            return
        self.called.add(given)
        self.suffixes(words, 1)
        if name in self.overrides.bodies and name not in self.flow.functions:
            text = read(self.overrides.bodies[name], self.depth, "function")
            self.flow.functions[name] = {"": (text, [*text.commands])}
            before = len(self.parts)
            self._items(text)  # what it does anyway was checked when it was defined, or is in a file
            usual = self.parts[before:]
            self.parts[before:] = [part for part in usual if part.verdict == "deny"]
        else:
            usual = self.parts
        self.expanding.add(name)
        version = self.flow.version
        saved = {one: self.flow.values.pop(one, []) for one in (*"123456789@*",)}
        self.flow.parameters(words[1:])
        before, known = len(self.parts), {(part.command, part.why) for part in usual}
        for text, items in self.flow.functions[name].values():
            self._items(text, items)
        news = [part for part in self.parts[before:] if part.verdict != "allow"]
        self.parts[before:] = [part for part in news if (part.command, part.why) not in known]
        self.flow.values.update(saved)
        self.flow.version = version
        self.expanding.discard(name)


def evaluate(line: str, rules: Rules, overrides: Overrides = UNCHANGED, *, shell: str = "bash") -> Decision:
    """Judge a line for a shell. It never raises."""
    evaluator = Evaluator(rules, overrides)
    if len(line) > LONGEST_BYTES or len(line.encode("utf-8", "replace")) > LONGEST_BYTES:
        evaluator.ask("", f"it is longer than {LONGEST_BYTES // 1024} KiB")
    else:
        evaluator.evaluate_line(line, shell)
    parts = tuple(evaluator.parts)
    verdict: Verdict = max({part.verdict for part in parts}, key=_RANK.index, default="allow")
    if verdict == "allow" and not (rules.allow or rules.deny or rules.hazard) and rules.otherwise != "allow":
        verdict = rules.otherwise
    return Decision(verdict, parts)
