"""Plain words are taken as argparse takes them, or left to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.cli.main import VERBS
from outlast.cli.options import parse_thoroughly
from outlast.cli.quick import quickly
from outlast.errors import BadInput
from tests.cli.test_help import parser_of

PARSERS = {verb: parser_of(verb) for verb in VERBS}
WORDS = ["true", "a b", "", "-", "--", "-1", "5", "1h", "2G", "start", "list", "--x", "--json=1", "-x", "-h=1"]


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[str]]:
    verb = draw(st.sampled_from(sorted(PARSERS)))
    names = [name for one in PARSERS[verb].arguments if one.is_option for name in one.names]
    return verb, draw(st.lists(st.sampled_from([*names, *WORDS] if names else WORDS), max_size=6))


@settings(max_examples=1500, deadline=None)
@given(calls())
def test_they_are_taken_as_argparse_takes_them(call: tuple[str, list[str]]) -> None:
    verb, words = call
    found = quickly(PARSERS[verb], words)
    if found is not None:
        try:
            assert vars(found) == vars(parse_thoroughly(PARSERS[verb], words))
        except BadInput as wrong:
            pytest.fail(f"argparse refuses it: {wrong}")


@pytest.mark.parametrize(
    "line",
    [
        *("ps", "ps --all --json", "ps --status failed", "run true", "run --bg --limit 5 make -j 4 -- x", "show 1a2b"),
        *("logs -f 1a2b", "kill 1a 2b --json", "wait --timeout 10m 1a", "tasks running", "clean", "send 1a text"),
    ],
)
def test_plain_words_need_no_argparse(line: str) -> None:
    verb, *words = line.split()
    assert quickly(PARSERS[verb], words) is not None
