"""Replace secrets before anything is shown: in text, in bytes as they come, in tasks, errors and sessions.

What is replaced does not depend on how the text was cut. What may be the beginning of a secret is held back until that
is known, at most `LONGEST` characters. Exact values come from this process' environment, from the `env` of its calls
and from the states of sessions; they are never written to disk for this.
"""

from __future__ import annotations

import os

from outlast.light import fields, frozen, replace
from outlast.output.secret_search import MASK, Encoded, Visible, compile_invisible, find_spans, replace_spans
from outlast.output.secret_variables import (
    ALWAYS_PASSED,
    find_declared_secrets,
    is_location,
    looks_secret,
    matches_any,
)
from outlast.output.token_formats import LITERALS, LONGEST, LONGEST_LITERAL, Format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from outlast.errors import OutlastError
    from outlast.output.secret_search import Span
    from outlast.settings import Settings
    from outlast.storage.sessions import SessionState
    from outlast.storage.snapshot import Snapshot
    from outlast.types import Task

    AnyTask = TypeVar("AnyTask", bound=Task)

LOOK_BACK = LONGEST // 2  # bytes before an offset in which a secret that reaches over it is looked for
_CONTEXT = LONGEST_LITERAL + 16  # characters before what is new that are still searched for literals
_LONGEST_VALUE = 2048  # a longer value is searched for in parts
_LEAST_VALUE = 8
_LEAST_LINE = 16  # of a value of several lines
_OF_LINES = b"PRIVATE KEY"  # in the literals of the one format whose secrets have many lines
_BEFORE_A_LINE = 128  # other secrets have at most so much before the last line end inside of them
_PLAIN_WORD = 16  # letters; a shorter value of letters alone is an ordinary word


class Mask:
    """What to mask: these values, and everything that looks like a well-known token."""

    def __init__(self, values: Iterable[str] = (), on: bool = True) -> None:
        self.on = on
        self._values = tuple(sorted({part for value in values for part in searched_for(value)}))
        self._as_bytes = Encoded(value.encode("utf-8", "surrogateescape").decode("latin-1") for value in self._values)

    def text(self, text: str) -> str:
        """Return a whole text without its secrets."""
        if not self.on:
            return text
        if text.isascii() and not _find_literals(text) and not any(value in text for value in self._values):
            return text
        return replace_spans(text, *_search(text, self._values, True))

    def spans(self, text: str) -> list[Span]:
        """Return from where to where the secrets of a whole text are."""
        return _search(text, self._values, True)[0] if self.on else []

    def stream(self, of_bytes: bool = False) -> Stream:
        """Return a redactor for text that comes in pieces, or for bytes decoded as latin-1."""
        return Stream(self._as_bytes if of_bytes else self._values, self.on)

    def is_clear(self, before: bytes, after: bytes, final: bool) -> bool:
        """Return whether `after` has no secret, none reaches into it, and (unless `final`) none may begin at its end.

        A reader that starts at `after` does not see the text before a literal, so `after` is searched by itself, too.
        """
        if not self.on:
            return True
        text = (_near(before) + after).decode("latin-1")
        if not text.isascii() and compile_invisible(True).search(text):
            return False
        if (
            not _find_literals(text)
            and (final or not self._as_bytes)
            and not any(one in text for one in self._as_bytes)
        ):
            return True
        return not self.inside(before, after) and self._find(after, final) == ([], len(after))

    def count_open_bytes(self, data: bytes) -> int:
        """Return how many bytes at the end may be the beginning of a secret."""
        if not self.on:
            return 0
        return len(data) - self._find(data, False)[1]

    def inside(self, before: bytes, after: bytes) -> int:
        """Return how many bytes of `after` belong to a secret that began, or whose literal began, before it."""
        if not self.on or not before:
            return 0
        before = _near(before)
        cut = border = len(before)
        spans, _ = self._find(before + after, True)
        for start, end in spans:
            if end <= cut:
                continue
            rest, _ = self._find(after[cut - border :], True)
            if start >= cut and (start - cut, end - cut) in rest:
                break  # a reader that starts at the cut finds this secret and all after it
            cut = end
        return cut - border

    def spans_in(self, before: bytes, after: bytes) -> list[tuple[int, int]]:
        """Return where secrets are in `after`; one may begin `before` it."""
        if not self.on:
            return []
        near, border = _near(before), len(_near(before))
        spans, _ = self._find(near + after, True)
        return [(max(0, start - border), end - border) for start, end in spans if end > border]

    def _find(self, data: bytes, final: bool) -> tuple[list[Span], int]:
        return _search(data.decode("latin-1"), self._as_bytes, final)


OFF = Mask(on=False)


def _search(text: str, values: tuple[str, ...], final: bool, given: int = 0, fence: int = 0) -> tuple[list[Span], int]:
    """As `find_spans`, also for secrets that have invisible characters in them."""
    encoded = isinstance(values, Encoded)
    if text.isascii() or not compile_invisible(encoded).search(text):
        return find_spans(text, _find_literals(text), values, final, given, fence)
    visible = Visible(text, encoded)
    plain, offsets = visible.text, (visible.get_offset(given), visible.get_offset(fence))
    return visible.restore(*find_spans(plain, _find_literals(plain), values, final, *offsets))


