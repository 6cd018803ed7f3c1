"""Hosts that start tasks and subscribers that are told of them, all of them killed at random. Prints what came of it.

python -m tests.notices.chaos HOME TASKS SUBSCRIBERS KILLS SEED
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from outlast import Shell
from outlast.storage.outbox import EVERYBODY, Outbox
from tests.conftest import processes_of

HOSTS = 2
PATIENCE_S = 600.0


def main(home: str, tasks: int, subscribers: int, kills: int, seed: int) -> None:
    """One line of JSON: the tasks there are, and all that the subscribers wrote down, in order."""
    logs = os.path.join(os.path.dirname(home), "logs")
    os.mkdir(logs)
    lives: dict[str, Callable[[], None]] = {
        **{f"host-{n}": _host(home, logs, n, tasks // HOSTS) for n in range(HOSTS)},
        **{f"sub-{n}": _subscriber(home, logs, n) for n in range(subscribers)},
    }
    Shell.open(home=home).close()
    killed = _disturb(lives, kills, random.Random(seed), lambda: _is_done(home, logs, tasks))
    told = {name: _lines(logs, name) for name in lives if name.startswith("sub")}
    print(json.dumps({"tasks": sorted(os.listdir(f"{home}/tasks")), "told": told, "killed": killed}))


def _disturb(
    lives: dict[str, Callable[[], None]], kills: int, chance: random.Random, done: Callable[[], bool]
) -> list[int]:
    """Let all of them live, and kill one after the other, until it is done; the pids that were killed."""
    pids = {name: _born(life) for name, life in lives.items()}
    killed: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < deadline:
        time.sleep(chance.random() * 0.05)
        for name, pid in list(pids.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                pids.pop(name)  # a host that has done its work
        if len(killed) < kills and pids:
            name = chance.choice(list(pids))
            os.kill(pids[name], signal.SIGKILL)
            os.waitpid(pids[name], 0)
            killed.append(pids[name])
            pids[name] = _born(lives[name])
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return killed


def _born(life: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        _live(life)
    return pid


def _live(life: Callable[[], None]) -> NoReturn:
    try:
        life()
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)


def _host(home: str, logs: str, number: int, most: int) -> Callable[[], None]:
    def life() -> None:
        with Shell.open(home=home, session=f"s{number}", prepare=False) as shell:
            while len(_lines(logs, f"host-{number}")) < most:
                task = shell.start("true" if number else "exit 1")
                _note(logs, f"host-{number}", task.task_id)

    return life


def _subscriber(home: str, logs: str, number: int) -> Callable[[], None]:
    def life() -> None:
        with (
            Shell.open(home=home, operator=True, prepare=False) as shell,
            shell.subscribe(f"sub-{number}") as subscription,
        ):
            while True:
                for notice in subscription.wait():
                    _note(logs, f"sub-{number}", f"got {notice.number} {notice.task_id} {notice.kind}")
                    if subscription.acknowledge(notice):
                        _note(logs, f"sub-{number}", f"acknowledged {notice.number}")

    return life


def _note(logs: str, name: str, what: str) -> None:
    fd = os.open(os.path.join(logs, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{os.getpid()} {what}\n".encode())
    os.close(fd)


def _lines(logs: str, name: str) -> list[str]:
    try:
        with open(os.path.join(logs, name)) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def _is_done(home: str, logs: str, tasks: int) -> bool:
    if sum(len(_lines(logs, f"host-{n}")) for n in range(HOSTS)) < tasks // HOSTS * HOSTS:
        return False
    if processes_of(home):
        return False  # the guard of a host that was killed may still publish a task
    outbox = Outbox(home)
    try:
        told = sum(1 for one in outbox.newest(EVERYBODY, -1) if one.kind == "ended")
        behind = "SELECT 1 FROM subscribers WHERE taken < (SELECT max(number) FROM notices)"
        waits = outbox.query(behind) or outbox.query("SELECT 1 FROM claims")
        return told >= len(os.listdir(f"{home}/tasks")) and not waits
    finally:
        outbox.close()


def contradictions(came: dict[str, object]) -> Iterator[str]:
    """What must not have happened."""
    tasks, killed = set(came["tasks"]), set(came["killed"])  # type: ignore[call-overload]
    for name, lines in came["told"].items():  # type: ignore[attr-defined]
        had: dict[str, list[str]] = {}
        acknowledged: set[str] = set()
        about: dict[str, str] = {}
        for line in lines:
            pid, what, number, *task = line.split()
            if what == "acknowledged":
                if number in acknowledged:
                    yield f"{name}: {number} was acknowledged twice"
                acknowledged.add(number)
                continue
            if number in acknowledged:
                yield f"{name}: {number} came again after it was acknowledged"
            if number in had and int(had[number][-1]) not in killed:
                yield f"{name}: {number} came again, though nobody who had it was killed"
            if about.setdefault(number, task[0]) != task[0]:
                yield f"{name}: {number} is about two tasks"
            had.setdefault(number, []).append(pid)
        if set(about.values()) != tasks:
            yield f"{name}: told of {len(set(about.values()))} tasks of {len(tasks)}"
        if len(about) != len(set(about.values())):
            yield f"{name}: a task was told of under two numbers"


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
