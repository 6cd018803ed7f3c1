"""What commands run that run other commands: wrappers, shells, containers, Outlast itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from outlast.policy.bash.expansions import DEEPEST
from outlast.policy.bash.words import Word, names
from outlast.policy.canonical import as_written, canonical, is_plain_name
from outlast.policy.command_evaluator import CONTAINERS, CommandEvaluator
from outlast.policy.commands.nested import NestedCommands, ShellText, base, is_static
from outlast.policy.commands.wrappers import UNPARSED_WRAPPERS, find_inner_start, nested_commands

_MOST_SUFFIXES = 64
_NO_NAME = "the name of the program is not static"
# What they run runs elsewhere: on another machine, or in a container.
_HOST_MOUNTED = re.compile(
    r"--privileged|unshare|(?:-v|--volume=?)?(?:/(?:etc|usr|boot|home(?:/[^/:]+)?)?/?|~|\$HOME|\$\{HOME\}):.*|.*(?:source|src)=/(?:etc|usr|boot|home(?:/[^/,]+)?)?/?(?:,.*)?"
)
_MOUNTS = re.compile(
    r"(?:-v|--volume=|.*(?:source|src)=)?(/[^:,]*|~|\$HOME|\$\{HOME\})(?::|,(?:dst|target|destination)=)(/[^:,]+).*"
)  # a directory, and where the container has it
_ELSEWHERE = CONTAINERS | names("ssh vagrant mosh")
# Outlast's own verbs that run nothing; the others must not be called with another policy, or with none.
_OUTLAST_LOOKS = names("ps tasks show logs wait kill check session notices brief verify events doctor --version --help")
_LAUNCHERS = names("uv uvx pipx rye poetry hatch pdm pipenv conda nix")
RESETS = names("env sudo doas su runuser pkexec exec setpriv ssh systemd-run")


class NestedEvaluator(CommandEvaluator):
    """Judges what a command runs besides itself."""

    # `evaluator` supplies these.
    simple: Callable[[list[Word], str, list[str], bool], None]  # one simple command
    nested_text: Callable[[ShellText, str], None]

    def judge_unnamed(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> None:
        """A command whose name only a run can tell."""
        name = words[0]
        if not self.is_denied(words, text):
            self.uncertain(text, _NO_NAME, hides=not self._tail_is_known(name))
        if self._tail_is_known(name):
            self.simple([Word(base(name.text), name.at, name.end), *words[1:]], text, bodies, fed)

    def special(self, words: list[Word], text: str, bodies: list[str], fed: bool) -> None:
        """A command that may run others, or that is more to a shell than a program."""
        name, nested = words[0].text, nested_commands(words, bodies)
        before = len(self.parts)
        if not self.is_denied(words, text):
            if is_plain_name(name):
                self._own(words, text, nested, fed)
            else:
                self.uncertain(text, _NO_NAME, hides=not self._tail_is_known(words[0]))
        outer, where = self.elsewhere, self.flow.where
        if base(name) in _ELSEWHERE:
            words = self._go_elsewhere(words)
        if nested:
            self._inner(words, nested, bodies, fed)
        elif base(name) in UNPARSED_WRAPPERS:
            if (start := find_inner_start(words)) is not None:
                self.suffixes(words, start)
            for body in bodies:
                self.scan_possible_code(ShellText(body, "sh", True), base(name))
        self.elsewhere, self.flow.where = outer, where
        if self.rules.any_arguments and self.allow.matching(canonical(words)):
            own, *inner = self.parts[before:]
            self.parts[before:] = [own, *(part for part in inner if part.verdict == "deny" and part.rule)]

    def _go_elsewhere(self, words: list[Word]) -> list[Word]:
        """Words that run in a container or on another machine, with mounted directories as they are called here."""
        sources = [word.source.replace('"', "") for word in words]
        if not any(map(_HOST_MOUNTED.fullmatch, sources)):
            self.elsewhere, self.flow.where = base(words[0].text), ""
        for mount in filter(None, map(_MOUNTS.fullmatch, sources)):
            words = [_move(word, mount[2], mount[1]) for word in words]
        return words

    def outlast(self, words: list[Word], text: str) -> None:
        """Outlast's own command line, which would check with another policy, or with none."""
        at = next(index for index, word in enumerate(words) if base(word.text) == "outlast")
        module = at and words[at - 1].text == "-m"
        if at and not (module or base(words[0].text) in _LAUNCHERS):
            return
        verb = next((word.text for word in words[at + 1 :] if word.text[:1] != "-" or word.text in _OUTLAST_LOOKS), "")
        changed = self.inside in RESETS or any(word.text.startswith("--p") for word in words[at + 1 :])
        if verb not in _OUTLAST_LOOKS and (changed or not is_static(words[at + 1 :]) or "-" in [w.text for w in words]):
            self.uncertain(text, "it runs a command under another policy", hides=True)
        if at:
            self.suffixes(words, at + 1)

    def _inner(self, words: list[Word], nested: NestedCommands, bodies: list[str], fed: bool) -> None:
        label = base(words[0].text)
        if nested.directory != "":
            self.flow.go_to(nested.directory)
        for inner in nested.inners:
            if isinstance(inner, ShellText):
                self.nested_text(inner, label)
            elif inner:
                self._run(inner, label, bodies, fed)
        possible_code = [] if nested.inners or not nested.doubt else [ShellText(body, "sh", True) for body in bodies]
        for code in [*nested.possible_code, *possible_code]:
            self.scan_possible_code(code, label)
        if nested.suffixes:
            self.suffixes(words, nested.suffixes)

    def scan_possible_code(self, code: ShellText, label: str) -> None:
        """A text that may be run: only what is denied in it counts."""
        before, texts = len(self.parts), len(self.texts)
        self.nested_text(code, label)
        del self.texts[texts:]
        self.parts[before:] = [part for part in self.parts[before:] if part.verdict == "deny"]
        self._spend(0)  # asks if it was too much

    def _run(self, inner: list[Word], label: str, bodies: list[str], fed: bool) -> None:
        outer = (self.depth, self.inside)
        self.depth, self.inside = self.depth + 1, label
        if self.depth > DEEPEST:
            self.ask("", f"it is nested deeper than {DEEPEST}")
            self.suffixes(inner, 0)
        else:
            self.simple(inner, as_written(inner), bodies, fed)
        self.depth, self.inside = outer

    def suffixes(self, words: list[Word], start: int) -> None:
        """Where the inner command begins is not certain: nothing denied may begin anywhere."""
        for index in range(start, min(len(words), start + _MOST_SUFFIXES)):
            word = words[index]
            if word.static and word.text and (" " in word.text or "\n" in word.text):
                self.scan_possible_code(ShellText(word.text, "bash", True), base(words[0].text))
            elif word.static and self._spend(len(words) - index) and self.is_denied(words[index:], word.text):
                return


def _move(word: Word, directory: str, to: str) -> Word:
    """The word with a directory of a container as this machine sees it."""
    text = re.sub(rf"(?<![\w/:]){re.escape(directory)}(?![\w:])", lambda _: to.rstrip("/") or "/", word.text)
    if text == word.text:
        return word
    return Word(text.replace("//", "/"), word.at, word.end)
