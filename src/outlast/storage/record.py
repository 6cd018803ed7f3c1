"""What changes in a task's life, in one small file whose space is reserved at the start.

A full disk refuses new files and new blocks, but not a write into a block that is already there. So everything that
must be recorded at all costs (which guards watch the task, how it ended) has a fixed slot in `record`, one page long,
and is written in place. Each slot is a checksum and a JSON text, padded to its line: `cat record` shows it.

A slot can be read while it is being rewritten. Then the checksum is wrong, and the reader reads again.
"""

from __future__ import annotations

import os
from binascii import crc32

from outlast.errors import DamagedTask
from outlast.light import json
from outlast.linux.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

NAME = "record"
SIZE = 4096
SLOTS = {
    "guards": (0, 1024),  # supervisor, keeper and command: their identities, since when
    "code": (1024, 128),  # how the command ended, as its parent saw it
    "ending": (1152, 448),  # who asked for the end, by which rule
    "position": (1600, 64),  # where the output stands while it is being dropped
    "outcome": (1664, 2432),  # the end: written last, when all output before it is kept
}
_TORN_READS = 100  # a torn read lasts microseconds; a slot still wrong after this many is damaged


def reserve(directory: str) -> None:
    """Create an empty record with its space."""
    fd = os.open(f"{directory}/{NAME}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SIZE)
        os.pwrite(fd, b"".join(b" " * (size - 1) + b"\n" for _, size in SLOTS.values()), 0)
    finally:
        os.close(fd)


def write(slot: str, value: Mapping[str, object], directory: str) -> None:
    """Put `value` into its slot. This cannot fail for want of space."""
    start, size = SLOTS[slot]
    text = json.dumps(value).encode()
    line = b"%08x %s" % (crc32(text), text)
    if len(line) >= size:
        raise ValueError(f"{slot} takes {size - 10} bytes, not {len(text)}")
    fd = open_regular(f"{directory}/{NAME}", os.O_WRONLY)
    try:
        os.pwrite(fd, line.ljust(size - 1) + b"\n", start)
    finally:
        os.close(fd)


def read(directory: str, slots: Iterable[str] = SLOTS) -> dict[str, Any]:
    """Return those of the `slots` that were written, by name."""
    fd = open_regular(f"{directory}/{NAME}")
    try:
        for _ in range(_TORN_READS):
            try:
                return parse(os.pread(fd, SIZE, 0), slots)
            except ValueError:
                continue
    finally:
        os.close(fd)
    name = os.path.basename(os.path.abspath(directory))
    raise DamagedTask(f"The record of {name} is damaged; `outlast clean` removes it.")


def parse(page: bytes, slots: Iterable[str] = SLOTS) -> dict[str, Any]:
    """Return the slots of one page; ValueError if one is torn or damaged."""
    if len(page) != SIZE:
        raise ValueError("not a whole record")
    found = {}
    for name in slots:
        start, size = SLOTS[name]
        # Search from the end: the value is an object, and stripping two thousand blanks would take far longer.
        end = page.rfind(b"}", start, start + size) + 1
        if end or page[start] not in b" \n\0":
            checksum, _, text = page[start:end].partition(b" ")
            if int(checksum, 16) != crc32(text):
                raise ValueError(f"torn slot {name}")
            found[name] = json.loads(text)
    return found
