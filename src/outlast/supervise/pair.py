"""What a supervisor hands over to its keeper.

The keeper gets its task in one message: descriptors, and in one of them the rest. It reads
that only if its supervisor dies.
"""

from __future__ import annotations

import os

from outlast import process
from outlast.lean import socket
from outlast.model import Identity
from outlast.supervise import request, signals
from outlast.supervise.post import TASK, Pipe, Post, heard
from outlast.supervise.post import Stdin as HeldStdin

KEPT = b"k"  # keeper to supervisor: I have what you gave me


class Pair:
    """A supervisor's hold on its keeper, and what wakes it."""

    def __init__(self, hand: socket.socket, keeper: Identity, asleep: bool = True) -> None:
        self.hand, self.keeper = hand, keeper
        self.asleep = asleep  # it is our parent, and what the command leaves behind comes to us
        self.keeper_fd = process.open_pidfd(keeper)
        self.wake = signals.Wake()

    def hand_over(self, post: Post) -> None:
        """Give the keeper what it needs to go on without us; it is awaited before anything is published."""
        wrapper = [post.wrapper.pid, post.wrapper.tick] if post.wrapper else None
        request.add(post.asked, [post.published, post.staged, [post.command.pid, post.command.tick], wrapper])
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        kept, lent = belongings(post)
        try:
            socket.send_fds(self.hand, TASK + post.task_id.encode(), [here, *kept, *lent])
        finally:
            os.close(here)

    def await_keeper(self) -> None:
        """It has it: from now on either of us may die."""
        if heard(self.hand) != KEPT:
            raise OSError(0, "its keeper died")

    def close(self) -> None:
        """In a fork that is no guard."""
        self.hand.close()
        self.wake.close()


def belongings(post: Post) -> tuple[list[int], list[int]]:
    """The descriptors that one needs to go on with a task, and those that one needs only until its command is over."""
    kept = [post.asked, post.lock, post.command_fd, *(pipe.reader for pipe in post.pipes)]
    lent = [post.go, *(pipe.writer for pipe in post.pipes)]
    return kept, lent + ([post.stdin.writer] if post.stdin.writer >= 0 else [])


def taken_over(kept: list[int], lent: list[int], place: int) -> Post:
    """The post of who goes on with a task. What was lent is closed by now if the command was over."""
    asked, lock, command, *readers = kept
    around, (published, staged, who, wrapper) = request.with_found(asked)
    go, *rest = lent or [-1]
    writers = rest[: len(readers)] or [-1] * len(readers)
    pipes = tuple(map(Pipe, ("stdout", "stderr")[: len(readers)], readers, writers))
    post = Post(published, around, pipes, HeldStdin(-1, *rest[len(readers) :]))
    post.asked, post.lock, post.go, post.place, post.command_fd = asked, lock, go, place, command
    post.command, post.staged = _identity(who), staged
    post.wrapper = _identity(wrapper) if wrapper else None
    return post


def _identity(who: list[int]) -> Identity:
    pid, tick = who
    return Identity(pid, tick, process.boot_id())
