"""A person at a terminal, as tmux plays one."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.clients.place import Place

PATIENCE_S = 30.0
_UNHEARD_S = 5.0


class Terminal:
    """What somebody sees and types."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def tmux(self, *words: str) -> str:
        said = subprocess.run(["tmux", "-S", self._socket, *words], capture_output=True, text=True, timeout=20)
        return said.stdout

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, text: str, patience: float = PATIENCE_S) -> None:
        """Wait until it is there."""
        if not self._comes(text, patience):
            raise AssertionError(f"the screen does not show {text!r}:\n{self.screen}")

    def _comes(self, text: str, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while text not in self.screen:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def type(self, text: str) -> None:
        """A line, and Enter once it is there."""
        self.tmux("send-keys", "-l", text)
        self.shows(text)
        self.tmux("send-keys", "Enter")

    def press(self, key: str, then: str) -> None:
        """A key, and what is to be seen after it. A program that is busy drawing may not hear the first time."""
        self.tmux("send-keys", key)
        if not self._comes(then, _UNHEARD_S):
            self.tmux("send-keys", key)
        self.shows(then)


@contextmanager
def terminal(place: Place, words: Sequence[str], env: Mapping[str, str]) -> Iterator[Terminal]:
    """A program in a terminal of its own."""
    socket = str(place.root / "tmux")
    size = ("-x", "120", "-y", "50")
    start = ["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-d", *size, "-c", str(place.work)]
    subprocess.run([*start, shlex.join(words)], check=True, env=dict(env), timeout=20)
    seen = Terminal(socket)
    try:
        yield seen
    finally:
        seen.tmux("kill-server")
