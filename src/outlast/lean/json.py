"""JSON in the shortest form. What the standard library lets one choose cannot be chosen."""

from __future__ import annotations

import _json

__all__ = ("dumps", "loads")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    def dumps(value: object) -> str: ...
    def loads(text: str | bytes) -> Any: ...

else:

    class _As:
        strict = True
        object_hook = object_pairs_hook = None
        parse_float, parse_int, parse_constant = float, int, float

    def _refuse(value):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")

    _scan = _json.make_scanner(_As)
    _encode = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, True)

    def dumps(value):
        # The encoder is for what has parts.
        return "".join(_encode([value], 0))[1:-1]

    def loads(text):
        text = (text if isinstance(text, str) else str(text, "utf-8")).strip(" \t\n\r")
        try:
            value, end = _scan(text, 0)
        except (StopIteration, SystemError):  # the other one if `json`, whose error it wants to raise, is not loaded
            raise ValueError("this is no JSON") from None
        if end != len(text):
            raise ValueError("something follows the JSON")
        return value
