"""Moves what the command prints from its pipe into the output files.

`splice` moves bytes inside the kernel: at every instant they are in the pipe or in the
file, never between, so a supervisor that is killed loses none and doubles none.
"""

from __future__ import annotations

import errno
import os
import select
import time
from fcntl import F_GETFL, F_SETFL, fcntl, ioctl
from sys import byteorder
from termios import FIONREAD

from outlast.store import record
from outlast.store.output import Bound, Sink

_PIECE_BYTES = 1 << 20
_PIECES_A_TURN = 16  # then look at everything else: a flood must not starve a limit
_SPACE_EVERY_BYTES = 1 << 20  # look at the free space at least once for so many bytes
_FIRST_BYTES = 64 * 1024  # kept whatever the floor: a nearly full disk must not make every command mute
_SPACE_EVERY_S = 1.0  # while dropping, look this often whether space came back
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE})


class Pump:
    """One stream of a task: the pipe's read end, its write end while the command lives, and a sink."""

    def __init__(
        self, stream: str, reader: int, writer: int, bound: Bound, floor: int, *, resumed: bool = True
    ) -> None:
        self.stream, self.reader, self.writer = stream, reader, writer
        self.closed = False
        self._floor = floor
        self._allowed = _FIRST_BYTES  # until the next look at the free space
        self._dropping_since: float | None = None
        self._sink = Sink(stream, bound, record.read().get("position", {}).get(stream, 0) if resumed else None)

    def move(self) -> bool:
        """Move what is there, up to a bound; whether anything was."""
        moved = False
        for _ in range(_PIECES_A_TURN):
            count = self._piece(_PIECE_BYTES)
            if count is None:
                return moved
            if count == 0:
                self.closed = True
                return moved
            moved = True
        return moved

    def rehearse(self) -> None:
        """Move the nothing that is there."""
        self.move()
        self.drain()

    def begin(self, bound: Bound, floor: int) -> None:
        """What is to be kept is known now; nothing has come yet."""
        self._sink.rebound(bound)
        self._floor = floor

    def drain(self) -> bool:
        """Move exactly what is in the pipe now; a child that goes on printing does not hold us up. Whether any was."""
        # Not an array: importing that loads all of `collections` into every guard.
        counted = bytearray(4)
        ioctl(self.reader, FIONREAD, counted)
        left = waiting = int.from_bytes(counted, byteorder)
        while left > 0 and (count := self._piece(left)):
            left -= count
        return waiting > 0

    @property
    def offset(self) -> int:
        """How far the stream has come."""
        return self._sink.offset

    def let_go(self) -> None:
        """The write end is closed: from now on end-of-file means that no process prints any more."""
        self.writer = -1

    def _block_again(self) -> None:
        # node makes the pipe that it shares with its siblings non-blocking and leaves
        # it so; they would then lose output to EAGAIN. The flag is the pipe's, so we can undo it.
        if self.writer >= 0 and (flags := fcntl(self.writer, F_GETFL)) & os.O_NONBLOCK:
            fcntl(self.writer, F_SETFL, flags & ~os.O_NONBLOCK)

    def _piece(self, most: int) -> int | None:
        """Move up to `most` bytes: how many, 0 at the end of the stream, None if there is nothing now."""
        self._block_again()
        if not self._has_space():
            return self._drop(most)
        try:
            room = min(most, self._allowed, self._sink.room())
            place = self._sink.offset - self._sink.start
            count = os.splice(self.reader, self._sink.fd, room, offset_dst=place, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return None
        except InterruptedError:
            return None
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._dropping_since = time.monotonic()
            return self._drop(most)
        self._sink.wrote(count)
        self._allowed -= count
        return count

    def _has_space(self) -> bool:
        if self._dropping_since is not None:
            if time.monotonic() - self._dropping_since < _SPACE_EVERY_S:
                return False
        elif self._allowed > 0:
            return True
        disk = os.statvfs(".")
        floor = min(self._floor, disk.f_blocks * disk.f_frsize // 20)
        self._allowed = min(_SPACE_EVERY_BYTES, disk.f_bavail * disk.f_frsize - floor)
        self._dropping_since = None if self._allowed > 0 else time.monotonic()
        return self._allowed > 0

    def _drop(self, most: int) -> int | None:
        """Throw bytes away so that the task can go on, and remember how many."""
        try:
            null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return self._drop_by_reading(most)
        try:
            count = os.splice(self.reader, null, most, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            return None
        finally:
            os.close(null)
        return self._dropped(count)

    def _drop_by_reading(self, most: int) -> int | None:
        # Not even a descriptor is left. Our end of the pipe blocks, so look first.
        poll = select.poll()
        poll.register(self.reader, select.POLLIN)
        if not poll.poll(0):
            return None
        return self._dropped(len(os.read(self.reader, min(most, 65536))))

    def _dropped(self, count: int) -> int:
        if count:
            self._sink.dropped(count)
            position = record.read().get("position", {})
            record.write("position", {**position, self.stream: self._sink.offset})
        return count
