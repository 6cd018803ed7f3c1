"""What a line does to its own later commands: the values of variables, the directory, files that it writes and runs.

Policies that allow by default look for what they deny, so they follow it through `D=/; rm -rf $D`. A variable has all
the values that the line, and before it the session, may have given it. None stands for one that only a run can tell.
"""

from __future__ import annotations

import re
from itertools import product

from outlast.policy.bash.parser import ParsedText, read
from outlast.policy.bash.simple_commands import Command
from outlast.policy.bash.words import Loop, Problem, Word, names
from outlast.policy.canonical import as_expected
from outlast.policy.commands.builtins import is_computed
from outlast.policy.commands.nested import base, is_static
from outlast.policy.commands.places import SYSTEM
from outlast.policy.commands.sensitive_files import runs_by_itself
from outlast.policy.patterns import UNKNOWN
from outlast.policy.rules import Overrides

Value = str | None
# Where a value is evaluated as arithmetic, such a text runs a command.
_DANGEROUS = re.compile(r"\$\(|`|\$\Z")
_DECODERS = names("base64 base32 basenc xxd od openssl uudecode rev tr hexdump")
_ESCAPED = re.compile(r"\\[^nt\\]")
_COPIERS = names("cp mv ln install dd link rsync")
_SUBSHELLS = frozenset(["( )", "$( )", "` `", "<( )", ">( )"])
_LOOPS = frozenset(["for", "while", "until"])
_MOST = 32  # values of one word
# They print the names of files: all below their operands, or the operands themselves.
_LISTERS = names("find gfind fd fdfind du tree locate plocate ls dir vdir echo printf pgrep")
Listing = tuple[str | None, ...]  # the words of such a command
_PATHS = names("find gfind ls dir vdir du tree basename fd fdfind locate")
# What these print stands below the directory that they run in, or is no path; filters pass on what they are fed.
_LOCAL = _PATHS | names("rg mktemp date hostname uname whoami nproc id echo printf")
_FILTERS = names("grep egrep fgrep head tail sort uniq cut cat awk sed tr tee")
_PLAIN_ARGUMENT = re.compile(r"[^/\\%]*")
_RUNS = names("-exec -execdir -printf -x -X --exec")  # then find and fd print something else
_GIT_LISTS = names("ls-files ls-tree diff status branch tag log rev-parse describe check-ignore rev-list")
_ANY_PATH = re.compile(
    rf"(?:--[a-z-]+=)?(?:~?/)?{UNKNOWN}+(?:/(?:[*.?/]*|(\w+)|\.\..*))?"
)  # a word that may become any path
_AT_HOME = re.compile(r'"?\$(HOME|\{HOME\})(?=[/"]|\Z)')
_KEY = re.compile(r"\A\[[^]]*\]=")  # of an element of an array
_CHANGED = re.compile(r"\$\{([A-Za-z_]\w*|[@*])([^}]+)\}")  # a variable with something cut off or replaced


