"""Fifty sessions that call with each other's ids: nobody reaches anything but their own, by any verb."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from outlast import AsyncShell, Shell, Task
from outlast.errors import BadInput, OutlastError, UnknownTask
from tests.conftest import Cli

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

SESSIONS = 50


def name_of(number: int) -> str:
    return f"agent-{number:02}"


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[tuple[str, dict[str, tuple[Task, Task]]]]:
    """A state directory in which each session has a task that ended and one that reads its input."""
    home = str(tmp_path_factory.mktemp("scope") / "state")
    Shell.open(home).close()  # made once, before all of them come at the same time

    def begin(number: int) -> tuple[Task, Task]:
        with Shell.open(home, session=name_of(number)) as shell:
            shell.run(f"mark=state-of-{number}")
            return shell.run(f"echo output-of-{number}"), shell.start("cat", name="one-name", stdin=STDIN)

    from outlast import Stdin

    STDIN = Stdin(open=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLAST_MAX_RUNNING", "200")
        with ThreadPoolExecutor(8) as pool:
            found = dict(zip(map(name_of, range(SESSIONS)), pool.map(begin, range(SESSIONS)), strict=True))
        yield home, found
        with Shell.open(home, operator=True) as operator:
            operator.kill_all([task.task_id for _, task in found.values()], grace=0.2)


def verbs(shell: Shell, ended: str, runs: str, other: str) -> dict[str, Callable[[], Any]]:
    """Everything that can be asked for with somebody else's id."""
    return {
        "show": lambda: shell.show(ended),
        "show a part": lambda: shell.show(ended[-7:]),
        "read": lambda: shell.read(ended),
        "read new": lambda: shell.read(ended, new=True, reader=f"session {other}"),
        "read from": lambda: shell.read(runs, cursor="0", tail=None, stream="stdout"),
        "follow": lambda: list(shell.follow(ended)),
        "fresh": lambda: list(shell.reader.read_fresh(ended, {"stdout": 0})),
        "wait": lambda: shell.wait(runs, timeout=0),
        "wait for a line": lambda: shell.wait(ended, timeout=0, until="output"),
        "kill": lambda: shell.kill(runs),
        "kill several": lambda: shell.kill_all([runs, ended]),
        "send": lambda: shell.send(runs, "hello\n", eof=True),
        "after": lambda: shell.start("true", after=[runs]),
        "end for limit": lambda: shell.control.end_for_limit(runs),
        "release": lambda: shell.control.release(runs),
        "session state": lambda: shell.sessions.state(other),
        "reset": lambda: shell.sessions.reset(other),
        "remove": lambda: shell.sessions.remove(other),
        "copy from": lambda: shell.sessions.copy(other, "stolen"),
        "copy to": lambda: shell.sessions.copy(shell.session, other),
    }


def test_no_verb_reaches_a_neighbour(world):
    home, tasks = world
    every_id = {task.task_id: session for session, pair in tasks.items() for task in pair}

    def call(number: int) -> None:
        me, other = name_of(number), name_of((number + 7) % SESSIONS)
        ended, runs = (task.task_id for task in tasks[other])
        with Shell.open(home, session=me) as shell:
            for verb, act in verbs(shell, ended, runs, other).items():
                with pytest.raises((UnknownTask, BadInput)) as refused:
                    act()
                told = refused.value.message.replace(ended, "").replace(runs, "")
                assert "output-of" not in told, verb
                # Not even as a hint: nothing in a refusal is about anybody else.
                assert all(session == me for task_id, session in every_id.items() if task_id in told), (verb, told)
            assert {task.session for task in shell.list()} == {me}
            assert {task.session for task in shell.list(session=other)} == {me}
            assert list(shell.sessions.names()) == [me]
            assert shell.sessions.state().variables == {"mark": f'"state-of-{number}"'}
            assert shell.run("echo $mark").output == f"state-of-{number}\n"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(SESSIONS)))
    with Shell.open(home, operator=True) as operator:
        running = {task.task_id for task in operator.list(status="running")}
        assert running == {task.task_id for _, task in tasks.values()}
        assert all(operator.read(task_id).output == "" for task_id in running)
        assert {operator.read(ended.task_id).output for ended, _ in tasks.values()} == {
            f"output-of-{number}\n" for number in range(SESSIONS)
        }


