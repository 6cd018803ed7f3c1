"""What can be waited for besides a task's end: a line that it prints, a port, a URL, silence.

A condition only looks; the flow that waits decides when. A line and silence are looked for when the bell rings. Nothing
rings when the port of another program opens, so ports and URLs are tried again and again, less and less often.
"""

from __future__ import annotations

import time

from outlast.errors import BadInput, BadPattern, quote
from outlast.output.cleaner import Cleaner
from outlast.output.line_filter import LineFilter
from outlast.settings import development_commands
from outlast.shell import validation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any
    from urllib.request import OpenerDirector

    from outlast.settings import Settings
    from outlast.shell.options import ConditionOptions
    from outlast.storage.output import Source
    from outlast.types import Cursor

FIRST_TRY_S, LAST_TRY_S, SLOWER = 0.05, 1.0, 1.5  # between two tries, at first and in the end
CONNECT_S = 1.0  # for a port that takes packets and says nothing
LONGEST_TRY_S = 10.0  # for a URL: some servers compile first
SHORTEST_TRY_S = 0.2  # also if no time is left: a wait of 0 s asks how it is now
LONGEST_PROMPT = 8192  # characters of an unfinished line that are matched; a longer one is no prompt
LONGEST_MATCH = 2000  # characters of a line that a reply repeats
NOT_READY = 500  # the first HTTP status that says that a server cannot answer yet
OVER = "it is over"
PAUSE_S, LONG_PAUSE_S = 0.15, 1.5  # of a program that has reacted; the longer one if it computes or sleeps
_LOOPBACK = ("127.0.0.1", "::1")
_PORTS = range(1, 65536)


class Condition:
    """Something that may come true while a task runs."""

    to_end_of = "task"  # or of its "command": what ends the wait for it
    by_output = False  # whether it can come true when the task prints
    matched: str | None = None  # what showed that it is true
    sources: Mapping[str, Source] | None = None  # the task's output

    @property
    def met(self) -> bool:
        return self.matched is not None

    def begin(self, sources: Mapping[str, Source]) -> None:
        """Take the task's output; called once, before the first look."""
        self.sources, self._size, self._since = sources, -1, time.monotonic()

    def count_printed(self) -> int:
        """Return how many bytes the task has printed."""
        return sum(source.end() for source in (self.sources or {}).values())

    def silence(self) -> float:
        """Return for how many seconds, as far as is known, the task has printed nothing."""
        size, now = self.count_printed(), time.monotonic()
        if size != self._size:
            self._size, self._since = size, now
        return now - self._since

    def look(self, over: bool, left: float | None = None) -> bool:
        """Return whether it is true now; `over` if nothing more will come of the task, `left` is how long to try."""
        self.matched = self.find(over, left)
        return self.met

    def find(self, over: bool, left: float | None) -> str | None:
        """Return what shows that it is true."""
        raise NotImplementedError

    def patience(self) -> float | None:
        """Return after how long to look again if nothing happens."""
        return None


def choose(options: ConditionOptions) -> Condition | None:
    """Return the one condition that was asked for, if any."""
    kinds: dict[str, Callable[[Any], Condition]] = {
        "until": lambda pattern: Line(pattern, validation.cursor(options.get("cursor"))),
        "port": Port,
        "url": Url,
        "quiet": Quiet,
    }
    given = [(name, value) for name in kinds if (value := options.get(name)) is not None]
    if len(given) > 1:
        raise BadInput(
            f"Only one of {' and '.join(name for name, _ in given)} can be waited for at a time; leave out the rest."
        )
    if options.get("cursor") is not None and options.get("until") is None:
        raise BadInput("A cursor says from where `until` looks; leave it out, or give a pattern.")
    return next((kinds[name](value) for name, value in given), None)


def choose_leave(command: str, settings: Settings) -> UnderWay | None:
    """Return when to stop waiting for a development command (a server, say) before its end; None: never."""
    from outlast.program_names import runs_any  # most callers do without

    develops = runs_any(command, development_commands(settings))
    return UnderWay(settings.auto_background_after_s) if develops else None


