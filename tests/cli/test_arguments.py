"""Words are taken as argparse takes them, and what is wrong is said in one sentence."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.cli.arguments import HelpWanted, Parser
from outlast.cli.main import VERBS
from outlast.errors import BadInput
from tests.cli.test_help import parser_of

PARSERS = {verb: made for verb in VERBS if isinstance(made := parser_of(verb), Parser)}
WORDS = [
    "true",
    "a b",
    "",
    "-",
    "-1",
    "5",
    "1h",
    "2G",
    "start",
    "list",
    "--x",
    "--json=1",
    "-x",
    "-fi",
    "- x",
    "-.5",
]


class Reference(argparse.ArgumentParser):
    """argparse with the same declarations."""

    def __init__(self, parser: Parser) -> None:
        super().__init__(allow_abbrev=False, add_help=False)
        self.takes_the_rest = False
        groups: dict[int, object] = {0: self}
        for one in parser.arguments:
            groups.setdefault(one.group, self)
            if one.group and groups[one.group] is self:
                groups[one.group] = self.add_mutually_exclusive_group()
            how = {"action": one.action, "default": one.default}
            if one.action != "store_true":
                how |= {"type": one.type}
            if one.is_option:
                how |= {"dest": one.dest}
            elif one.nargs:
                how |= {"nargs": one.nargs, "default": one.default}
                self.takes_the_rest |= one.nargs == argparse.REMAINDER
            groups[one.group].add_argument(*one.names, **how)  # type: ignore[attr-defined]

    def error(self, message: str) -> None:  # type: ignore[override]
        raise BadInput(message)

    def values(self, words: list[str]) -> dict[str, object]:
        return vars(self.parse_args(words) if self.takes_the_rest else self.parse_intermixed_args(words))


REFERENCES = {verb: Reference(parser) for verb, parser in PARSERS.items()}


def outcome(parse: object, words: list[str]) -> object:
    try:
        return parse(words)  # type: ignore[operator]
    except BadInput:
        return BadInput


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, list[str]]:
    verb = draw(st.sampled_from(sorted(PARSERS)))
    names = [name for one in PARSERS[verb].arguments if one.is_option for name in one.names]
    return verb, draw(st.lists(st.sampled_from([*names, *WORDS] if names else WORDS), max_size=6))


@settings(max_examples=1500, deadline=None)
@given(calls())
def test_they_are_taken_as_argparse_takes_them(call: tuple[str, list[str]]) -> None:
    verb, words = call
    expected = outcome(REFERENCES[verb].values, words)
    assert outcome(lambda words: vars(PARSERS[verb].parse(words)), words) == expected


@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        (
            "ps",
            ["--statsu", "x"],
            "There is no option --statsu (did you mean --status?); `outlast ps --help` explains.",
        ),
        ("ps", ["--json=1"], "--json takes no value; "),
        ("logs", ["--tail", "--json"], "--tail needs a value: N; "),
        ("show", [], "The following arguments are required: ID; "),
        ("show", ["a", "b"], "Unrecognized arguments: b; "),
        ("check", ["rm", "-rf", "x"], "There is no option -r; give the command as one word, or write -- before it."),
    ],
)
def test_what_is_wrong_is_said(verb: str, words: list[str], said: str) -> None:
    with pytest.raises(BadInput) as raised:
        parser_of(verb).parse(words)
    assert said in raised.value.message


def test_everything_behind_two_dashes_is_a_word() -> None:
    assert PARSERS["check"].parse(["--json", "--", "git", "--x", "--"]).command == ["git", "--x", "--"]
    assert PARSERS["run"].parse(["--bg", "--", "--x"]).command == ["--x"]
    assert PARSERS["run"].parse(["make", "--bg", "--", "x"]).command == ["make", "--bg", "--", "x"]
    assert PARSERS["send"].parse(["a", "--", "-x"]).text == "-x"


def test_options_may_stand_before_the_command_of_a_verb() -> None:
    assert vars(parser_of("session").parse(["--json", "list"])) == {"json": True, "command": "list"}
    for words in (["--help"], ["-h"]):
        with pytest.raises(HelpWanted):
            parser_of("session").parse(words)
    for words in ([], ["fly"], ["--json"]):
        with pytest.raises(BadInput, match="use one of list, show, reset, copy, remove"):
            parser_of("session").parse(words)
