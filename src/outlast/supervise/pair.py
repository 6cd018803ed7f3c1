"""What a supervisor hands over to its keeper, and what the two keep when they take up another task.

A keeper is told of each task in one message: descriptors, and in one of them the rest. It
looks at that only if its supervisor dies.

Forking and warming up two processes costs several milliseconds of CPU, most of it pages
that have to be copied. Guards that have nothing left to do can take up the next task
instead: everything that belonged to the old one is closed, and the keeper is told of the new.
"""

from __future__ import annotations

import os

from outlast import process
from outlast.frozen import fields
from outlast.lean import json, socket
from outlast.model import Identity, Stdin, Surroundings, as_sandbox
from outlast.supervise import signals
from outlast.supervise.forks import close_all_but
from outlast.supervise.post import TASK, Pipe, Post, heard
from outlast.supervise.post import Stdin as HeldStdin
from outlast.supervise.request import from_memory, in_memory

MOST_TASKS = 500  # one after the other; then fresh ones, whatever may have piled up in these
KEPT = b"k"  # keeper to supervisor: I have what you gave me


class Pair:
    """A supervisor's hold on its keeper, and what wakes it."""

    def __init__(self, hand: socket.socket, keeper: Identity, asleep: bool = True) -> None:
        self.hand, self.keeper = hand, keeper
        self.asleep = asleep  # it is our parent, and what the command leaves behind comes to us
        self.keeper_fd = process.open_pidfd(keeper)
        self.wake = signals.Wake()
        self.tasks = 0

    def hand_over(self, post: Post) -> None:
        """Give the keeper what it needs to go on without us; it is awaited before anything is published."""
        self.tasks += 1
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        kept, lent = belongings(post)
        try:
            socket.send_fds(self.hand, TASK + post.task_id.encode(), [here, *kept, *lent])
        finally:
            os.close(kept[0])
            os.close(here)

    def await_keeper(self) -> None:
        """It has it: from now on either of us may die."""
        if heard(self.hand) != KEPT:
            raise OSError(0, "its keeper died")

    def let_go_of_all(self, caller: socket.socket) -> None:
        """Close what belonged to the task that is over."""
        kept = [self.hand.fileno(), caller.fileno(), *self.wake.fds]
        close_all_but(*kept, *([self.keeper_fd] if self.keeper_fd is not None else []))

    def close(self) -> None:
        """In a fork that is no guard."""
        self.hand.close()
        self.wake.close()


def belongings(post: Post) -> tuple[list[int], list[int]]:
    """The descriptors that are needed to go on with a task, and those that are needed only until its command is over.

    The first of them is new: it says all that the others do not.
    """
    wrapper = [post.wrapper.pid, post.wrapper.tick] if post.wrapper else None
    who = [post.command.pid, post.command.tick]
    told = in_memory(json.dumps([post.published, post.staged, _plain(post.around), who, wrapper]).encode())
    kept = [told, post.lock, post.command_fd, *(pipe.reader for pipe in post.pipes)]
    lent = [post.go, *(pipe.writer for pipe in post.pipes)]
    return kept, lent + ([post.stdin.writer] if post.stdin.writer >= 0 else [])


def taken_over(kept: list[int], lent: list[int], place: int) -> Post:
    """The post of who goes on with a task. What was lent is closed by now if the command was over."""
    told, lock, command, *readers = kept
    published, staged, values, who, wrapper = json.loads(from_memory(told))
    around = Surroundings(
        **{**values, "stdin": Stdin(**values["stdin"]), "sandbox": as_sandbox(values["sandbox"])},
    )
    go, *rest = lent or [-1]
    writers = rest[: len(readers)] or [-1] * len(readers)
    pipes = tuple(map(Pipe, ("stdout", "stderr")[: len(readers)], readers, writers))
    post = Post(published, around, pipes, HeldStdin(-1, *rest[len(readers) :]))
    post.lock, post.go, post.place, post.command_fd = lock, go, place, command
    post.command, post.staged = _identity(who), staged
    post.wrapper = _identity(wrapper) if wrapper else None
    return post


def _identity(who: list[int]) -> Identity:
    pid, tick = who
    return Identity(pid, tick, process.boot_id())


def _plain(around: Surroundings) -> dict[str, object]:
    plain: dict[str, object] = {**fields(around), "stdin": {"file": around.stdin.file, "open": around.stdin.open}}
    plain["sandbox"] = fields(around.sandbox) if around.sandbox else None
    return plain
