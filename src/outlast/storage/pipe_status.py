"""The status of each stage of a task's last pipeline, as its shell wrote it. The command can write there too."""

from __future__ import annotations

import os

from outlast.linux.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PIPES = "pipes"
MOST_STAGES = 500  # the list of a longer pipeline is not kept


def read_stages(directory: str) -> str | None:
    """What the shell of a task wrote about its last pipeline; None if it was not asked to: it is one command."""
    try:
        with open(open_regular(os.path.join(directory, PIPES)), encoding="ascii") as file:
            return file.read(4096)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return ""


def stages(code: int, written: str | None) -> tuple[int, ...] | None:
    """The status of each stage of the last pipeline, if it is known; if nothing is `written`, it is one command."""
    if written is None:
        return (code,)
    words = written.split()
    if not 3 <= len(words) <= MOST_STAGES + 2 or not _are_codes(words[1:]):
        return None
    said, *each = map(int, words[1:])
    if words[0] == "exit" and code not in each:
        return (code,)  # the last thing it did was `exit 3`, a pipeline of one stage
    return tuple(each) if said == code else None


def _are_codes(words: Sequence[str]) -> bool:
    return all(word.isascii() and word.isdigit() and int(word) < 256 for word in words)
