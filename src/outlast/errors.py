"""Everything that can go wrong on our side, as one tree.

A command that fails is not an error: that is data, in its outcome. Each error here has
a stable `code` for programs and one sentence for people that says what to do.
"""

from __future__ import annotations

_NAMED = 80  # characters of what somebody gave that an error repeats


def named(text: object) -> str:
    """Something that somebody gave, as an error repeats it: between quotes, and not the whole of a novel."""
    whole = str(text)
    return f"'{whole if len(whole) <= _NAMED else whole[: _NAMED - 1] + '…'}'"


def _one_line(message: str) -> str:
    # What a user gave may hold line ends, or sequences that a terminal would obey.
    return message if message.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)


class OutlastError(Exception):
    """The root: catch this to catch everything that Outlast raises on purpose."""

    code = "error"

    def __init__(self, message: str) -> None:
        self.message = _one_line(message)
        super().__init__(self.message)


class BadInput(OutlastError):
    """What was asked for makes no sense; nothing was started or changed."""

    code = "bad-input"


class BadPattern(BadInput):
    """A regular expression that cannot be compiled."""

    code = "bad-pattern"


class UnknownTask(OutlastError):
    """No task has this id, or not any more."""

    code = "unknown-task"


class AmbiguousTask(OutlastError):
    """A part of an id that fits several tasks."""

    code = "ambiguous-task"


class UnknownSession(OutlastError):
    """No session has this name, or not any more."""

    code = "unknown-session"


class SessionBusy(OutlastError):
    """The session has tasks that run, or its name is taken."""

    code = "session-busy"


class AlreadyEnded(OutlastError):
    """The task has ended, and nothing of it is left to end or to feed."""

    code = "already-ended"


class StillRunning(OutlastError):
    """The task, or something that it started, still runs, so it cannot be removed."""

    code = "still-running"


class OutOfReach(OutlastError):
    """The task runs in another pid namespace (a container), so its processes cannot be signalled from here."""

    code = "out-of-reach"


class InputRefused(OutlastError):
    """The task takes no input, or does not read what it was given."""

    code = "input-refused"


class ReaderBusy(OutlastError):
    """Another process reads what is new as the same reader, and has not finished."""

    code = "reader-busy"


class StartFailed(OutlastError):
    """The command could not be launched; no task was made."""

    code = "start-failed"


class StateRefused(OutlastError):
    """The state directory is not private, not ours, or of a format we do not know."""

    code = "state-refused"


class DamagedTask(OutlastError):
    """A task's own files cannot be understood; other tasks are not affected."""

    code = "damaged-task"


class NewerTask(DamagedTask):
    """A task that a newer version of Outlast made: nothing is wrong with it, we only cannot read it."""

    code = "newer-task"


class SystemRefused(OutlastError):
    """The system refused what we cannot do without just now: a descriptor, memory, a disk that works."""

    code = "system-refused"


class Unsupported(OutlastError):
    """This system lacks something that Outlast cannot do without."""

    code = "unsupported"


class Refused(OutlastError):
    """The policy denies it, or somebody who was asked said no. Nothing ran."""

    code = "refused"


class NeedsApproval(Refused):
    """The policy wants a yes for it, and nobody could be asked. Nothing ran."""

    code = "needs-approval"

    def __init__(self, message: str, approval: object) -> None:
        super().__init__(message)
        self.approval = approval


class SessionMoved(OutlastError):
    """The session's state changed between two looks at it; who asked begins anew."""

    code = "session-moved"
