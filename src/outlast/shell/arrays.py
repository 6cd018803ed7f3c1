"""Many tasks of one command, started at once on a cluster that has a way to."""

from __future__ import annotations

from outlast.errors import BadInput
from outlast.shell.context import translate_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from outlast.shell.options import CommandOptions
    from outlast.shell.shell import Shell
    from outlast.types import Task

_MOST = 100_000  # as many as the index of tasks was tried with


@translate_errors
def start_array(
    shell: Shell, command: str, indexes: Sequence[int], /, **options: Unpack[CommandOptions]
) -> Sequence[Task]:
    """Start a background task for each index, which its command has in $OUTLAST_ARRAY_INDEX.

    The policy judges the command once. A cluster takes a thousand tasks as one job, so each costs milliseconds; all
    else is as for tasks that were started one by one. Options are as for `Shell.start`.
    """
    if not 0 < len(indexes) <= _MOST:
        raise BadInput(f"An array has 1 to {_MOST} tasks, not {len(indexes)}.")
    for name in ("name", "after", "like", "send"):
        if options.get(name):
            raise BadInput(f"The tasks of an array cannot have {name}; leave it out.")
    tasks = shell.starter.launch_array(command, indexes, **options)
    return [shell.context.redactor.redact_cached(task) for task in tasks]


def parse_indexes(text: str) -> list[int]:
    """Return the numbers in "0-99", "1,5,7" or "0-100:10"."""
    found: list[int] = []
    for part in text.split(","):
        bounds, _, step = part.partition(":")
        first, dash, last = bounds.partition("-")
        words = [first, *([last] if dash else []), *([step] if ":" in part else [])]
        if not all(word.isdecimal() and len(word) < 10 for word in words) or (":" in part and not int(step)):
            raise BadInput(f"An array is numbers, as in 0-99, 1,5,7 or 0-100:10, not {text!r}.")
        end = int(last or first)
        if not 0 <= (end - int(first)) // int(step or 1) < _MOST:
            raise BadInput(f"An array has 1 to {_MOST} tasks; {part} has not.")
        found += range(int(first), end + 1, int(step or 1))
    return found
