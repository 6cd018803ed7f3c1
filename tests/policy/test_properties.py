"""What holds for any text at all."""

from __future__ import annotations

import subprocess

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.policy.bash.parser import read
from outlast.policy.bash.words import quote_word
from outlast.policy.evaluator import evaluate
from outlast.policy.patterns import Index, compile_pattern, could_match, matches
from outlast.policy.rules import Rules
from tests.policy.lines import read_lines

RULES = Rules(allow=("ls *", "echo *", "cat *", "bash *", "eval *", "env *"), deny=("rm *",))
ALLOWED = [
    line["command"] for line in read_lines("corpus.jsonl") if line["expected"] == "allow" and len(line["command"]) < 500
]
# Without comments and here-documents: what is put behind them may be text.
HARMLESS = [one for one in ALLOWED if evaluate(one, RULES).verdict == "allow" and "#" not in one and "<<E" not in one]
_TOKENS = """
    ' " \\ ` $( ) ${ } (( )) [[ ]] # ; & | < > << <<< EOF if then fi case esac in for do done rm x = ! { * ~ $' @P [ ]
"""
SYNTAX = st.sampled_from([*_TOKENS.split(), " ", "\n"])
TEXTS = st.one_of(
    st.text(max_size=80),
    st.lists(SYNTAX, max_size=25).map(" ".join),
    st.lists(SYNTAX, max_size=25).map("".join),
)
slow = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_it_never_raises(text: str) -> None:
    assert evaluate(text, RULES).verdict in ("allow", "ask", "deny")
    evaluate(text, Rules(deny=("rm *",), otherwise="allow"), shell="sh")


AROUND = """
{0}; {1}@{1}; {0}@{0} && {1}@{0} || {1}@{0} & {1}@{0}\\n{1}@{1} | {0}@{0} $({1})@{0} `{1}`@{0} "$({1})"@{0} <({1})
({1}); {0}@{{ {1}; }}; {0}@if {1}; then {0}; fi@{0} ${{x:-$({1})}}@for i in 1; do {1}; done; {0}@! {1}; {0}
case a in a) {1};; esac; {0}@x=$({1}); {0}@bash -c "{1}"; {0}@eval {1}; {0}@env {1}; {0}@[[ $({1}) ]]; {0}
cat <<E\\n$({1})\\nE\\n{0}
"""
PLACES = [place.replace("\\n", "\n") for line in AROUND.strip().split("\n") for place in line.split("@")]


@slow
@given(
    st.sampled_from(HARMLESS),
    st.sampled_from(PLACES),
    st.sampled_from(["rm x", "/bin/rm -rf y", "r\\m z", "'rm' a", "rm"]),
)
def test_a_denied_command_anywhere_is_never_allowed(line: str, around: str, denied: str) -> None:
    assert evaluate(around.format(line, denied), RULES).verdict != "allow"


def spellings(name: str) -> st.SearchStrategy[str]:
    def forms(char: str) -> list[str]:
        code = ord(char)
        plain = [char, f"\\{char}", f"'{char}'", f'"{char}"', f"''{char}", f'{char}""', f"{char}\\\n"]
        return [*plain, f"$'\\x{code:x}'", f"$'\\{code:03o}'", f"$'\\u{code:04x}'"]

    return st.tuples(*(st.sampled_from(forms(char)) for char in name)).map("".join)


@slow
@given(spellings("rm"), st.sampled_from(["", "/bin/", "./", "/usr/bin/"]))
def test_every_spelling_of_a_denied_name_is_denied(name: str, directory: str) -> None:
    assert evaluate(f"{directory}{name} x", RULES).verdict == "deny"


WORDS = st.lists(st.text(st.sampled_from("ab \t\n'\"\\é-=x\x01\x7f"), max_size=6), min_size=1, max_size=5)


@slow
@given(WORDS)
def test_canonical_text_means_the_same_words_to_bash(words: list[str]) -> None:
    text = " ".join(map(quote_word, words))
    printed = subprocess.run(
        ["bash", "--norc", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    ).stdout
    assert printed.decode().split("\0")[:-1] == words


@slow
@given(WORDS)
def test_what_is_quoted_is_read_back(words: list[str]) -> None:
    (command,) = read("echo " + " ".join(map(quote_word, words))).commands
    assert [word.value for word in command.words[1:]] == words


@settings(max_examples=300, deadline=None)
@given(st.text("ab* ", max_size=8), st.text("ab ", max_size=8))
def test_patterns_match_as_a_plain_definition_says(pattern: str, text: str) -> None:
    stripped = pattern.strip()

    def plain(rest: str, left: str) -> bool:
        if not rest:
            return not left
        if rest[0] == "*":
            return any(plain(rest[1:], left[at:]) for at in range(len(left) + 1))
        return left[:1] == rest[0] and plain(rest[1:], left[1:])

    bare = stripped.endswith(" *") and stripped.count("*") == 1 and text == stripped[:-2]
    expected = bare or plain(stripped, text)
    assert matches(compile_pattern(pattern), text) == expected
    assert not expected or could_match(compile_pattern(pattern), text)


@settings(max_examples=300, deadline=None)
@given(st.text("ab* ", max_size=8), st.text("ab ", max_size=5), st.text("ab ", max_size=4), st.text("ab ", max_size=5))
def test_an_unknown_part_is_never_ruled_out_wrongly(pattern: str, before: str, unknown: str, after: str) -> None:
    one = compile_pattern(pattern)
    if matches(one, before + unknown + after):
        assert could_match(one, f"{before}\0{after}")


@settings(max_examples=400, deadline=None)
@given(st.lists(st.text("ab* ", max_size=6), max_size=6), st.text("ab \0", max_size=8))
def test_an_index_finds_what_comparing_with_each_finds(patterns: list[str], text: str) -> None:
    index, each = Index(tuple(patterns)), [compile_pattern(pattern) for pattern in patterns]
    assert index.matching(text) == [pattern for pattern in each if matches(pattern, text)]
    assert index.could_match(text) == any(could_match(pattern, text) for pattern in each)
