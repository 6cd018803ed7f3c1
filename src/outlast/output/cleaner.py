"""Turn the bytes that a command printed into text, as a terminal would end up showing them.

It takes bounded memory and linear time for any input. No `re`: importing it costs a command line 4 ms.
"""

from __future__ import annotations

import codecs

LINE_LIMIT = 1 << 20  # characters of one line that can still be redrawn; past it they are let go
ROW = 128  # cells: the widest gap that the cursor can jump over, as if it met the end of a row
STRING_LIMIT = 8192  # kitty sends pictures in pieces of 4,096; titles and links are shorter
SEQUENCE_LIMIT = 256  # longer than any control sequence in use
SLICE_BYTES = 1 << 16  # so that splitting hostile bytes into parts never takes much memory

ESC = "\x1b"
BLANKS = [" "] * ROW
PARAMETERS = "0123456789:;<=>?"
INTERMEDIATES = " !\"#$%&'()*+,-./"
STRINGS = frozenset("]PX^_k")  # what follows ESC in OSC, DCS, SOS, PM, APC, and in the titles of screen and tmux
ENDERS = "\a\x18\x1a"  # BEL, CAN, SUB: they end a sequence, and are nothing elsewhere
OBEYED = frozenset("KJCDG`ABEFHfd")  # erase; move within the line; move to another one

# Zero-width joiner and non-joiner (U+200C, U+200D) stay: families of emoji, Persian and
# the scripts of India are misspelt without them. Tags (U+E0000 on) go: people cannot see
# them and models can read them. All are unprintable to Python, which `is_plain` builds on.
FORMAT_RANGES = (
    (0x061C, 0x061C),
    (0x180E, 0x180E),
    (0x200B, 0x200B),
    (0x200E, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x2069),
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE007F),
)
# What a reader cannot see and a program can read: format characters, fillers, blank Braille, variation selectors, tags.
INVISIBLE_RANGES = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
)
CONTROLS = frozenset((*range(0x20), 0x7F)) - {ord(char) for char in "\n\t"}
ANY_CONTROL = dict.fromkeys(CONTROLS)
DEAD_CONTROL = dict.fromkeys(CONTROLS - {ord(char) for char in "\r\b" + ENDERS + ESC})
# The C1 code points are the 8-bit forms of ESC and a letter: so they become that.
REPLACED = {
    **{chr(code): "" for code in DEAD_CONTROL},
    **{chr(code): "" for first, last in FORMAT_RANGES for code in range(first, last + 1)},
    **{chr(code): ESC + chr(code - 0x40) for code in range(0x80, 0xA0)},
}


