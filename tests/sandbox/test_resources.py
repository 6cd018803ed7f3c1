"""What a command is held to: memory, processes, CPU, the size of files. What ended it is told as it was."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from outlast import Shell
from outlast.errors import BadInput, Unsupported
from outlast.sandbox import available
from tests.sandbox.support import inside, python

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


def test_memory(shell, how):
    command = python(f"x = bytes({400 * MB}); print(len(x))")
    assert shell.run(command, **how).exit_code == 0
    result = shell.run(command, memory=200 * MB, **how)
    assert result.exit_code == 1
    assert "MemoryError" in result.output
    assert result.resources == f"memory {200 * MB}"


def test_the_size_of_a_file(shell, how):
    command = "head -c 3000000 /dev/zero > f; echo $?"
    assert shell.run(command, **how).output == "0\n"
    result = shell.run(command, file_size=MB, **how)
    assert result.output.splitlines()[-1] == str(128 + signal.SIGXFSZ)
    assert os.path.getsize("f") == MB


def test_cpu_time_ends_it_with_the_signal_that_says_so(shell, how):
    result = shell.wait(shell.start("while :; do :; done", cpu_time=1, **how).task_id, 60)
    assert (result.status, result.reason, result.signal) == ("failed", "signal", signal.SIGXCPU)
    assert result.ended_by is None


def test_processes(shell, how):
    if os.geteuid() == 0:
        with pytest.raises(Unsupported, match="root"):
            shell.run("true", processes=50, **how)
        assert shell.list() == []
        return
    Path("fork.py").write_text(FORKS)
    program = python("")[: -len(" -c ''")] + " fork.py"
    assert shell.run(program, **how).output == "600\n"
    result = shell.run(program, processes=300, **how)
    assert result.output.startswith("refused after "), result.output
    assert int(result.output.split()[-1]) < 300


def test_the_next_one_is_held_to_nothing(shell, how):
    shell.run("true", file_size=MB, **how)
    result = shell.run("ulimit -f", **how)
    assert (result.output, result.resources) == ("unlimited\n", None)


def test_settings_hold_every_command_and_a_call_can_say_otherwise(home, monkeypatch):
    monkeypatch.setenv("OUTLAST_FILE_SIZE_LIMIT_BYTES", str(2 * MB))
    with Shell.open(home=home) as shell:
        assert shell.run("ulimit -f").output == "2048\n"
        assert shell.run("ulimit -f", file_size=4 * MB).output == "4096\n"
        assert shell.run("ulimit -f").resources == f"file_size {2 * MB}"


def test_the_command_line(cli):
    assert cli("run", "--file-size", "1M", "--cpu-time", "2m", "ulimit -f; ulimit -t").stdout == "1024\n120\n"
    assert cli("run", "--memory", "2G", "ulimit -v").stdout == "2097152\n"
    for words in (("--memory", "much"), ("--memory", "0"), ("--cpu-time", "-1"), ("--processes", "1.5")):
        assert cli("run", *words, "true", check=2).stderr.count("\n") == 1


def test_bad_numbers_get_one_sentence(shell):
    for bad in ({"memory": 0}, {"memory": "2G"}, {"cpu_time": -1}, {"file_size": float("nan")}, {"processes": True}):
        with pytest.raises(BadInput):
            shell.run("true", **bad)
    assert shell.list() == []
