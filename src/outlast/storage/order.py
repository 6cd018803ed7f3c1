"""In which order the two streams of a split task came: where one stopped because the other went on.

Each stream is exact in itself; between them this is as exact as the supervisor could see
it. Only a help: without it, or past its bound, the streams are shown one after the other.
"""

from __future__ import annotations

import os

from outlast.linux.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "order"
MOST_BYTES = 32 * 1024  # a task that switches more often is a flood, and nobody reads all of that
_ENTRY = 8
_STDERR = 1 << 63  # in an entry: whose end it tells


class Order:
    """Written by the supervisor of a split task, in the task's directory."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self._fd = -1
        self._left = MOST_BYTES

    def came(self, stream: str, upto: int) -> None:
        """A stream has come so far."""
        if self._last is not None and self._last[0] != stream and self._left > 0:
            self._note(*self._last)
        self._last = (stream, upto)

    def _note(self, stream: str, upto: int) -> None:
        try:
            if self._fd < 0:
                self._fd = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                self._left -= os.fstat(self._fd).st_size
            entry = upto | (_STDERR if stream == "stderr" else 0)
            self._left -= os.write(self._fd, entry.to_bytes(_ENTRY, "little"))
        except OSError:
            self._left = 0  # a full disk: not worth losing anything for


def runs(directory: str, ends: Mapping[str, int]) -> list[tuple[str, int]]:
    """The streams in turn, each up to where it then stood, until both are at their `ends`."""
    try:
        with open(open_regular(os.path.join(directory, FILE)), "rb") as file:
            data = file.read(MOST_BYTES)
    except OSError:
        data = b""  # only a help
    found = []
    for at in range(0, len(data) - _ENTRY + 1, _ENTRY):
        entry = int.from_bytes(data[at : at + _ENTRY], "little")
        stream = "stderr" if entry & _STDERR else "stdout"
        found.append((stream, min(entry & ~_STDERR, ends[stream])))
    last = found[-1][0] if found else "stderr"
    # The one that stopped last did so because the other one went on.
    other = "stdout" if last == "stderr" else "stderr"
    return [*found, (other, ends[other]), (last, ends[last])]