def _near(before: bytes) -> bytes:
    """Return the part in which a secret that reaches over the end can begin: only a key has several lines."""
    return before if _OF_LINES in before else before[max(0, before.rfind(b"\n") - _BEFORE_A_LINE) :]


def searched_for(value: str) -> Iterator[str]:
    """Yield the parts of a secret value that are searched for; none of one that is too short or a plain word."""
    lines = value.splitlines()
    least = _LEAST_VALUE if len(lines) == 1 else _LEAST_LINE
    for line in map(str.strip, lines):
        if len(line) < least or (line.isalpha() and len(line) < _PLAIN_WORD) or is_location(line):
            continue
        for start in range(0, len(line), _LONGEST_VALUE):
            if len(part := line[start : start + _LONGEST_VALUE]) >= _LEAST_VALUE:
                yield part


class Stream:
    """Text in, redacted text out."""

    def __init__(self, values: tuple[str, ...], on: bool) -> None:
        self._values, self._on = values, on
        self._text = ""  # the end of what was given out, and what is held back
        self._given = 0  # how much of it was given out
        self._fence = 0  # where the last secret ended: no literal reaches back into it

    @property
    def held(self) -> int:
        """How many characters are held back."""
        return len(self._text) - self._given

    def feed(self, text: str) -> str:
        """Return what is certain now."""
        return self._take(text, False) if self._on else text

    def finish(self) -> str:
        """Return the rest, when no more comes. What is fed afterwards is a new text."""
        rest = self._take("", True)
        self._text, self._given, self._fence = "", 0, 0
        return rest

    def _take(self, text: str, final: bool) -> str:
        self._text += text
        spans, sure = _search(self._text, self._values, final, self._given, self._fence)
        redacted = replace_spans(self._text, spans, sure, self._given)
        kept = max(0, sure - _CONTEXT)
        self._fence = max(0, (spans[-1][1] if spans else self._fence) - kept)
        self._text, self._given = self._text[kept:], sure - kept
        return redacted


# --- literals ----------------------------------------------------------------------------

_SIGNS = "_-.:="  # each is in many literals and not in every text, so that one search rules out many
_BY_SIGN: dict[str, list[tuple[str, Format]]] = {}
for _pair in LITERALS:
    _BY_SIGN.setdefault(next((sign for sign in _SIGNS if sign in _pair[0]), ""), []).append(_pair)
_MUCH = 1 << 14  # characters from which on one search with RE2 is faster than one for each literal
_URL = "://"  # in many texts without any secret
# What has to follow these, or be all that has come so far, before they count.
_COMMON = {"SK": "[0-9a-f]", ":AA": r"[\w-]", "eyJ": r"[\w-]", "sk-": "[A-Za-z0-9]"}
_FOLLOWS = 8
_search_rare: list[Callable[[bytes], object]] = []  # the compiled search, made when it is first used


def _find_literals(text: str) -> list[tuple[str, Format]]:
    """Return the literals that are in a text, each with its format."""
    if len(text) >= _MUCH and not _has_rare(text):
        return [pair for pair in LITERALS if pair[0] == _URL and _URL in text]
    return [pair for sign, pairs in _BY_SIGN.items() if sign in text for pair in pairs if pair[0] in text]


def _has_rare(text: str) -> bool:
    """Return whether any literal other than that of URLs is in a text."""
    if not _search_rare:
        try:
            import re2  # here: the import takes longer than searching a short text
        except ImportError:
            _search_rare.append(lambda data: True)
        else:
            options = re2.Options()
            options.never_capture = True
            patterns = [re2.escape(one) for one, _ in LITERALS if one != _URL and one not in _COMMON]
            patterns += [f"{one}(?:{more}{{{_FOLLOWS}}}|{more}*\\z)" for one, more in _COMMON.items()]
            _search_rare.append(re2.compile("|".join(patterns), options).search)
    return bool(_search_rare[0](text.encode("utf-8", "replace")))


# --- variables ---------------------------------------------------------------------------


@frozen
class SplitVariables:
    """The caller's variables, the secret ones apart. A command does not get those that are `held`."""

    open: Mapping[str, str]  # no secrets
    passed: Mapping[str, str]  # secrets that every command gets, by a setting
    asked: Mapping[str, str]  # what this call asks for by name
    held: frozenset[str]


def split_variables(
    environ: Mapping[str, str], settings: Settings, asked: Iterable[str] = (), secret: Iterable[str] | None = None
) -> SplitVariables:
    """Split the variables of a caller; what is `asked` for and not set is left out.

    `secret` are the names of the secret ones, if they are known already.
    """
    found = names_of_secrets(environ, settings) if secret is None else secret
    names = frozenset(found) if settings.hold_secrets else frozenset()
    asked, usual = tuple(asked), (*settings.pass_secrets.split(), *ALWAYS_PASSED)
    now = {name for name in names if matches_any(name, asked)} | {name for name in asked if name in environ}
    passed = {name for name in names - now if matches_any(name, usual)}
    return SplitVariables(
        open={name: value for name, value in environ.items() if name not in names and name not in now},
        passed={name: environ[name] for name in passed},
        asked={name: environ[name] for name in now},
        held=names - now - passed,
    )


