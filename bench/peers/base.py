"""The seam: what a row may ask of a contestant. What one does not have raises `Lacks`, and is shown as a dash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measure import Lacks, first_line

PEERS = Path(__file__).parent.parent.parent / ".venv-peers"
PATIENCE_S = float(os.environ.get("OUTLAST_BENCH_PATIENCE", "60"))
"""The longest that one call may take; what is slower than this is no figure but a remark."""

_LARGE = 10_000_000
MARK = "OUTLAST_BENCH_PEER"


class Peer:
    """A contestant with a place of its own, an empty home, and nothing of it left after `close`."""

    name = ""
    is_reference = False
    """Not a system but a way to do it by hand."""

    def __init__(self) -> None:
        self.place = tempfile.mkdtemp(prefix="outlast-bench-")
        for name in ("home", "tmp"):
            os.mkdir(f"{self.place}/{name}")
        self.env = {
            **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            "PATH": plain_path(),
            "HOME": f"{self.place}/home",
            "TMPDIR": f"{self.place}/tmp",
            "LC_ALL": "C.UTF-8",
            "SHELL": "/bin/bash",
            MARK: self.mark,
        }

    @property
    def mark(self) -> str:
        return self.place

    @classmethod
    def missing(cls) -> str:
        """What is not installed, or nothing."""
        return ""

    def open(self) -> None:
        """Whatever has to be there before the first command."""

    def close(self) -> None:
        """End everything, by its own means."""

    def renew(self) -> None:
        """As if it had just been opened."""
        self.remove()
        self.__init__()  # type: ignore[misc]
        self.open()

    def remove(self) -> None:
        """Close it and remove its place."""
        try:
            self.close()
        except Exception as error:  # it broke down before: what is left of it is only its place
            print(f"bench: {self.name} did not end well: {first_line(error)}", file=sys.stderr)
        shutil.rmtree(self.place, ignore_errors=True)

    @property
    def can_kill(self) -> bool:
        return type(self).kill is not Peer.kill

    # --- what is measured --------------------------------------------------------------

    def foreground(self, command: str) -> None:
        raise Lacks

    def start(self, command: str) -> Any:
        raise Lacks

    def wait(self, ticket: Any) -> None:
        raise Lacks

    def start_and_wait(self, command: str) -> None:
        """Be blocked until it ended; by default whatever waits, else the foreground."""
        try:
            ticket = self.start(command)
            self.wait(ticket)
        except Lacks:
            self.foreground(command)

    def wait_elsewhere(self, command: str) -> None:
        """The same by a process that did not start it."""
        raise Lacks

    def flood(self, command: str) -> None:
        """Run it until all that it prints is where it is kept."""
        self.foreground(command)

    def discard(self) -> None:
        """Remove what a flood has left: a disk that still writes it would slow down the next one."""
        for place, _, names in os.walk(self.place):
            for path in (f"{place}/{name}" for name in names):
                if os.path.isfile(path) and os.path.getsize(path) > _LARGE:
                    os.remove(path)

    def printed(self, command: str) -> Any:
        """Run it to its end; what `last_lines` needs."""
        raise Lacks

    def last_lines(self, ticket: Any) -> bytes:
        raise Lacks

    def kill(self, ticket: Any) -> None:
        raise Lacks

    def kill_all(self, tickets: list[Any]) -> None:
        for ticket in tickets:
            self.kill(ticket)

    def list_finished(self) -> None:
        raise Lacks

    def command_line(self, verb: str) -> list[str]:
        """What a person types for `ps` or for `run true`."""
        raise Lacks

    # --- what these have in common -----------------------------------------------------

    def call(self, *words: str, stdin: bytes | None = None) -> bytes:
        """A command line of this peer, run to its end."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        ran: subprocess.CompletedProcess[bytes] = subprocess.run(
            words, env=self.env, cwd=self.place, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=True, **given
        )
        return ran.stdout


def plain_path() -> str:
    """Ours without the shims of version managers, which take longer than what they stand for."""
    return ":".join(place for place in os.environ.get("PATH", os.defpath).split(":") if not place.endswith("/shims"))


def not_on_path(command: str) -> str:
    return "" if shutil.which(command) else command
