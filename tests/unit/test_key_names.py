"""Keys as text, and the bytes for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import BadInput, InputRefused
from outlast.shell.keys import KNOWN, End, Interrupt, Key, encode, encode_typed, needs_mode, parse, without_terminal

# As xterm sends them: `showkey -a` and terminfo's xterm-256color say the same.
BYTES = {
    "<Enter>": b"\r",
    "<Tab>": b"\t",
    "<Esc>": b"\x1b",
    "<Up>": b"\x1b[A",
    "<Down>": b"\x1b[B",
    "<Right>": b"\x1b[C",
    "<Left>": b"\x1b[D",
    "<Home>": b"\x1b[H",
    "<End>": b"\x1b[F",
    "<PageUp>": b"\x1b[5~",
    "<PageDown>": b"\x1b[6~",
    "<Backspace>": b"\x7f",
    "<Delete>": b"\x1b[3~",
    "<Insert>": b"\x1b[2~",
    "<F1>": b"\x1bOP",
    "<F4>": b"\x1bOS",
    "<F5>": b"\x1b[15~",
    "<F11>": b"\x1b[23~",
    "<F12>": b"\x1b[24~",
    "<C-c>": b"\x03",
    "<C-C>": b"\x03",
    "<c-d>": b"\x04",
    "<C-[>": b"\x1b",
    "<C-]>": b"\x1d",
    "<C-@>": b"\0",
    "<C-Space>": b"\0",
    "<C-?>": b"\x7f",
    "<M-x>": b"\x1bx",
    "<M-X>": b"\x1bX",
    "<M-<>": b"\x1b<",
    "<M->>": b"\x1b>",
    "<M-Enter>": b"\x1b\r",
    "<M-C-x>": b"\x1b\x18",
    "<S-Tab>": b"\x1b[Z",
    "<Space>": b" ",
    "<lt>": b"<",
    "<CR>": b"\r",
    "<pgup>": b"\x1b[5~",
    "<C-Left>": b"\x1b[1;5D",
    "<S-F5>": b"\x1b[15;2~",
    "<C-Delete>": b"\x1b[3;5~",
    "<C-c><Up>hello<Enter>": b"\x03\x1b[Ahello\r",
    "a > b": b"a > b",
    "line\nnext": b"line\rnext",
    "\u00e9": b"\xc3\xa9",
    "": b"",
}


@pytest.mark.parametrize("text", BYTES)
def test_the_bytes_of_keys(text: str) -> None:
    assert encode(parse(text)) == BYTES[text]


def test_cursor_keys_in_application_mode() -> None:
    assert encode(parse("<Up><Home><F1><Delete><C-Up>"), application_cursor=True) == (
        b"\x1bOA\x1bOH\x1bOP\x1b[3~\x1b[1;5A"
    )
    assert needs_mode(parse("x<Left>"))
    assert not needs_mode(parse("x<C-Left><F1>"))


UNKNOWN = ["<Foo>", "<>", "<", "a < b", "<C->", "<C-Foo>", "<C-\u00e9>", "<S-x>", "<x>", "<Enter", "<F13>", "<C-Enter>"]


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_key_is_an_error_that_lists_the_known_ones(text: str) -> None:
    with pytest.raises(BadInput) as error:
        parse(text)
    assert KNOWN in error.value.message


@given(st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"])))
def test_text_without_keys_is_typed_as_it_is(text: str) -> None:
    assert encode(parse(text)) == encode_typed(text)
    assert b"\n" not in encode_typed(text)


@given(st.text())
def test_any_text_is_keys_or_one_clear_error(text: str) -> None:
    try:
        keys = parse(text)
    except BadInput:
        return
    assert isinstance(encode(keys), bytes) or pytest.fail("no bytes")


KEYS = [key for key in BYTES if key.startswith("<") and key != "<C-c><Up>hello<Enter>"]
ONE = st.sampled_from([*KEYS, "word "])


@given(st.lists(ONE), st.booleans())
def test_keys_one_by_one_are_the_keys_together(keys: list[str], application: bool) -> None:
    together = encode(parse("".join(keys)), application)
    assert together == b"".join(encode(parse(key), application) for key in keys)


@given(st.sampled_from(KEYS))
def test_a_key_is_written_as_it_is_read(text: str) -> None:
    (key,) = parse(text)
    assert isinstance(key, Key)
    assert parse(str(key)) == [key]


def test_keys_without_a_terminal() -> None:
    def steps(text: str) -> list[object]:
        return list(without_terminal("bash-1", parse(text)))

    assert steps("a<lt>b<Enter><Tab>c\n") == [b"a<b\n\tc\n"]
    assert steps("x<C-c>y<Enter><C-d>") == [b"x", Interrupt(), b"y\n", End()]
    assert steps("") == []
    for refused in ("<Up>", "<Esc>", "<F1>", "<C-z>", "<M-x>", "hello<Backspace>"):
        with pytest.raises(InputRefused, match="--tty"):
            steps(refused)
    with pytest.raises(BadInput, match="behind <C-d>"):
        steps("<C-d>more")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(BadInput, match="not int"):
        parse(5)  # type: ignore[arg-type]
