"""tmux: a server on a socket of its own, one window for commands in turn, one more for each in the background."""

from __future__ import annotations

import shlex

from bench.peers.base import Peer, not_on_path


class Tmux(Peer):
    name = "tmux"

    @classmethod
    def missing(cls) -> str:
        return not_on_path("tmux")

    def open(self) -> None:
        self.env["TMUX_TMPDIR"] = f"{self.place}/tmp"
        with open(f"{self.place}/tmux.conf", "w") as file:
            file.write('set -g default-shell /bin/bash\nset -g default-command "bash --norc --noprofile"\n')
        self._marks = 0
        self._tmux("new-session", "-d", "-s", "bench", "-x", "200", "-y", "50")
        self.foreground("PS1='$ '")

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> bytes:
        return self.call("tmux", "-L", "bench", "-f", f"{self.place}/tmux.conf", *words)

    def _signalling(self, command: str) -> tuple[str, str]:
        self._marks += 1
        mark = f"m{self._marks}"
        # The command's own braces: `wait-for` is run whatever it does to the line after it.
        return mark, f"{{ {command}; }}; tmux -L bench wait-for -S {mark}"

    def foreground(self, command: str) -> None:
        mark, line = self._signalling(command)
        self._tmux("send-keys", "-t", "bench:0", "-l", line)
        self._tmux("send-keys", "-t", "bench:0", "Enter")
        self.wait(mark)

    def start(self, command: str) -> str:
        mark, line = self._signalling(command)
        self._tmux("new-window", "-d", "-t", "bench", "-n", mark, f"bash -c {shlex.quote(line)}")
        return mark

    def wait(self, ticket: str) -> None:
        self._tmux("wait-for", ticket)

    def wait_elsewhere(self, command: str) -> None:
        self.start_and_wait(command)

    def printed(self, command: str) -> str:
        self.foreground(command)
        return "bench:0"

    def last_lines(self, ticket: str) -> bytes:
        return b"\n".join(self._tmux("capture-pane", "-p", "-t", ticket).split(b"\n")[-5:])

    def kill(self, ticket: str) -> None:
        self._tmux("kill-window", "-t", f"bench:{ticket}")

    def command_line(self, verb: str) -> list[str]:
        words = {"ps": ["list-windows", "-t", "bench"], "run": ["new-window", "-d", "-t", "bench", "true"]}[verb]
        return ["tmux", "-L", "bench", *words]
