"""Another version of Outlast, such as the one before a change: a host of its own, driven through a pipe.

OUTLAST_BENCH_BEFORE names the Python that has it installed. Each call crosses a pipe, which takes less than 0.1 ms.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from bench.measure import Lacks
from bench.peers.base import Peer

_HOST = """
import json, sys
from outlast import Shell
shell = Shell.open(sys.argv[1])

def answer(verb, what):
    match verb:
        case "foreground": return shell.run(what).exit_code
        case "start": return shell.start(what).task_id
        case "wait": return shell.wait(what).status
        case "kill": return shell.kill(what).status
        case "reopen": return reopen()
        case "list": return fill()
        case "printed":
            task = shell.run(what)
            return [task.task_id, str(int(task.cursor) - 14)]
        case "last": return shell.read(what[0], cursor=what[1]).output
        case "memory": return memory(what)
        case "clean": return shell.clean(all_finished=True)

def memory(tasks):
    import os
    from outlast.store import status
    started = [shell.start("exec sleep 1000") for _ in range(tasks)]
    kib = 0
    for task in started:
        guards = status.guards_of(os.path.dirname(task.output_file))
        for who in filter(None, (guards.supervisor, guards.keeper)):
            with open(f"/proc/{who.pid}/smaps_rollup") as file:
                kib += sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
    shell.kill_all([task.task_id for task in started])
    return kib / tasks / 1024

def reopen():
    global shell
    shell.close()
    shell = Shell.open(sys.argv[1])

def fill():
    found = len(shell.list())
    for task_id in [shell.start("true").task_id for _ in range(1000 - found)]:
        shell.wait(task_id)

print("up", flush=True)
for line in sys.stdin:
    print(json.dumps(answer(*json.loads(line))), flush=True)
running = [task.task_id for task in shell.list() if task.status == "running" or task.children]
if running:
    shell.kill_all(running)
shell.close()
"""


class Before(Peer):
    name = "outlast before"

    @classmethod
    def missing(cls) -> str:
        return "" if os.environ.get("OUTLAST_BENCH_BEFORE") else "another version (OUTLAST_BENCH_BEFORE=PYTHON)"

    def open(self) -> None:
        self._python = os.environ["OUTLAST_BENCH_BEFORE"]
        env = {**self.env, "OUTLAST_MAX_RUNNING": os.environ.get("OUTLAST_MAX_RUNNING", "100000")}
        words = [self._python, "-c", _HOST, f"{self.place}/state"]
        self._host = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def close(self) -> None:
        self._host.communicate()

    def _line(self) -> str:
        assert self._host.stdout is not None
        if not (line := self._host.stdout.readline()):
            raise RuntimeError("its host ended")
        return line

    def _ask(self, verb: str, what: Any = "") -> Any:
        assert self._host.stdin is not None
        self._host.stdin.write(json.dumps([verb, what]) + "\n")
        self._host.stdin.flush()
        return json.loads(self._line())

    def foreground(self, command: str) -> None:
        self._ask("foreground", command)

    def flood(self, command: str) -> None:
        self.wait(self.start(command))

    def start(self, command: str) -> Any:
        return self._ask("start", command)

    def wait(self, ticket: Any) -> None:
        self._ask("wait", ticket)

    def reopen(self) -> None:
        self._ask("reopen")

    def discard(self) -> None:
        self._ask("clean")

    def printed(self, command: str) -> Any:
        return self._ask("printed", command)

    def last_lines(self, ticket: Any) -> bytes:
        return str(self._ask("last", ticket)).encode()

    def kill(self, ticket: Any) -> None:
        self._ask("kill", ticket)

    def list_finished(self) -> None:
        self._ask("list")

    def memory(self, tasks: int) -> float:
        """MiB of both guards for each of so many running tasks; for the versions whose guards were Python."""
        return float(self._ask("memory", tasks))

    def command_line(self, verb: str) -> list[str]:
        if verb not in ("ps", "run"):
            raise Lacks
        self.env["OUTLAST_HOME"] = f"{self.place}/typed"
        return [self._python, "-m", "outlast", *({"ps": ["ps"], "run": ["run", "true"]}[verb])]
