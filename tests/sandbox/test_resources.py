"""What a command is held to: memory, processes, CPU, the size of files. What ended it is told as it was."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from outlast import Limits, Shell
from outlast.errors import BadInput, Unsupported
from outlast.sandbox import cgroup
from outlast.sandbox.choice import available
from tests.conftest import eventually
from tests.sandbox.support import inside, python

pytestmark = pytest.mark.plain_user  # a user without privileges meets other limits

MB = 1 << 20
FORKS = """
import os
read, write = os.pipe()
for n in range(600):
    try:
        pid = os.fork()
    except BlockingIOError:
        print("refused after", n)
        break
    if not pid:
        os.close(write)
        os.read(read, 1)  # until our parent is gone
        os._exit(0)
else:
    print(600)
"""


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=[False, True], ids=["plain", "sandbox"])
def how(request) -> dict[str, object]:
    return {"sandbox": inside(available()[0])} if request.param else {}


@pytest.fixture
def grouped(request) -> bool:
    """Whether control groups can be made here."""
    return bool(cgroup.plan_groups({"memory": MB, "processes": 10}))


@pytest.fixture
def ungrouped(monkeypatch) -> None:
    """As if they could not."""
    monkeypatch.setattr(cgroup, "plan_groups", lambda resources: {})


def groups_left() -> list[str]:
    parents = cgroup.plan_groups({"memory": MB, "processes": 10})
    return [name for parent in parents for name in os.listdir(parent) if name.startswith("outlast-")]


def test_memory_of_all_of_it_together(shell, how, grouped):
    if not grouped:
        pytest.skip("control groups cannot be made here")
    each = python(f"import time; x = bytearray({60 * MB}); print(len(x)); time.sleep(1)")
    roomy = shell.run(f"{each} & {each} & {each}; wait", limits=Limits(memory=400 * MB), **how)
    assert roomy.output.count(str(60 * MB)) == 3
    result = shell.run(f"{each} & {each} & {each}; wait", limits=Limits(memory=120 * MB), **how)
    assert result.output.splitlines().count(str(60 * MB)) < 3
    assert "it used all the memory" in (result.error or "")
    assert result.resources == f"memory {120 * MB} (all together)"
    alone = shell.run(f"exec {each.replace(str(60 * MB), str(300 * MB))}", limits=Limits(memory=50 * MB), **how)
    assert (alone.reason, alone.signal, alone.ended_by) == ("signal", signal.SIGKILL, None)
    assert "ended a process of it" in (alone.error or "")
    eventually(lambda: not groups_left())


def test_processes_of_all_of_it_together(shell, how, grouped):
    if not grouped:
        pytest.skip("control groups cannot be made here")
    Path("fork.py").write_text(FORKS)
    program = python("")[: -len(" -c ''")] + " fork.py"
    result = shell.run(program, limits=Limits(processes=50), **how)
    assert result.output.startswith("refused after "), result.output
    assert int(result.output.split()[-1]) < 50
    assert (result.exit_code, result.error) == (0, None)
    eventually(lambda: not groups_left())


def test_one_tree_of_version_2_is_used_where_it_is_delegated(tmp_path, monkeypatch):
    own, above = tmp_path / "above" / "own", tmp_path / "above"
    own.mkdir(parents=True)
    (own / "cgroup.subtree_control").write_text("\n")
    (above / "cgroup.subtree_control").write_text("cpu memory pids\n")
    monkeypatch.setattr(cgroup, "_own_and_above", lambda kind, controller: [str(own), str(above)])
    held = {"memory.max": "5", "memory.swap.max": "0", "pids.max": "7"}
    assert cgroup.plan_groups({"memory": 5, "processes": 7, "cpu_time": 3}) == {str(above): held}
    assert cgroup.plan_groups({"cpu_time": 3}) == {}
    group = above / "outlast-bash-1"
    group.mkdir()
    for name in ("memory.max", "pids.max"):
        (group / name).write_text("")
    assert cgroup.make({str(above): held}, "bash-1") == [str(group)]
    assert [(group / name).read_text() for name in ("memory.max", "pids.max")] == ["5", "7"]


def test_memory_of_each_process(shell, how, ungrouped):
    command = python(f"x = bytes({400 * MB}); print(len(x))")
    assert shell.run(command, **how).exit_code == 0
    result = shell.run(command, limits=Limits(memory=200 * MB), **how)
    assert result.exit_code == 1
    assert "MemoryError" in result.output
    assert result.resources == f"memory {200 * MB}"


def test_the_size_of_a_file(shell, how):
    command = "head -c 3000000 /dev/zero > f; echo $?"
    assert shell.run(command, **how).output == "0\n"
    result = shell.run(command, limits=Limits(file_size=MB), **how)
    assert result.output.splitlines()[-1] == str(128 + signal.SIGXFSZ)
    assert os.path.getsize("f") == MB


def test_cpu_time_ends_it_with_the_signal_that_says_so(shell, how):
    result = shell.wait(shell.start("while :; do :; done", limits=Limits(cpu_time=1), **how).task_id, 60)
    assert (result.status, result.reason, result.signal) == ("failed", "signal", signal.SIGXCPU)
    assert result.ended_by is None


def count_threads_of_user() -> int:
    """Count what the kernel counts for the limit: other tests run as the same user at the same time."""
    found = 0
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == os.geteuid():
                found += len(os.listdir(f"/proc/{pid}/task"))
    return found


def test_processes_of_a_user(shell, how, ungrouped):
    if os.geteuid() == 0:
        with pytest.raises(Unsupported, match="root"):
            shell.run("true", limits=Limits(processes=50), **how)
        assert shell.list() == []
        return
    Path("fork.py").write_text(FORKS)
    program = python("")[: -len(" -c ''")] + " fork.py"
    assert shell.run(program, **how).output == "600\n"
    result = shell.run(program, limits=Limits(processes=300 + count_threads_of_user()), **how)
    assert result.output.startswith("refused after "), result.output


def test_the_next_one_is_held_to_nothing(shell, how):
    shell.run("true", limits=Limits(file_size=MB), **how)
    result = shell.run("ulimit -f", **how)
    assert (result.output, result.resources) == ("unlimited\n", None)


def test_settings_hold_every_command_and_a_call_can_say_otherwise(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_FILE_SIZE_LIMIT_BYTES", str(2 * MB))
    with Shell.open(home=home) as shell:
        assert shell.run("ulimit -f").output == "2048\n"
        assert shell.run("ulimit -f", limits=Limits(file_size=4 * MB)).output == "4096\n"
        assert shell.run("ulimit -f").resources == f"file_size {2 * MB}"


def test_the_command_line(cli):
    assert cli("run", "--file-size", "1M", "--cpu-time", "2m", "ulimit -f; ulimit -t").stdout == "1024\n120\n"
    assert json.loads(cli("run", "--json", "--memory", "2G", "true").stdout)["resources"].startswith(
        "memory 2147483648"
    )
    for words in (("--memory", "much"), ("--memory", "0"), ("--cpu-time", "-1"), ("--processes", "1.5")):
        assert cli("run", *words, "true", check=2).stderr.count("\n") == 1


def test_bad_numbers_get_one_sentence(shell):
    for bad in ({"memory": 0}, {"memory": "2G"}, {"cpu_time": -1}, {"file_size": float("nan")}, {"processes": True}):
        with pytest.raises(BadInput):
            shell.run("true", limits=Limits(**bad))
    assert shell.list() == []
