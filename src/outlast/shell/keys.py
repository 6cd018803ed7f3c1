"""Keys as text: `<C-c><Up>hello<Enter>`, and the bytes that a terminal sends for them. Pure.

A name stands between `<` and `>`; everything else is typed as it is, and `<lt>` is a `<`. Modifiers stand in front:
`<C-x>` Ctrl, `<M-x>` Alt, `<S-Tab>` Shift, `<C-Left>`. Names may be written in any case.
"""

from __future__ import annotations

import re

from outlast.errors import BadInput, InputRefused, quote
from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What a terminal sends. `_CURSOR` keys end alike in both modes; a program chooses the mode.
_PLAIN = {"Enter": "\r", "Tab": "\t", "Esc": "\x1b", "Backspace": "\x7f", "Space": " ", "lt": "<"}
_CURSOR = {"Up": "A", "Down": "B", "Right": "C", "Left": "D", "Home": "H", "End": "F"}
_FUNCTION = {"F1": "P", "F2": "Q", "F3": "R", "F4": "S"}
_NUMBERED = {
    "Insert": 2,
    "Delete": 3,
    "PageUp": 5,
    "PageDown": 6,
    "F5": 15,
    "F6": 17,
    "F7": 18,
    "F8": 19,
    "F9": 20,
    "F10": 21,
    "F11": 23,
    "F12": 24,
}
_SYNONYMS = {"cr": "Enter", "return": "Enter", "escape": "Esc", "bs": "Backspace", "del": "Delete", "ins": "Insert"}
_SYNONYMS |= {"pgup": "PageUp", "pgdn": "PageDown"}
_NAMES = {name.lower(): name for name in (*_PLAIN, *_CURSOR, *_FUNCTION, *_NUMBERED)} | _SYNONYMS
_MODIFIERS = "CMS"
_KEY = re.compile(r"<((?:[CMScms]-)*)([A-Za-z0-9]+|[^\sA-Za-z0-9])>")
_OF_CHARACTERS = ({"C"}, {"M"}, {"C", "M"})  # the modifiers that a character can have
_IN_SEQUENCES = {"S": 1, "M": 2, "C": 4}  # what each adds to the number of a sequence with modifiers
KNOWN = (
    "<Enter> <Tab> <Esc> <Space> <Backspace> <Delete> <Insert> <Up> <Down> <Left> <Right> <Home> <End> <PageUp> "
    "<PageDown> <F1>..<F12> <lt>, with <C-x> for Ctrl, <M-x> for Alt and <S-Tab> for Shift"
)
_WITHOUT_TERMINAL = {"Enter": "\n", "Tab": "\t", "Space": " ", "lt": "<"}
_INTERRUPT, _END = "c", "d"  # with Ctrl


@frozen
class Key:
    """One key: the name of a special one or the character, and the modifiers that are held."""

    name: str
    modifiers: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"<{''.join(f'{one}-' for one in _MODIFIERS if one in self.modifiers)}{self.name}>"


@frozen
class Interrupt:
    """SIGINT to the command, as Ctrl-C on a terminal."""


@frozen
class End:
    """The end of the input, as Ctrl-D on a terminal."""


def parse(text: str) -> list[str | Key]:
    """Return the typed text and the keys, in order; `BadInput` for a name that is not known."""
    if not isinstance(text, str):
        raise BadInput(f"The keys are text, such as '<C-c><Up>hello<Enter>', not {type(text).__name__}.")
    found: list[str | Key] = []
    at = 0
    while (start := text.find("<", at)) >= 0:
        if start > at:
            found.append(text[at:start])
        match = _KEY.match(text, start)
        if match is None:
            raise BadInput(f"{quote(text[start : start + 12])} begins no key; write <lt> for a '<'. {_known()}")
        found.append(_check_key(match[0], frozenset(match[1].upper()) - {"-"}, match[2]))
        at = match.end()
    return [*found, text[at:]] if at < len(text) else found


def _known() -> str:
    return f"Known are {KNOWN}."


