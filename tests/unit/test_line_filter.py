"""Lines let through or hidden by a pattern, in linear time."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.errors import BadPattern
from outlast.output import line_filter
from outlast.output.line_filter import LineFilter

pytestmark = pytest.mark.timeout(60)

LOG = "INFO start\nERROR disk\ninfo more\nError net\nend"


def sifted(made: LineFilter, *parts: str) -> tuple[str, int]:
    passed = "".join([made.feed(part) for part in parts]) + made.finish()
    return passed, made.hidden


@pytest.mark.parametrize(
    ("made", "passed", "hidden"),
    [
        (LineFilter("ERROR", None), "ERROR disk\n", 4),
        (LineFilter("error", None, ignore_case=True), "ERROR disk\nError net\n", 3),
        (LineFilter(None, "INFO"), "ERROR disk\ninfo more\nError net\nend", 1),
        (LineFilter(None, "info", ignore_case=True), "ERROR disk\nError net\nend", 2),
        (LineFilter("r", "^ERR", ignore_case=True), "INFO start\ninfo more\n", 3),
        (LineFilter("^e|t$", None), "INFO start\nError net\nend", 2),
        (LineFilter("(ERR)OR (d(i)sk)", None), "ERROR disk\n", 4),
        (LineFilter(None, None), LOG, 0),
        (LineFilter("", ""), LOG, 0),
    ],
)
def test_lines_pass_or_are_counted(made: LineFilter, passed: str, hidden: int) -> None:
    assert sifted(made, LOG) == (passed, hidden)


def test_complete_lines_are_given_at_once_and_the_last_at_the_end() -> None:
    made = LineFilter("a", None)
    assert [made.feed("xa"), made.feed("x\nb\na"), made.hidden, made.finish(), made.hidden] == ["", "xax\n", 1, "a", 1]
    assert [made.feed("b"), made.finish(), made.hidden, made.finish(), made.hidden] == ["", "", 2, "", 2]


def test_without_patterns_nothing_is_held() -> None:
    made = LineFilter(None, None)
    assert [made.feed("half a li"), made.feed("ne\n"), made.finish()] == ["half a li", "ne\n", ""]


def test_the_line_end_is_not_part_of_the_line() -> None:
    assert sifted(LineFilter("b$", None), "ab\nab\r\nab \n") == ("ab\nab\r\n", 1)
    assert sifted(LineFilter(r"\n|\r", None), "ab\nab\r\n") == ("", 2)
    assert sifted(LineFilter("^$", None), "\n\r\na\n") == ("\n\r\n", 1)


def test_characters_beyond_ascii() -> None:
    assert sifted(LineFilter("^.é€💥.$", None), "aé€💥b\naé\udcff€💥b\n") == ("aé€💥b\n", 1)
    assert sifted(LineFilter("É", None, ignore_case=True), "é\ne\n") == ("é\n", 1)


@settings(max_examples=500, deadline=None)
@example("ab\ra\n", [], 3)
@given(st.text("ab\n\r", max_size=80), st.lists(st.integers(0, 80), max_size=8), st.integers(1, 4))
def test_the_cuts_change_nothing(text: str, cuts: list[int], piece: int) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[start:end] for start, end in pairwise(places)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_filter, "PIECE", piece)
        passed = sifted(LineFilter("a", "b$"), *parts)
        assert passed == sifted(LineFilter("a", "b$"), text)
        assert passed == sifted(LineFilter("a", "b$"), *text)


@given(st.text("ab \n", max_size=80), st.sampled_from(["a", "^a", "b$", "a.*b", "^$", "(ab)+", "[^a ]"]))
def test_it_agrees_with_re(text: str, pattern: str) -> None:
    lines = text.splitlines(keepends=True)
    passed = [line for line in lines if re.search(pattern, line.removesuffix("\n"))]
    assert sifted(LineFilter(pattern, None), text) == ("".join(passed), len(lines) - len(passed))
    left = [line for line in lines if line not in passed]
    assert sifted(LineFilter(None, pattern), text) == ("".join(left), len(lines) - len(left))


def test_a_huge_line_is_judged_by_its_beginning_and_not_held() -> None:
    made, given_so_far = LineFilter("^begin", None), 0
    for fed, part in enumerate(["begin" + "x" * 99_995] + ["x" * 100_000] * 30, start=1):
        given_so_far += len(made.feed(part))
        assert fed * 100_000 - given_so_far <= line_filter.PIECE
    assert made.feed("x\nbegin\nother\n") == "x\nbegin\n"
    assert made.hidden == 1


def test_what_comes_too_late_in_a_huge_line_is_not_seen() -> None:
    long = "x" * line_filter.PIECE
    assert sifted(LineFilter("end", None), long, "end\nend\n") == ("end\n", 1)
    assert sifted(LineFilter("end", None), long + "end\nend\n") == ("end\n", 1)
    assert sifted(LineFilter("end", None), long[3:] + "end\nend\n") == (long[3:] + "end\nend\n", 0)
    assert sifted(LineFilter("y", None), long, "x", "no\nmore", " of it") == ("", 2)
    made = LineFilter("x", None)
    assert sifted(made, long + "yes") == (long + "yes", 0)
    assert sifted(made, "no\n") == ("", 1)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*c", "(.*)*c", "(a*)*$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_is_catastrophic(pattern: str) -> None:
    line = "a" * 100_000 + "b\n"
    assert sifted(LineFilter(pattern, None), line)[1] in (0, 1)
    assert sifted(LineFilter("x", pattern), line)[1] == 1


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[a", "The pattern '[a' is not a regular expression: missing ]: [a."),
        ("ab(c", "The pattern 'ab(c' is not a regular expression: missing ): ab(c."),
        ("ab*c**", "The pattern 'ab*c**' is not a regular expression: bad repetition operator: ** (at character 5)."),
        ("é[z", "The pattern 'é[z' is not a regular expression: missing ]: [z (at character 2)."),
        ("[**]a**", "The pattern '[**]a**' is not a regular expression: bad repetition operator: **."),
        ("a\\", "The pattern 'a\\' is not a regular expression: trailing \\."),
        ("a\n[", r"The pattern 'a\n[' is not a regular expression: missing ]: [ (at character 3)."),
        ("a\ud800", r"The pattern 'a\ud800' is not a regular expression: character 2 is half of a surrogate pair."),
    ],
)
def test_a_bad_pattern_is_named_with_what_is_wrong_and_where(pattern: str, message: str) -> None:
    with pytest.raises(BadPattern) as filtering:
        LineFilter(pattern, None)
    with pytest.raises(BadPattern) as excluding:
        LineFilter(None, pattern, ignore_case=True)
    assert filtering.value.message == excluding.value.message == message


@pytest.mark.parametrize("pattern", ["a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", r"(a)\k<x>"])
def test_what_re2_leaves_out_is_said(pattern: str) -> None:
    with pytest.raises(BadPattern, match=r"; back-references and look-around are not supported\.$"):
        LineFilter(pattern, None)


@pytest.mark.parametrize("pattern", ["[a", "a++", r"\Z", "(?P<x", r"\8["])
def test_and_only_then(pattern: str) -> None:
    with pytest.raises(BadPattern) as refused:
        LineFilter(pattern, None)
    assert ("look-around" in refused.value.message) == (pattern == r"\8[")


def test_a_pattern_has_a_bounded_length_and_size() -> None:
    LineFilter("a" * line_filter.PATTERN_LIMIT, None)
    with pytest.raises(BadPattern) as refused:
        LineFilter("a" * (line_filter.PATTERN_LIMIT + 1), None)
    assert refused.value.message == (
        f"The pattern '{'a' * 79}…' is too long: it has 10,001 characters, and at most 10,000 are allowed."
    )
    with pytest.raises(BadPattern, match="too large"):
        LineFilter(r"(\pL\pN){400}" * 9, None)
    with pytest.raises(BadPattern) as refused:
        LineFilter("a" * 5000 + ")", None)
    assert len(refused.value.message) < 300


def test_an_error_of_a_pattern_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadPattern):
        LineFilter("[a", None)
    assert capfd.readouterr() == ("", "")


def test_the_engine_is_loaded_only_for_a_pattern() -> None:
    code = """import sys; from outlast.output.line_filter import LineFilter
LineFilter(None, None).feed("a"); before = "re2" in sys.modules
LineFilter("a", None); print(before, "re2" in sys.modules)"""
    env = {"PYTHONPATH": line_filter.__file__.rsplit("/", 3)[0]}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert done.stdout == "False True\n"
