"""The short code of a notice: a process with the key of the state directory wrote this text under this number."""

from __future__ import annotations

import base64
import hmac
import os
import re
import stat

from outlast.errors import StateRefused
from outlast.storage.layout import create_once

_SECRET_BYTES = 32
CODE_CHARS = 8  # 40 bits: too many to guess, and short enough for a model to copy
_LINE = re.compile(rf"\[outlast notice (\d{{1,18}}), code ([a-z2-7]{{{CODE_CHARS}}})\] (.+)", re.DOTALL)
_REFERENCE = re.compile(rf"(?:notice )?(\d{{1,18}})(?:,? code |[ -]){{1}}([a-z2-7]{{{CODE_CHARS}}})")


class NoticeSigner:
    """The key of one state directory."""

    def __init__(self, directory: str) -> None:
        self._key = read_or_create_secret(directory, "key").encode()

    def code(self, number: int, text: str) -> str:
        """What proves that this is the text of that notice."""
        said = f"{number}\n{_as_said(text)}".encode(errors="surrogatepass")
        digest = hmac.digest(self._key, said, "sha256")
        return base64.b32encode(digest).decode().lower()[:CODE_CHARS]

    def fits(self, number: int, text: str, code: str) -> bool:
        return hmac.compare_digest(self.code(number, text), code)


def _as_said(text: str) -> str:
    # A program that passes a notice on may break its lines.
    return " ".join(text.split())


def parse_notice(said: str) -> tuple[int, str, str] | None:
    """Return number, code and text of a quoted notice; the text is empty if only the other two are quoted."""
    said = _as_said(said)
    if found := _LINE.fullmatch(said):
        return int(found[1]), found[2], found[3]
    if found := _REFERENCE.fullmatch(said.strip("[]")):
        return int(found[1]), found[2], ""
    return None


# --- the file of a secret ----------------------------------------------------------------


def read_or_create_secret(directory: str, name: str) -> str:
    """Return the random secret in a file that only its owner can read; create it the first time."""
    path = os.path.join(directory, name)
    try:
        return _read_secret(path)
    except FileNotFoundError:
        os.makedirs(directory, 0o700, exist_ok=True)
        create_once(path, os.urandom(_SECRET_BYTES).hex().encode() + b"\n")
    return _read_secret(path)


def _read_secret(path: str) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise StateRefused(f"Others can read or wrote {path}; remove it, and a new one is made.")
        text = file.read(256).strip()
    if len(text) < _SECRET_BYTES:
        raise StateRefused(f"{path} holds no secret of {_SECRET_BYTES} characters; remove it, and a new one is made.")
    return text
