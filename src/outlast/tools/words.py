"""Whose words are whose: what a command printed is set off so that it can never pass for Outlast's own.

Three ways, each for a kind of reply:

- `fenced`: a block between two lines of backticks, more of them than the text has anywhere
  in a row. No line of the text can close it: whatever is outside of such a block is ours.
- `JSON`: a string in an object; its quotes and line ends are escaped.
- `bracketed`: the bare text, where every line of ours begins with `[outlast`, and a line of
  the text that begins so gets a backslash in front.

Texts come from `Shell.read(marked=True)`: our own lines in them stand between marks that
no output contains.
"""

from __future__ import annotations

from outlast.output.cleaner import escape, is_invisible
from outlast.output.text_stream import MARKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OURS = "[outlast"
_FENCE = "`"
_SHORTEST_FENCE = 3
# Whatever some reader takes for the end of a line; `Cleaner` leaves the last two.
_LINE_ENDS = ("\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x85", "\u2028", "\u2029")


def harmless(text: str) -> str:
    """The text with everything written out that a reader could not see, or would take for something else."""
    if text.isascii() and text.isprintable():
        return text
    for end in _LINE_ENDS:
        text = text.replace(end, "\n")
    for char in set(text):
        if is_invisible(char) or not (char.isprintable() or char.isspace()):
            text = text.replace(char, escape(char))
    return text


def parts(marked: str) -> Iterator[tuple[bool, str]]:
    """A marked text as what the command said and what we say in between; nothing empty."""
    before, after = MARKS
    # A line of ours may itself be cut in two. Only a whole one counts as ours.
    first, *rest = marked.split(before)
    pieces = [(False, first)]
    for piece in rest:
        said, whole, behind = piece.partition(after)
        pieces += [(bool(whole), said.strip("\n") if whole else said), (False, behind)]
    for ours, piece in pieces:
        text = piece if ours else harmless(piece)
        if text:
            yield ours, text


def unmarked(text: str) -> str:
    """A marked text for those to whom it does not matter whose words are whose."""
    return _joined(parts(text))


def _joined(pieces: Iterable[tuple[bool, str]]) -> str:
    """One text, in which each line of ours is a line of its own."""
    whole = ""
    for ours, piece in pieces:
        whole += f"{'' if not whole or whole.endswith(chr(10)) else chr(10)}{piece}\n" if ours else piece
    return whole


def fence(text: str) -> str:
    """A text as a block. Harmless already."""
    longest = run = 0
    for char in text:
        run = run + 1 if char == _FENCE else 0
        longest = max(longest, run)
    line = _FENCE * max(_SHORTEST_FENCE, longest + 1)
    return f"{line}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{line}\n"


def fenced(marked: str) -> str:
    """What a command printed, as blocks, with our lines between them."""
    return "".join(part + "\n" if ours else fence(part) for ours, part in parts(marked))


def labelled(label: str, marked: str, nothing: str) -> str:
    """`Label: text` on one line if it is one, otherwise the label and a block."""
    text = marked.rstrip("\n")
    if not text:
        return f"{label}: {nothing}\n"
    plain = harmless(text)
    # A text that is what we would say if there were none gets a block: that is how one knows.
    if MARKS[0] in text or "\n" in plain or plain.strip() in ("", nothing) or plain.startswith(_FENCE):
        return f"{label}:\n{fenced(marked)}"
    return f"{label}: {plain}\n"


def bracketed(marked: str) -> str:
    """What a command printed, bare."""
    return _joined(
        (ours, f"{OURS}: {piece.removeprefix(OURS).strip('[]:. ')}]" if ours else _escaped(piece))
        for ours, piece in parts(marked)
    )


def ours(sentence: str) -> str:
    """A line of ours in a bare text."""
    return f"{OURS}: {sentence}]\n"


def _escaped(text: str) -> str:
    if OURS not in text.lower():
        return text
    return "".join("\\" + line if line.lstrip().lower().startswith(OURS) else line for line in text.splitlines(True))
