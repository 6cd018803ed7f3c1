"""A guard of another architecture on the far side, under an emulator."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import guard_build
from outlast import Shell, Stdin
from tests.conftest import end_all
from tests.executors.conftest import write_settings
from tests.executors.sshd import Sshd

MACHINE = "aarch64"


def compilers() -> Iterator[list[str]]:
    if (found := shutil.which(f"{MACHINE}-linux-gnu-gcc")) and guard_build.links_statically([found]):
        yield [found]
    if subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True, check=False).returncode == 0:
        yield guard_build.zig_compiler(MACHINE)


@pytest.fixture(scope="session")
def foreign_guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guard of that architecture, as a script that runs it in the emulator."""
    emulator = shutil.which(f"qemu-{MACHINE}-static") or shutil.which(f"qemu-{MACHINE}")
    compiler = next(compilers(), None)
    if emulator is None or compiler is None:
        pytest.skip(f"needs qemu-{MACHINE} and a compiler for it ({MACHINE}-linux-gnu-gcc or ziglang)")
    made = tmp_path_factory.mktemp("foreign") / "guard"
    guard_build.build(str(made), compiler)
    # The emulator cannot execute /proc/self/exe: this script is what the far end starts guards with.
    script = made.with_name("emulated")
    script.write_text(f'#!/bin/sh\nOUTLAST_FAR_GUARD={script} exec {emulator} {made} "$@"\n')
    script.chmod(0o755)
    return script


def test_a_guard_of_another_architecture(sshd: Sshd, home: str, foreign_guard: Path) -> None:
    write_settings(home, f'{sshd.settings()}guard = "{foreign_guard}"\n')
    with Shell.open(home=home, session="s") as shell:
        (found,) = shell.executor.examine()
        assert found[1].split(",")[0].endswith(MACHINE)  # the emulator says so to what it runs
        result = shell.run("seq 5000; exit 7", executor="box")
        assert (result.exit_code, result.output.split()[-1]) == (7, "5000")
        assert shell.run("X=5; false | true", executor="box").pipe_status == (1, 0)
        assert shell.run("echo $X", executor="box").output == "5\n"
        task = shell.start("read line; echo got $line", executor="box", stdin=Stdin(open=True))
        shell.send(task.task_id, "it\n")
        assert shell.wait(task.task_id, timeout=30).exit_code == 0
        assert shell.read(task.task_id).output == "got it\n"
        assert shell.run("sleep 60", executor="box", limit=0.5).reason == "timeout"
        end_all(shell)
