"""A real sshd on loopback, with its own port, keys and home directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from outlast.linux.process import children_of
from tests.conftest import eventually


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Sshd:
    """The server, and the settings with which Outlast reaches it."""

    def __init__(self) -> None:
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
        if program is None or shutil.which("ssh") is None:
            pytest.skip("needs sshd and ssh (openssh-server)")
        self.directory = Path(tempfile.mkdtemp(prefix="outlast-sshd-"))
        self.home = self.directory / "far home"
        self.home.mkdir()
        self.port = free_port()
        self._pid_file = self.directory / "pid"
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / name)]
            subprocess.run(words, check=True, capture_output=True)
        shutil.copy(self.directory / "user.pub", self.directory / "authorized")
        config = [
            *(
                "UsePAM no",
                "StrictModes no",
                f"PidFile {self._pid_file}",
                "ListenAddress 127.0.0.1",
                f"Port {self.port}",
            ),
            *("MaxStartups 500", "MaxSessions 100", "PasswordAuthentication no", "KbdInteractiveAuthentication no"),
            *(f"HostKey {self.directory}/host", f"AuthorizedKeysFile {self.directory}/authorized"),
            f'SetEnv "HOME={self.home}" FAR_ONLY=yes FAR_TOKEN=far-canary-5150',
        ]
        (self.directory / "config").write_text("\n".join(config) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._program = program
        self.start()

    def start(self) -> None:
        """As a daemon: other tests look for children of this process."""
        words = [self._program, "-E", str(self.directory / "log"), "-f", str(self.directory / "config")]
        subprocess.run(words, stdin=subprocess.DEVNULL, check=True)
        eventually(self._answers, what="sshd listens")
        self.pid = int(eventually(lambda: self._pid_file.exists() and self._pid_file.read_text()))

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Also the processes that serve connections; the tasks go on."""
        for pid in (*children_of(self.pid), self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self._answers(), what="sshd is gone")
        self._pid_file.unlink(missing_ok=True)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def settings(self, name: str = "box", port: int = 0, shared: bool = True) -> str:
        options = [
            f"Port={port or self.port}",
            f"IdentityFile={self.directory}/user",
            f"UserKnownHostsFile={self.directory}/known",
            *("IdentitiesOnly=yes", "StrictHostKeyChecking=accept-new", "LogLevel=ERROR", "HostKeyAlias=far"),
            "KexAlgorithms=curve25519-sha256",  # the default one costs both sides 50 ms of CPU
            *(() if shared else ("ControlMaster=no", "ControlPath=none")),
        ]
        listed = ", ".join(f'"{option}"' for option in options)
        return f'[executors.{name}]\nkind = "ssh"\nhost = "127.0.0.1"\noptions = [{listed}]\n'

    def tasks(self) -> list[Path]:
        return sorted((self.home / ".local/state/outlast-far").glob("*/tasks/*"))