def names_of_secrets(environ: Mapping[str, str], settings: Settings) -> list[str]:
    """Return the names of the variables that are secret by name, by the form of their value, or by a setting."""
    named, formats = settings.secret_names.split(), Mask()
    everything = "\n".join(environ.values())
    no_tokens = formats.text(everything) == everything  # one search for all: mostly there is none
    return [
        name
        for name, value in environ.items()
        if looks_secret(name, value)
        or (named and matches_any(name, named))
        or not (no_tokens or formats.text(value) == value)
    ]


# --- what one shell knows ----------------------------------------------------------------

_TEXTS = ("command", "description", "error", "cwd", "matched")
_MOST_CACHED = 5000


class Redactor:
    """The secrets that one shell knows; tasks, errors and sessions without them."""

    def __init__(self, settings: Settings, read_state: Callable[[str], Snapshot]) -> None:
        """`read_state` reads the state of a session, which may raise OSError or ValueError."""
        self._settings, self._read_state = settings, read_state
        self._environ: Mapping[str, str] | None = None
        self._names: Sequence[str] = ()  # of the secret variables in it
        self._values: set[str] = set()
        self._states: dict[str, str] = {}  # the mark of the state of each session that was searched
        self._mask: Mask | None = None
        self._cache: dict[str, tuple[Task, Task]] = {}  # tasks that have ended, as they are and redacted
        self._cached_for: Mask | None = None

    @property
    def mask(self) -> Mask:
        """The mask for all that is known."""
        if not self._settings.mask_secrets:
            return OFF
        if self._environ is None:
            self.learn_environ(dict(os.environ))
        if self._mask is None:
            self._mask = Mask(self._values)
        return self._mask

    def mask_for(self, *sessions: str) -> Mask:
        """Return the mask that also covers what the commands of these sessions have set."""
        for session in sessions:
            if session and session not in self._states and self._settings.mask_secrets:
                self._states[session] = ""
                self.learn_state(session)
        return self.mask

    def learn_environ(self, environ: Mapping[str, str]) -> Sequence[str]:
        """Learn this process' environment as it is now. Returns the names of the secret variables in it."""
        if environ != self._environ:
            self._environ, self._names = environ, names_of_secrets(environ, self._settings)
            self._add({environ[name] for name in self._names})
        return self._names

    def learn(self, env: Mapping[str, str]) -> None:
        """Learn the secret ones of these variables."""
        self._add({env[name] for name in names_of_secrets(env, self._settings)})

    def learn_state(self, session: str, mark: str = "") -> None:
        """Learn what a session's commands have set, unless its state with this mark is known."""
        if not self._settings.mask_secrets or (mark and self._states.get(session) == mark):
            return
        try:
            state = self._read_state(session)
        except (OSError, ValueError):
            return  # it has no state
        if self._states.get(session) != state.mark:
            self._states[session] = state.mark
            self.learn(find_declared_secrets(state.script))

    def _add(self, values: set[str]) -> None:
        if not values <= self._values:
            self._values |= values
            self._mask = None

    def redact(self, task: AnyTask) -> AnyTask:
        """Return a task (or a result, or a receipt) without secrets."""
        mask = self.mask
        if not mask.on:
            return task
        if task.metadata:
            clean = {name: mask.text(one) if isinstance(one, str) else one for name, one in task.metadata.items()}
            if clean != task.metadata:
                task = replace(task, metadata=clean)
        texts = {name: text for name in _TEXTS if (text := task.__dict__.get(name))}
        everything = "\n".join(texts.values())
        if mask.text(everything) == everything:  # one search for all: mostly there is nothing, and lists are long
            return task
        return replace(task, **{name: mask.text(text) for name, text in texts.items()})

    def redact_cached(self, task: Task) -> Task:
        """As `redact`. A task that has ended is the same object each time, and is searched once."""
        if self.mask is not self._cached_for:
            self._cache, self._cached_for = {}, self.mask
        known = self._cache.get(task.task_id)
        if known is None or known[0] is not task:
            known = (task, self.redact(task))
            if task.finished and len(self._cache) < _MOST_CACHED:
                self._cache[task.task_id] = known
        return known[1]

    def redact_error(self, error: OutlastError) -> None:
        """Remove secrets from the message of an error."""
        error.message = self.mask.text(error.message)
        error.args = (error.message,)

    def redact_session(self, state: SessionState) -> SessionState:
        """Return what a session remembers, without secrets."""
        mask, values = self.mask, fields(state)
        if not mask.on:
            return state
        variables = {name: MASK if looks_secret(name) else mask.text(text) for name, text in state.variables.items()}
        tables = {name: {key: mask.text(text) for key, text in values[name].items()} for name in ("aliases", "traps")}
        return replace(state, variables=variables, **tables)
