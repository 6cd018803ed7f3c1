"""Everything that can go wrong on our side, as one tree.

A command that fails is not an error: that is data, in its outcome. Each error here has
a stable `code` for programs and one sentence for people that says what to do.
"""

from __future__ import annotations


class OutlastError(Exception):
    """The root: catch this to catch everything that Outlast raises on purpose."""

    code = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


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


class AlreadyEnded(OutlastError):
    """The task has ended, and nothing of it is left to end or to feed."""

    code = "already-ended"


class InputRefused(OutlastError):
    """The task takes no input, or does not read what it was given."""

    code = "input-refused"


class StartFailed(OutlastError):
    """The command could not be launched; no task was made."""

    code = "start-failed"


class StateRefused(OutlastError):
    """The state directory is not private, not ours, or of a format we do not know."""

    code = "state-refused"


class DamagedTask(OutlastError):
    """A task's own files cannot be understood; other tasks are not affected."""

    code = "damaged-task"


class Unsupported(OutlastError):
    """This system lacks something that Outlast cannot do without."""

    code = "unsupported"
