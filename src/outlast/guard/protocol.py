"""The launch description and the messages of `outlast-guard`, as docs/guard.md defines them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Value = str | bytes | int | float
    Item = tuple[str, Value]

HEADER = b"outlast-launch 1\n"


def encode_items(items: Iterable[Item]) -> bytes:
    """Items as the guard reads them: also the terms that let a prepared task begin."""
    return b"".join(_encode(key, value) for key, value in items)


def encode_launch(items: Iterable[Item]) -> bytes:
    """A whole launch description."""
    return HEADER + encode_items(items) + _encode("end", b"")


def _encode(key: str, value: Value) -> bytes:
    if isinstance(value, float):
        value = f"{value:.9f}"
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return b"%s %d\n%s\n" % (key.encode(), len(data), data)


def parse_message(message: bytes) -> tuple[str, list[str]]:
    """What the guard says: a word, and what belongs to it. The reason of a refusal is one string."""
    word, _, rest = message.decode("utf-8", "surrogateescape").partition(" ")
    return word, rest.split(" ", 1) if word == "refused" else rest.split()