class Dataflow:
    """Follows one line from left to right."""

    def __init__(self, overrides: Overrides) -> None:
        self.overrides = overrides
        self.where = overrides.directory  # "" if it is not known
        self.version = 0  # how often anything changed: what was said of a command before does not count then
        self.values: dict[str, list[Value]] = {}
        self.fickle: set[str] = set()  # variables whose attributes change what they are given; "" for all
        self.uncertain: set[str] = set()  # variables that may be unset after all
        self.functions: dict[str, dict[str, tuple[ParsedText, list[Command | Problem | Loop]]]] = {}
        self.within: list[str] = []  # the functions in whose bodies we are
        self.calls: dict[str, list[str]] = {}  # which commands a function runs; twice if many, or beside itself
        self.parallel: set[str] = set()  # functions that run something beside something else
        self.written: dict[str, list[Value]] = {}  # what files hold that the line writes
        self.ran: list[tuple[str, str]] = []  # files that it runs, and the commands that do
        self.evaluates = self.decodes = self.traces = self.sets_unknown = False
        self.copies: dict[str, list[str]] = {}  # of which programs a file may be a copy, or a link
        self.pipeline: list[Listing] = []  # what earlier commands of the same pipeline list
        self.lists: dict[str, list[Listing]] = {}  # what variables, and files as `<name`, may hold
        self.given: list[str] = []  # what a compound command is given on its standard input
        self.anywhere = {"BASH_REMATCH"}  # variables that may hold any path, which only a run can tell
        self.stages: list[Command] = []  # of the current pipeline
        self._scopes: list[tuple[int, str]] = []
        self.inside = ""

    # --- values ----------------------------------------------------------------------------------

    def assign(self, name: str, words: list[Word], adds: bool = False, each: bool = False) -> None:
        """A variable is given words; `each`: one after the other, as a loop does it."""
        if any(map(self.is_anywhere, words)):
            self.anywhere.add(name)
        if found := [listing for word in words if word.unknown for listing in self.listings(word)]:
            self.lists.setdefault(name, []).extend(found)
        texts = [text and _KEY.sub("", text) for word in words for text in self.texts(word)]
        self.bind(name, texts or (self.of("@") if each else [""]), adds)
        if len(words) > 1 and not each:
            self.bind(name, _and_together(texts))

    def bind(self, name: str, values: list[Value], adds: bool = False) -> None:
        if adds:
            values = [(a or "") + b if b is not None else None for a in self.of(name) for b in values]
        known = self.values.setdefault(name, [])
        known += [value for value in dict.fromkeys(values) if value not in known][: _MOST - len(known)]
        self.version += 1

    def of(self, name: str) -> list[Value]:
        """All values that a variable may have."""
        if name == "PWD":
            return [self.where if self.where and UNKNOWN not in self.where else None]
        initial = self.overrides.values.get(name, "/bin/bash" if name == "SHELL" else None)
        found = [*self.values.get(name, []), *([] if initial is None or initial.startswith("([") else [initial])]
        fickle = self.fickle and ("" in self.fickle or name in self.fickle)
        return [*found, None] if fickle or name in self.overrides.attributes or not found else found

    def texts(self, word: Word) -> list[Value]:
        """All that a word may be."""
        pieces = word.text.split(UNKNOWN)
        splits = word.splits and ("IFS" in self.values or "IFS" in self.overrides.variables)
        if len(pieces) != len(word.refs) + 1 or splits:
            return [None] if word.unknown else [word.text]
        choices: list[list[Value]] = []
        for ref in word.refs:
            name, instead = ref or ("", ())
            choices.append([*(self.of(name) if name else []), *instead] or [None])
        found: list[Value] = []
        for chosen, _ in zip(product(*choices), range(_MOST), strict=False):
            known = [one for one in chosen if one is not None]
            joined = "".join([a + b for a, b in zip(pieces, [*known, ""], strict=False)])
            found.append(joined if len(known) == len(chosen) else None)
        return list(dict.fromkeys(found))

    def variants(self, words: list[Word]) -> list[list[Word]]:
        """The words with what they may be, one list for each possibility; only themselves if nothing is known."""
        choices = [self.texts(word) if word.unknown else [None] for word in words]
        name = words[0]
        bare = name.splits and any(ref and ref[0] in self.uncertain for ref in name.refs)
        found = [words[1:]] if bare else []
        for turn in range(max(len(one) for one in choices)):
            variant: list[Word] = []
            for word, choice in zip(words, choices, strict=True):
                text = choice[turn % len(choice)]
                variant += [word] if text is None else _written(word, text)
            found.append(variant)
        return [one for one in found if one] or [words]

    def dangerous(self) -> list[str]:
        """Values that would run a command where they are evaluated."""
        session = [value for name, value in self.overrides.values.items() if name in self.overrides.variables]
        values = [one for values in self.values.values() for one in values if one is not None]
        return [one for one in dict.fromkeys([*values, *session]) if _DANGEROUS.search(one)]

    # --- lists of files --------------------------------------------------------------------------

    def listings(self, word: Word) -> list[Listing]:
        """The commands whose output a word holds: `$(find /)`, or a variable that was given it."""
        found = [listing for ref in word.refs if ref for listing in self.lists.get(ref[0], [])]
        if re.search(r"[$<]\(|`", word.source):
            found += [listing for one in read(word.source).commands if (listing := self.listing_of(one.words))]
        return found

    def is_fed_locally(self) -> bool:
        """Whether what is piped into the current command holds no path but from below here."""
        return len(self.stages) > 1 and all(map(_is_local, self.stages[:-1]))

    def is_anywhere(self, word: Word) -> bool:
        """Whether a word may be any path: it holds what an unknown command prints, or a variable that is changed."""
        match = _ANY_PATH.fullmatch(word.text) if word.unknown else None
        if not match or (match[1] and match[1] not in SYSTEM and not re.search("HOME|~", word.source)):
            return False
        known = [ref[0] for ref in word.refs if ref]
        by_ifs = word.splits and "IFS" in self.values and any("/" in str(self.of(name)) for name in known)
        if "PWD" in known and UNKNOWN in self.where:
            return True
        if by_ifs or (known and "" in self.fickle) or not self.anywhere.isdisjoint(known):
            return True
        for changed in _CHANGED.finditer(word.source) if None in word.refs else ():
            values, cut = [one for one in self.of(changed[1]) if one], changed[2]
            risky = r"/|.*\.\." if cut[0] == "%" and "*" not in cut else r"(?s:.*(?:/|\.\.))"
            if "/" in cut.lstrip("/").partition("/")[2] or any(re.match(risky, one) for one in values):
                return True
        if not re.search(r"\$\((?!\()|[$<]\(|`", word.source):
            return False
        return not all(_is_local(one) for one in read(word.source).commands if one.depth)

    # --- places and loops ------------------------------------------------------------------------

    def enter(self, depth: int, inside: str) -> None:
        """The next command stands there: a directory that a subshell changed is forgotten behind it."""
        while self._scopes and depth < self._scopes[-1][0]:
            self.where = self._scopes.pop()[1]
        self.inside = inside
        if inside in _SUBSHELLS and not (self._scopes and self._scopes[-1][0] == depth):
            self._scopes.append((depth, self.where))

    def change_directory(self, words: list[Word]) -> None:
        target = next((word for word in words[1:] if not word.text.startswith("-") or word.text == "-"), None)
        text = "~" if target is None else target.text
        back = self.values.get("OLDPWD", [None])[-1] if text == "-" else None
        self.bind("OLDPWD", self.of("PWD"))
        values = self.texts(target) if target is not None and target.unknown else []
        by_path = "CDPATH" in self.values and text[:1] not in "./~"
        if back:
            text = back
        elif len(values) == 1 and values[0] is not None:
            text = values[0]
        elif (target and self.is_anywhere(target)) or (text[:2] == ".." and self.inside in _LOOPS) or by_path:
            text = UNKNOWN
        elif target is not None and target.unknown and _AT_HOME.match(target.source):
            text = target.source.replace('"', "")
        elif target is not None and target.unknown:  # without a value `$X/` is the root, and `cd $X` goes home
            text = UNKNOWN if re.fullmatch(f"{UNKNOWN}+/" if target.quoted else f"{UNKNOWN}+/?", target.text) else "-"
        self.go_to(None if text == "-" else text)

    def go_to(self, directory: str | None) -> None:
        """Later commands run in a directory; None if it is not known."""
        if directory is None:
            self.where = ""
        elif directory.startswith(("/", "~", "$HOME", "${HOME}", UNKNOWN)):
            self.where = directory
        else:
            self.where = f"{self.where}/{directory}" if self.where else ""
        self.version += 1

    # --- commands --------------------------------------------------------------------------------

    def call(self, name: str, inside: str, parallel: bool) -> None:
        """A command stands in the body of a function."""
        for function in self.within:
            calls = self.calls.setdefault(function, [])
            calls += [name, name] if inside in _LOOPS and parallel else [name]
            if parallel:
                self.parallel.add(function)

    def is_bomb(self) -> bool:
        """Whether a function starts itself twice, beside itself: each of them starts two more."""
        return any(sum(self._reaches(one, name) for one in self.calls[name]) > 1 for name in self.parallel)

    def _reaches(self, start: str, end: str) -> bool:
        seen, due = {start}, [start]
        while due:
            found = {*self.calls.get(due.pop(), [])} - seen
            seen |= found
            due += found
        return end in seen

    def list_files(self, words: list[Word]) -> None:
        if listing := self.listing_of(words):
            self.pipeline.append(listing)

    def listing_of(self, words: list[Word]) -> Listing | None:
        """The words of a command that prints the names of files; None if it is none."""
        if not words or base(words[0].text) not in _LISTERS:
            return None
        shown = [as_expected(word) or (word.text if self.is_anywhere(word) else None) for word in words if word.unknown]
        return tuple(shown.pop(0) if word.unknown else word.text for word in words)

    def notice(self, words: list[Word], bodies: list[str], fed: bool) -> None:
        """Follow what a command does to later ones."""
        name, rest = base(words[0].text), words[1:]
        self.list_files(words)
        if name in ("cd", "pushd"):
            self.change_directory(words)
        elif name == "popd":
            self.where = ""
        self._notice_variables(name, rest)
        if name in _COPIERS and len(rest) > 1:
            sources = [text for word in rest[:-1] for text in self.texts(word) if text]
            target = base(rest[-1].text.removeprefix("of="))
            # Of each only what differs: a line may say the same thousands of times.
            self.copies[target] = [*dict.fromkeys([*self.copies.get(target, []), *map(base, sources)])]
            for known in [self.written[base(one)] for one in sources if base(one) in self.written]:
                self.written[target] = [*dict.fromkeys([*self.written.get(target, []), *known])]
        if name in ("mkfifo", "mknod", "tee") or (name in _COPIERS and (fed or any(map(is_computed, rest)))):
            self._notice_files(name, rest)
        else:
            self._notice_input(name, rest, bodies)

    def _notice_variables(self, name: str, rest: list[Word]) -> None:
        if name == "unset":
            self.uncertain |= {word.text for word in rest}
            self.version += 1
        elif name == "shift":
            for number in range(1, 9):
                self.bind(str(number), self.of(str(number + 1)))
        elif name == "getopts":
            self.bind("OPTARG", [text for word in rest for text in self.texts(word)])
        elif name == "set":
            self.traces = self.traces or any(re.match(r"-[A-Za-z]*x|xtrace", word.text) for word in rest)
            self.parameters([word for word in rest if word.text != "--"])

    def _notice_files(self, name: str, rest: list[Word]) -> None:
        """Files that are written with what is piped."""
        echoed: list[Value] = [*self.contents([])]
        for word in rest:
            contents = echoed if echoed and name == "tee" and not self.decodes else [None]
            self.written.setdefault(base(word.text.removeprefix("of=")), []).extend(contents)
            if name == "tee" and runs_by_itself(word.text):
                self.ran.append((base(word.text), ""))

    def _notice_input(self, name: str, rest: list[Word], bodies: list[str]) -> None:
        """Builtins that put a text into a variable, and programs that make another text of one."""
        if name in ("read", "mapfile", "readarray"):
            given = [
                piece for body in bodies or self.given for piece in [body.rstrip("\n"), *re.split(r"[\s:,;=|]+", body)]
            ]
            for word in rest:
                if word.text[:1] != "-":
                    self.bind(word.text, [*given] or [None])
                    self.lists.setdefault(word.text, []).extend(self.pipeline)
                    if not (given or self.pipeline):
                        self.anywhere.add(word.text)
        elif name == "printf" and rest and rest[0].text.startswith("-v"):
            target = rest[0].text[2:] or (rest[1].text if len(rest) > 1 else "")
            made: list[Value] = [None] if any(re.search("%[^s]|%s.|.%s", word.text) for word in rest) else []
            self.bind(target, [*made, *(text for word in rest[1:] for text in self.texts(word))] or [None])
            self.anywhere |= {target} if any(map(self.is_anywhere, rest)) else set()
        self.decodes = self.decodes or name in _DECODERS
        if name in ("printf", "echo") and any(_ESCAPED.search(word.text) for word in rest):
            self.decodes = True

    def parameters(self, words: list[Word]) -> None:
        """The positional parameters."""
        every = [text for word in words for text in self.texts(word)]
        if any(map(self.is_anywhere, words)):
            self.anywhere |= {*"123456789@*"}
        for number in range(1, 10):
            self.bind(str(number), self.texts(words[number - 1]) if number <= len(words) else [*every, None])
        for name in ("@", "*"):
            self.bind(name, _and_together(every))

    def contents(self, words: list[Word]) -> list[str]:
        """What is known of the files that a command names, and of what is piped into it."""
        echoed = [" ".join(map(str, one[1:])) for one in self.pipeline if one[0] == "echo" and None not in one]
        named = [*words, *(word for one in self.stages[:-1] for word in one.words)]
        files = [name for word in named for name in (base(word.text), f"{word.text}.py")]
        return echoed + [one for file in files for one in self.written.get(file, []) if one]

    def write(self, target: str, words: list[Word], bodies: list[str]) -> None:
        """A redirection writes a file. What it then holds is known of `cat <<E` and `echo text`."""
        name = words[0].text if words else ""
        texts = [text for word in words[1:] for text in self.texts(word)]
        content: Value = None
        if name in ("cat", "") and not texts:
            content = "\n".join(bodies)
        elif name in ("echo", "printf") and None not in texts and not self.decodes and "%" not in str(texts[:1]):
            content = " ".join([one for one in texts if one is not None]).replace("\\n", "\n").replace("\\t", "\t")
        self.written.setdefault(base(target), []).append(content)
        if listing := self.listing_of(words):
            self.lists.setdefault(f"<{base(target)}", []).append(listing)


def _written(word: Word, text: str) -> list[Word]:
    found = [Word(one, word.at, word.end) for one in (text.split() if word.splits else [text])]
    for one in found:
        one.glob = one.splits = word.glob or (word.splits and bool(re.search(r"[*?\[]", one.text)))
    return found


def _is_local(command: Command) -> bool:
    """Whether a command prints no path but of files below the directory that it runs in."""
    texts = [word.text for word in command.words] or [""]
    name = base(texts[0])
    if name == "git":
        return not _GIT_LISTS.isdisjoint(texts[1:3])
    if not _RUNS.isdisjoint(texts):
        return False
    known = name in _LOCAL or (name in _FILTERS and command.piped)
    fixed = name not in ("echo", "printf") or is_static(command.words)
    return known and (name in _PATHS or (fixed and all(map(_PLAIN_ARGUMENT.fullmatch, texts[1:]))))


def _and_together(texts: list[Value]) -> list[Value]:
    """Values one by one, and as the words that `"$@"` makes of all of them."""
    return [*texts, " ".join([one for one in texts if one is not None])] if texts else [None]
