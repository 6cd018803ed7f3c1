"""A read of little: what is left is seen in one look at one file, and mostly it is plain text without secrets.

That is what most reads with a cursor find, so it should take no longer than reading a
file. Whatever is not as simple as that is left to `reading`, which gets the same result.
"""

from __future__ import annotations

from outlast.masking import LOOK_BACK
from outlast.text import CONTROLS, is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.masking import Mask
    from outlast.storage.output import Source

_MOST = 1 << 15  # bytes
_CONTROLS = bytes(sorted(CONTROLS))


def rest(source: Source, start: int, closed: bool, mask: Mask) -> tuple[str, int] | None:
    """All that follows `start`, as text, and where that ends; None if it is not little, or not plain."""
    found = source.read_short_rest(start, LOOK_BACK if mask.on else 0, _MOST)
    if found is None:
        return None
    before, after = found
    text = _plain(after)
    if text is None or not mask.is_clear(before, after, closed):
        return None
    return text, start + len(after)


def _plain(data: bytes) -> str | None:
    """These bytes as text, if cleaning them changes nothing but line ends."""
    if data.isascii() and len(data.translate(None, _CONTROLS)) == len(data):
        return data.decode("ascii")
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return text if is_plain(text) else None
