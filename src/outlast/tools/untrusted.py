"""Sets off what a command printed, so that it can never pass for Outlast's own words.

Three ways, each for a kind of reply:

- `fence`: a block between two lines of backticks, more of them than the text has anywhere in a row. No line of the text
  can close it: whatever is outside of such a block is ours.
- JSON: a string in an object; its quotes and line ends are escaped.
- `bracket`: the bare text, where every line of ours begins with `[outlast`, and a line of the text that begins so gets
  a backslash in front.

Texts come from `Shell.read(marked=True)`: our own lines in them stand between marks that no output contains.
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
# What some reader takes for the end of a line; `Cleaner` leaves the last two.
_LINE_ENDS = ("\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x85", "\u2028", "\u2029")


def show_invisible(text: str) -> str:
    """Write out everything that a reader could not see, or would take for something else."""
    if text.isascii() and text.isprintable():
        return text
    for end in _LINE_ENDS:
        text = text.replace(end, "\n")
    for char in set(text):
        if is_invisible(char) or not (char.isprintable() or char.isspace()):
            text = text.replace(char, escape(char))
    return text


def split_marked(marked: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a marked text, each with whether it is ours; nothing empty."""
    before, after = MARKS
    # A line of ours may itself be cut in two. Only a whole one counts as ours.
    first, *rest = marked.split(before)
    parts = [(False, first)]
    for part in rest:
        inside, mark, behind = part.partition(after)
        parts += [(bool(mark), inside.strip("\n") if mark else inside), (False, behind)]
    for ours, part in parts:
        text = part if ours else show_invisible(part)
        if text:
            yield ours, text


def plain(marked: str) -> str:
    """Return a marked text without its marks, where it does not matter which words are ours."""
    return _join(split_marked(marked))


def _join(parts: Iterable[tuple[bool, str]]) -> str:
    """Return one text in which each line of ours is a line of its own."""
    whole = ""
    for ours, part in parts:
        whole += f"{'' if not whole or whole.endswith(chr(10)) else chr(10)}{part}\n" if ours else part
    return whole


def fence(text: str) -> str:
    """Return a text as a block. It must have gone through `show_invisible`."""
    longest = run = 0
    for char in text:
        run = run + 1 if char == _FENCE else 0
        longest = max(longest, run)
    line = _FENCE * max(_SHORTEST_FENCE, longest + 1)
    return f"{line}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{line}\n"


def fence_marked(marked: str) -> str:
    """Return what a command printed as blocks, with our lines between them."""
    return "".join(part + "\n" if ours else fence(part) for ours, part in split_marked(marked))


def label(name: str, marked: str, nothing: str) -> str:
    """Return `Name: text` on one line if it is one, otherwise the name and a block."""
    text = marked.rstrip("\n")
    if not text:
        return f"{name}: {nothing}\n"
    shown = show_invisible(text)
    # A text that is what we would say if there were none gets a block: that is how one knows.
    if MARKS[0] in text or "\n" in shown or shown.strip() in ("", nothing) or shown.startswith(_FENCE):
        return f"{name}:\n{fence_marked(marked)}"
    return f"{name}: {shown}\n"


def bracket(marked: str) -> str:
    """Return what a command printed, bare."""
    return _join(
        (ours, f"{OURS}: {part.removeprefix(OURS).strip('[]:. ')}]" if ours else _escape_ours(part))
        for ours, part in split_marked(marked)
    )


def bracketed_line(sentence: str) -> str:
    """Return a line of ours in a bare text."""
    return f"{OURS}: {sentence}]\n"


def _escape_ours(text: str) -> str:
    if OURS not in text.lower():
        return text
    return "".join("\\" + line if line.lstrip().lower().startswith(OURS) else line for line in text.splitlines(True))
