"""`outlast demo`: the main job in half a minute, for a new user.

Everything it shows is real: the commands are run by the command line itself, in a
state directory of their own that is removed at the end.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile

from outlast.cli.arguments import Asked, Parser
from outlast.errors import OutlastError
from outlast.shell.shell import Shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

_SERVER = f"{shlex.quote(sys.executable)} -u -m http.server 0 --bind 127.0.0.1"
_JOB = 'for i in 1 2 3 4 5 6; do echo "step $i of 6"; sleep 0.4; done; echo finished; exit 7'
_TREE = "sleep 300 & setsid sleep 301 & (sleep 302 &) ; sleep 303"
_AGENT = """
import sys
from outlast import Shell
with Shell.open() as shell:
    print(shell.start(sys.argv[1], description="a long job").task_id, flush=True)
    sys.stdin.read()
"""
_READY_S = 15.0


def demo_parser() -> Parser:
    """Return the options of `outlast demo`."""
    return Parser("demo", "See the main job in half a minute. It cleans up after itself.", "  outlast demo")


def demo(asked: Asked) -> int:
    """Do what `outlast demo` asks; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="outlast-demo-") as directory:
        tour = _Tour(os.path.join(directory, "state"))
        try:
            tour.run()
        finally:
            tour.end_everything()
    return 0


class _Tour:
    """The demo, step by step."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._env = {**os.environ, "OUTLAST_HOME": home, "OUTLAST_SESSION": "demo"}
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._number = 0

    def run(self) -> None:
        self._foreground()
        server = self._background()
        self._outlive()
        self._end_a_tree()
        self._step("Everything that ran, with its true ending. The server still runs.")
        self._outlast("ps")
        self._outlast("kill", server)
        print("\nThat is the main job. `outlast --help` shows the rest; nothing of this demo is left running.")

    def _foreground(self) -> None:
        self._step("A command in the foreground: its output as it comes, and its own exit code.")
        self._outlast("run", 'echo compiling; echo "warning: tabs" >&2; exit 3')

    def _background(self) -> str:
        self._step("A development server in the background. You get its id at once, and the prompt back.")
        server = self._outlast("run", "--bg", "--description", "dev server", _SERVER).strip()
        print("\nIt prints a line when it is ready; --new shows only what was not shown before.")
        port = self._port_of(server)
        self._outlast("logs", "--new", server)
        self._visit(port)
        self._outlast("logs", "--new", server)
        return server

    def _outlive(self) -> None:
        self._step("Now the point. An agent starts a long job and is killed with kill -9.")
        agent = subprocess.Popen(
            [sys.executable, "-c", _AGENT, _JOB],
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert agent.stdout is not None
        task_id = agent.stdout.readline().strip()
        print(f"agent (process {agent.pid}) started {task_id}: {_JOB}")
        agent.send_signal(signal.SIGKILL)
        agent.communicate()
        print(f"agent ended by {signal.Signals(-agent.returncode).name}. The job did not notice:")
        self._outlast("wait", task_id)
        self._outlast("logs", task_id)

    def _end_a_tree(self) -> None:
        self._step("A command that scatters processes. Ending it ends them all, and the receipt names them.")
        tree = self._outlast("run", "--bg", _TREE).strip()
        with self._shell() as shell:
            # Until all five are there: the shell and its four sleeps.
            for _ in shell.follow(tree, timeout=0.5):
                pass
        self._outlast("kill", tree)

    def _step(self, text: str) -> None:
        self._number += 1
        bold, plain = ("\033[1m", "\033[0m") if self._colour else ("", "")
        print(f"\n{bold}{self._number}. {text}{plain}\n", flush=True)

    def _outlast(self, *words: str) -> str:
        """Run the command line as a user would, and show both the call and what it printed."""
        shown = shlex.join(words).replace(shlex.quote(sys.executable), "python3")
        print(f"$ outlast {shown}", flush=True)
        ran = subprocess.run(
            [sys.executable, "-m", "outlast", *words],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(ran.stdout, end="")
        if ran.returncode:
            print(f"(exit code {ran.returncode})")
        sys.stdout.flush()
        return ran.stdout

    def _shell(self) -> Shell:
        return Shell.open(home=self._home, session="demo")

    def _port_of(self, task_id: str) -> int:
        with self._shell() as shell:
            text = b""
            for piece in shell.follow(task_id, timeout=_READY_S):
                text += piece.data
                if found := re.search(rb"port (\d+)", text):
                    return int(found[1])
        raise OutlastError(f"The demo's server did not get ready: {text.decode(errors='replace')}")

    def _visit(self, port: int) -> None:
        from http.client import HTTPConnection

        connection = HTTPConnection("127.0.0.1", port, timeout=_READY_S)
        connection.request("GET", "/")
        print(f"(a client visits http://127.0.0.1:{port}/: {connection.getresponse().status})")
        connection.close()

    def end_everything(self) -> None:
        """Leave nothing behind, also when something went wrong."""
        with self._shell() as shell:
            for task in shell.list():
                if not task.finished or task.children:
                    shell.kill(task.task_id, grace=0.5)
