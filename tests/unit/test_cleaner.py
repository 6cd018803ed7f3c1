"""What a model sees of an output: cleaned, whole or with both ends, whatever the bytes."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.output import cleaner as text
from outlast.output.cleaner import Cleaner, inline
from outlast.output.head_tail import Cut, HeadTail, where_the_rest_is
from outlast.output.reader import clean

pytestmark = pytest.mark.timeout(60)

ESC = b"\x1b"

# Parts that meet each other's edges: whole, half and broken sequences, characters and lines.
PARTS = st.sampled_from(
    [
        *(bytes([byte]) for byte in range(32)),
        *(b"\x7f", b"a", b"bc", b"def ", b"0", b"m", b"K", b"[", b"]", b"\\", b"\r\n", b"\n", b"\xff"),
        *(b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b_", b"\x1b(", b"\x1b(B", b"\x1b\\", b"\x1b[31m", b"\x1b]0;t\a"),
        *(b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[J", b"\x1b[C", b"\x1b[3D", b"\x1b[5G", b"\x1b[9C", b"\x1b[A"),
        *(b"\x1b[2 q", b"\x1b[?25l", b"\x1b[;", b"123456789", b"\xc2", b"\xe2\x82", b"\xf0\x9f\x92", b"\xed\xa0"),
        *(char.encode() for char in "é€💥\x85\x90\x9b\x9c\x9d\u200b\u200d\u202e\ufeff\U000e0041"),
    ]
)
BYTES = st.lists(PARTS | st.binary(max_size=8), max_size=60).map(b"".join)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def cleaned(*data: bytes, live: bool = False) -> str:
    cleaner = Cleaner(live)
    return "".join([cleaner.feed(piece) for piece in data]) + cleaner.finish()


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        pytest.param(b"\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m\n", "red and blue\n", id="colours"),
        pytest.param(b"\x1b[2 q\x1b[?25lx\x1b[>4;2my\x1b[!p\n", "xy\n", id="private and intermediate"),
        pytest.param(b"\x1b]0;a title\x07text\n", "text\n", id="title ended by BEL"),
        pytest.param(b"\x1b]0;a title\x1b\\text\n", "text\n", id="title ended by ST"),
        pytest.param("\x9d0;a title\x9ctext\n".encode(), "text\n", id="title in 8 bits"),
        pytest.param(b"\x1bka title\x1b\\text\n", "text\n", id="title of screen"),
        pytest.param(b"a \x1b]8;;https://x.org/\x1b\\link\x1b]8;;\x1b\\ b\n", "a link b\n", id="hyperlink"),
        pytest.param(
            b"\x1bPq#0;2;0;0;0~~\x1b\\\x1b_Gi=1;AAAA\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\x\n", "x\n", id="strings"
        ),
        pytest.param("\x9b31mred\x9bm\x90dcs\x9c\x9fapc\x9c\x85\n".encode(), "red\n", id="C1"),
        pytest.param(b"\x1b(B\x1b)0\x1b=\x1b>\x1b7\x1b8\x1bc\x1bM\x1b%Gx\n", "x\n", id="short escapes"),
        pytest.param(b"\x1b\x1b[31mx\x1b\n", "x\n", id="ESC ESC and ESC newline"),
        pytest.param(b"a\x1b[3\x181mb\n", "a1mb\n", id="CAN ends a sequence"),
        pytest.param("a\x1b[3é\x1bü\n".encode(), "aéü\n", id="a sequence ends at what cannot be in it"),
        pytest.param(b"a\x1b[31\nb\n", "a\nb\n", id="a newline is never swallowed by a sequence"),
        pytest.param(b"a\0b\x01\x0b\x0c\x0e\x1f\x7fc\td\a\n", "abc\td\n", id="controls"),
        pytest.param("a\u200bb\u202ec\u2066d\ufeffe\u200ff\u061cg\n".encode(), "abcdefg\n", id="format"),
        pytest.param("x\U000e0048\U000e0049y\n".encode(), "xy\n", id="hidden text in tags"),
        pytest.param("👨‍👩‍👧 می‌خواهم\n".encode(), "👨‍👩‍👧 می‌خواهم\n", id="joiners stay"),
        pytest.param(b"one\r\ntwo\r\r\n\r\nthree\r", "one\ntwo\n\nthree", id="CRLF"),
        pytest.param("a\u00a0b\n".encode(), "a\u00a0b\n", id="no-break space"),
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"\x1b[", "", id="nothing but a beginning"),
    ],
)
def test_what_is_removed_and_what_stays(printed: bytes, seen: str) -> None:
    assert cleaned(printed) == seen


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        pytest.param(b" 10%\r 20%\r100%\n", "100%\n", id="same length"),
        pytest.param(b"downloading\rdone\n", "doneloading\n", id="shorter, not erased"),
        pytest.param(b"downloading\r\x1b[Kdone\n", "done\n", id="erased from the cursor"),
        pytest.param(b"downloading\rdone\x1b[K\n", "done\n", id="erased behind"),
        pytest.param(b"downloading\x1b[2K\rdone\n", "done\n", id="erased all"),
        pytest.param(b"downloading\x1b[1K\r done\n", " done      \n", id="erased before"),
        pytest.param(b"downloading\x1b[5D\x1b[1K\n", "       ding\n", id="erased before, in the middle"),
        pytest.param(b"abc\x1b[2Kdef\n", "   def\n", id="an erasure does not move"),
        pytest.param(b"abc\x1b[1G\x1b[Jdef\n", "def\n", id="erase display"),
        pytest.param(b"a\rb\rc", "c", id="no newline"),
        pytest.param(b"50%\r", "50%", id="a lone return"),
        pytest.param(
            b"  Compiling a\r\x1b[K    Building [=> ] 1/9\r\x1b[K  Compiling b\n", "  Compiling b\n", id="cargo"
        ),
        pytest.param(
            b"     ---- 1.0/9.0 MB 5 MB/s eta 0:00:02\r     ---- 9.0/9.0 MB 5 MB/s eta 0:00:00\n",
            "     ---- 9.0/9.0 MB 5 MB/s eta 0:00:00\n",
            id="pip",
        ),
        pytest.param(
            "\x1b[?25l\x1b[1G\x1b[0K⠙ reify\x1b[1G\x1b[0K⠹ reify\x1b[1G\x1b[0Kadded 9 packages\n".encode(),
            "added 9 packages\n",
            id="npm",
        ),
        pytest.param(b"N\bNA\bA _\bx\n", "NA x\n", id="bold and underlined in a man page"),
        pytest.param(b"a\bb", "b", id="backspace"),
        pytest.param(b"|\b/\b-\b\\\bdone\n", "done\n", id="spinner"),
        pytest.param(b"\b\b\bab\b\b\b\bc\n", "cb\n", id="no backspace past the beginning"),
        pytest.param(b"ab\x1b[2Cc\x1b[4Dd\x1b[1Ge\n", "ed  c\n", id="moves in the line"),
        pytest.param(b"abc\x1b[2`x\n", "axc\n", id="column"),
        pytest.param(b"ab\x1b[Cc\x1b[Dd\n", "ab d\n", id="one column by default"),
        pytest.param(b"ab\x1b[9Dc\n", "cb\n", id="no move past the beginning"),
        pytest.param(b"a\x1b[999Cb\x1b[2Kc\n", " " * text.ROW + "c\n", id="no jump past a row"),
        pytest.param(b"z\rab\rc\n", "cb\n", id="frames of falling length"),
        pytest.param(b"abcd\rxyz\rq\b\b\b\n", "qyzd\n", id="a frame that goes back"),
        pytest.param(b"abc\x1b[?1Kx\x1b[?5Cy\x1b[1 Kz\n", "abcxyz\n", id="private moves are not obeyed"),
        pytest.param(b"abc\x1b[5C\n", "abc\n", id="a move alone shows nothing"),
        pytest.param(b"one\x1b[Atwo\x1b[2;5Hthree\n", "one\ntwo\nthree\n", id="another line"),
        pytest.param(b"\x1b[H\x1b[2J\x1b[3Jtop\n\x1b[1A\x1b[2Kagain\n", "top\nagain\n", id="clear, and up"),
    ],
)
def test_a_line_is_shown_as_it_ended(printed: bytes, seen: str) -> None:
    assert cleaned(printed) == seen


@pytest.mark.parametrize("char", sorted(text.REPLACED))
def test_what_is_removed_is_removed_wherever_it_stands(char: str) -> None:
    assert cleaned(f"é{char}\n".encode()) == cleaned(f"é{char}\0\u200b\n".encode()) == "é\n"


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (b"\xff\xfea\n", "\ufffd\ufffda\n"),
        (b"\xe2\x82a\n", "\ufffda\n"),
        (b"\xc0\x80\n", "\ufffd\ufffd\n"),
        (b"\xe2\x82", "\ufffd"),
        (b"\x9b31m\n", "\ufffd31m\n"),
        (b"\xe2\0\x82\xac\n", "\ufffd\ufffd\ufffd\n"),
    ],
)
def test_invalid_utf8_is_replaced(printed: bytes, seen: str) -> None:
    assert cleaned(printed) == seen


def test_a_character_cut_in_two_is_whole_again() -> None:
    assert cleaned(*(bytes([byte]) for byte in "é€💥\n".encode())) == "é€💥\n"


def test_nothing_goes_on_past_the_end() -> None:
    cleaner = Cleaner()
    assert [cleaner.feed(b"a\x1b["), cleaner.finish(), cleaner.feed(b"31m\n")] == ["", "a", "31m\n"]


def test_a_line_is_given_when_its_newline_came() -> None:
    cleaner = Cleaner()
    assert [cleaner.feed(b"a"), cleaner.feed(b"b\nc"), cleaner.feed(b"\x1b[31"), cleaner.feed(b"md\n")] == [
        "",
        "ab\n",
        "",
        "cd\n",
    ]


@settings(max_examples=500, deadline=None)
@given(BYTES, CUTS)
def test_the_text_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    assert cleaned(*pieces(data, cuts)) == cleaned(data)


@settings(max_examples=500, deadline=None)
@given(BYTES, CUTS)
def test_nor_where_a_limit_is_reached(data: bytes, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LINE_LIMIT": 40, "STRING_LIMIT": 8, "SEQUENCE_LIMIT": 4, "SLICE_BYTES": 16}.items():
            patch.setattr(text, name, value)
        assert cleaned(*pieces(data, cuts)) == cleaned(data) == cleaned(*pieces(data, list(range(len(data)))))


@settings(max_examples=500, deadline=None)
@given(BYTES | st.binary(max_size=300), CUTS, st.booleans())
def test_no_control_character_is_left(data: bytes, cuts: list[int], live: bool) -> None:
    seen = cleaned(*pieces(data, cuts), live=live)
    left = {char for char in seen if unicodedata.category(char) == "Cc" or char in text.REPLACED}
    assert left <= {"\n", "\t"}


def test_no_single_byte_is_too_much() -> None:
    for byte in range(256):
        assert cleaned(bytes([byte])) == cleaned(bytes([byte]), live=True)
        assert cleaned(b"ok\n" + bytes([byte]) + b"\nok\n").startswith("ok\n")
        assert cleaned(b"ok\n" + bytes([byte]) + b"\nok\n").endswith("\nok\n")


def on_a_terminal(printed: str) -> str:
    """The same by the plainest means: one character, one cell, one step."""
    done, cells, column = "", [""] * 0, 0
    for char in printed:
        if char == "\n":
            done, cells, column = done + "".join(cells) + "\n", [], 0
        elif char == "\r":
            column = 0
        elif char == "\b":
            column = max(column - 1, 0)
        elif char == "K":
            cells = cells[:column]
        elif char == "L":
            cells = []
        elif char == "R":
            column += 3
        else:
            cells += [" "] * (column + 1 - len(cells))
            cells[column] = char
            column += 1
    return done + "".join(cells)


@settings(max_examples=500, deadline=None)
@given(st.text("abé\r\r\b\nKLR\t", max_size=80) | st.text("abc\r\b", max_size=30), CUTS)
def test_it_is_what_a_terminal_shows(printed: str, cuts: list[int]) -> None:
    raw = printed.replace("K", "\x1b[K").replace("L", "\x1b[2K").replace("R", "\x1b[3C").encode()
    assert cleaned(*pieces(raw, cuts)) == on_a_terminal(printed)


@pytest.mark.parametrize("opening", [b"\x1b]", b"\x1bP", b"\x1b_", "\x9d".encode()])
def test_an_unterminated_string_swallows_no_more_than_a_line(opening: bytes) -> None:
    assert cleaned(b"before" + opening + b"0;lost\nafter\n") == "before\nafter\n"


def test_and_not_all_of_a_long_line() -> None:
    seen = cleaned(b"\x1b]" + b"x" * 65536 + b"end")
    assert seen == "x" * (65536 + 1 - text.STRING_LIMIT) + "end"
    assert cleaned(b"\x1b]" * 65536 + b"\nend") == "\nend"


def test_an_endless_control_sequence_is_given_up() -> None:
    assert cleaned(b"\x1b[" + b"1" * 300 + b"mx") == "1" * (300 + 1 - text.SEQUENCE_LIMIT) + "mx"
    assert cleaned(b"\x1b" + b"(" * 300 + b"Bx") == "(" * (300 - text.SEQUENCE_LIMIT) + "Bx"


@pytest.mark.parametrize("live", [False, True])
def test_a_huge_line_is_not_held(live: bool) -> None:
    cleaner, given_so_far = Cleaner(live), 0
    for fed in range(1, 65):
        given_so_far += len(cleaner.feed(b"x" * 65536))
        assert fed * 65536 - given_so_far < text.LINE_LIMIT
    assert given_so_far + len(cleaner.finish()) == 64 * 65536


def test_a_return_in_a_huge_line_goes_back_to_what_is_held() -> None:
    assert cleaned(b"x" * text.LINE_LIMIT + b"ab\rc\n") == "x" * text.LINE_LIMIT + "cb\n"


def test_a_huge_line_that_is_redrawn_stays_in_memory_of_its_bound() -> None:
    line = b"\x1b[999999C" + b"y" * 60_000 + b"\r\x1b[2K"
    cleaner = Cleaner()
    tracemalloc.start()
    for _ in range(200):
        cleaner.feed(line)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * text.LINE_LIMIT
    assert cleaner.finish() == ""


def test_a_jump_is_not_wider_than_a_row() -> None:
    assert cleaned(b"a\x1b[999Cbc\x1b[2Dd\n") == "a" + " " * text.ROW + "dc\n"
    assert cleaned(b"a\x1b[99999999999Cb\n") == "a" + " " * text.ROW + "b\n"
    assert cleaned(b"x" * 5000 + b"\x1b[2Kbc\x1b[2Dd\n") == " " * text.ROW + "dc\n"
    assert cleaned(b"x" * 5000 + b"\x1b[1K\n") == "x" * (5000 - text.ROW + 1) + " " * (text.ROW - 1) + "\n"


@pytest.mark.parametrize(
    "hostile", [b"\r", b"\b", b"a\b", ESC, b"\x1b[", b"\x1b]", b"\x1b[1K", b"\x1b[2Kx", b"\xc2\x9b"]
)
def test_hostile_bytes_take_linear_time(hostile: bytes) -> None:
    assert "\x1b" not in cleaned(b"y" * 1_000_000 + hostile * 200_000)


def test_live_gives_the_unfinished_line_at_once() -> None:
    cleaner = Cleaner(live=True)
    given_so_far = [cleaner.feed(piece) for piece in (b"Pass", b"word: ", b"\x1b[31", b"mok", b"\nnext")]
    assert given_so_far == ["Pass", "word: ", "", "ok", "\nnext"]
    assert cleaner.finish() == ""


def test_live_holds_what_is_redrawn_and_gives_it_on_its_own_line() -> None:
    cleaner = Cleaner(live=True)
    given_so_far = [cleaner.feed(piece) for piece in (b"10%", b"\r20%", b"\r100%", b"\nok\n")]
    assert given_so_far == ["10%", "", "", "\n100%\nok\n"]
    assert [cleaner.feed(b"1\x1b[K"), cleaner.feed(b"\b2"), cleaner.finish()] == ["1", "", "\n2"]


def test_live_holds_a_line_that_began_with_a_return() -> None:
    cleaner = Cleaner(live=True)
    assert [cleaner.feed(b"\r10%"), cleaner.feed(b"\r20%"), cleaner.feed(b"\n")] == ["", "", "20%\n"]
    assert [cleaner.feed(b"|\b"), cleaner.feed(b"/"), cleaner.feed(b"\n")] == ["", "", "/\n"]


@pytest.mark.parametrize(
    ("parts", "seen"),
    [
        ([b"text", b"\r", b"\nmore\n"], "text\nmore\n"),
        ([b"text", b"\rtext and more\n"], "text and more\n"),
        ([b"text", b"\r\x1b[K", b"\nmore\n"], "text\nmore\n"),
        ([b"text", b"\x1b[2K\x1b[1A", b"more\n"], "text\nmore\n"),
        ([b"text", b"\x1b[2K", b"\x1b[1Amore\n"], "text\nmore\n"),
    ],
)
def test_live_repeats_nothing_that_did_not_change(parts: list[bytes], seen: str) -> None:
    assert cleaned(*parts, live=True) == seen


@given(st.text("ab\r\b\n\t", max_size=60), CUTS)
def test_live_shows_every_line_as_it_ended(printed: str, cuts: list[int]) -> None:
    data = printed.encode()
    lines = iter(cleaned(*pieces(data, cuts), live=True).split("\n"))
    assert all(line in lines for line in cleaned(data).split("\n"))


# --- both ends -----------------------------------------------------------------------------

MARKER = re.compile(
    r"\[\.\.\. ([\d,]+) characters? \(([\d,]+) lines?\) left out(?:; the whole output: (/o))? \.\.\.\]\n"
)


def kept(*parts: str, budget: int, where: str = "") -> Cut:
    ends = HeadTail(budget)
    for part in parts:
        ends.add(part)
    return ends.cut(where_the_rest_is(where) if where else "")


def test_what_fits_is_whole() -> None:
    assert kept("a\n", "b", budget=3) == Cut("a\nb", False, 0, 0)
    assert kept(budget=3) == kept(budget=0) == Cut("", False, 0, 0)


def test_both_ends_of_what_does_not() -> None:
    lines = [f"line {number}\n" for number in range(1000)]
    cut = kept(*lines, budget=200, where="/path/output")
    marker = "[... 8,780 characters (986 lines) left out; the whole output: /path/output ...]\n"
    assert cut == Cut("".join(lines[:8]) + marker + "".join(lines[-6:]), True, 8780, 986)


def test_the_place_of_the_whole_is_said_only_if_there_is_room() -> None:
    cut = kept("ab\n" * 100, budget=100, where="/long" * 20)
    assert cut == kept("ab\n" * 100, budget=100)
    assert "left out ...]" in cut.text


def test_a_long_line_is_cut_inside() -> None:
    cut = kept("a" * 500 + "b" * 500, budget=100)
    assert cut.text == "a" * 27 + "\n[... 946 characters (1 line) left out ...]\n" + "b" * 27
    assert (cut.left_out_chars, cut.left_out_lines) == (946, 1)


def test_a_line_end_is_not_worth_more_than_half_of_an_end() -> None:
    cut = kept("a\n" + "b" * 5000 + "\nc", budget=1000)
    assert len(cut.text) > 990


def test_a_tail_that_begins_with_a_line_keeps_it() -> None:
    tail = "zz\n" + "z" * 24 + "\n"
    cut = kept("x" * 900 + "\n" + tail, budget=100)
    assert cut.text == "x" * 27 + "\n[... 874 characters (1 line) left out ...]\n" + tail


def test_there_is_a_line_between_only_if_there_are_two_ends() -> None:
    lines = [kept("x" * 1000, budget=budget).text.split("\n") for budget in range(40, 60)]
    assert {len(parts) for parts in lines} == {1, 3}
    assert all(all(parts) for parts in lines)


@pytest.mark.parametrize("budget", [-5, 0, 1, 2, 30])
def test_a_tiny_budget_is_kept_too(budget: int) -> None:
    whole = "ab\ncd\n" * 100
    cut = kept(whole, budget=budget, where="/o")
    assert cut.text == whole[: max(budget, 0)]
    assert cut.left_out_chars == len(whole) - len(cut.text)
    assert cut.left_out_lines == 200 - cut.text.count("\n")


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.text("ab\n", max_size=80) | st.text("x", min_size=50, max_size=200), max_size=30),
    st.integers(0, 400),
    st.sampled_from(["", "/o"]),
)
def test_nothing_is_lost_or_doubled(parts: list[str], budget: int, where: str) -> None:
    whole = "".join(parts)
    cut = kept(*parts, budget=budget, where=where)
    assert cut == kept(whole, budget=budget, where=where)
    assert len(cut.text) <= budget
    assert cut.truncated == (len(whole) > budget)
    if not cut.truncated:
        assert cut == Cut(whole, False, 0, 0)
        return
    marker = MARKER.search(cut.text)
    tail = cut.text[marker.end() :] if marker else ""
    head = whole[: len(whole) - cut.left_out_chars - len(tail)]
    assert whole.endswith(tail)
    if marker:
        assert marker.groups("")[:2] == (f"{cut.left_out_chars:,}", f"{cut.left_out_lines:,}")
        assert marker[3] == (where or None) or budget < 100
        assert head
        assert tail
        assert cut.text == head + ("" if head.endswith("\n") else "\n") + marker[0] + tail
    else:
        assert cut.text == head
        assert budget < 100
    middle = whole[len(head) : len(whole) - len(tail)]
    assert cut.left_out_lines == len(middle.removesuffix("\n").split("\n"))


@pytest.mark.parametrize("budget", [0, 1000])
def test_the_ends_take_memory_of_their_budget(budget: int) -> None:
    ends = HeadTail(budget)
    tracemalloc.start()
    for number in range(20_000):
        ends.add(f"line {number}\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    assert ends.cut().text.endswith("line 19999\n" if budget else "")


def test_shown_is_cleaned_and_cut() -> None:
    assert clean(b"\x1b[31mred\x1b[m\r\nend") == Cut("red\nend", False, 0, 0)
    cut = clean(b"\x1b[31mred\x1b[m\r\n" * 50_000, where="/o")
    assert len(cut.text) <= 30_000
    assert cut.text.startswith("red\nred\n")
    assert "left out; the whole output: /o ...]\n" in cut.text
    assert cut.left_out_chars + cut.text.count("red\n") * 4 == 200_000


# --- one line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_text", "width", "seen"),
    [
        ("npm run dev", 20, "npm run dev"),
        ("  a\n\tb\r\nc\x85d  ", 20, "a b c d"),
        ("rm -rf /\rls", 20, "rm -rf / ls"),
        ("\x1b[31mred\x1b[m", 20, "[31mred [m"),
        ("a\u202eb\u200bc", 20, "a b c"),
        ("bad \udcff byte", 20, "bad byte"),
        ("👨‍👩‍👧", 20, "👨‍👩‍👧"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("abcd efg", 6, "abcd…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
        ("", 0, ""),
    ],
)
def test_a_text_in_one_line_of_a_table(given_text: str, width: int, seen: str) -> None:
    assert inline(given_text, width) == seen


@given(st.text(max_size=60), st.integers(0, 40))
def test_one_line_is_one_line_and_fits(given_text: str, width: int) -> None:
    seen = inline(given_text, width)
    assert len(seen) <= width
    assert seen.replace("\u200c", "").replace("\u200d", "").isprintable()


def test_it_imports_nothing_heavy() -> None:
    source = text.__file__.rsplit("/", 3)[0]
    code = f"import sys; sys.path.insert(0, {source!r}); import outlast.output.cleaner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True).stdout
    assert not {"re", "typing", "dataclasses", "pathlib", "collections", "enum"} & set(loaded.split())
