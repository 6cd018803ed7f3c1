"""The launch parser trusts nothing: any bytes are understood or refused with a sentence, never a crash."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.guard.client import HEADER, encode_items, encode_launch
from tests.guard.harness import Item, find_words, make_memfd

REQUIRED: list[Item] = [("directory", "/d"), ("program", "/p"), ("arg", "p"), ("cwd", "/")]
KEYS = [
    "directory",
    "publish",
    "bells",
    "mark",
    "program",
    "cwd",
    "arg",
    "env",
    "on-end",
    "remove",
    "cgroup",
    "stdin-text",
    "seccomp",
    "go",
    "limit",
    "grace",
    "head",
    "segment",
    "floor",
    "split",
    "prepare",
    "program-waits",
    "drop-capabilities",
    "lock",
    "landlock",
    "hold",
    "stdin",
    "fd",
    "rlimit",
    "nice",
    "umask",
    "tty",
    "end",
]
NUMBERS = ["0", "1", "-1", "3", "1023", "1024", "18446744073709551615", "18446744073709551616", "9" * 25]
WORDS = ["/", "/x", "", "open", "file /x", "1 stdout", "5 inherit 5", "1 2 3", "A=b", "1.5", "1.", "."]
SIZES = ["80x24", "0x1", "80x", "99999x1"]
VALUES = st.one_of(st.binary(max_size=40), st.sampled_from(NUMBERS + WORDS + SIZES).map(str.encode))


def check(launch: bytes) -> tuple[int, str]:
    """What `--check` says about a description."""
    fd = make_memfd(launch)
    try:
        ran = subprocess.run([*find_words(), "--check", str(fd)], pass_fds=(fd,), capture_output=True)
    finally:
        os.close(fd)
    assert ran.stderr == b""
    return ran.returncode, ran.stdout.decode("utf-8", "replace")


def assert_sane(launch: bytes) -> None:
    code, words = check(launch)
    assert (code, words) == (0, "") or (code == 1 and words.endswith("\n"))


def test_the_least_that_is_understood() -> None:
    assert check(encode_launch(REQUIRED)) == (0, "")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (REQUIRED[1:], "directory: missing"),
        (REQUIRED[:1] + REQUIRED[2:], "program: needs a path"),
        (REQUIRED[:3], "cwd: missing"),
        ([*REQUIRED, ("directory", "relative")], "directory: bad value"),
        ([*REQUIRED, ("arg", b"a\0b")], "arg: has a NUL"),
        ([*REQUIRED, ("env", "no variable")], "env: is no variable"),
        ([*REQUIRED, ("fd", "1 go")], "program-waits"),
        ([*REQUIRED, ("fd", "1 stdout"), ("fd", "1 stderr")], "fd: bad value"),
        ([*REQUIRED, ("fd", "1024 stdout")], "fd: bad value"),
        ([*REQUIRED, ("hold", "2")], "hold: bad value"),
        ([*REQUIRED, ("limit", "1.0000000001")], "limit: bad value"),
        ([*REQUIRED, ("limit", "1e3")], "limit: bad value"),
        ([*REQUIRED, ("umask", "0888")], "umask: bad value"),
        ([*REQUIRED, ("nice", "-21")], "nice: bad value"),
        ([*REQUIRED, ("split", "2")], "split: bad value"),
        ([*REQUIRED, ("seccomp", b"1234567")], "seccomp: bad size"),
        ([*REQUIRED, ("prepare", "1")], "prepare: needs"),
        ([*REQUIRED, ("mark", "x")], "mark: is no variable"),
        ([*REQUIRED, ("on-end", "x")], "on-end: does not begin"),
        ([*REQUIRED, ("go", b"x" * 257)], "go: bad value"),
        ([*REQUIRED, ("end", "")], "end: unknown key"),
        ([*REQUIRED, *[("hold", "3")] * 17], "hold: bad value"),
        ([*REQUIRED, *[("fd", f"{number} stdout") for number in range(65)]], "fd: bad value"),
    ],
)
def test_what_is_refused(items: list[Item], words: str) -> None:
    code, said = check(encode_launch(items))
    assert code == 1
    assert said.startswith(words)


@pytest.mark.parametrize("launch", [b"", b"outlast-launch 2\nend 0\n\n", HEADER, HEADER + b"end 0\n"])
def test_what_is_no_description(launch: bytes) -> None:
    assert check(launch)[0] == 1


def test_many_items() -> None:
    items: list[Item] = [*REQUIRED, *(("arg", str(number)) for number in range(5000)), ("stdin-text", bytes(1_000_000))]
    assert check(encode_launch(items)) == (0, "")


def test_cut_off_anywhere() -> None:
    whole = encode_launch([*REQUIRED, ("env", "A=b"), ("limit", 1.5)])
    for size in range(len(whole)):
        assert check(whole[:size])[0] == 1


@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=12))
def test_items_in_any_combination(items: list[tuple[str, Any]]) -> None:
    assert_sane(encode_launch([*REQUIRED, *items]))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    assert_sane(HEADER + data)
    assert_sane(HEADER + data + b"end 0\n\n")


@given(st.data())
def test_one_byte_changed(data: st.DataObject) -> None:
    whole = bytearray(
        encode_launch([*REQUIRED, ("fd", "1 stdout"), ("rlimit", "7 50 60"), ("stdin", "open"), ("limit", 1.5)])
    )
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert_sane(bytes(whole))


def test_items_are_encoded_as_documented() -> None:
    assert encode_items([("arg", "a b"), ("limit", 1.5), ("head", 7), ("go", b"\xff")]) == (
        b"arg 3\na b\nlimit 11\n1.500000000\nhead 1\n7\ngo 1\n\xff\n"
    )
