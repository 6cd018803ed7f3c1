"""Shortcuts of the evaluator: they save work, and nothing is checked in another way because of them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outlast.policy import command_evaluator, evaluator
from outlast.policy.bash import crosscheck
from outlast.policy.bash.parser import read
from outlast.policy.evaluator import Evaluator, evaluate
from outlast.policy.rules import Overrides, Part, Rules
from tests.policy.fuzz import RULES as MANY
from tests.policy.lines import read_lines
from tests.policy.mutations import SEPARATORS

RULES = Rules(allow=("ls *", "echo *", "cat *", "eval *", "bash *"), deny=("rm *",))
LENIENT = Rules(deny=("rm *", "git push *"), otherwise="allow")
LINES = [line["command"] for name in ("corpus.jsonl", "own.jsonl") for line in read_lines(name)]
SHORT = [line for line in LINES if len(line) < 200]
AROUND = [
    "{}",
    "$({})",
    "({})",
    "{{ {}\n}}",
    "`{}`",
    "eval '{}'",
    'bash -c "{}"',
    "cat <<E\n{}\nE",
    "if {}\nthen {}\nfi",
]
slow = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that bash is asked to read."""
    seen: list[str] = []

    def counted(source: str) -> bool:
        seen.append(source)
        return crosscheck.bash_accepts(source)

    monkeypatch.setattr(command_evaluator, "bash_accepts", counted)
    return seen


# --- what they save ----------------------------------------------------------------------------------------


def test_where_it_stands_and_whether_it_is_fed_is_told_for_each() -> None:
    commands = read("ls $a; ls $a | ls $a; (ls $a; ls $a)").commands
    assert [(one.at, one.fed, one.depth, one.inside) for one in commands] == [
        (0, False, 0, ""),
        (7, False, 0, ""),
        (15, True, 0, ""),
        (23, False, 1, "( )"),
        (30, False, 1, "( )"),
    ]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("ls #a\nls #a;b\nls", 3),  # a comment ends with its line and not before
        ("ls #a;b\nls #a\nls", 3),
        ("ls 'a;ls 'a;ls", 2),
        ("ls a\\;ls a\\;ls", 1),
        ("ls <<E;ls <<E;\nls $a;\nE\nls\nE\nls", 3),  # pieces of a here-document are no commands
        ("ls <a;ls <a\\\n;ls", 3),
        ("echo >|a;echo >|a;", 2),
        ("ls $a&&ls $a&ls $a&&ls", 4),
    ],
)
def test_a_piece_that_looks_like_another_is_read_by_itself(line: str, commands: int) -> None:
    text = read(line)
    assert not text.problems
    assert len(text.commands) == commands


def test_a_bashism_is_one_every_time() -> None:
    assert read("cat <<<a;cat <<<a;").bashisms
    assert read("`cat <<<a;`;cat <<<a;").bashisms
    assert not read("ls <a;ls <a;").bashisms


def test_a_list_of_plain_commands_needs_no_other_reader(asked: list[str]) -> None:
    assert evaluate("ls -l; cat a/b && echo c | ls &\n\n cat d || ls\n", RULES).verdict == "allow"
    assert evaluate("bash -c 'ls; ls a'; eval 'ls && ls'", RULES).verdict == "allow"
    assert asked == ["bash -c 'ls; ls a'; eval 'ls && ls'"]


@pytest.mark.parametrize(
    "line", ["ls 'a'; ls", "ls $a", "(ls)", "ls &&", "ls |", "ls; # a", "ls\\\n; ls", "! ls", "ls ||\n"]
)
def test_all_others_do(line: str) -> None:
    assert not read(line).is_plain()


def test_bash_is_started_for_a_few_texts_only(asked: list[str]) -> None:
    few, many = (";".join(f"eval 'ls \"{number}\"'" for number in range(count)) for count in (31, 33))
    assert evaluate(few, RULES).verdict == "allow"
    assert len(asked) == 32
    asked.clear()
    assert [part.why for part in evaluate(many, RULES).parts if part.verdict == "ask"] == [
        "it has more than 32 texts for a shell in it"
    ]
    assert not asked
    assert evaluate(f"{many};eval 'rm \"x\"'", RULES).verdict == "deny"


# --- what they do not change -------------------------------------------------------------------------------


def parts_of(line: str, rules: Rules, overrides: Overrides) -> list[Part]:
    """What is said before other readers are asked."""
    heard = Evaluator(rules, overrides)
    heard.text(line.replace("\0", ""), "bash")
    return heard.parts


def parts_the_long_way(line: str, rules: Rules, overrides: Overrides) -> list[Part]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluator, "plain_words", lambda text: None)
        patch.setattr(Evaluator, "_is_ordinary", lambda evaluator, name: False)
        patch.setattr(Evaluator, "_is_deniable", lambda evaluator, name: True)
        return parts_of(line, rules, overrides)


def alike(line: str) -> None:
    known = Overrides(functions=frozenset(["ls"]), variables=frozenset(["PAGER"]))
    for rules, session in ((MANY, Overrides()), (LENIENT, Overrides()), (MANY, known)):
        assert parts_of(line, rules, session) == parts_the_long_way(line, rules, session), line


@pytest.mark.parametrize("line", SHORT[::7])
def test_a_judged_line_is_judged_alike_the_long_way(line: str) -> None:
    alike(f"{line}\n{line}")


@slow
@given(
    st.lists(st.sampled_from(SHORT), min_size=1, max_size=3),
    st.lists(st.sampled_from([*SEPARATORS, ""]), min_size=4, max_size=4),
    st.sampled_from(AROUND),
    st.integers(0, 150),
    st.integers(0, 3),
)
def test_lines_that_are_joined_and_cut_too(
    lines: list[str], separators: list[str], around: str, start: int, less: int
) -> None:
    whole = "".join(line + separator for line, separator in zip([*lines, *lines], separators, strict=False))
    alike(around.format(*[whole[:start] + whole[start + less :]] * 2))


_WORDS = """
    ls a -l --x=y 1 if then fi in esac do done time a=b export declare x/y %1 ^a @ + - : . .. , a:b function coproc case
    for while let eval == a+=b = 0 a-b _ // a@b %% E else elif exec
"""
_BETWEEN = [" ", "  ", "\t", ";", "; ", "\n", "&", "&&", "||", "|", " | ", "\n\n", "& ", ";\n", "&&\n", "|\n", " ;", ""]
PLAIN = st.lists(st.tuples(st.sampled_from(_WORDS.split()), st.sampled_from(_BETWEEN)), min_size=1, max_size=8)


@slow
@example([("ls", "|")] * 2999 + [("ls", ";\n")])
@example([("ls", "&&")] * 16_000 + [("ls", "\n")])
@given(PLAIN)
def test_bash_reads_every_list_of_plain_commands(pairs: list[tuple[str, str]]) -> None:
    line = "".join(word + between for word, between in pairs)
    text = read(line)
    if text.is_plain() and not text.problems:
        subprocess.run(["bash", "--norc", "-n"], input=line, text=True, check=True, capture_output=True)
