"""What a guard does about signals: it ignores the usual ones and is woken by two.

A signal never says what to do, only to look: at the children (CHLD) or at the task's
files (USR1).
"""

from __future__ import annotations

import os

from outlast.lean import signal

_IGNORED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


def ignore_the_usual() -> None:
    """`pkill python`, a closed terminal or a Ctrl-C somewhere else must not end a task."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until somebody looks (`Wake`)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _nothing(*_: object) -> None:
    """The descriptor says it all."""


class Wake:
    """A descriptor that is readable after CHLD or USR1."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._end, False)
        signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _nothing)

    @property
    def fds(self) -> tuple[int, int]:
        return self.fd, self._end

    def ring(self) -> None:
        os.write(self._end, b"\0")

    def clear(self) -> None:
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._end)


# Every disposition goes back to its default: Python ignores SIGPIPE, and `yes | head` would complain.
WITH_A_DISPOSITION = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


def as_a_shell_expects() -> None:
    signal.set_wakeup_fd(-1)
    for number in WITH_A_DISPOSITION:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
