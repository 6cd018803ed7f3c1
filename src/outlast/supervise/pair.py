"""What two guards keep when their task is over and another one like it is wanted.

Forking and warming up two processes costs several milliseconds of CPU, most of it pages
that have to be copied. Guards that have nothing left to do can take up the next task
instead: everything that belonged to the old one is closed, and the new one comes to the
keeper as it came to the supervisor, in descriptors.
"""

from __future__ import annotations

import os

from outlast import process
from outlast.frozen import fields
from outlast.lean import json, socket
from outlast.model import Stdin, Surroundings
from outlast.supervise import signals
from outlast.supervise.forks import close_all_but
from outlast.supervise.post import AGAIN, Pipe, Post
from outlast.supervise.post import Stdin as HeldStdin
from outlast.supervise.request import in_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.model import Identity

MOST_TASKS = 500  # one after the other; then fresh ones, whatever may have piled up in these
MOST_DESCRIPTORS = 10  # that go with one task


class Pair:
    """A supervisor's hold on its keeper, and what wakes it."""

    def __init__(self, hand: socket.socket, keeper: Identity) -> None:
        self.hand, self.keeper = hand, keeper
        self.keeper_fd = process.open_pidfd(keeper)
        self.wake = signals.Wake()
        self.tasks = 1

    def with_a_keeper(self, post: Post, ready: int) -> Pair:
        """Have ours start the shell of the next task."""
        self.tasks += 1
        told = json.dumps([os.getcwd(), post.published, _plain(post.around), post.stdin.writer >= 0]).encode()
        fds = [in_memory(told), ready, post.go, post.lock, post.stdin.reader]
        fds += [post.stdin.writer] if post.stdin.writer >= 0 else []
        fds += [fd for pipe in post.pipes for fd in (pipe.reader, pipe.writer)]
        socket.send_fds(self.hand, AGAIN, fds)
        os.close(fds[0])
        return self

    def let_go_of_all(self, caller: socket.socket) -> None:
        """Close what belonged to the task that is over."""
        kept = [self.hand.fileno(), caller.fileno(), *self.wake.fds]
        close_all_but(*kept, *([self.keeper_fd] if self.keeper_fd is not None else []))


def taken_over(fds: list[int], hand: socket.socket, wake: signals.Wake) -> tuple[Post, int, str]:
    """In a keeper that was told to go on: its next post, what the command waits on, and where it is prepared."""
    close_all_but(hand.fileno(), *wake.fds, *fds)
    told, ready, go, lock, reader, *rest = fds
    with open(told, "rb") as file:
        there, published, values, is_open = json.loads(file.read())
    writer = rest.pop(0) if is_open else -1
    pipes = tuple(Pipe(stream, *rest[at : at + 2]) for stream, at in (("stdout", 0), ("stderr", 2)) if rest[at:])
    around = Surroundings(**{**values, "stdin": Stdin(**values["stdin"])})
    post = Post(published, around, pipes, HeldStdin(reader, writer))
    post.lock, post.go, post.staged = lock, go, there
    return post, ready, there


def _plain(around: Surroundings) -> dict[str, object]:
    return {**fields(around), "stdin": {"file": around.stdin.file, "open": around.stdin.open}}
