"""What only a cluster can do to a task: let it wait, lose its answer, forget it, take its node away."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from outlast import Shell, Stdin
from outlast.errors import BadInput, OutlastError, StartFailed
from outlast.shell.arrays import parse_indexes, start_array
from outlast.types import Task
from tests.conftest import Cli, eventually
from tests.executors.conftest import SLURM, Bench, write_settings
from tests.executors.slurm_cluster import Cluster, missing
from tests.web.support import serving, streaming

SOME, MANY = 50, 1000


@pytest.fixture
def hpc(cluster: Cluster, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench on a cluster, and a place for programs that stand before Slurm's own on the PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("SLURM_CONF", cluster.conf)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    write_settings(home, SLURM)
    made = Bench(home, "hpc", tmp_path)
    yield made
    for program in (tmp_path / "bin").iterdir():
        program.unlink()
    made.close()


def put_before(hpc: Bench, program: str, script: str) -> None:
    """Let `script` run instead of one of Slurm's commands, whose path is in $real."""
    path = hpc.scratch / "bin" / program
    real = next(f"{one}/{program}" for one in ("/usr/bin", "/usr/local/bin") if os.path.exists(f"{one}/{program}"))
    path.write_text(f"#!/bin/sh\nreal={real}\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def take_away(hpc: Bench, program: str) -> None:
    (hpc.scratch / "bin" / program).unlink()


def far_directory(hpc: Bench, task_id: str) -> Path:
    return Path(hpc.home, "executors/hpc/tasks", task_id)


def await_task(hpc: Bench, task_id: str, test: Callable[[Task], Any]) -> Task:
    found: Task = eventually(lambda: test(task := hpc.shell.show(task_id)) and task)
    return found


def kill_guards(directory: Path) -> None:
    """Kill both guards and the process that the job is. They are stopped first: none may replace another."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(path / "cwd") == str(directory) and (path / "comm").read_text().startswith("outlast-"):
                found.append(int(path.name))
    assert len(found) == 3
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            os.kill(pid, number)


def test_what_is_waited_for_is_said(hpc: Bench) -> None:
    full = [hpc.start("sleep 300", needs={"cpus": 16, "partition": "one"}) for _ in range(2)]
    reasons = "(Slurm: Resources)", "(Slurm: Priority)"  # None until the scheduler looked at it
    waiting = await_task(hpc, full[1].task_id, lambda task: any(why in (task.error or "") for why in reasons))
    assert waiting.status == "pending"
    hpc.shell.kill(full[0].task_id, grace=0.2)
    assert await_task(hpc, full[1].task_id, lambda task: task.status == "running").error is None


def test_a_page_sees_a_task_begin_that_waited(hpc: Bench) -> None:
    """No process but the server looks at it."""
    full = [hpc.start("sleep 300", needs={"cpus": 16, "partition": "one"}).task_id for _ in range(2)]
    with serving(hpc.home) as page, streaming(page, "/api/events") as overview:
        overview.until("hello")
        assert page.get(f"/api/tasks/{full[1]}")["task"]["status"] == "pending"
        hpc.shell.kill(full[0], grace=0.2)
        begun = (full[1], "running")
        overview.until("tasks", lambda one: begun in [(task["task_id"], task["status"]) for task in one["changed"]])


def test_a_task_that_waits_is_cancelled_unrun(hpc: Bench, cluster: Cluster) -> None:
    mark = hpc.scratch / "ran"
    first = hpc.start("sleep 300", needs={"cpus": 16, "partition": "one"})
    second = hpc.start(f"touch {mark}", needs={"cpus": 16, "partition": "one"})
    receipt = hpc.shell.kill(second.task_id)
    assert (receipt.status, receipt.ended, receipt.survivors) == ("killed", (), ())
    hpc.shell.kill(first.task_id, grace=0.2)
    assert cluster.states(second.task_id) == ["CANCELLED"]
    assert not mark.exists()


def test_resources_are_asked_for(hpc: Bench) -> None:
    text = "echo $SLURM_CPUS_PER_TASK $SLURM_JOB_PARTITION"
    assert hpc.run(text, needs={"cpus": 3, "partition": "one"}).output == "3 one\n"


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ({"partition": "nowhere"}, "Invalid partition name"),
        ({"memory": "9000G"}, "Memory specification can not be satisfied|not available"),
        ({"coffee": 1}, "cannot be asked for 'coffee'; it can be for account, constraint, cpus"),
        ({"cpus": ""}, "a name and a value"),
    ],
)
def test_what_cannot_be_had_is_refused(hpc: Bench, needs: dict[str, str | int], why: str) -> None:
    with pytest.raises((BadInput, StartFailed), match=why):
        hpc.start("echo no", needs=needs)
    assert hpc.shell.list() == []
    tasks = Path(hpc.home, "executors/hpc/tasks")
    assert not tasks.exists() or not list(tasks.iterdir())


def test_only_a_cluster_has_resources(hpc: Bench) -> None:
    with pytest.raises(BadInput, match="Only a cluster"):
        hpc.shell.run("echo no", needs={"cpus": 2})


def test_the_command_is_in_no_argument_and_in_nothing_that_slurm_shows(hpc: Bench, cluster: Cluster) -> None:
    task = hpc.start("echo ready; cat; : canary-99-text", stdin=Stdin(open=True), env={"GIVEN": "canary-99-value"})
    hpc.await_output(task.task_id, "ready")
    shown = cluster.call("scontrol", "show", "job", "-dd") + cluster.call("squeue", "-t", "all", "-o", "%all")
    job = next(number for number, name in _numbers(cluster) if name == task.task_id)
    script = cluster.call("scontrol", "write", "batch_script", job, "-")
    words = b"".join(path.read_bytes() for path in Path(cluster.processes).glob("[0-9]*/cmdline"))
    assert task.task_id in shown
    assert "mkdir claimed" in script
    for place in (shown, script, words.decode()):
        assert "canary-99" not in place
    # The variables were only in a file that the job removed when it began.
    files = [path for path in far_directory(hpc, task.task_id).rglob("*") if path.is_file()]
    assert files
    assert not any(b"canary-99-value" in path.read_bytes() for path in files)
    hpc.shell.send(task.task_id, "", eof=True)
    assert hpc.shell.wait(task.task_id, timeout=20).status == "completed"


def _numbers(cluster: Cluster) -> list[list[str]]:
    return [line.split() for line in cluster.call("squeue", "-h", "-t", "all", "-o", "%A %j").splitlines()]


# --- submitted once ----------------------------------------------------------------------

_LATE = '"$real" "$@" >/dev/null; echo "sbatch: error: Batch job submission failed: Socket timed out" >&2; exit 1'
_NOT_AT_ALL = 'echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1'


@pytest.mark.parametrize("script", [_LATE, _NOT_AT_ALL], ids=["submitted", "not submitted"])
def test_a_submission_without_an_answer_runs_once(hpc: Bench, cluster: Cluster, script: str) -> None:
    put_before(hpc, "sbatch", script)
    task = hpc.start(f"echo ran >>{hpc.scratch}/runs; exit 5")
    assert task.status == "pending"
    assert "its start is not confirmed" in (task.error or "")
    take_away(hpc, "sbatch")
    ended = hpc.shell.wait(task.task_id, timeout=30)
    assert (ended.status, ended.exit_code) == ("failed", 5)
    assert (hpc.scratch / "runs").read_text() == "ran\n"
    assert len(cluster.states(task.task_id)) == 1


def test_a_task_that_was_submitted_twice_runs_once(hpc: Bench, cluster: Cluster) -> None:
    """The answer was lost, and the queue does not show the job (yet): the second job finds that the first has it."""
    put_before(hpc, "sbatch", _LATE)
    put_before(hpc, "squeue", "exit 0")
    task = hpc.start(f"echo ran >>{hpc.scratch}/runs; sleep 0.5; exit 6")
    take_away(hpc, "sbatch")
    eventually(lambda: hpc.shell.show(task.task_id).error is None)
    eventually(lambda: len(cluster.states(task.task_id)) == 2)
    take_away(hpc, "squeue")
    assert hpc.shell.wait(task.task_id, timeout=30).exit_code == 6
    eventually(lambda: set(cluster.states(task.task_id)) <= {"COMPLETED", "FAILED"})
    assert (hpc.scratch / "runs").read_text() == "ran\n"


def test_a_start_that_is_not_confirmed_can_be_ended_for_good(hpc: Bench, cluster: Cluster) -> None:
    put_before(hpc, "sbatch", _LATE.replace('"$real"', '"$real" --begin=now+2'))
    task = hpc.start(f"echo ran >>{hpc.scratch}/runs")
    receipt = hpc.shell.kill(task.task_id)
    assert receipt.status == "killed"
    take_away(hpc, "sbatch")
    eventually(lambda: cluster.states(task.task_id) != ["PENDING"])
    assert not (hpc.scratch / "runs").exists()


def test_a_caller_that_is_killed_while_it_submits(hpc: Bench, cluster: Cluster) -> None:
    put_before(hpc, "sbatch", f"touch {hpc.scratch}/asked; exec sleep 60")
    words = [
        sys.executable,
        "-m",
        "outlast",
        "run",
        "--executor",
        "hpc",
        "--bg",
        "--",
        f"echo ran >>{hpc.scratch}/runs",
    ]
    caller = subprocess.Popen(words, env={**os.environ, "OUTLAST_HOME": hpc.home, "OUTLAST_SESSION": "bench"})
    eventually((hpc.scratch / "asked").exists)
    child = int(Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()[0])
    caller.kill()
    caller.wait()
    os.kill(child, 9)
    take_away(hpc, "sbatch")
    (task,) = hpc.shell.list()
    assert hpc.shell.wait(task.task_id, timeout=30).status == "completed"
    assert (hpc.scratch / "runs").read_text() == "ran\n"
    assert len(cluster.states(task.task_id)) == 1


def test_a_controller_that_does_not_answer_changes_nothing(hpc: Bench) -> None:
    task = hpc.start("echo ready; cat; exit 7", stdin=Stdin(open=True))
    hpc.await_output(task.task_id, "ready")
    put_before(hpc, "squeue", 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1')
    shown = await_task(hpc, task.task_id, lambda task: task.error)
    assert shown.status == "running"
    assert "Slurm does not answer: " in (shown.error or "")
    take_away(hpc, "squeue")
    hpc.shell.send(task.task_id, "", eof=True)
    assert hpc.shell.wait(task.task_id, timeout=30).exit_code == 7


# --- how it ended ------------------------------------------------------------------------


def test_the_exit_code_outlives_the_memory_of_the_controller(
    tmp_path_factory: pytest.TempPathFactory, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := missing():
        pytest.skip(why)
    forgetful = Cluster(tmp_path_factory.mktemp("forgets"), forgets_after=2).start()
    try:
        monkeypatch.setenv("SLURM_CONF", forgetful.conf)
        write_settings(home, SLURM)
        with Shell.open(home=home) as shell:
            task = shell.start("echo x; exit 9", executor="hpc")
        job = forgetful.call("squeue", "-h", "-t", "all", "-o", "%A").strip()
        eventually(lambda: not forgetful.call("squeue", "-h", "-t", "all", "-o", "%A").strip(), patience=90)
        assert not forgetful.call("scontrol", "show", "job", job)
        with Shell.open(home=home) as shell:  # it looks for the first time
            assert (shell.show(task.task_id).status, shell.show(task.task_id).exit_code) == ("failed", 9)
            assert shell.read(task.task_id).output == "x\n"
    finally:
        forgetful.stop()


def test_a_job_that_was_cancelled_by_another_says_so(hpc: Bench, cluster: Cluster) -> None:
    task = hpc.start("echo ready; exec sleep 300")
    hpc.await_output(task.task_id, "ready")
    cluster.call("scancel", f"--name={task.task_id}")
    ended = hpc.shell.wait(task.task_id, timeout=30)
    assert (ended.status, ended.reason, ended.signal) == ("killed", "killed", 15)
    assert (ended.ended_by or "").startswith("Slurm: CANCELLED")


def test_a_job_that_another_cancelled_before_it_began(hpc: Bench, cluster: Cluster) -> None:
    full = [hpc.start("sleep 300", needs={"cpus": 16, "partition": "one"}) for _ in range(2)]
    cluster.call("scancel", "--state=PENDING", f"--name={full[1].task_id}")
    ended = hpc.shell.wait(full[1].task_id, timeout=30)
    assert (ended.status, ended.exit_code) == ("failed", None)
    assert "it never began (Slurm: CANCELLED)" in (ended.error or "")


def test_a_job_without_a_record_is_lost_and_slurm_says_why(hpc: Bench, cluster: Cluster) -> None:
    task = hpc.start("echo ready; exec cat", stdin=Stdin(open=True))  # it ends when the guards close its input
    hpc.await_output(task.task_id, "ready")
    kill_guards(far_directory(hpc, task.task_id))
    ended = hpc.shell.wait(task.task_id, timeout=30)
    assert (ended.status, ended.reason, ended.exit_code, ended.signal) == ("failed", "lost", None, None)
    assert "ended without a record of how. Slurm: " in (ended.error or "")
    assert hpc.shell.read(task.task_id).output == "ready\n"


def test_a_directory_that_the_nodes_do_not_see(hpc: Bench, cluster: Cluster, tmp_path: Path) -> None:
    """It is away while the job looks for it, and the submission was answered late."""
    shared = tmp_path / "shared"
    write_settings(hpc.home, SLURM + f'shared_dir = "{shared}"\n')
    put_before(
        hpc, "sbatch", f'mv {shared}/tasks {shared}/away; "$real" --wait "$@"; mv {shared}/away {shared}/tasks; exit 0'
    )
    with Shell.open(home=hpc.home) as shell:
        ended = shell.wait(shell.start("echo no", executor="hpc").task_id, timeout=30)
    assert (ended.status, ended.exit_code) == ("failed", None)
    assert "the node does not see the shared directory" in (ended.error or "")


# --- nodes that share no file system -----------------------------------------------------


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose nodes each have a /tmp of their own: nothing that the tests keep there is on a node."""
    if why := missing():
        pytest.skip(why)
    place = Path(tempfile.mkdtemp(prefix="outlast-slurm-", dir="/var/tmp"))
    made = Cluster(place, hides="/tmp")
    try:
        yield made.start()
    finally:
        made.stop()
        shutil.rmtree(place)


@pytest.fixture
def far_nodes(apart: Cluster, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("SLURM_CONF", apart.conf)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    write_settings(home, f'{SLURM}node_dir = "/tmp"\nkeep = 2\n')
    made = Bench(home, "hpc", tmp_path)
    yield made
    made.close()


def test_a_job_carries_what_it_needs_and_its_results_are_collected(far_nodes: Bench, apart: Cluster) -> None:
    result = far_nodes.run("seq 200000; echo end >&2; exit 7", split=True, show={"max_chars": 200})
    assert (result.exit_code, result.stderr) == (7, "end\n")
    source = far_nodes.shell.executor.source(result.task_id, "stdout")
    assert b"".join(piece.data for piece in source.chunks()).split() == [b"%d" % n for n in range(1, 200001)]
    task = far_nodes.start("read line; echo got $line; exec sleep 300", stdin=Stdin(open=True))
    far_nodes.shell.send(task.task_id, "it\n")
    far_nodes.await_output(task.task_id, "got it")
    receipt = far_nodes.shell.kill(task.task_id, grace=0.5)
    assert (receipt.status, receipt.survivors) == ("killed", ())
    assert receipt.ended
    with pytest.raises(BadInput, match="A secret is not passed"):
        far_nodes.run("true", pass_secrets=["PATH"])


def test_results_are_collected_after_the_job_has_ended(far_nodes: Bench, apart: Cluster) -> None:
    """No process of this machine looked while it ran, and it did not wait longer than it was told to."""
    task = far_nodes.start("echo x; exit 9")
    eventually(lambda: set(apart.states(task.task_id)) == {"COMPLETED"})
    with far_nodes.open() as shell:
        ended = shell.wait(task.task_id, timeout=30)
        assert (ended.status, ended.exit_code) == ("failed", 9)
    assert far_nodes.shell.read(task.task_id).output == "x\n"


@pytest.mark.parametrize("script", [_LATE, _NOT_AT_ALL], ids=["submitted", "not submitted"])
def test_of_jobs_of_one_task_one_is_released(far_nodes: Bench, apart: Cluster, script: str) -> None:
    put_before(far_nodes, "sbatch", script)
    put_before(far_nodes, "squeue", "exit 0")
    task = far_nodes.start("echo ran $SLURM_JOB_ID; exit 5")
    assert "its start is not confirmed" in (task.error or "")
    take_away(far_nodes, "sbatch")
    eventually(lambda: far_nodes.shell.show(task.task_id).error is None)  # it was submitted again
    take_away(far_nodes, "squeue")
    assert far_nodes.shell.wait(task.task_id, timeout=30).exit_code == 5
    wanted = ["COMPLETED", "PENDING"] if script == _LATE else ["COMPLETED"]
    eventually(lambda: sorted(apart.states(task.task_id)) == wanted)
    apart.call("scancel", f"--name={task.task_id}")


# --- many --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hpc", "far_nodes"])
def test_an_array_is_one_job_and_each_task_its_own(kind: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(kind)
    cluster: Cluster = request.getfixturevalue("cluster" if kind == "hpc" else "apart")
    before = set(cluster.call("squeue", "-h", "-t", "all", "-o", "%F").split())
    line = "echo $OUTLAST_ARRAY_INDEX $OUTLAST_TASK_ID; exit $((OUTLAST_ARRAY_INDEX * 3))"
    tasks = start_array(bench.shell, line, [7, 9, 11], executor="hpc", needs={"cpus": 2})
    for task, index in zip(tasks, (7, 9, 11), strict=True):
        assert bench.shell.wait(task.task_id, timeout=30).exit_code == index * 3
        assert bench.shell.read(task.task_id).output == f"{index} {task.task_id}\n"
    assert len(set(cluster.call("squeue", "-h", "-t", "all", "-o", "%F").split()) - before) == 1


def test_a_task_of_an_array_is_ended_before_it_begins(hpc: Bench, cluster: Cluster) -> None:
    whole_node: dict[str, str | int] = {"cpus": 16, "partition": "one"}
    tasks = start_array(hpc.shell, "exec sleep 300", range(2), executor="hpc", needs=whole_node)
    await_task(hpc, tasks[0].task_id, lambda task: task.status == "running")
    assert hpc.shell.kill(tasks[1].task_id).ended == ()
    assert hpc.shell.kill(tasks[0].task_id, grace=0.2).status == "killed"
    assert "CANCELLED" in cluster.states(tasks[0].task_id)


def test_an_array_without_an_answer_runs_each_task_once(hpc: Bench, cluster: Cluster) -> None:
    put_before(hpc, "sbatch", _LATE)
    tasks = start_array(hpc.shell, f"echo ran >>{hpc.scratch}/runs.$OUTLAST_ARRAY_INDEX", range(3), executor="hpc")
    assert all("its start is not confirmed" in (task.error or "") for task in tasks)
    take_away(hpc, "sbatch")
    for task in tasks:
        assert hpc.shell.wait(task.task_id, timeout=30).status == "completed"
    assert [(hpc.scratch / f"runs.{index}").read_text() for index in range(3)] == ["ran\n"] * 3


def test_the_command_line_starts_an_array(hpc: Bench, cli: Cli) -> None:
    cli.env["OUTLAST_HOME"] = hpc.home
    ids = cli("run", "--bg", "--executor", "hpc", "--array", "1-3", "exit $OUTLAST_ARRAY_INDEX", check=0).stdout.split()
    assert [cli("wait", task_id).returncode for task_id in ids] == [1, 2, 3]
    assert "add --bg" in cli("run", "--executor", "hpc", "--array", "1-3", "true", check=2).stderr
    assert "has no arrays" in cli("run", "--bg", "--array", "1-3", "true", check=125).stderr


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "3-1", "1-5:0", "1:2:3", "0-100000"])
def test_what_is_no_array(text: str) -> None:
    with pytest.raises(BadInput):
        parse_indexes(text)


def test_the_numbers_of_an_array() -> None:
    assert parse_indexes("0-3") == [0, 1, 2, 3]
    assert parse_indexes("1,5,7-8") == [1, 5, 7, 8]
    assert parse_indexes("0-100:50") == [0, 50, 100]


@pytest.mark.parametrize("count", [SOME, pytest.param(MANY, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_many_tasks_over_two_nodes(hpc: Bench, cluster: Cluster, count: int, tmp_path: Path) -> None:
    """Every code is right, every task ran once, and both nodes took part; its time is beside that of plain sbatch."""
    codes = [random.Random(os.environ["OUTLAST_SEED"]).randrange(256) for _ in range(count)]
    runs = hpc.scratch / "runs"
    runs.mkdir()
    line = f"echo $OUTLAST_TASK_ID $SLURMD_NODENAME >>{runs}/$OUTLAST_TASK_ID; exit"
    began = time.monotonic()
    ids = [hpc.start(f"{line} {code}").task_id for code in codes]
    submitted = time.monotonic() - began
    assert [wait_for_code(hpc, one) for one in ids] == codes
    ours = time.monotonic() - began
    began = time.monotonic()
    array = start_array(hpc.shell, f"{line} $((OUTLAST_ARRAY_INDEX % 251))", range(count), executor="hpc")
    assert [wait_for_code(hpc, one.task_id) for one in array] == [index % 251 for index in range(count)]
    ours_array = time.monotonic() - began
    lines = [path.read_text().split() for path in runs.iterdir()]
    assert sorted(words[0] for words in lines) == sorted([*ids, *(one.task_id for one in array)])
    assert {words[1] for words in lines} == {"n1", "n2"}
    assert all(len(words) == 2 for words in lines)
    script = tmp_path / "plain"
    script.write_text("#!/bin/sh\nexit $1\n")
    plain = measure_plain(cluster, [[str(script), str(code)] for code in codes])
    plain_array = measure_plain(cluster, [[f"--array=0-{count - 1}", str(script), "3"]])
    print(f"{count} tasks: submitted in {submitted:.1f} s, done in {ours:.1f} s; plain sbatch {plain:.1f} s")
    print(f"as an array: done in {ours_array:.1f} s; plain sbatch --array {plain_array:.1f} s")
    with suppress(FileNotFoundError):
        assert not list(Path(hpc.home, "executors/hpc/tasks").iterdir())


def wait_for_code(hpc: Bench, task_id: str) -> int | None:
    task = hpc.shell.wait(task_id, timeout=600)
    assert task.finished
    return task.exit_code


def measure_plain(cluster: Cluster, jobs: list[list[str]]) -> float:
    began = time.monotonic()
    for words in jobs:
        cluster.call("sbatch", "--output=/dev/null", "--partition=p", "--job-name=plain", *words)
    eventually(lambda: not cluster.call("squeue", "-h", "-o", "%A").strip(), patience=600)
    return time.monotonic() - began


def test_examine_says_what_is_missing(hpc: Bench, home: str) -> None:
    (found,) = hpc.shell.executor.examine()
    assert found[0] == "hpc"
    assert found[1].startswith("2 nodes in partition p")
    put_before(hpc, "sinfo", 'echo "slurm_load_partitions: Unable to contact slurm controller" >&2; exit 1')
    ((_, _, error),) = hpc.shell.executor.examine()
    assert isinstance(error, OutlastError)
    assert "Unable to contact" in error.message