def _check_key(text: str, modifiers: frozenset[str], rest: str) -> Key:
    name = _NAMES.get(rest.lower(), "")
    if name:
        is_known = not modifiers or name not in _PLAIN or _takes(name, modifiers)
    else:
        name = rest
        is_known = (
            len(rest) == 1 and modifiers in _OF_CHARACTERS and ("C" not in modifiers or _control(rest) is not None)
        )
    if not is_known:
        raise BadInput(f"There is no key {quote(text)}; write <lt> for a '<'. {_known()}")
    return Key(name, modifiers)


def _takes(name: str, modifiers: frozenset[str]) -> bool:
    """Return whether a terminal sends something of its own for a key of one byte with these modifiers."""
    return modifiers == {"M"} or (name == "Tab" and modifiers == {"S"}) or (name == "Space" and modifiers == {"C"})


def _control(char: str) -> str | None:
    """Return what Ctrl makes of a character."""
    if char == "?":
        return "\x7f"
    code = ord(char.upper())
    return chr(code & 0x1F) if 0x40 <= code < 0x60 else None


# --- on a terminal -------------------------------------------------------------------------


def encode(keys: Sequence[str | Key], application_cursor: bool = False) -> bytes:
    """Return the bytes that a terminal sends; in application mode those of cursor keys differ."""
    return b"".join(_encode(one, application_cursor) for one in keys)


def _encode(key: str | Key, application: bool) -> bytes:
    if isinstance(key, str):
        return encode_typed(key)
    name, held = key.name, key.modifiers
    number = 1 + sum(_IN_SEQUENCES[one] for one in held)
    if name in _CURSOR | _FUNCTION:
        last = (_CURSOR | _FUNCTION)[name]
        if held:
            return f"\x1b[1;{number}{last}".encode()
        return f"\x1b{'O' if application or name in _FUNCTION else '['}{last}".encode()
    if name in _NUMBERED:
        return (f"\x1b[{_NUMBERED[name]};{number}~" if held else f"\x1b[{_NUMBERED[name]}~").encode()
    if name == "Tab" and "S" in held:
        return b"\x1b[Z"
    char = _PLAIN.get(name, name)
    if "C" in held:
        char = "\0" if name == "Space" else _control(name) or ""
    return encode_typed(("\x1b" if "M" in held else "") + char)


def encode_typed(text: str) -> bytes:
    """Return what a terminal sends for typed text: the end of a line is the Enter key."""
    return text.replace("\r\n", "\r").replace("\n", "\r").encode(errors="surrogateescape")


def needs_mode(keys: Sequence[str | Key]) -> bool:
    """Return whether the bytes depend on the mode of the terminal."""
    return any(isinstance(one, Key) and one.name in _CURSOR and not one.modifiers for one in keys)


# --- without a terminal --------------------------------------------------------------------


def without_terminal(task_id: str, keys: Sequence[str | Key]) -> list[bytes | Interrupt | End]:
    """Return what to do for keys where there is no terminal: bytes to send, an interrupt, the end of the input."""
    steps: list[bytes | Interrupt | End] = []
    for step in _steps(task_id, keys):
        if steps and steps[-1] == End():
            raise BadInput("Nothing can be sent behind <C-d>, which ends the input; leave out what follows it.")
        if isinstance(step, bytes) and steps and isinstance(steps[-1], bytes):
            steps[-1] += step
        else:
            steps.append(step)
    return steps


def _steps(task_id: str, keys: Sequence[str | Key]) -> Iterator[bytes | Interrupt | End]:
    for one in keys:
        if isinstance(one, str):
            yield one.encode(errors="surrogateescape")
        elif not one.modifiers and one.name in _WITHOUT_TERMINAL:
            yield _WITHOUT_TERMINAL[one.name].encode()
        elif one.modifiers == {"C"} and one.name.lower() in (_INTERRUPT, _END):
            yield Interrupt() if one.name.lower() == _INTERRUPT else End()
        else:
            raise InputRefused(
                f"{task_id} has no terminal, where {one} means something; start it with one (--tty, tty=True), or send "
                "text, <Enter>, <Tab>, <C-c> and <C-d>."
            )
