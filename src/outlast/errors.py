"""Everything that can go wrong on our side, as one tree.

A command that fails is not an error: that is data, in its outcome. Each error here has
a stable `code` for programs and one sentence for people that says what to do.
"""

from __future__ import annotations

_NAMED = 80  # characters of what a caller gave that an error repeats


def quote(text: object) -> str:
    """Return what a caller gave as an error repeats it: between quotes, and cut."""
    whole = str(text)
    return f"'{whole if len(whole) <= _NAMED else whole[: _NAMED - 1] + '…'}'"


def _one_line(message: str) -> str:
    # What a user gave may hold line ends, or sequences that a terminal would obey.
    return message if message.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)


class Hint:
    """What to do about an error, a clause for each kind of reader. An empty one says nothing to that reader."""

    def __init__(self, command_line: str, python: str = "", model: str = "") -> None:
        self.command_line, self.python, self.model = command_line, python, model


WITH_TERMINAL = Hint("start it with `--tty`", "start it with `tty=True`", "start it with a terminal")
# A model has a tool that lists tasks; its profile says which.
LIST_TASKS = Hint("`outlast ps --all` lists them", "`Shell.list` lists them")


def _with_clause(message: str, clause: str) -> str:
    message = message.removesuffix(".")
    return f"{message}; {clause}." if clause else f"{message}."


class OutlastError(Exception):
    """The root: catch this to catch everything that Outlast raises on purpose.

    `message` is for the command line, `str()` for Python; they differ in the hint, if there is one.
    """

    code = "error"

    def __init_subclass__(cls, code: str = "") -> None:
        cls.code = code or cls.code

    def __init__(self, message: str, hint: Hint | None = None) -> None:
        self.hint = hint
        self.message = _one_line(_with_clause(message, hint.command_line) if hint else message)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message_with(self.hint.python) if self.hint else self.message

    def message_with(self, clause: str) -> str:
        """Return the message with this clause instead of the hint for the command line, if it has one."""
        if self.hint is None:
            return self.message
        return _with_clause(self.message.removesuffix(f"; {self.hint.command_line}."), clause)


class BadInput(OutlastError, code="bad-input"):
    """What was asked for makes no sense; nothing was started or changed."""


class BadPattern(BadInput, code="bad-pattern"):
    """A regular expression that cannot be compiled."""


class UnknownTask(OutlastError, code="unknown-task"):
    """No task has this id, or not any more."""


class AmbiguousTask(OutlastError, code="ambiguous-task"):
    """A part of an id that fits several tasks."""


class UnknownSession(OutlastError, code="unknown-session"):
    """No session has this name, or not any more."""


class SessionBusy(OutlastError, code="session-busy"):
    """The session has tasks that run, or its name is taken."""


class AlreadyEnded(OutlastError, code="already-ended"):
    """The task has ended, and nothing of it is left to end or to feed."""


class StillRunning(OutlastError, code="still-running"):
    """The task, or something that it started, still runs, so it cannot be removed."""


class OutOfReach(OutlastError, code="out-of-reach"):
    """The task runs in another pid namespace (a container), so its processes cannot be signalled from here."""


class InputRefused(OutlastError, code="input-refused"):
    """The task takes no input, or does not read what it was given."""


class ReaderBusy(OutlastError, code="reader-busy"):
    """Another process reads what is new as the same reader, and has not finished."""


class StartFailed(OutlastError, code="start-failed"):
    """The command could not be launched; no task was made."""


class StateRefused(OutlastError, code="state-refused"):
    """The state directory is not private, not ours, or of a format we do not know."""


class DamagedTask(OutlastError, code="damaged-task"):
    """A task's own files cannot be understood; other tasks are not affected."""


class NewerTask(DamagedTask, code="newer-task"):
    """A task that a newer version of Outlast made: nothing is wrong with it, we only cannot read it."""


class SystemRefused(OutlastError, code="system-refused"):
    """The system refused what we cannot do without just now: a descriptor, memory, a disk that works."""


class Unsupported(OutlastError, code="unsupported"):
    """This system lacks something that Outlast cannot do without."""


class Refused(OutlastError, code="refused"):
    """The policy denies it, or a person who was asked said no. Nothing ran."""


class NeedsApproval(Refused, code="needs-approval"):
    """The policy wants a yes for it, and there was no person to ask. Nothing ran."""

    def __init__(self, message: str, approval: object) -> None:
        super().__init__(message)
        self.approval = approval


class SessionMoved(OutlastError, code="session-moved"):
    """The session's state changed between two looks at it; the caller begins anew."""
