"""How many modules of ours a warm `run("true")` passes: the fewer, the easier to follow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from outlast import Shell
from tests.conftest import prepared_shells

if TYPE_CHECKING:
    from types import FrameType

AT_MOST = 31


def test_a_foreground_command_passes_few_modules(home: str) -> None:
    passed: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.partition(".")[0] == "outlast":
            passed.add(name)

    with Shell.open(home=home, session="warm") as shell:
        shell.run("true")
        prepared_shells(shell)
        sys.setprofile(note)
        try:
            shell.run("true")
        finally:
            sys.setprofile(None)
    print(len(passed), *sorted(passed), sep="\n")
    assert len(passed) <= AT_MOST
