"""Help texts and completion: what they say is so.

After a change on purpose: `OUTLAST_GOLDEN=write pytest tests/cli/test_help.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outlast import __version__
from outlast.cli.arguments import Argument, Parser, VerbGroup
from outlast.cli.completion import options_of
from outlast.cli.main import VERBS, module_of, overview
from outlast.errors import BadInput
from tests.cli import agreed
from tests.conftest import Cli

WIDTH = 100


def parser_of(verb: str) -> Parser | VerbGroup:
    made: Parser | VerbGroup = getattr(module_of(verb), f"{verb}_parser")()
    return made


def arguments_of(parser: Parser | VerbGroup) -> list[Argument]:
    parsers = parser.commands.values() if isinstance(parser, VerbGroup) else [parser]
    return [one for parser in parsers for one in parser.arguments]


GROUPS = {verb: made for verb in VERBS if isinstance(made := parser_of(verb), VerbGroup)}
COMMANDS = [f"{verb} {name}" for verb, group in GROUPS.items() for name in group.commands]


def help_of(cli: Cli, *words: str) -> str:
    cli.env |= {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    return cli(*words, "--help", check=0).stdout


@pytest.mark.parametrize("verb", [*VERBS, *COMMANDS])
def test_the_help_of_a_verb(cli: Cli, verb: str) -> None:
    text = help_of(cli, *verb.split())
    assert text == agreed(f"help_{verb.replace(' ', '_')}.txt", text)
    assert f"usage: outlast {verb}" in text


def test_the_help_of_the_whole(cli: Cli) -> None:
    text = help_of(cli)
    assert text == agreed("help.txt", text)
    assert {text} == {cli(*words, check=0).stdout for words in ([], ["help"], ["-h"])}


def test_the_version(cli: Cli) -> None:
    assert cli("--version", check=0).stdout == f"outlast {__version__}\n"


def test_the_overview_names_every_verb() -> None:
    assert re.findall(r"^  ([a-z]+) +[a-z]", overview(), flags=re.MULTILINE)[: len(VERBS)] == list(VERBS)
    assert len(VERBS) == 28


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_the_screen_and_every_option_is_explained(cli: Cli, verb: str) -> None:
    text = help_of(cli, verb)
    assert all(len(line) <= WIDTH + 2 for line in text.splitlines())
    for argument in arguments_of(parser_of(verb)):
        assert argument.help, argument.names
        assert argument.action == "store_true" or argument.metavar, argument.names


def examples() -> list[str]:
    """What the examples of every help text tell to type."""
    texts = [
        overview(),
        *(parser_of(verb).help() for verb in VERBS),
        *(command.help() for group in GROUPS.values() for command in group.commands.values()),
    ]
    lines = [line for text in texts for line in text.partition("examples:\n")[2].splitlines()]
    # Two blanks or more: what follows explains it.
    return [re.split(r" {2,}", line.strip())[0] for line in lines if line.startswith("  ") and "outlast" in line]


@pytest.mark.parametrize("line", examples())
def test_every_example_is_a_call_that_makes_sense(tmp_path: Path, line: str) -> None:
    """A real bash takes it apart, and the verb's own parser takes what bash makes of it."""
    (tmp_path / ".config/fish/completions").mkdir(parents=True)
    (tmp_path / "file").touch()
    script = f'outlast() {{ printf "%s\\n" "$@" --end-- >>"$HOME/calls"; }}\n{line}'
    env = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["bash", "--norc", "-c", script], env=env, cwd=tmp_path, capture_output=True, timeout=60)
    calls = (tmp_path / "calls").read_text().split("--end--\n")[:-1]
    assert calls
    for call in calls:
        verb, *words = call.splitlines()
        try:
            parser_of(verb).parse(words)
        except BadInput as wrong:
            pytest.fail(f"{line}: {wrong}")


# --- completion --------------------------------------------------------------------------


@pytest.fixture
def path(cli: Cli, tmp_path: Path) -> str:
    """A PATH on which `outlast` is ours."""
    program = tmp_path / "bin" / "outlast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m outlast "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{cli.env['PATH']}"


def completed(cli: Cli, path: str, *asked: str) -> list[list[str]]:
    """What a real bash offers for the last word of each of these lines."""
    script = 'eval "$(outlast completion bash)"\n' + "".join(
        f'COMP_WORDS=(outlast {line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _outlast; echo "${{COMPREPLY[@]}}"\n'
        for line in asked
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env={**cli.env, "PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "check"), [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")])
def test_a_completion_is_a_script_that_its_shell_can_read(cli: Cli, tmp_path: Path, name: str, check: str) -> None:
    script = tmp_path / "script"
    script.write_text(cli("completion", name, check=0).stdout)
    assert "outlast" in script.read_text()
    if shutil.which(check) is None:
        pytest.skip(f"{check} is not installed")
    read = subprocess.run([check, "-n", script], capture_output=True, text=True, timeout=60)
    assert (read.stderr, read.returncode) == ("", 0)


def test_verbs_are_completed(cli: Cli, path: str) -> None:
    assert completed(cli, path, "''", "c", "x") == [list(VERBS), ["clean", "check", "call", "completion"], []]


def test_options_are_completed(cli: Cli, path: str) -> None:
    offered = completed(cli, path, *(f"{verb} --" for verb in VERBS))
    assert offered == [options_of(verb) for verb in VERBS]
    assert completed(cli, path, "tasks r") == [["running"]]
    assert all("--help" in options for options in offered)
    assert completed(cli, path, "logs --fi", "run --bg --spl") == [["--filter"], ["--split"]]


def test_ids_are_completed_where_a_verb_takes_one(cli: Cli, path: str) -> None:
    ids = {cli("run", "--bg", "true", check=0).stdout.strip() for _ in range(2)}
    *where, nowhere = completed(
        cli, path, *(f"{verb} bash-" for verb in ("show", "logs", "wait", "kill", "send", "clean"))
    )
    assert [set(offered) for offered in where] == [ids] * 5
    assert nowhere == []


def test_completion_never_complains(cli: Cli, path: str) -> None:
    cli.env["OUTLAST_HOME"] = "/proc/outlast"
    assert completed(cli, path, "show bash-") == [[]]
