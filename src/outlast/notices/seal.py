"""The short code of a notice: whoever has the key of the state directory wrote exactly this text under this number."""

from __future__ import annotations

import base64
import hmac
import re

from outlast.storage.layout import read_or_create_secret

CODE_CHARS = 8  # 40 bits: nobody guesses one, and a model copies it without mistakes
_LINE = re.compile(rf"\[outlast notice (\d{{1,18}}), code ([a-z2-7]{{{CODE_CHARS}}})\] (.+)", re.DOTALL)
_REFERENCE = re.compile(rf"(?:notice )?(\d{{1,18}})(?:,? code |[ -]){{1}}([a-z2-7]{{{CODE_CHARS}}})")


class Seal:
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
    # Whoever hands a notice on may break its lines.
    return " ".join(text.split())


def parsed(said: str) -> tuple[int, str, str] | None:
    """Number, code and text of a notice that somebody quotes; without its text if they name only the other two."""
    said = _as_said(said)
    if found := _LINE.fullmatch(said):
        return int(found[1]), found[2], found[3]
    if found := _REFERENCE.fullmatch(said.strip("[]")):
        return int(found[1]), found[2], ""
    return None