# --- output ------------------------------------------------------------------------------


class Line(Condition):
    """A line of the output matches; also one that has no end yet, such as a prompt.

    A program may write the end of a line separately (`python -u` does), so an unfinished line counts after a pause.
    """

    by_output = True

    def __init__(self, pattern: str, start: Cursor) -> None:
        if not isinstance(pattern, str):
            raise BadInput(f"The pattern is text, not {type(pattern).__name__}.")
        if not pattern:
            raise BadPattern("The pattern is empty, so every line would match; say what to wait for.")
        self._pattern, self._start = pattern, start
        self._streams: list[_Matching] = []
        self._prompt = ""  # the unfinished line that matches
        self._prompt_since = 0.0
        LineFilter(pattern, None)  # a wrong pattern is an error before anything is started

    def begin(self, sources: Mapping[str, Source]) -> None:
        super().begin(sources)
        self._streams = [
            _Matching(source, self._start.at(name), LineFilter(self._pattern, None)) for name, source in sources.items()
        ]

    def find(self, over: bool, left: float | None) -> str | None:
        found = next((line for one in self._streams if (line := one.find()) is not None), None)
        if found is None:
            found = self._find_prompt(over or (left is not None and left <= 0))
        return None if found is None else found[:LONGEST_MATCH]

    def _find_prompt(self, at_once: bool) -> str | None:
        """Return the unfinished line that matches, if it has not changed for a while or the wait is over."""
        prompt = next((line for one in self._streams if (line := one.find_unfinished(at_once))), "")
        if prompt != self._prompt:
            self._prompt, self._prompt_since = prompt, time.monotonic()
        return prompt if prompt and (at_once or not self.patience()) else None

    def patience(self) -> float | None:
        return max(0.0, self._prompt_since + PAUSE_S - time.monotonic()) if self._prompt else None


class _Matching:
    """One stream, read once from its start on."""

    def __init__(self, source: Source, place: int, sieve: LineFilter) -> None:
        self._source, self._place, self._sieve = source, place, sieve
        self._cleaner = Cleaner()

    def find(self) -> str | None:
        """Return the first whole line that matches in what is new."""
        for piece in self._source.chunks(self._place, self._source.end()):
            self._place = piece.next
            text = self._cleaner.finish() + "\n" if piece.dropped else ""
            passed = self._sieve.feed(text + self._cleaner.feed(piece.data))
            if passed:
                return passed.partition("\n")[0]
        return None

    def find_unfinished(self, is_last: bool) -> str | None:
        """Return the line that has no end yet, if it matches."""
        line = self._cleaner.get_open_line(None if is_last else LONGEST_PROMPT)
        return line if line and self._sieve.matches(line) else None


class Quiet(Condition):
    """Nothing was printed for so many seconds since the wait began, or the task is over."""

    by_output = True

    def __init__(self, seconds: float) -> None:
        checked = validation.seconds("quiet", seconds, least=0.001)
        if checked is None:
            raise BadInput("The quiet must be a number of seconds that passes; leave it out to wait for the end.")
        self._seconds = checked

    def find(self, over: bool, left: float | None) -> str | None:
        if over:
            return OVER
        return f"no output for {self._seconds:g} s" if self.silence() >= self._seconds else None

    def patience(self) -> float:
        return max(0.0, self._since + self._seconds - time.monotonic())


