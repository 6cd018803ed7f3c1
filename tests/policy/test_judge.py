"""How a line is judged: the corpora, and what the rules say in general."""

from __future__ import annotations

import time
from typing import Any

import pytest

from outlast.policy.evaluator import evaluate
from outlast.policy.rules import Overrides, Rules
from tests.policy.lines import read_lines, rules_of

CORPUS = read_lines("corpus.jsonl")
OWN = read_lines("own.jsonl")
RULES = Rules(allow=("ls *", "echo *", "cat *", "git log *"), deny=("rm *", "git push *"))
GUARDED = Rules(deny=("rm *",), otherwise="allow")


@pytest.mark.parametrize("line", [*CORPUS, *OWN], ids=lambda line: line["id"])
def test_each_judged_line(line: dict[str, Any]) -> None:
    decision = evaluate(line["command"], rules_of(line))
    assert decision.verdict in [line["expected"], *line.get("also_ok", [])], decision.parts


def test_nothing_is_wrongly_allowed_and_the_harmless_pass() -> None:
    for lines in (CORPUS, OWN):
        verdicts = [(line, evaluate(line["command"], rules_of(line)).verdict) for line in lines]
        wrong = [line["id"] for line, verdict in verdicts if verdict == "allow" != line["expected"]]
        assert set(wrong) <= {line["id"] for line in lines if "allow" in line.get("also_ok", [])}
        missed = [line["id"] for line, verdict in verdicts if line["expected"] == "deny" != verdict]
        assert set(missed) <= {line["id"] for line in lines if "ask" in line.get("also_ok", [])}
        harmless = [verdict for line, verdict in verdicts if line["expected"] == "allow"]
        assert harmless.count("allow") >= 0.95 * len(harmless)


# --- what a decision says ---------------------------------------------------------------------------


def test_each_part_says_which_rule_and_where() -> None:
    decision = evaluate("ls -l && echo $(rm x)", RULES)
    assert decision.verdict == "deny"
    first, second, third = decision.parts
    assert (first.command, first.verdict, first.rule, first.depth, first.inside) == ("ls -l", "allow", "ls *", 0, "")
    assert (second.command, second.verdict) == ("echo $(rm x)", "allow")
    assert (third.command, third.verdict, third.rule, third.depth, third.inside) == ("rm x", "deny", "rm *", 1, "$( )")


def test_a_problem_that_is_no_command_is_a_part_too() -> None:
    parts = evaluate('echo "open', RULES).parts
    assert [(part.verdict, part.why) for part in parts if part.verdict == "ask"] == [
        ("ask", "a double quote is not closed")
    ]


def test_a_word_with_blanks_cannot_pass_for_two() -> None:
    rules = Rules(allow=("git log",), deny=())
    assert evaluate("git log", rules).verdict == "allow"
    assert evaluate("'git log'", rules).verdict == "ask"
    assert evaluate("echo 'a b'", Rules(allow=("echo a b",))).verdict == "ask"
    assert evaluate("echo ''", Rules(allow=("echo",))).verdict == "ask"


def test_only_a_star_covers_what_is_not_known() -> None:
    assert evaluate('echo "$X"', Rules(allow=("echo *",))).verdict == "allow"
    assert evaluate('echo "$X"', Rules(allow=("echo $X",))).verdict == "ask"
    assert evaluate("echo '$X'", Rules(allow=("echo $X",))).verdict == "allow"


def test_what_could_turn_out_to_be_denied_is_asked() -> None:
    rules = Rules(allow=("echo *",), deny=("echo secret *",))
    assert evaluate('echo "$X"', rules).verdict == "ask"
    assert evaluate('echo plain "$X"', rules).verdict == "allow"


def test_a_rule_covers_an_option_that_it_spells() -> None:
    for rule, line in [
        ("sort -o *", "sort -o out in"),
        ("sort -o*", "sort -oout in"),
        ("sed -i *", "sed -i s/a/b/ f"),
        ("python3 -m pytest *", "python3 -m pytest -q"),
        ("find . -delete", "find . -delete"),
        ("find * -delete", "find src -delete"),
        ("npm exec *", "npm exec tsc"),
    ]:
        assert evaluate(line, Rules(allow=(rule,))).verdict == "allow", line
        assert evaluate(line, Rules(allow=(line.split()[0] + " *",))).verdict == "ask", line


def test_a_command_that_looks_like_an_earlier_one_is_judged_by_itself() -> None:
    rules = Rules(allow=("git *",), deny=())
    assert evaluate("git log '$X'", rules).verdict == "allow"
    assert evaluate("git log '$X'; git log $X", rules).verdict == "ask"
    assert evaluate("git log '*'; git log *", rules).verdict == "ask"


def test_an_empty_policy_asks() -> None:
    assert evaluate("ls", Rules()).verdict == "ask"
    assert evaluate("true", Rules()).verdict == "ask"