def test_asyncio_neither(world):
    home, tasks = world

    async def refused(number: int) -> None:
        ended, runs = (task.task_id for task in tasks[name_of((number + 3) % SESSIONS)])
        async with AsyncShell.open(home, session=name_of(number)) as shell:

            async def followed() -> list[Any]:
                return [piece async for piece in shell.follow(ended)]

            for wanted in (
                shell.show(ended),
                shell.read(ended),
                shell.wait(runs, timeout=0),
                shell.kill(runs),
                shell.send(runs, "x"),
                shell.start("true", after=[runs]),
                followed(),
            ):
                with pytest.raises((UnknownTask, BadInput)):
                    await wanted
            assert {task.session for task in await shell.list()} == {name_of(number)}

    async def all_of_them() -> None:
        await asyncio.gather(*(refused(number) for number in range(12)))

    asyncio.run(all_of_them())


def test_the_same_name_is_another_task_in_each_session(world):
    _, tasks = world
    assert len({task.task_id for _, task in tasks.values()}) == SESSIONS


def test_near_ids_and_ambiguous_ones_are_the_sessions_own(world):
    home, tasks = world
    with Shell.open(home, session=name_of(1)) as shell:
        own = {task.task_id for task in shell.list()}
        for part in ("bash-", "bash-zzzzzzzz", *(task.task_id[:-1] + "x" for task, _ in tasks.values())):
            with pytest.raises(OutlastError) as refused:
                shell.show(part)
            words = refused.value.message.replace(",", " ").replace(";", " ").split()
            named = {word for word in words if word.startswith("bash-") and len(word) == 13}
            assert named <= own, refused.value.message


def test_a_session_without_state_is_not_told_its_neighbours_names(world):
    home, _ = world
    with Shell.open(home, session="agent-999") as shell:
        with pytest.raises(OutlastError) as refused:
            shell.sessions.state()
        assert "agent-0" not in refused.value.message
        assert "near" not in refused.value.message


def test_cleaning_is_for_ones_own(home):
    with Shell.open(home, session="one") as one, Shell.open(home, session="two") as two:
        mine, theirs = one.run("true"), two.run("true")
        assert one.clean(all_finished=True) == 1
        assert [task.task_id for task in two.list()] == [theirs.task_id]
        with pytest.raises(UnknownTask):
            one.show(mine.task_id)


# --- the command line --------------------------------------------------------------------


def test_inside_a_session_the_command_line_reaches_only_its_own(world):
    home, tasks = world

    me, other = name_of(10), name_of(20)
    ended, runs = (task.task_id for task in tasks[other])
    cli = Cli(home)
    cli.env["OUTLAST_SESSION"] = me
    for words in (
        ("show", ended),
        ("logs", ended),
        ("logs", "--raw", "-f", ended),
        ("wait", ended),
        ("kill", runs),
        ("send", runs, "hello"),
        ("run", "--after", runs, "true"),
        ("session", "show", other),
        ("session", "remove", other),
        ("session", "copy", me, other),
    ):
        out = cli(*words)
        assert out.returncode in (1, 2), (words, out)
        assert out.stdout == "", (words, out)
        assert "output-of" not in out.stderr
    for words in (("ps", "--all", "--json"), ("tasks", "--json")):
        seen = [json.loads(line)["session"] for line in cli(*words).stdout.splitlines()]
        assert set(seen) == {me}, words
    assert cli("session", "list").stdout == f"{me}\n"
    own = {task.task_id for task in tasks[me]}
    strangers = {task.task_id for pair in tasks.values() for task in pair} - own
    assert strangers.isdisjoint(cli("completion", "ids").stdout.split())
    examined = cli("doctor").stdout
    assert not any(task_id in examined for task_id in strangers)


def test_the_operator_sees_all(world):
    home, tasks = world
    cli = Cli(home)
    seen = {json.loads(line)["session"] for line in cli("ps", "--all", "--json").stdout.splitlines()}
    assert seen >= set(tasks)
    assert cli("logs", tasks[name_of(3)][0].task_id).stdout == "output-of-3\n"
    assert cli("ps", "--session", name_of(3), "--json").stdout.count('"session": "agent-03"') >= 2


def test_a_damaged_task_of_a_neighbour_is_not_named(cli: Cli):
    task_id = cli("run", "--session", "one", "--json", "true").stdout
    damaged = json.loads(task_id)["task_id"]
    with open(f"{cli.env['OUTLAST_HOME']}/tasks/{damaged}/launch.json", "w") as file:
        file.write("{")
    assert damaged in cli("doctor").stdout
    cli.env["OUTLAST_SESSION"] = "two"
    assert damaged not in cli("doctor").stdout
    assert damaged not in cli("show", damaged[:-1]).stderr.replace(damaged[:-1], "", 1)
