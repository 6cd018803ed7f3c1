"""What bash prints of its variables and traps is understood, and what we print bash understands."""

from __future__ import annotations

import shlex
import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.storage.dump import parse_traps
from outlast.storage.snapshot import is_name, quote, quote_single, value_of

VALUES = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"")) | st.sampled_from(
    [
        b"",
        b"\\",
        b'"',
        b"'",
        b"$x`y`",
        b"a\nb",
        b"\x01",
        b"\\n",
        b"it's",
        b"\xff\xfe",
        b"\t\\'\"$`",
        b"\\101\n",
        b"x\x7f1",
    ]
)


def bash(script: bytes) -> bytes:
    done = subprocess.run(["bash", "--norc"], input=script, capture_output=True, timeout=30, env={"LC_ALL": "C"})
    assert not done.stderr, done.stderr
    return done.stdout


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=20))
def test_what_bash_declares_is_understood_and_the_other_way_round(values: list[bytes]) -> None:
    ours = b"".join(b"declare x%d=%s\n" % (n, quote(value)) for n, value in enumerate(values))
    lines = bash(ours + b"declare -p ${!x*}\n").split(b"\n")[:-1]
    told = {line.split(b" ", 2)[2].partition(b"=")[0]: value_of(line) for line in lines}
    assert told == {b"x%d" % n: value for n, value in enumerate(values)}


@settings(max_examples=200)
@given(VALUES)
@example(b"a\\\nb")
def test_our_own_writing_is_read_back(value: bytes) -> None:
    assert value_of(b"declare -- x=" + quote(value)) == value
    assert b"\n" not in quote(value)


def test_what_gives_no_value() -> None:
    assert value_of(b"declare -a list") is None
    assert value_of(b'declare -a list=([0]="1")') is None
    assert value_of(rb"declare -- x=$'\x41\102\e\?'") == b"AB\x1b?"


# bash takes a lone number for a signal whose trap is to be removed
ACTIONS = VALUES.filter(lambda value: bool(value) and not value.isdigit())


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from([b"EXIT", b"SIGUSR1", b"ERR", b"SIGTERM"]), ACTIONS, min_size=1))
@example({b"EXIT": b"trap -- 'x' EXIT\n", b"ERR": b"''' '"})
def test_traps_are_understood(actions: dict[bytes, bytes]) -> None:
    script = b"".join(b"trap -- %s %s\n" % (quote_single(action), signal) for signal, action in actions.items())
    told = {signal: action for action, signal in parse_traps(b"\n" + bash(script + b"trap -p; trap - EXIT\n"))}
    # bash writes a lone quote without others around it
    meant = {signal: shlex.split(action.decode("latin-1"))[0].encode("latin-1") for signal, action in told.items()}
    assert meant == actions


def test_names() -> None:
    assert [is_name(name) for name in ("a", "_1", "A_b9", "", "1a", "a-b", "é", "a b")] == [True] * 3 + [False] * 5
