"""Supervisors to whom nothing happens lie down; whatever happens then is as if they had not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast import Shell, process
from outlast.model import Guards, Stdin, Task
from outlast.store import status
from outlast.supervise import rest
from tests.conftest import eventually, processes_of
from tests.faults.support import codes_outlive_their_parents

pytestmark = pytest.mark.skipif(not rest.is_possible(), reason="no shell that leaves other people's children alone")

LIMIT_S = rest.QUIET_S + 3
COMMANDS: dict[str, dict[str, object]] = {
    "ends": {"command": "read x < {gate}; exit 7"},
    "prints": {"command": "read x < {gate}; echo late; read x < {gate}-again; exit 8"},
    "signalled": {"command": "read x < {gate}; kill -SEGV $$"},
    "reads": {"command": "cat; exit 4", "stdin": Stdin(open=True)},
    "limited": {"command": "sleep 300", "limit": LIMIT_S},
    "killed": {"command": "sleep 300 & setsid sleep 300 & sleep 300"},
    "loses its supervisor": {"command": "read x < {gate}; echo late; exit 9"},
    "loses its keeper": {"command": "read x < {gate}; echo late; exit 10"},
    "loses both in turn": {"command": "read x < {gate}; echo late; exit 11"},
    "talks": {"command": "while :; do echo on; sleep 0.5; done"},
    "orphans": {"command": "while :; do (setsid sleep 0.2 &); sleep 0.5; done"},
}


class Resting:
    """One task of each kind, and a gate for each."""

    def __init__(self, shell: Shell, place: Path) -> None:
        self.shell, self._place = shell, place
        self.tasks: dict[str, Task] = {}
        for name, how in COMMANDS.items():
            os.mkfifo(self._gate(name))
            os.mkfifo(f"{self._gate(name)}-again")
            command = str(how["command"]).format(gate=self._gate(name))
            self.tasks[name] = shell.start(command, **{key: value for key, value in how.items() if key != "command"})  # type: ignore[arg-type]

    def _gate(self, name: str) -> Path:
        return self._place / name.replace(" ", "-")

    def open_gate(self, name: str) -> None:
        self._gate(name).write_text("go\n")

    def guards(self, name: str) -> Guards:
        return status.guards_of(os.path.dirname(self.tasks[name].output_file))

    def is_at_rest(self, name: str) -> bool:
        return is_shell(self.guards(name).supervisor.pid)

    def ended(self, name: str) -> Task:
        task_id = self.tasks[name].task_id
        self.shell.wait(task_id, timeout=20)
        eventually(lambda: self.shell.show(task_id).closed)
        return self.shell.show(task_id)

    def output(self, name: str) -> str:
        return self.shell.read(self.tasks[name].task_id).output


def is_shell(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/exe") == os.path.realpath("/bin/sh")


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resting]:
    place = tmp_path_factory.mktemp("rest")
    home = str(place / "state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLAST_MAX_RUNNING", "100")
        with Shell.open(home=home) as shell:
            made = Resting(shell, place)
            quiet = [name for name in COMMANDS if name not in ("talks", "orphans")]
            eventually(lambda: all(made.is_at_rest(name) for name in quiet), what="all that are quiet to rest")
            yield made
            shell.kill_all([task.task_id for task in shell.list() if task.status == "running"], grace=0)
    eventually(lambda: not processes_of(home))


def memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def test_it_takes_little_memory_and_is_still_the_same_process(resting: Resting) -> None:
    guards = resting.guards("ends")
    assert guards.keeper is not None
    assert process.is_alive(guards.supervisor)
    assert process.is_alive(guards.command)
    assert guards.recoveries == 0
    assert guards.command.pid in process.children_of(guards.supervisor.pid)
    assert memory_kib(guards.supervisor.pid) + memory_kib(guards.keeper.pid) < 1024
    assert resting.shell.show(resting.tasks["ends"].task_id).status == "running"


def test_who_has_something_to_do_does_not_rest(resting: Resting) -> None:
    assert not resting.is_at_rest("talks")
    assert not resting.is_at_rest("orphans")


def test_how_its_command_ended_is_known(resting: Resting) -> None:
    resting.open_gate("ends")
    resting.open_gate("signalled")
    ended, signalled = resting.ended("ends"), resting.ended("signalled")
    assert (ended.exit_code, ended.reason, ended.cpu_ms is not None) == (7, "exit", True)
    assert (signalled.exit_code, signalled.signal) == (None, signal.SIGSEGV)


def test_what_its_command_prints_is_kept_and_the_supervisor_stays_its_parent(resting: Resting) -> None:
    before = resting.guards("prints")
    resting.open_gate("prints")
    eventually(lambda: resting.output("prints") == "late\n")
    assert (resting.guards("prints").supervisor, resting.guards("prints").keeper) == (before.supervisor, before.keeper)
    assert before.command.pid in process.children_of(before.supervisor.pid)
    resting.open_gate("prints again")
    assert resting.ended("prints").exit_code == 8


def test_its_command_can_be_given_input_and_the_end_of_it(resting: Resting) -> None:
    task_id = resting.tasks["reads"].task_id
    resting.shell.send(task_id, "a\n")
    eventually(lambda: resting.output("reads") == "a\n")
    resting.shell.send(task_id, "b\n", eof=True)
    assert (resting.ended("reads").exit_code, resting.output("reads")) == (4, "a\nb\n")


def test_its_limit_is_in_force(resting: Resting) -> None:
    ended = resting.ended("limited")
    assert (ended.status, ended.reason) == ("killed", "timeout")
    assert LIMIT_S <= ended.elapsed_ms / 1000 < LIMIT_S + 5


def test_its_tree_can_be_ended(resting: Resting) -> None:
    began = time.monotonic()
    receipt = resting.shell.kill(resting.tasks["killed"].task_id)
    assert (len(receipt.ended), receipt.survivors, receipt.closed) == (4, (), True)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("name", "order", "code"),
    [
        ("loses its supervisor", ["supervisor"], 9),
        ("loses its keeper", ["keeper"], 10),
        ("loses both in turn", ["keeper", "supervisor"], 11),
    ],
)
def test_its_guards_may_be_killed(resting: Resting, name: str, order: list[str], code: int) -> None:
    for which in order:
        before = getattr(resting.guards(name), which)
        assert process.send(before, signal.SIGKILL)
        eventually(lambda: getattr(resting.guards(name), which) != before)  # noqa: B023
    resting.open_gate(name)
    ended = resting.ended(name)
    assert resting.output(name) == "late\n"
    if len(order) == 1 or codes_outlive_their_parents():
        assert (ended.exit_code, ended.reason) == (code, "exit")