# --- policies that allow by default ------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "export A=1",
        "source venv/bin/activate",
        "ls > file",
        "A=1 ls",
        "python3 - <<'E'\nprint(1)\nE",
        "f() { ls; }; f",
        "echo $((x+1))",
        "git -c a.b=c log",
        "bash script.sh",
        'cat f | while read -r l; do echo "$l"; done',
        '"$VENV/bin/python" x.py',
        "alias ll='ls -l'",
        "find . -delete",
        "sudo ls",
    ],
)
def test_they_let_ordinary_lines_run(line: str) -> None:
    assert evaluate(line, GUARDED).verdict == "allow", evaluate(line, GUARDED).parts


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("$X -rf build", "ask"),
        ("cat f | sh", "ask"),
        ('eval "$X"', "ask"),
        ('bash -c "$X"', "ask"),
        ("echo 'open", "ask"),
        ("echo ${x@P}", "ask"),
        ("sudo rm x", "deny"),
        ("alias x='rm y'", "deny"),
        ("f() { rm x; }", "deny"),
        ("env -i A=1 timeout 5 rm x", "deny"),
        ("docker run alpine rm x", "deny"),
        ("git submodule foreach 'rm x'", "deny"),
        ("find . -exec rm {} +", "deny"),
        ("sudo bash <<E\nrm x\nE", "deny"),
        ("ssh host <<'E'\nrm x\nE", "deny"),
        ("ssh host < f", "ask"),
        ("env $X y", "ask"),
        ("\"$D/bash\" -c 'rm x'", "deny"),
        ("~/bin/sudo rm x", "deny"),
        ("sudo $X", "ask"),
        ("xargs $X", "ask"),
    ],
)
def test_they_still_see_what_is_denied_and_what_could_hide_it(line: str, verdict: str) -> None:
    assert evaluate(line, GUARDED).verdict == verdict


def test_a_hazard_is_asked_about_words_and_about_files_that_are_written() -> None:
    seen: list[tuple[str | None, ...]] = []

    def hazard(words: tuple[str | None, ...], where: str, elsewhere: bool) -> str | None:
        seen.append(words)
        return "it destroys" if words in (("mkfs", "/dev/sda"), (">", "/dev/sda")) else None

    rules = Rules(otherwise="allow", hazard=hazard)
    assert evaluate('sudo mkfs /dev/sda; ls "$X"', rules).verdict == "deny"
    assert ("mkfs", "/dev/sda") in seen
    assert ("ls", None) in seen
    assert evaluate("cat x > /dev/sda", rules).verdict == "deny"
    assert evaluate("cat x > /dev/null 2>&1", rules).verdict == "allow"


# --- what the session has changed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [
        Overrides(functions=frozenset(["ls"])),
        Overrides(aliases=frozenset(["ls"])),
        Overrides(path_changed=True),
        Overrides(variables=frozenset(["LD_PRELOAD"])),
        Overrides(variables=frozenset(["BASH_ENV"])),
    ],
)
def test_a_name_that_may_mean_something_else_is_asked(overrides: Overrides) -> None:
    assert evaluate("ls", RULES, overrides).verdict == "ask"
    assert evaluate("rm x", RULES, overrides).verdict == "deny"


def test_other_variables_change_nothing() -> None:
    overrides = Overrides(functions=frozenset(["f"]), variables=frozenset(["FOO", "LANG"]))
    assert evaluate("ls", RULES, overrides).verdict == "allow"


def test_a_neutral_name_that_was_redefined_is_neutral_no_more() -> None:
    assert evaluate("true", RULES, Overrides(functions=frozenset(["true"]))).verdict == "ask"


# --- other shells ----------------------------------------------------------------------------------------


def test_a_line_for_sh_is_read_if_it_means_the_same_there() -> None:
    assert evaluate("ls && echo a", RULES, shell="sh").verdict == "allow"
    assert evaluate("echo $'a'", RULES, shell="/bin/sh").verdict == "ask"
    assert evaluate("rm x", RULES, shell="dash").verdict == "deny"


@pytest.mark.parametrize("shell", ["zsh", "fish", "/usr/bin/zsh", "nu"])
def test_a_line_for_another_shell_is_asked(shell: str) -> None:
    assert evaluate("ls", RULES, shell=shell).verdict == "ask"
    assert evaluate("ls; rm x", RULES, shell=shell).verdict == "deny"


# --- limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "echo " + "$(echo " * 65 + "a" + ")" * 65,
        "(" * 2000,
        "$(" * 2000,
        "`" * 3001,
        "${a:-" * 2000,
        "if " * 2000,
        "env " * 3000 + "ls",
        "sudo " * 3000 + "ls",
        "eval " * 3000 + "ls",
        "bash -c '" * 500,
        "echo " + "a" * 70000,
    ],
    ids=lambda line: f"{line[:9]}…{len(line)}",
)
def test_what_is_too_deep_or_too_long_is_asked(line: str) -> None:
    assert evaluate(line, RULES).verdict == "ask"


def test_nesting_up_to_the_limit_is_read() -> None:
    assert evaluate("echo " + "$(echo " * 60 + "a" + ")" * 60, RULES).verdict == "allow"
    assert evaluate("echo " + "$(echo " * 60 + "$(rm x)" + ")" * 60, RULES).verdict == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "echo " + "word " * 13000,
        "ls;" * 20000 + "rm x",
        "echo '" + "x" * 65000 + "'",
        "echo " + "\\" * 65000,
        "a=(" * 20000,
        "((" * 30000,
        "find . " + "-exec ls {} ; " * 4000,
        "awk '" + "/a/ {print} " * 5000 + "'",
        "docker run " * 5000,
        "echo é;" * 8000,
        "echo `echo \\$a`;" * 3000,
    ],
    ids=lambda line: line[:12],
)
def test_no_line_takes_long(line: str) -> None:
    evaluate("ls", RULES)
    start = time.process_time()
    evaluate(line, RULES)
    assert time.process_time() - start < 2, "it grows faster than the line"
