"""`--stay`: the process that a batch system started ends with its task, never before, and says how."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from outlast.guard.client import encode_launch
from tests.guard.harness import Item, Launcher, children_of, find_words, read_slot, wait_until


def stay(launcher: Launcher, name: str, script: str, *items: Item) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a task that is not published, and its directory."""
    described = [(key, value) for key, value in launcher.describe(name, script, items) if key != "publish"]
    process = subprocess.Popen([*find_words(), "--stay", "0"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin
    process.stdin.write(encode_launch(described))
    process.stdin.close()
    return process, launcher.place / "staging" / name


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("exit 0", 0), ("ulimit -c 0; kill -9 $$", 137)])
def test_it_exits_as_the_command_does(launcher: Launcher, script: str, code: int) -> None:
    process, directory = stay(launcher, "t", f"echo here; {script}")
    assert process.wait(30) == code
    assert (directory / "output").read_bytes() == b"here\n"
    assert not (directory / "refused").exists()


def test_it_stays_until_the_last_process_is_gone(launcher: Launcher) -> None:
    os.mkfifo(launcher.place / "line")
    process, directory = stay(launcher, "t", "setsid sh -c 'read x <line; echo late' & exit 4")
    wait_until(lambda: (directory / "record").exists() and read_slot(directory, "code"), "the command ended")
    assert process.poll() is None
    (launcher.place / "line").write_text("x\n")
    assert process.wait(30) == 4
    assert (directory / "output").read_bytes() == b"late\n"


@pytest.mark.parametrize("item", [("cwd", "/no/such/place"), ("program", "/no/such/program")])
def test_a_refusal_is_left_in_a_file(launcher: Launcher, item: Item) -> None:
    process, directory = stay(launcher, "t", "echo never", item)
    assert process.wait(30) == 1
    assert (directory / "refused").read_text() == f"2 {item[1]}: No such file or directory"


def test_it_and_the_guards_ignore_what_a_cancelled_job_gets(launcher: Launcher) -> None:
    process, directory = stay(launcher, "t", "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    wait_until(lambda: (directory / "output").exists() and (directory / "output").read_bytes(), "it runs")
    guards = read_slot(directory, "guards")
    for pid in (process.pid, guards["supervisor"][0], guards["keeper"][0], guards["command"][0]):
        os.kill(pid, signal.SIGTERM)
    assert process.wait(30) == 5
    assert (directory / "output").read_bytes() == b"ready\nasked\n"


def test_the_tree_stays_below_it_when_both_guards_are_killed(launcher: Launcher) -> None:
    os.mkfifo(launcher.place / "line")
    process, directory = stay(launcher, "t", "echo ready; read x <line")
    wait_until(lambda: (directory / "output").exists() and (directory / "output").read_bytes(), "it runs")
    guards = read_slot(directory, "guards")
    for role in ("keeper", "supervisor"):  # stopped first: neither may replace the other
        os.kill(guards[role][0], signal.SIGSTOP)
    for role in ("keeper", "supervisor"):
        os.kill(guards[role][0], signal.SIGKILL)
    wait_until(lambda: guards["command"][0] in children_of(process.pid), "the command came to the process that stays")
    assert process.poll() is None
    (launcher.place / "line").write_text("x\n")
    assert process.wait(30) == 125, "no guard is left that could have seen the code"
    assert read_slot(directory, "code") == {}
