"""What a call loads: nothing heavy, nothing that is not ours or the standard library's."""

from __future__ import annotations

import os
import subprocess
import sys
from ast import literal_eval

import pytest

import outlast
from tests.cli import ran
from tests.conftest import Cli

HEAVY = {"asyncio", "concurrent.futures", "ctypes", "dataclasses", "inspect", "pathlib", "re2", "subprocess", "typing"}
TELL = "import sys; print(sorted(sys.modules))"


def loaded(cli: Cli, code: str) -> set[str]:
    """The modules in a fresh interpreter after `code`, without those that any interpreter has."""

    def modules(code: str) -> set[str]:
        out = subprocess.run([sys.executable, "-c", code], env=cli.env, capture_output=True, text=True, timeout=60)
        assert out.returncode == 0, out.stderr
        return set(literal_eval(out.stdout.splitlines()[-1]))

    return modules(f"{code}\n{TELL}") - modules(TELL)


def called(cli: Cli, *words: str) -> set[str]:
    """The modules that a call of the command line has loaded at its end."""
    return loaded(cli, f"from outlast.cli.main import main\nassert main({list(words)!r}) == 0\nprint()")


def strangers(modules: set[str]) -> list[str]:
    """Those that are neither ours nor the standard library's."""
    return [name for name in modules if name.partition(".")[0] not in {*sys.stdlib_module_names, "outlast"}]


@pytest.mark.parametrize(
    "words",
    [
        *(["ps"], ["ps", "--all", "--json"], ["tasks"], ["show", "ID"], ["wait", "ID"], ["logs", "ID"]),
        *(["notices"], ["brief"], ["events", "--json"]),
    ],
)
def test_looking_loads_nothing_heavy(cli: Cli, words: list[str]) -> None:
    task_id = ran(cli, "echo hi")["task_id"]
    modules = called(cli, *(task_id if word == "ID" else word for word in words))
    assert not HEAVY & modules
    assert not strangers(modules)


@pytest.mark.parametrize("words", [["ps"], ["ps", "--all"], ["run", "true"]])
def test_the_shortest_calls_load_nothing_that_they_can_do_without(cli: Cli, words: list[str]) -> None:
    ran(cli, "echo hi")
    assert not {"argparse", "datetime", "enum", "json", "re", "shutil"} & called(cli, *words)


@pytest.mark.parametrize("words", [["run", "true"], ["run", "--bg", "true"], ["run", "--json", "true"], ["clean"]])
def test_running_loads_nothing_heavy(cli: Cli, words: list[str]) -> None:
    modules = called(cli, *words)
    assert not HEAVY & modules
    assert not strangers(modules)


def test_a_filter_is_the_only_reason_to_load_an_engine(cli: Cli) -> None:
    task_id = ran(cli, "echo hi")["task_id"]
    assert "re2" in strangers(called(cli, "logs", "--filter", "h", task_id))


def test_help_needs_no_state_directory(cli: Cli, home: str) -> None:
    for words in (["--help"], ["run", "--help"], ["--version"]):
        cli(*words, check=0)
    assert not os.path.exists(home)


def test_importing_the_package_alone_loads_nothing(cli: Cli) -> None:
    assert loaded(cli, "import outlast") <= {"outlast", "__future__"}


def test_the_plain_shell_needs_no_event_loop(cli: Cli) -> None:
    modules = loaded(cli, "from outlast import Shell")
    assert "asyncio" not in modules
    assert not strangers(modules)


def test_the_public_names_are_exactly_these(cli: Cli) -> None:
    errors = """AlreadyEnded AmbiguousTask BadInput BadPattern DamagedTask InputRefused NeedsApproval NewerTask
        OutOfReach OutlastError ReaderBusy Refused SessionBusy StartFailed StateRefused StillRunning SystemRefused
        UnknownSession UnknownTask Unsupported"""
    values = """Approval Cursor Event Limits Notice Notify Policy Receipt Result Sandbox Screen SessionState Slice Stdin
        Task Waited"""
    names = sorted([*errors.split(), *values.split(), "AsyncShell", "Shell"])
    assert outlast.__all__ == names
    assert sorted(dir(outlast)) == sorted([*names, "__version__"])
    everything: dict[str, object] = {}
    exec("from outlast import *", everything)
    assert sorted(everything.keys() - {"__builtins__"}) == names
    assert all(getattr(outlast, name).__name__ == name for name in names)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Registry'"):
        _ = outlast.Registry
