"""A session is like one bash also while another process uses it, and while callers are killed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast import Shell
from tests.conftest import eventually
from tests.faults.support import SOURCE
from tests.sessions.reference import TELL, of_bash, told, trap_text
from tests.sessions.test_as_one_bash import ALL, FAMILIES, bounded

# Runs each line that it is given, and says when it has ended.
DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from outlast import Shell
with Shell.open(home=sys.argv[2], session="s") as shell:
    for line in sys.stdin:
        shell.run(json.loads(line))
        print("ended", flush=True)
"""
# Changes variables of its own, for as long as it lives.
NEIGHBOUR = """
import sys
sys.path.insert(0, sys.argv[1])
from outlast import Shell
with Shell.open(home=sys.argv[2], session="s") as shell:
    for number in range(100_000):
        shell.run(f"other_{number % 5}={number}")
        print(number, flush=True)
"""


class Process:
    """One that uses the session, until it is killed."""

    def __init__(self, code: str, home: str) -> None:
        words = [sys.executable, "-c", code, SOURCE, home]
        self._one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def await_line(self) -> bytes:
        assert self._one.stdout is not None
        line = self._one.stdout.readline()
        assert line, "it died"
        return line

    def run(self, command: str) -> None:
        assert self._one.stdin is not None
        self._one.stdin.write(json.dumps(command).encode() + b"\n")
        self.await_line()

    def kill(self) -> int:
        """The last number that it printed."""
        self._one.kill()
        printed = self._one.communicate(timeout=30)[0].split()
        return int(printed[-1]) if printed and printed[-1].isdigit() else -1


@pytest.fixture(scope="module")
def session() -> Iterator[Shell]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as path, Shell.open(home=os.path.join(path, "state"), session="s") as shell:
        yield shell
        os.chdir(before)


def of_two(shell: Shell, lines: list[str], directory: str, kill_after: set[int]) -> tuple[list[bytes], bytes]:
    """As `of_session`: another process runs the lines, is killed after some of them, and a third one runs beside it."""
    home = os.path.dirname(shell.context.sessions.path)
    shell.run("true")
    os.chdir(directory)
    shell.sessions.reset()
    neighbour, driver = Process(NEIGHBOUR, home), Process(DRIVER, home)
    try:
        neighbour.await_line()
        for number, line in enumerate(lines):
            driver.run(line)
            if number in kill_after:
                driver.kill()
                driver = Process(DRIVER, home)
        neighbour.await_line()
    finally:
        driver.kill()
        last = neighbour.kill()
    eventually(lambda: not shell.list(status="running"))
    state = shell.context.sessions.read("s").state()
    assert any(name.startswith(b"other_") for _, name in state)
    if last >= 0:
        own = state["variable", b"other_%d" % (last % 5)]
        assert own.endswith((b'="%d"' % last, b'="%d"' % (last + 5))), "its last command is lost"
    file = os.path.join(directory, "ours")
    shell.run(TELL.replace("FILE", shlex.quote(file)))
    with open(file, "rb") as told_to:
        variables, *rest = told(told_to.read())
    kept = [line for line in variables.split(b"\n") if not line.split(b" ", 2)[-1].startswith(b"other_")]
    return [b"\n".join(kept), *rest], trap_text(state)


def compare(session: Shell, drawn: list[str], kill_after: set[int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        ours, our_traps = of_two(session, drawn, directory, kill_after)
        theirs, their_traps = of_bash(drawn, directory)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.split(b"\n") == other.split(b"\n")
        assert our_traps == their_traps


moments = st.sets(st.integers(0, 5), max_size=2)


@settings(bounded, max_examples=8)
@given(drawn=st.lists(ALL, min_size=3, max_size=8), kill_after=moments)
def test_all_kinds_of_lines_beside_another_process(session: Shell, drawn: list[str], kill_after: set[int]) -> None:
    compare(session, drawn, kill_after)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(bounded, max_examples=300, derandomize=False, print_blob=True)
@given(drawn=st.lists(ALL, min_size=3, max_size=10), kill_after=moments)
def test_all_kinds_of_lines_beside_another_process_at_length(
    session: Shell, drawn: list[str], kill_after: set[int]
) -> None:
    compare(session, drawn, kill_after)


@pytest.mark.parametrize("family", ["directory stack", "traps for the shell", "functions", "getopts", "set", "shopt"])
@settings(bounded, max_examples=2)
@given(data=st.data())
def test_one_kind_of_line_beside_another_process(session: Shell, family: str, data: st.DataObject) -> None:
    compare(session, data.draw(st.lists(FAMILIES[family], min_size=3, max_size=5)), {1})
