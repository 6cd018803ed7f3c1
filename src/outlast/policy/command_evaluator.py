"""What the rules say of one simple command, and what speaks against letting it run."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from outlast.policy.bash.crosscheck import bash_accepts, find_disagreement
from outlast.policy.bash.parser import ParsedText
from outlast.policy.bash.simple_commands import Assignment, Redirection
from outlast.policy.bash.variables import alters_execution, alters_shell, is_note, is_run, is_safe
from outlast.policy.bash.words import Word, names, quote_word
from outlast.policy.canonical import ORDINARY_NAME, as_expected, canonical, deny_candidates, is_plain_name, open_ended
from outlast.policy.commands import builtins
from outlast.policy.commands.catalog import RiskyArgument
from outlast.policy.commands.inline_code import may_read_program, reads_program
from outlast.policy.commands.nested import NestedCommands, ShellText, base, is_static
from outlast.policy.commands.places import DESTROYERS, as_one_command
from outlast.policy.commands.risky import is_known, is_spelled_out, risky_arguments
from outlast.policy.commands.sensitive_files import RUNS_PROJECT, foreign_directory, may_write
from outlast.policy.commands.wrappers import is_wrapper
from outlast.policy.dataflow import Dataflow
from outlast.policy.patterns import UNKNOWN, Index
from outlast.policy.rules import Doubtful, Overrides, Part, Rules, Verdict

_TWO_UNKNOWN = re.compile(f"{UNKNOWN}+/+{UNKNOWN}+/*")  # `$X/$Y`: the root if there is neither
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_./:,+@%^= -]*")
_NEUTRAL_TARGETS = frozenset(["/dev/null", "/dev/stdout", "/dev/stderr"])
_NETWORK = re.compile(r"/dev/(?:tcp|udp)/")
READS = frozenset(["<", "<<", "<<-", "<<<", "<&"])
_WRITES = frozenset([">", ">>", ">|", "&>", "&>>"])
_INPUT = re.compile(r"(?:-f|--(?:make)?file=)?(?:-|/dev/stdin|/dev/fd/\d+|/proc/.*)")
_MOST_TEXTS = 32  # bash is started for each
_MOST_WORK = 512 * 1024  # characters and words looked at, texts within texts included: no line can make it slow
CONTAINERS = names("docker podman nerdctl kubectl oc lxc docker-compose")
_READ_COMMANDS = names("at batch crontab newgrp sg make gmake patch")


class CommandEvaluator:
    """Judges single commands, and keeps what is said in the order in which the parts are written."""

    scan_possible_code: Callable[[ShellText, str], None]  # checks a text that may be run; `evaluator` supplies it

    def __init__(self, rules: Rules, overrides: Overrides) -> None:
        self.rules, self.overrides = rules, overrides
        self.allow, self.deny = Index(rules.allow), Index(rules.deny)
        self.allows_by_default = rules.otherwise == "allow"
        self.altering = sorted(one for one in overrides.variables if alters_execution(one))
        self.flow = Dataflow(overrides)
        self.elsewhere = ""
        self.expanding: set[str] = set()  # aliases and functions
        self.called: set[object] = set()
        self.repeated: dict[object, Part] = {}  # what was said of plain commands
        self.parts: list[Part] = []
        self.texts: list[ParsedText] = []
        self.depth, self.inside = 0, ""
        self.budget = _MOST_WORK
        self.moves = False  # whether the line may change its directory
        self.copies = False  # whether it may copy, or unpack, a repository

    # --- what is said about a part -------------------------------------------------------------

    def say(self, verdict: Verdict, command: str, why: str, rule: str = "") -> None:
        self.parts.append(Part(command, verdict, rule, why, self.depth, self.inside))

    def ask(self, command: str, why: str) -> None:
        self.say("ask", command, why)

    def uncertain(self, command: str, why: str, *, hides: bool) -> None:
        """Something is not known. Where all is allowed by default it counts only if it can hide something."""
        if hides or not self.allows_by_default:
            self.ask(command, why)

    def _spend(self, amount: int) -> bool:
        """Whether there is still time to look at so much more; asks if not."""
        self.budget -= amount
        if self.budget < 0:
            self.ask("", "it is too much to analyse")
        return self.budget >= 0

    def cross_check(self) -> None:
        """Nothing stands against it: the other readers are heard."""
        texts = [text for text in self.texts if not (text.is_plain() or _PLAIN_WORDS.fullmatch(text.source))]
        if len({text.source for text in texts}) > _MOST_TEXTS:
            self.ask("", f"it has more than {_MOST_TEXTS} texts for a shell in it")
            return
        for text in texts:
            why = find_disagreement(text, strict=not self.allows_by_default)
            if not why and not bash_accepts(text.source):
                why = "bash cannot read it"
            if why:
                self.ask("", why)
                return

    def assignment(self, assignment: Assignment, text: str) -> None:
        name, values = assignment.name, assignment.values
        attributes = self.overrides.attributes.get(name, "")
        fine = not attributes and ((is_safe(name) and assignment.static) or (not text and is_note(name)))
        if not self.allows_by_default and not fine:
            self.ask(text or f"{name}=…", f"it sets {name}")
        self.flow.evaluates = self.flow.evaluates or bool(attributes)
        target = self.overrides.values.get(name, "") if "n" in attributes else name
        for word in values if len(values) == 1 else [None, *values]:
            self.check_variable(target, word, text)
        if self.allows_by_default:
            self.flow.assign(name, values, assignment.adds)

    def check_variable(self, name: str, value: Word | None, text: str) -> None:
        """Something sets a variable: what its value runs is checked, and asked about if it is not known."""
        if name.startswith("OUTLAST_"):
            self.ask(text, "it changes which policy checks a nested command")
        if not alters_execution(name):
            return
        known = value.value if value is not None else None
        if known is None:
            if is_run(name):
                self.uncertain(text, f"it sets {name}, whose value is run", hides=True)
            return
        if known and (name.startswith("BASH_") or (name == "ENV" and re.search("[/$`]", known))):
            self.uncertain(text, f"it sets {name}, which names a file that is run", hides=is_run(name) or name == "ENV")
        for code in dict.fromkeys((known.lstrip("|!- "), known.replace("'", "").partition("=")[2])):
            if code:
                self.scan_possible_code(
                    ShellText(code, "bash", True), name
                )  # it may name a command: PROMPT_COMMAND, PAGER

    def redirection(self, redirection: Redirection, text: str) -> None:
        target, operator = redirection.target, redirection.operator
        writes = operator not in READS and not (operator == ">&" and target.text.isdigit())
        if redirection.descriptor.startswith("{") and is_run(redirection.descriptor[1:-1]):
            self.uncertain(text, "a redirection sets a variable", hides=True)
        if writes and self.rules.hazard:
            for path in self.flow.texts(target):
                self._hazard((">", as_expected(target) if path is None else path), text or f"> {target.source}")
        allowed = operator in _WRITES and may_write(target.value, self._write())
        if not (self.allows_by_default or allowed) and (why := _redirection_doubt(redirection)):
            self.ask(text, why)

    def _write(self) -> tuple[str, ...]:
        """The files that may be written. They are seen from here, so a line that goes elsewhere may write none."""
        return () if self.moves else self.rules.write

    def _is_ordinary(self, name: str) -> bool:
        """Whether only the rules have anything to say about a program, whatever its arguments are."""
        special = is_wrapper(base(name)) or builtins.is_known(name) or may_read_program(base(name))
        special = special or base(name) in _READ_COMMANDS
        changed = not self.allows_by_default and self._find_change(name)
        return is_plain_name(name) and not (special or changed)

    def _tail_is_known(self, name: Word) -> bool:
        """ "$VENV/bin/python" can be no other program than python."""
        return self.allows_by_default and not name.splits and "/" in name.text and UNKNOWN not in base(name.text)

    def _is_deniable(self, name: str) -> bool:
        """Whether there is a rule that may deny a program of this name."""
        plain = ORDINARY_NAME.fullmatch(name) is not None
        return not plain or self.deny.knows(name) or self.deny.knows(base(name))

    def is_denied(self, words: list[Word], text: str) -> bool:
        for candidate in deny_candidates(words) if self._is_deniable(words[0].text) else ():
            for pattern in self.deny.matching(candidate):
                self.say("deny", text, f"denied by {pattern.text}", pattern.text)
                return True
        if self.rules.hazard is None:
            return False
        shown = tuple([self._as_expected(word) if word.unknown else word.text for word in words])
        if shown[0] and base(shown[0]) == "git" and self.allows_by_default:
            trees = [tree for tree in self.flow.of("GIT_WORK_TREE") if tree]
            trees += [UNKNOWN] if "GIT_WORK_TREE" in self.flow.anywhere else []
            if any(self._hazard((shown[0], f"--work-tree={tree}", *shown[1:]), text) for tree in trees):
                return True
        return self._bulk_hazard(words, shown, text) or self._hazard(shown, text)

    def _as_expected(self, word: Word) -> str | None:
        if (known := as_expected(word)) is not None or not self.allows_by_default:
            return known
        if _TWO_UNKNOWN.fullmatch(word.text) and all(ref and self.flow.of(ref[0]) == [None] for ref in word.refs):
            return word.text
        listed = word.text == UNKNOWN and not word.refs and self.inside in ("xargs", "parallel")
        return word.text if self.flow.is_anywhere(word) or (listed and not self.flow.is_fed_locally()) else None

    def _bulk_hazard(self, words: list[Word], shown: tuple[str | None, ...], text: str) -> bool:
        """`find / | xargs rm`, `rm $(find /)`: a program that destroys what another one lists."""
        unknown = [word for word in words[1:] if word.unknown]
        if not (unknown and self.allows_by_default and base(words[0].text) in DESTROYERS):
            return False
        listings = [*self.flow.pipeline, *(one for word in unknown for one in self.flow.listings(word))]
        return any(self._hazard(probe, text) for one in listings for probe in as_one_command(one, shown))

    def _hazard(self, words: tuple[str | None, ...], text: str) -> bool:
        if self.rules.hazard is None or self.elsewhere in CONTAINERS:
            return False
        why = self.rules.hazard(words, self.flow.where, bool(self.elsewhere))
        if why:
            self.say("ask" if isinstance(why, Doubtful) else "deny", text, why)
        return bool(why)

    # --- whether a command itself is allowed --------------------------------------------------------

    def _own(self, words: list[Word], text: str, nested: NestedCommands | None, fed: bool) -> None:
        if self.rules.any_arguments and not self._find_change(words[0].text) and self.allow.matching(canonical(words)):
            self._by_rule(words, text)
            return
        if found := self._unanalysable(words, nested, fed):
            why, hides = found
            if hides or not self.allows_by_default:
                self.ask(text, why)
                return
        redefined = "" if self.allows_by_default else self._find_change(words[0].text)
        if self._may_be_denied(words):
            self.ask(text, "it could turn out to be denied")
        elif redefined:
            self.ask(text, redefined)
        elif nested and nested.transparent and not nested.doubt:
            self.say("allow", text, "what it runs is checked by itself")
        elif (name := words[0].text) in builtins.NEUTRAL or (
            name == "export" and len(words) > 1 and all("=" in one.lead for one in words[1:])
        ):
            self.say("allow", text, "it needs no rule")
        else:
            self._by_rule(words, text)

    def _unanalysable(self, words: list[Word], nested: NestedCommands | None, fed: bool) -> tuple[str, bool] | None:
        if nested and nested.doubt:
            # A shell that is fed, or words that are not known, may be anything.
            open_ended = (fed and not nested.inners) or any(word.unknown for word in words)
            return nested.doubt, nested.hides or open_ended
        name = base(words[0].text)
        if (check := builtins.CHECKS.get(words[0].text)) and (doubt := check(words)):
            why, evaluated, kind = doubt
            if evaluated:
                self.scan_possible_code(ShellText(evaluated.replace(UNKNOWN, "$_"), "bash", True), name)
            self.flow.evaluates = self.flow.evaluates or kind in (builtins.EVALUATES, builtins.NAMES)
            self.flow.sets_unknown = self.flow.sets_unknown or kind == builtins.NAMES
            return why, kind == builtins.HIDES or "$(" in evaluated or "`" in evaluated
        declared = self.overrides.attributes and words[0].text in builtins.BUILTINS
        if declared and not self.overrides.attributes.keys().isdisjoint(word.text.partition("=")[0] for word in words):
            return "the session has declared what it sets", False
        if reads_program(words, name, fed):
            return "its program comes from its input", False
        if name in _READ_COMMANDS and not self.rules.any_arguments and _reads_input(words, name, fed):
            return "its program comes from its input", name != "patch"
        return None

    def _may_be_denied(self, words: list[Word]) -> bool:
        if not self.deny.patterns or is_static(words):
            return False
        name = words[0]
        if not (self.deny.beginning_as(name.canonical) or self.deny.beginning_as(quote_word(base(name.text)))):
            return False
        return any(map(self.deny.could_match, deny_candidates([name, *map(open_ended, words[1:])])))

    def _find_change(self, name: str) -> str:
        known = self.overrides
        if name in known.functions:
            return f"the session has a function {name}"
        if name in known.aliases:
            return f"the session has an alias {name}"
        if name in builtins.BUILTINS:
            shells = [one for one in self.altering if alters_shell(one)]
            return f"the session has set {shells[0]}" if shells else ""
        if "command_not_found_handle" in known.functions:
            return "the session has a function command_not_found_handle"
        if known.path_changed:
            return "the session has changed PATH"
        return f"the session has set {self.altering[0]}" if self.altering else ""

    def _by_rule(self, words: list[Word], text: str) -> None:
        if self._may_be_denied(words):
            self.ask(text, "it could turn out to be denied")
            return
        fitting = self.allow.matching(canonical(words))
        if not fitting:
            listed = "it is not on the list of programs" if self.rules.any_arguments else "no rule allows it"
            why = "no rule forbids it" if self.allows_by_default else "it needs no rule" if text == "nproc" else listed
            self.say("allow" if text == "nproc" else self.rules.otherwise, text, why)
            return
        against: list[RiskyArgument] = []
        if not (self.allows_by_default or self.rules.any_arguments):
            against = [*risky_arguments(words, self._write()), *self._foreign(words)]
        for pattern in fitting:
            if not against or all(is_spelled_out(pattern, one, words) for one in against):
                trusts = not (
                    self.allows_by_default or self.rules.any_arguments or pattern.exact or is_known(words[0].text)
                )
                why = f", which trusts {words[0].text} with any arguments: nothing is known about it" if trusts else ""
                self.say("allow", text, f"allowed by {pattern.text}{why}", pattern.text)
                return
        self.ask(text, against[0][2])

    def _foreign(self, words: list[Word]) -> list[RiskyArgument]:
        """What runs the files of another directory: `cd /other && make`, `git -C sub` where sub is a repository."""
        name, root = base(words[0].text), self.overrides.directory
        if not root or name not in RUNS_PROJECT:
            return []
        where = self.flow.where
        inside = [two.text for one, two in pairwise(words) if name == "git" and one.text == "-C"]
        for place in [where, *(f"{where}/{one}" for one in inside if one[:1] not in "/~")]:
            if why := foreign_directory(name, place, root, self.copies):
                return [(0, "", why)]
        return []


def _reads_input(words: list[Word], name: str, fed: bool) -> bool:
    """Whether a program of `_READ_COMMANDS` takes what it runs from its input, or from a descriptor."""
    if any(_INPUT.fullmatch(word.text) or word.lead.startswith("/dev/fd/") for word in words[1:]):
        return fed or words[-1].text != "-"
    return fed and name[-4:] != "make"


def _redirection_doubt(redirection: Redirection) -> str:
    """Why a redirection asks; "" if it is neutral."""
    operator, target = redirection.operator, redirection.target
    if redirection.descriptor.startswith("{"):
        return "a redirection sets a variable"
    if operator in ("<<", "<<-", "<<<"):
        return ""
    if not target.static and not (target.lead == "~" and not target.unknown and not target.splits):
        process = target.lead == "/dev/fd/" and target.text == UNKNOWN
        return "" if process and operator in ("<", ">", ">>") else "the target of a redirection is not static"
    if _NETWORK.match(target.text):
        return "it opens a network connection"
    if operator == "<" or (operator in ("<&", ">&") and re.fullmatch(r"[0-9]+-?|-", target.text)):
        return ""
    return "" if target.text in _NEUTRAL_TARGETS and operator != "<>" else f"it writes {target.text}"
