"""What the shell itself can hide, what a session can prepare, and where `guarded` is: lines of an attacker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outlast import Policy, Shell
from outlast.policy.approval import Layer
from outlast.policy.commands.destructive import make_destructive_check
from outlast.policy.layers import evaluate_layers
from outlast.policy.loader import load
from outlast.policy.rules import Overrides, Rules
from outlast.settings import Settings
from tests.policy.fuzz import RULES, Cage, cage_works
from tests.policy.lines import read_lines
from tests.policy.machine import Machine, is_contained, machine_works

LINES = read_lines("bypass_shell.jsonl")
EVERYDAY = [line["line"] for line in read_lines("everyday.jsonl")]
HOME, PROJECT = "/home/me", "/home/me/project"
POLICIES = {
    "strict": Policy("strict", (Layer("strict", RULES),)),
    "banned": load("banned", Settings()),
    "guarded": Policy("guarded", (Layer("guarded", Rules(otherwise="allow", hazard=make_destructive_check(HOME))),)),
}


def known(line: dict[str, Any]) -> Overrides:
    values = dict(setting.split("=", 1) for setting in line.get("setup", []))
    return Overrides(directory=line.get("directory", PROJECT), values={"HOME": HOME, **values})


def as_words(line: dict[str, Any]) -> str:
    return f"{line['class']}: {line['line']}"


@pytest.mark.parametrize(
    "line", [line for line in LINES if "setup" not in line or "guarded" in line["policies"]], ids=as_words
)
def test_each_line(line: dict[str, Any]) -> None:
    for name in line["policies"]:
        decision = evaluate_layers(line["line"], POLICIES[name], known(line)).decision
        assert (decision.verdict == "allow") == (line["expected"] == "allow"), (name, decision.parts)


@pytest.mark.parametrize(
    "line", [line for line in LINES if "setup" in line and "guarded" not in line["policies"]], ids=as_words
)
def test_a_session_does_not_prepare_a_later_line(line: dict[str, Any], home: str) -> None:
    """The lines before are run without a policy, as a file that a session sources would do it."""
    with Shell.open(home=home, session="s") as shell:
        for setup in line["setup"]:
            shell.run(setup)
    for name in line["policies"]:
        with Shell.open(home=home, session="s", policy=POLICIES[name]) as shell:
            assert shell.check(line["line"]).verdict != "allow", name


def test_the_directory_and_the_values_of_a_session_count(home: str) -> None:
    with Shell.open(home=home, session="s", policy="guarded") as shell:
        assert shell.check("rm -rf *").verdict == "allow"
        shell.run("cd /; TARGET=/usr PLACE=/tmp/x")
        assert shell.check("rm -rf *").verdict == "deny"
        assert shell.check("rm -rf $TARGET").verdict == "deny"
        assert shell.check('rm -rf "$PLACE/"').verdict == "allow"
        assert shell.check('rm -rf "$NOTHING/"').verdict == "ask"
        assert shell.check("rm -rf *", cwd="/tmp").verdict == "allow"


def test_what_the_session_does_for_every_line_is_judged_with_it(home: str) -> None:
    with Shell.open(home=home, session="s") as shell:
        shell.run("trap 'echo $BASH_COMMAND' DEBUG; declare -u LANG; alias if='echo '")
    rules = Rules(allow=("ls *", "echo *"))
    with Shell.open(home=home, session="s", policy=Policy("p", (Layer("p", rules),))) as shell:
        decision = shell.check("ls")
        first = decision.parts[0]
        assert (first.command, first.inside) == ("echo $BASH_COMMAND", "trap DEBUG")
        assert decision.verdict == "allow"
        assert shell.check("LANG=C ls").verdict == "ask"
        assert shell.check("if ls; then ls; fi").verdict == "ask"


def test_with_set_k_a_word_is_an_assignment_wherever_it_stands() -> None:
    strict = POLICIES["strict"]
    assert evaluate_layers("ls LD_PRELOAD=./x.so", strict).decision.verdict == "allow"
    assert (
        evaluate_layers("ls LD_PRELOAD=./x.so", strict, Overrides(options=frozenset(["keyword"]))).decision.verdict
        == "ask"
    )


def test_everyday_lines_are_hardly_ever_asked_about() -> None:
    """At most 3 of 150."""
    for place in (Overrides(), Overrides(directory=PROJECT, values={"HOME": HOME, "PWD": PROJECT})):
        asked = [
            line for line in EVERYDAY if evaluate_layers(line, POLICIES["guarded"], place).decision.verdict != "allow"
        ]
        assert len(asked) * 150 <= 3 * len(EVERYDAY), asked


def test_nothing_that_the_judge_allows_runs_a_canary(tmp_path: Path) -> None:
    """The attacks for which the broad policy would have to stop something are run if it lets them through."""
    cage = Cage(tmp_path)
    if not cage_works(cage):
        pytest.skip("bubblewrap is needed")
    lines = [line["line"] for line in LINES if line["policies"] != ["guarded"] and "setup" not in line]
    allowed = [line for line in lines if evaluate_layers(line, POLICIES["strict"]).decision.verdict == "allow"]
    assert cage.hits(allowed) == []


@pytest.mark.parametrize("policy", ["banned", "guarded"])
def test_what_a_policy_allows_by_default_is_run_and_does_no_harm(policy: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    if not machine_works(machine):
        pytest.skip("bubblewrap is needed")
    chosen = [line for line in LINES if policy in line["policies"] and "setup" not in line and is_contained(line)]
    everyday = [line for line in EVERYDAY if is_contained({"class": "", "line": line})]
    lines = [line["line"] for line in chosen] + (everyday if policy == "guarded" else [])
    place = Overrides(directory=PROJECT, values={"HOME": HOME})
    allowed = [line for line in lines if evaluate_layers(line, POLICIES[policy], place).decision.verdict == "allow"]
    what = "ran" if policy == "banned" else "lost"
    found = {allowed[n]: hits for n, hits in machine.hits(allowed).items() if any(hit.startswith(what) for hit in hits)}
    print(f"{policy}: {len(lines)} lines, {len(allowed)} allowed and run, {len(found)} did harm")
    assert found == {}
