"""Lines by their numbers, whatever was printed, and the index that finds them."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outlast import Shell
from outlast.output.redaction import Mask
from outlast.storage.output import Bound, Source
from outlast.web import coloured, line_index
from outlast.web.line_index import StreamIndex
from outlast.web.output_view import OutputView, mask_lines, without_colours
from tests.conftest import eventually


class Printed(Source):
    """A stream in a file that grows as the test says."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path.parent), "stdout", Bound(1 << 40, 1))
        self.path = path

    def _dropped_until(self) -> int:
        return 0


PARTS = st.lists(st.sampled_from([b"a", b"\n", b"long" * 30, b"\n\n", "é".encode(), b"x\ny", b""]), max_size=60)


@given(PARTS, st.integers(1, 64))
def test_the_index_finds_every_line_however_it_grew(parts: list[bytes], block: int) -> None:
    from tempfile import TemporaryDirectory

    before, line_index._BLOCK = line_index._BLOCK, block
    try:
        with TemporaryDirectory() as directory:
            path = Path(directory, "output")
            path.touch()
            index, data = StreamIndex(Printed(path)), b""
            for part in parts:
                data += part
                path.write_bytes(data)
                index.update()
            lines = data.split(b"\n")
            assert index.lines == len(lines) - 1
            assert index.total == len(lines) - (1 if not lines[-1] else 0)
            starts = [0]
            for line in lines:
                starts.append(starts[-1] + len(line) + 1)
            for number in range(index.total):
                assert index.offset_of(number) == starts[number], number
            for offset in range(len(data) + 1):
                assert index.count_until(offset) == data[:offset].count(b"\n")
    finally:
        line_index._BLOCK = before


def test_a_gap_moves_the_lines_behind_it(home: str) -> None:
    with Shell.open(home, defaults={"output_limit_bytes": 200_000}) as shell:
        ran = shell.run("for i in $(seq 100000); do echo line $i; done")
        view = OutputView(shell, shell.show(ran))
        found = view.read("both", 1, 3)
        assert [one["text"] for one in found["lines"]] == ["line 1", "line 2", "line 3"]
        assert found["dropped"] > 0
        assert found["total"] < 100_000
        last = view.read("both", -2, 10)["lines"]
        assert [one["text"] for one in last] == ["line 99999", "line 100000"]
        assert last[-1]["n"] == found["total"]
        everything: list[str] = []
        while len(everything) < found["total"]:
            everything += [one["text"] for one in view.read("both", len(everything) + 1, 777)["lines"]]
        kept = Path(ran.output_file).parent
        names = sorted(name for name in os.listdir(kept) if name.startswith("output."))
        head = Path(ran.output_file).read_bytes()[:100_000]
        tail = b"".join((kept / name).read_bytes() for name in names)
        raw = [*head.decode().split("\n"), *tail.decode().removesuffix("\n").split("\n")]
        assert [one for one in everything if one] == [one for one in raw if one]


def test_a_hundred_megabytes_are_counted_once(home: str) -> None:
    import time

    with Shell.open(home, defaults={"output_limit_bytes": 300_000_000}) as shell:
        line = "a line of output, such as programs print"
        ran = shell.run(f"yes '{line}' | head -c 100000000")
        view = OutputView(shell, shell.show(ran))
        total = view.read("both", 1, 1)["total"]
        assert total == -(-100_000_000 // (len(line) + 1))
        began = time.process_time()
        for at in range(1, total, total // 50):
            assert len(view.read("both", at, 200)["lines"]) in range(1, 201)
        assert time.process_time() - began < 50 * 0.1  # 10 ms each, with room for other loads


def test_a_line_of_many_megabytes_is_cut(home: str) -> None:
    with Shell.open(home) as shell:
        ran = shell.run("head -c 30000000 /dev/zero | tr '\\0' x; echo; echo next")
        view = OutputView(shell, shell.show(ran))
        [first, second] = view.read("both", 1, 1)["lines"] + view.read("both", 2, 1)["lines"]
        assert (len(first["text"]), first["cut"]) == (coloured.MOST_CHARS, 30_000_000 - coloured.MOST_CHARS)
        assert (second["n"], second["text"]) == (2, "next")


def test_lines_that_come_while_we_look_have_a_time(shell: Shell, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    task = shell.start(f"echo before; cat {go}; echo after")
    eventually(lambda: shell.read(task).output == "before\n")
    view = OutputView(shell, shell.show(task))
    view.count()
    go.write_text("")
    shell.wait(task)
    times = [one["at"] for one in view.read("both", 1, 9)["lines"]]
    assert times[0] is None
    assert times[1] is not None


# --- what is shown of a line -------------------------------------------------------------

DRAWN = {
    b"plain": "plain",
    b"\x1b[31mred\x1b[0m x": "\x1b[31mred\x1b[0m x",
    b"\x1b[1;32mok\x1b[m": "\x1b[1;32mok\x1b[0m",
    b"10%\r20%\r100%": "100%",
    b"\x1b[33m10%\x1b[0m\r\x1b[Kdone": "done",
    b"ab\x1b[2DX": "Xb",
    b"\x1b]0;title\x07text": "text",
    b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\": "link",
    b"\x1b[?25lhidden cursor\x1b[?25h": "hidden cursor",
    b"\x1bPq#0;2;0\x1b\\after": "after",
    b"a\x1b[38;2;1;0;3mb": "a\x1b[38;2;1;0;3mb\x1b[0m",
    b"\xff\xfe": "��",
    b"\x9b31mx": "�31mx",
    "\u202eabc".encode(): "abc",
    b"": "",
}


def test_what_is_shown_of_a_line() -> None:
    assert {raw: coloured.show(raw)[0] for raw in DRAWN} == DRAWN


@given(
    st.lists(
        st.one_of(st.sampled_from([*DRAWN, b"\x1b[", b"\x1b]", b"\r", b"\b\b", b"\x1b[999C"]), st.binary(max_size=9))
    )
)
def test_only_colours_are_left_of_any_bytes(parts: list[bytes]) -> None:
    text, _ = coloured.show(b"".join(parts).replace(b"\n", b""))
    rest = without_colours(text)
    assert "\n" not in text
    assert not any(unicodedata.category(char) == "Cc" for char in rest.replace("\t", "")), rest
    assert not any(char in rest for char in "\u202e\u2066\u200b")  # nothing turns the text around, or hides
    assert len(text) <= 200 * coloured.MOST_CHARS


SECRETS = Mask(["s3cr3t-value-1234"])


@given(st.lists(st.sampled_from([b"s3cr3t-value-1234", b"\n", b"a b ", b"ghp_" + b"a" * 36, b"x"])), st.integers(0, 99))
def test_masking_keeps_the_lines(parts: list[bytes], cut: int) -> None:
    data = b"".join(parts)
    at = min(cut, len(data))
    masked = mask_lines(data[at:], data[:at], SECRETS)
    assert masked.count(b"\n") == data[at:].count(b"\n")
    assert b"s3cr3t-value-1234" not in masked


def test_a_key_of_many_lines_is_masked_and_its_lines_stay() -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"MIIEpAIBAAKCAQEA7\n" * 5 + b"-----END RSA PRIVATE KEY-----\n"
    masked: Any = mask_lines(b"a\n" + key + b"b\n", b"", SECRETS)
    assert b"MIIE" not in masked
    assert masked.count(b"\n") == 2 + key.count(b"\n")
    assert masked.startswith(b"a\n")
    assert masked.endswith(b"\nb\n")