class Reaction(Condition):
    """The program has reacted to its input: it reads on, it has ended, or it printed something and then paused.

    A process that sleeps in read(2) on the task's input waits for the next one. Others (a Node.js prompt sleeps in
    epoll_wait) cannot be told from one that is idle: there a short pause after some output counts. One that computes
    or sleeps is about to go on, so it gets a longer one.
    """

    by_output = True

    def __init__(self, activity: Callable[[], str], from_start: bool = False) -> None:
        """`activity` says what the task does at this moment; `from_start`: what it printed before counts, too."""
        self._activity, self._from_start = activity, from_start

    def begin(self, sources: Mapping[str, Source]) -> None:
        super().begin(sources)
        self._size = self.count_printed()
        self._first_size = 0 if self._from_start else self._size

    def find(self, over: bool, left: float | None) -> str | None:
        from outlast.linux.activity import BUFFERED, BUSY, DISK, INPUT, SLEEPING  # most waits are for an end

        if over:
            return OVER
        silence = self.silence()
        if silence < PAUSE_S:
            return None
        activity = self._activity()
        if activity == INPUT:
            return activity
        needed = LONG_PAUSE_S if activity in (BUSY, DISK, SLEEPING, BUFFERED) else PAUSE_S
        return f"no output for {needed:g} s" if self._size > self._first_size and silence >= needed else None

    def patience(self) -> float:
        left = self._since + PAUSE_S - time.monotonic()
        return left if left > 0 else PAUSE_S


class UnderWay(Condition):
    """The command has run for so long, and has printed something: its caller need not wait for it any more."""

    by_output = True
    to_end_of = "command"

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def find(self, over: bool, left: float | None) -> str | None:
        return "it is under way" if not over and time.monotonic() >= self._at and self.count_printed() else None

    def patience(self) -> float | None:
        # Afterwards the bell rings when it prints.
        left = self._at - time.monotonic()
        return left if left > 0 else None


# --- servers -----------------------------------------------------------------------------


class _Server(Condition):
    """Something answers. Only a try can tell: less and less often, so that a slow server is not disturbed."""

    _pause = FIRST_TRY_S

    def find(self, over: bool, left: float | None) -> str | None:
        most = LONGEST_TRY_S if left is None else min(left, LONGEST_TRY_S)
        return self._try(max(most, SHORTEST_TRY_S))

    def patience(self) -> float:
        pause, self._pause = self._pause, min(self._pause * SLOWER, LAST_TRY_S)
        return pause

    def _try(self, most: float) -> str | None:
        raise NotImplementedError


class Port(_Server):
    """A TCP port takes a connection, whatever program opened it."""

    def __init__(self, asked: int | str) -> None:
        host, _, port = str(asked).rpartition(":")
        if isinstance(asked, bool) or not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) in _PORTS):
            raise BadInput(f"{quote(asked)} is not a port; give a number from 1 to 65535, or HOST:PORT.")
        self._hosts = (host.removeprefix("[").removesuffix("]"),) if host else _LOOPBACK
        self._port = int(port)

    def _try(self, most: float) -> str | None:
        import socket

        for host in self._hosts:
            try:
                socket.create_connection((host, self._port), min(CONNECT_S, most)).close()
                return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
            except (OSError, UnicodeError):
                continue
        return None


class Url(_Server):
    """An HTTP GET is answered with a status below 500; a redirect is an answer too."""

    def __init__(self, url: str) -> None:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(url)
            self._host, _ = parts.hostname, parts.port
        except (ValueError, TypeError, AttributeError):
            raise BadInput(f"{quote(url)} is not a URL; write http://HOST:PORT/PATH.") from None
        if parts.scheme not in ("http", "https") or not self._host or not url.isprintable() or " " in url:
            raise BadInput(f"{quote(url)} is not a URL of a web server; write http://HOST:PORT/PATH.")
        self._url = url

    def _try(self, most: float) -> str | None:
        from http.client import HTTPException
        from urllib.error import HTTPError

        try:
            with self._opener().open(self._url, timeout=most) as answer:
                status = answer.status
        except HTTPError as error:
            status = error.code
            error.close()
        except (OSError, HTTPException, ValueError):
            return None
        return f"HTTP status {status}" if status < NOT_READY else None

    def _opener(self) -> OpenerDirector:
        import ssl
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

        class Stay(HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                return None

        if not _is_loopback(self._host or ""):
            return build_opener(Stay)
        # What we start ourselves is asked directly, and whether it answers is no matter of trust.
        return build_opener(Stay, ProxyHandler({}), HTTPSHandler(context=ssl._create_unverified_context()))


def _is_loopback(host: str) -> bool:
    return host in ("::1", "localhost") or host.endswith(".localhost") or host.startswith("127.")