class Cleaner:
    """Bytes to text, piece by piece, as a terminal of endless width would end up showing it.

    Escape sequences, control and format characters are removed, invalid UTF-8 becomes
    U+FFFD. Carriage return, backspace and the moves and erasures within a line act as on
    a terminal, where a character is a cell, so a progress bar is shown once, as it ended.
    A move to another line cannot change what was said: it only begins a new line.

    The text does not depend on how the bytes were cut, unless `live`. What could hold
    output back for ever is bounded: a string sequence (OSC, DCS ...) ends at BEL, CAN,
    SUB, ESC, at the end of the line or after STRING_LIMIT characters, a control sequence
    is given up after SEQUENCE_LIMIT, and a line is let go each time it has LINE_LIMIT
    characters: a carriage return then goes back to the first one after those.

    Live, the text of an unfinished line is given at once until the cursor moves back in
    it. From then on it is held, and if it differs in the end, it is given whole, on a
    line of its own.
    """

    def __init__(self, live: bool = False) -> None:
        self._live = live
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._line = _Line()
        self._begun = ""  # an escape sequence whose end has not come yet
        self._ground: list[str] = []  # text that is yet to be put on the line
        self._out: list[str] = []

    def feed(self, data: bytes) -> str:
        """The text that is certain now."""
        for start in range(0, len(data), SLICE_BYTES):
            self._clean(self._decode(data[start : start + SLICE_BYTES]))
        if self._live:
            self._out.append(self._line.take_new())
        return self._take_text()

    def finish(self) -> str:
        """The rest, when no more bytes will come. A sequence without an end is dropped."""
        self._clean(self._decode(b"", True))
        self._begun = ""
        self._out.append(self._line.take())
        return self._take_text()

    def get_open_line(self, most: int | None = None) -> str:
        """The line that is being written, as it stands; nothing if it is longer than `most`. Not for a live one."""
        return self._line.peek() if most is None or self._line.length <= most else ""

    def _take_text(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    def _clean(self, text: str) -> None:
        flat = text.replace("\r\n", "\n")
        if not self._begun and is_plain(flat):
            self._add_lines(flat)
            return
        ground, *sequences = (self._begun + _without_dead(text)).split(ESC)
        self._begun = ""
        self._ground.append(ground)
        behind: str | None = ""
        for piece in sequences:
            behind = self._behind_control(piece) if piece[:1] == "[" else _behind_escape(piece)
            if behind:
                self._ground.append(behind)
        # No sequence goes on past an ESC, so only the last one can still be incomplete.
        if behind is None:
            self._begun = ESC + sequences[-1]
        self._add_ground()

    def _behind_control(self, piece: str) -> str | None:
        """Obey the control sequence that begins `piece`; the text behind it, None if its end is missing."""
        rest = piece[1:].lstrip(PARAMETERS)
        final, size = rest[:1], len(piece) - len(rest)
        if "@" <= final <= "~" and size <= SEQUENCE_LIMIT:
            if final in OBEYED:
                self._obey(final, piece[1:size])
            return rest[1:]
        return _behind_final(piece, rest.lstrip(INTERMEDIATES), "@")

    def _obey(self, final: str, parameters: str) -> None:
        first = parameters.partition(";")[0] or "0"
        if not first.isdigit():
            return  # private, such as ESC [ ? 25 l
        if self._ground:
            self._add_ground()
        line, number = self._line, int(first)
        if final in "KJ":
            line.erase(number)
        elif final == "C":
            line.go(line.column + (number or 1))
        elif final == "D":
            line.go(line.column - (number or 1))
        elif final in "G`":
            line.go((number or 1) - 1)
        elif line.is_begun():
            self._out += (line.take(), "\n")

    def _add_ground(self) -> None:
        """The text between sequences, with the controls that move within a line."""
        text = "".join(self._ground)
        self._ground.clear()
        if text.isprintable():
            self._put(text)
            return
        for char in ENDERS:
            text = text.replace(char, "")
        if "\r" not in text and "\b" not in text:
            self._add_lines(text)
            return
        *lines, unfinished = text.split("\n")
        for line in lines:
            self._draw(line.rstrip("\r"))
            self._out += (self._line.take(), "\n")
        self._draw(unfinished)

    def _draw(self, text: str) -> None:
        """A part of one line, with carriage returns and backspaces."""
        first, *frames = text.split("\r")
        self._strike(first)
        for frame in frames if "\b" in text else _drop_overwritten(frames):
            self._line.go(0)
            self._strike(frame)

    def _strike(self, text: str) -> None:
        first, *runs = text.split("\b")
        self._put(first)
        line = self._line
        for run in runs:
            line.moved = True
            if line.column:
                line.column -= 1
            if run:
                self._put(run)

    def _add_lines(self, text: str) -> None:
        """Text without any control character."""
        first = text.find("\n")
        if first < 0:
            self._put(text)
            return
        last = text.rfind("\n")
        self._put(text[:first])
        self._out += (self._line.take(), text[first : last + 1])
        self._put(text[last + 1 :])

    def _put(self, run: str) -> None:
        line = self._line
        # The line is let go at a length, not at the end of a piece: where it happens
        # decides what a carriage return can reach, and must not depend on the cuts.
        while run and line.column + len(run) >= LINE_LIMIT:
            room = max(LINE_LIMIT - line.column, 0)
            line.write(run[:room])
            self._out.append(line.take())
            run = run[room:]
        if run:
            line.write(run)


class _Line:
    """The line that is being written, and the column where the next character goes.

    It is a list of runs while text is only added, and becomes a list of single cells when
    something in it is overwritten: then a redraw costs its own length, not the line's.
    """

    __slots__ = ("_cells", "_given", "_given_runs", "_runs", "column", "length", "moved")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._runs: list[str] = []
        self._cells: list[str] | None = None
        self._given_runs = 0
        self._given = ""
        self.length = 0
        self.column = 0
        self.moved = False

    def is_begun(self) -> bool:
        return self.length > 0 or self._given_runs > 0

    def write(self, run: str) -> None:
        column, end = self.column, self.column + len(run)
        if self._cells is None and column == self.length:
            self._runs.append(run)
        else:
            cells = self._cells or self._as_cells()
            if column > self.length:
                cells += BLANKS[: column - self.length]
            cells[column:end] = run
        self.column = end
        self.length = max(self.length, end)

    def go(self, column: int) -> None:
        self.moved = True
        self.column = min(max(column, 0), self.length + ROW)

    def erase(self, how: int) -> None:
        """As ESC [ K does: 0 from the cursor on, 1 up to the cursor, 2 all of it."""
        if self.length == 0 or (how == 0 and self.column >= self.length):
            return
        self.moved = True
        cells = self._cells or self._as_cells()
        if how == 1:
            # A row at most: blanking a line of 1 MiB for every 4 bytes would not be linear.
            last = min(self.column + 1, self.length)
            first = min(max(self.column + 1 - ROW, 0), last)
            cells[first:last] = BLANKS[: last - first]
            return
        del cells[self.column if how == 0 else 0 :]
        self.length = len(cells)
        self.column = min(self.column, self.length + ROW)

    def take_new(self) -> str:
        """What was added since the last time, if nothing was moved: the line goes on."""
        if self.moved:
            return ""
        new = self._runs[self._given_runs :]
        self._given_runs = len(self._runs)
        return "".join(new)

    def peek(self) -> str:
        """The line as it stands."""
        return "".join(self._runs if self._cells is None else self._cells)

    def take(self) -> str:
        """The rest of the line, or the whole again if what was given is not how it ended."""
        if self._cells is None:
            rest = "".join(self._runs[self._given_runs :])
        else:
            text = "".join(self._cells)
            rest = text.removeprefix(self._given) if text.startswith(self._given) else text and "\n" + text
        if self.length or self.moved or self._given_runs:
            self._reset()
        return rest

    def _as_cells(self) -> list[str]:
        if self._cells is None:
            self._given = "".join(self._runs[: self._given_runs])
            self._cells = list("".join(self._runs))
            self._runs.clear()
        return self._cells


def _drop_overwritten(frames: list[str]) -> list[str]:
    """Those that a later one does not wholly overwrite, and the last for its carriage return."""
    # Only while SLICE_BYTES is below LINE_LIMIT: no frame may be long enough to be let go.
    kept = frames[-1:]
    longest = len(kept[0]) if kept else 0
    for frame in reversed(frames):
        if len(frame) > longest:
            kept.append(frame)
            longest = len(frame)
    return kept[::-1]


def is_plain(text: str) -> bool:
    """Whether a text without any carriage return stays as it is when it is cleaned."""
    if text.isascii():
        return len(text.translate(ANY_CONTROL)) == len(text)
    return text.replace("\n", "").replace("\t", "").isprintable()


def _without_dead(text: str) -> str:
    """Without the characters that mean nothing anywhere, and with C1 as sequences of ESC."""
    if text.isascii():
        return text.translate(DEAD_CONTROL)
    # Not `translate`: beyond ASCII it raises and catches a KeyError for every character.
    for char in REPLACED.keys() & set(text):
        text = text.replace(char, REPLACED[char])
    return text


def _behind_escape(piece: str) -> str | None:
    """The text behind the sequence, not a control sequence, that begins `piece`; None if its end is missing."""
    if piece[:1] in STRINGS:
        return _behind_string(piece)
    return _behind_final(piece, piece.lstrip(INTERMEDIATES), "0")


def _behind_final(piece: str, rest: str, lowest: str) -> str | None:
    """What is behind the final character that `rest` begins with, if it does."""
    if len(piece) - len(rest) > SEQUENCE_LIMIT:
        return piece[SEQUENCE_LIMIT:]
    if not rest:
        return None
    return rest[1:] if lowest <= rest[0] <= "~" else rest


def _behind_string(piece: str) -> str | None:
    body = piece[:STRING_LIMIT]
    for ender in ENDERS + "\n":
        if ender in body:
            body = body[: body.index(ender)]
    return piece[len(body) :] if len(body) < len(piece) else None


def inline(text: str, width: int) -> str:
    """A text made safe for one line of a table, at most `width` characters.

    Nothing is obeyed here: a carriage return in a command must not hide the rest of it.
    """
    if not text.isprintable():
        for char in set(text):
            if not char.isprintable() and char not in "\u200c\u200d":
                text = text.replace(char, " ")
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    return text[: width - 1].rstrip() + "…" if width > 0 else ""


def is_invisible(char: str) -> bool:
    """Whether a reader cannot see that the character is there."""
    return any(first <= ord(char) <= last for first, last in INVISIBLE_RANGES)


def escape(char: str) -> str:
    """A character as JSON escapes it, so that a text of JSON stays the same JSON."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def escape_invisible(text: str) -> str:
    """The text with what a reader cannot see written out, such as `\\u200d`."""
    if text.isascii():
        return text
    for char in filter(is_invisible, set(text)):
        text = text.replace(char, escape(char))
    return text
