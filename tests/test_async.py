"""`AsyncShell`: many tasks and many waiters in one event loop, without a thread for each, and nothing leaks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Awaitable, Callable

import pytest

from outlast import AsyncShell, OutlastError, Shell
from outlast.errors import BadInput, UnknownTask
from outlast.light import fields
from outlast.linux import process
from outlast.types import Stdin
from tests.conftest import end_all, eventually, prepare_most

FEW_THREADS = 50  # the event loop's pool has at most 32


@pytest.fixture
def aio(home):
    """Runs a coroutine with an open shell; afterwards ends what is left."""

    def run(work: Callable[[AsyncShell], Awaitable[None]]) -> None:
        async def main():
            async with AsyncShell.open(home=home) as shell:
                await work(shell)

        asyncio.run(main())

    yield run
    with Shell.open(home=home) as shell:
        end_all(shell)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until(look: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(30):
        while not await look():
            await asyncio.sleep(0.005)


def test_a_command_is_run_as_by_the_plain_shell(aio, tmp_path):
    async def work(shell):
        result = await shell.run("echo out; pwd; exit 3", cwd=tmp_path, env={"A": "b"}, description="d")
        assert (result.status, result.exit_code) == ("failed", 3)
        assert result.output == f"out\n{tmp_path}\n"
        assert result.description == "d"
        split = await shell.run("echo out; echo err >&2", split=True)
        assert (split.stdout, split.stderr) == ("out\n", "err\n")
        assert [task.task_id for task in await shell.list()] == [split.task_id, result.task_id]
        assert [task.exit_code for task in await shell.list(status="failed")] == [3]
        shown = await shell.show(result.task_id)
        assert fields(shown).items() <= {**fields(result), "closed": shown.closed}.items()
        assert (await shell.read(result.task_id, tail=1)).output == f"{tmp_path}\n"

    aio(work)


def test_two_hundred_commands_run_at_once(aio):
    async def work(shell):
        before = threading.active_count()
        results = await asyncio.gather(*(shell.run(f"echo {n}; exit {n % 100}") for n in range(200)))
        assert [(r.output, r.exit_code) for r in results] == [(f"{n}\n", n % 100) for n in range(200)]
        assert len({result.task_id for result in results}) == 200
        assert threading.active_count() - before < FEW_THREADS

    aio(work)


def test_five_hundred_wait_for_one_task_without_a_thread_each(aio):
    async def work(shell):
        task = await shell.start("read x; exit 7", stdin=Stdin(open=True))
        waiters = [asyncio.create_task(shell.wait(task.task_id)) for _ in range(500)]
        await until(lambda: asyncio.sleep(0, len(shell.driver.watches) == 1))
        assert threading.active_count() < FEW_THREADS
        before = descriptors()
        await shell.send(task.task_id, "go\n")
        began = time.monotonic()
        ended = await asyncio.gather(*waiters)
        assert time.monotonic() - began < 20
        assert [one.exit_code for one in ended] == [7] * 500
        assert descriptors() <= before

    aio(work)


def test_waiting_takes_as_many_descriptors_for_many_as_for_one(aio):
    async def work(shell):
        task = await shell.start("sleep 60")
        await shell.show(task.task_id)
        await asyncio.to_thread(prepare_most, shell.plain)  # they have connections, too
        before = descriptors()
        waiters = [asyncio.create_task(shell.wait(task.task_id)) for _ in range(100)]
        await until(lambda: asyncio.sleep(0, bool(shell.driver.watches)))
        while shell.driver.watches and any(ring.waiters < 100 for ring in shell.driver.watches.values()):
            await asyncio.sleep(0.005)
        assert descriptors() - before <= 5
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        assert not shell.driver.watches
        await until(lambda: asyncio.sleep(0, descriptors() <= before))  # threads may still close what they had

    aio(work)


def test_cancelling_who_waits_leaves_the_task_running(aio):
    async def work(shell):
        waiting = asyncio.create_task(shell.run("echo started; sleep 60"))
        await until(lambda: shell.list(status="running"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (task,) = await shell.list()
        assert task.status == "running"
        os.kill(task.pid, 0)
        receipt = await shell.kill(task.task_id)
        assert (receipt.status, receipt.survivors) == ("killed", ())

    aio(work)


def test_a_wait_that_runs_out_returns_the_task_as_it_is(aio):
    async def work(shell):
        task = await shell.start("sleep 60")
        began = time.monotonic()
        assert (await shell.wait(task.task_id, timeout=0.2)).status == "running"
        assert 0.2 <= time.monotonic() - began < 10
        with pytest.raises(BadInput, match="timeout"):
            await shell.wait(task.task_id, timeout=-1)

    aio(work)


def test_wait_and_limit_are_two_numbers(aio):
    async def work(shell):
        moved = await shell.run("sleep 60", wait=0.2, limit=0.6)
        assert moved.status == "running"
        ended = await shell.wait(moved.task_id, timeout=30)
        assert (ended.status, ended.reason) == ("killed", "timeout")

    aio(work)


def test_the_default_limit_strikes(aio, monkeypatch):
    monkeypatch.setenv("OUTLAST_FOREGROUND_LIMIT_S", "0.3")

    async def work(shell):
        ended = await shell.run("echo out; sleep 60")
        assert (ended.status, ended.reason, ended.output) == ("killed", "timeout", "out\n")

    aio(work)


@pytest.mark.parametrize("timeout", [3e6, 1e300, float("inf"), None])
def test_a_wait_longer_than_any_clock_waits(aio, timeout):
    async def work(shell):
        task = await shell.start("sleep 0.2; exit 3")
        assert (await shell.wait(task.task_id, timeout=timeout)).exit_code == 3

    aio(work)


def test_following_yields_what_comes_when_it_comes(aio, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    async def work(shell):
        task = await shell.start(f"echo one; read -r x < {gate}; echo two")
        seen = b""
        async for piece in shell.follow(task.task_id):
            seen += piece.data
            if seen == b"one\n":
                await asyncio.to_thread(gate.write_text, "go\n")
        assert seen == b"one\ntwo\n"
        assert [p.data async for p in shell.follow(task.task_id, cursor="4")] == [b"two\n"]

    aio(work)


def test_output_comes_to_a_callback(aio):
    async def work(shell):
        seen = []
        result = await shell.run(
            "echo a; sleep 0.1; echo b; sleep 60 &", on_output=lambda piece: seen.append(piece.data)
        )
        assert b"".join(seen) == b"a\nb\n"
        assert len(result.children) == 1

    aio(work)


def test_many_follow_one_task_and_some_stop_early(aio):
    async def work(shell):
        task = await shell.start("for i in 1 2 3 4 5; do echo $i; sleep 0.05; done")

        async def follow(stop):
            seen = b""
            async for piece in shell.follow(task.task_id):
                seen += piece.data
                if stop:
                    break
            return seen

        all_of_it = b"".join(b"%d\n" % n for n in range(1, 6))
        seen = await asyncio.gather(*(follow(n % 2) for n in range(40)))
        assert all(one == all_of_it if not n % 2 else all_of_it.startswith(one) for n, one in enumerate(seen))
        gc.collect()
        await until(lambda: asyncio.sleep(0, not shell.driver.watches))

    aio(work)


def test_input_is_sent(aio):
    async def work(shell):
        task = await shell.start("cat", stdin=Stdin(open=True))
        await shell.send(task.task_id, "hello\n")
        await shell.send(task.task_id, eof=True)
        assert (await shell.wait(task.task_id, timeout=30)).exit_code == 0
        assert (await shell.read(task.task_id)).output == "hello\n"
        assert await shell.clean(all_finished=True) in (0, 1)

    aio(work)


def test_an_error_is_the_plain_shells_own(aio):
    async def work(shell):
        for ask in (shell.wait, shell.read, shell.show, shell.kill):
            with pytest.raises(UnknownTask, match="no task 'bash-00'"):
                await ask("bash-00")
        with pytest.raises(BadInput):
            await shell.run("")
        with pytest.raises(BadInput):
            await shell.run("true", wait=-1)

    aio(work)


def test_closing_the_shell_wakes_who_waits_and_ends_nothing(home):
    async def main():
        shell = AsyncShell.open(home=home)
        task = await shell.start("sleep 60")
        waiting = asyncio.create_task(shell.wait(task.task_id))
        await until(lambda: asyncio.sleep(0, bool(shell.driver.watches)))
        await shell.close()
        with pytest.raises(OutlastError, match="closed"):
            await asyncio.wait_for(waiting, 30)
        return task

    task = asyncio.run(main())
    with Shell.open(home=home) as shell:
        assert shell.show(task.task_id).status == "running"
        shell.kill(task.task_id)


def test_a_guard_that_dies_does_not_wake_or_lose_a_waiter(aio):
    async def work(shell):
        from outlast.storage import record

        task = await shell.start("read x; exit 4", stdin=Stdin(open=True))
        waiting = asyncio.create_task(shell.wait(task.task_id))
        await until(lambda: asyncio.sleep(0, bool(shell.driver.watches)))
        directory = os.path.dirname(task.output_file)
        for name in ("supervisor", "keeper"):
            before = getattr(record.guards_of(directory), name)
            process.send(before, signal.SIGKILL)
            await until(lambda: asyncio.sleep(0, getattr(record.guards_of(directory), name) != before))  # noqa: B023
        assert not waiting.done()
        await shell.send(task.task_id, "go\n")
        assert (await asyncio.wait_for(waiting, 30)).exit_code == 4

    aio(work)


def test_nothing_leaks(home):
    """Two hundred runs, waits and follows, and as many descriptors as before."""

    async def main():
        async with AsyncShell.open(home=home) as shell:
            for _ in range(3):
                await asyncio.gather(*(shell.run("true") for _ in range(20)))  # also until tasks are kept warm
            await asyncio.gather(*(asyncio.to_thread(time.monotonic) for _ in range(40)))
            prepare_most(shell.plain)  # their connections count
            before = descriptors()
            for _ in range(10):
                results = await asyncio.gather(*(shell.run("echo a; sleep 0.01 &") for _ in range(20)))
                for result in results[:3]:
                    await shell.wait(result.task_id)
                    assert [piece.data async for piece in shell.follow(result.task_id)] == [b"a\n"]
            assert not shell.driver.watches
            eventually(lambda: descriptors() <= before)  # a thread may just be preparing the next shell
        gc.collect()

    gc.collect()
    before = descriptors()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        asyncio.run(main(), debug=False)
        gc.collect()
    assert descriptors() <= before


def test_a_plain_shell_leaks_nothing_either(home):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        gc.collect()
        outside = descriptors()
        with Shell.open(home=home) as shell:
            shell.wait(shell.start("true"))  # from now on a prepared shell has a slot of the queue open, too
            for _ in range(8):
                shell.run("true")
            prepare_most(shell)  # their connections count
            before = descriptors()
            for _ in range(20):
                result = shell.run("echo a", on_output=lambda piece: None)
                shell.wait(result.task_id)
                assert [piece.data for piece in shell.follow(result.task_id)] == [b"a\n"]
                shell.list(), shell.read(result.task_id, new=True)
            eventually(lambda: descriptors() <= before)  # a thread may just be preparing the next shell
            task = shell.start("sleep 60")
            shell.kill(task.task_id)
            eventually(lambda: descriptors() <= before)
        gc.collect()
        assert descriptors() <= outside


def test_starting_queued_tasks_does_not_block_the_loop(aio, monkeypatch):
    """A guard that takes long to start (a slow disk, a sandbox) holds up one call, not all of them."""
    loop_went_on, advanced = threading.Event(), []

    def advance() -> None:
        advanced.append(loop_went_on.wait(10))

    async def work(shell):
        first = await shell.start("exec sleep 60")
        pending = await shell.start("echo second", after=[first.task_id])
        monkeypatch.setattr(shell.plain.executor, "advance", advance)
        waiting = asyncio.create_task(shell.wait(pending.task_id, timeout=30))
        starting = asyncio.create_task(shell.start("true"))
        asyncio.get_running_loop().call_later(0.05, loop_went_on.set)
        await starting
        waiting.cancel()
        monkeypatch.undo()

    aio(work)
    assert advanced
    assert all(advanced), "the loop stood still while a queued task was started"
