"""Long lines: everything in them is checked, and the work grows with their length and no faster."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

import pytest

from outlast.policy.evaluator import LONGEST_BYTES, Evaluator, evaluate
from outlast.policy.rules import Overrides, Rules
from tests.policy.lines import read_lines, rules_of

RULES = Rules(allow=("ls *", "echo *", "cat *", "eval *", "bash *", "find *", "l"), deny=("rm *",))
LENIENT = Rules(deny=("rm *",), otherwise="allow")
# What is repeated, what stands before it, what behind it.
SHAPES = {
    "list": ("ls;", "", ""),
    "short": ("l;", "", ""),
    "pipe": ("ls|", "", "ls"),
    "and": ("ls&&", "", "ls"),
    "lines": ("ls\n", "", ""),
    "quoted": ("'ls' a;", "", ""),
    "variables": ("ls $a;", "", ""),
    "words": ("a ", "echo ", ""),
    "globs": ("* ", "echo ", ""),
    "strings": ("'a' ", "echo ", ""),
    "redirections": ("ls <a;", "", ""),
    "assignments": ("a=1 ", "", "ls"),
    "subshells": ("(l);", "", ""),
    "groups": ("{ l; };", "", ""),
    "substitutions": ("ls $(l);", "", ""),
    "backticks": ("`l` ", "echo ", ""),
    "functions": ("f()(l);", "", ""),
    "bombs": (":(){ :|:& };:;", "", ""),
    "loops": ("for i in a; do l; done;", "", ""),
    "cases": ("l) l;;\n", "case a in ", "esac"),
    "conditions": ("1 -eq a ", "[[ ", "]]"),
    "parentheses": ("( ", "[[ ", "]]"),
    "comments": ("#\n", "", ""),
    "documents": ("cat <<E\nx\nE\n", "", ""),
    "two at once": ("cat <<E <<F\nE\nF\n", "", ""),
    "announced first": ("<<E cat\nE\n", "", ""),
    "dollars": ("ls a$;", "", ""),
    "announced": ("<<E ", "cat ", "\n" + "E\n" * 9),
    "options": ("+x ", "bash -c ls ", ""),
    "wrapped": ("env ", "", "ls"),
    "fed": ("xargs ", "", "ls"),
    "texts": ("eval ls;", "", ""),
    "arguments": ("a ", "parallel ::: ", ""),
    "arithmetic": ("$((1)) ", "echo ", ""),
    "unclosed": ("`", "", ""),
}


def of_length(shape: str, length: int) -> str:
    unit, before, behind = SHAPES[shape]
    return before + unit * ((length - len(before) - len(behind)) // len(unit)) + behind


def steps(line: str, rules: Rules) -> int:
    """How many functions are called to check a line."""
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        evaluate(line, rules)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_line_is_at_most_twice_the_work(shape: str) -> None:
    for rules in (RULES, LENIENT):
        evaluate(of_length(shape, 500), rules)
        once = steps(of_length(shape, 1500), rules)
        assert steps(of_length(shape, 3000), rules) < 2.2 * once + 200


@pytest.mark.parametrize("shape", SHAPES)
def test_the_longest_line_does_not_take_long(shape: str) -> None:
    evaluate("ls 'a'", LENIENT)
    start = time.process_time()
    evaluate(of_length(shape, LONGEST_BYTES), LENIENT)
    assert time.process_time() - start < 2, "it takes ten times what it should"


@pytest.mark.parametrize(
    "shape", ["list", "short", "pipe", "and", "lines", "quoted", "variables", "subshells", "texts"]
)
def test_what_is_denied_is_found_behind_any_number_of_commands(shape: str) -> None:
    line = of_length(shape, LONGEST_BYTES - 20).removesuffix("ls")
    for rules in (RULES, LENIENT):
        assert evaluate(line + "rm x", rules).verdict == "deny"


def test_any_number_of_commands_can_be_allowed() -> None:
    assert evaluate("ls;" * 21_000, RULES).verdict == "allow"
    assert evaluate(f"eval '{'ls;' * 6000}'; {'ls;' * 6000}", RULES).verdict == "allow"


@pytest.mark.parametrize(
    ("line", "more", "why"),
    [
        ("ls|" * 2999 + "ls", "ls|" * 3001 + "ls", "a pipeline has more than 3000 commands"),
        ("ls|'ls'|" * 1400 + "ls", "ls|'ls'|" * 1501 + "ls", "a pipeline has more than 3000 commands"),
        ("ls|'ls';" * 3500, "'ls'|" * 3001 + "ls", "a pipeline has more than 3000 commands"),
        ("[[ a" + " && a" * 400 + " ]]", "[[ a" + " && a" * 600 + " ]]", "a condition has more than 1000 words"),
        (
            "cat" + " <<E" * 16 + "\n" + "E\n" * 16,
            "cat" + " <<E" * 17 + "\n" + "E\n" * 17,
            "a line begins more than 16 here-documents",
        ),
        (
            "cat <<E <<F\nE\nF\n" * 100,
            "cat <<E <<F\nE\nF\n" * 101,
            "it has too many places that two readers of bash cannot compare",
        ),
        ("ls a$;" * 100, "ls 'a'$;" * 101, "it has too many places that two readers of bash cannot compare"),
    ],
    ids=["pipeline", "mixed", "pipelines", "condition", "documents", "pairs", "dollars"],
)
def test_what_other_readers_take_long_over_is_asked(line: str, more: str, why: str) -> None:
    assert evaluate(line, LENIENT).verdict == "allow"
    for rules in (RULES, LENIENT):
        asked = [part.why for part in evaluate(more, rules).parts if part.verdict == "ask"]
        assert asked == [why]


# --- the same once more ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["corpus.jsonl", "own.jsonl"])
def test_a_line_is_judged_alike_the_second_time(name: str) -> None:
    for line in read_lines(name):
        command = line["command"]
        if line["expected"] == "allow" and len(command) < 1000:
            once, twice = (evaluate(text, rules_of(line)).parts for text in (command, f"{command}\n{command}"))
            # The other two readers speak of no command.
            assert [part for part in twice if part.command] == [part for part in once if part.command] * 2, command


def test_a_text_that_was_only_suspected_before_gets_its_second_opinion() -> None:
    evaluator = Evaluator(LENIENT, Overrides())
    evaluator.text("git -c a.b='eval \"ls ~\"' log; git submodule foreach 'eval \"ls ~\"'", "bash")
    assert "ls ~" in [text.source for text in evaluator.texts]


def test_where_a_command_stands_is_told_although_it_was_judged_elsewhere() -> None:
    parts = evaluate("ls; (ls); echo $(ls) | ls", RULES).parts
    assert [(part.command, part.depth, part.inside) for part in parts] == [
        ("ls", 0, ""),
        ("ls", 1, "( )"),
        ("echo $(ls)", 0, ""),
        ("ls", 1, "$( )"),
        ("ls", 0, ""),
    ]


def test_a_shell_that_is_fed_is_not_the_one_before_it() -> None:
    rules = Rules(allow=("python3 *", "ls *"))
    assert evaluate("python3 --version; ls | python3 --version", rules).verdict == "allow"
    assert evaluate("dc; ls", Rules(allow=("dc *", "ls *"))).verdict == "ask"
    whys = [part.verdict for part in evaluate("mysql; ls | mysql", Rules(allow=("mysql *", "ls *"))).parts]
    assert whys == ["allow", "allow", "ask"]
