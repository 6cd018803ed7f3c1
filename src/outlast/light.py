"""Standard modules without the modules that they import.

`re`, `enum`, `datetime` and `selectors` take 9 of the 33 ms of `outlast ps`, which needs none of them. Names and
meanings are those of the standard library; JSON has its shortest form only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    import sqlite3
    from typing import Any

    class json:
        @staticmethod
        def dumps(value: object) -> str: ...
        @staticmethod
        def loads(text: str | bytes) -> Any: ...

else:
    import _json
    import _signal as signal
    import _socket as socket
    import _sqlite3 as sqlite3

    class _Options:
        strict = True
        object_hook = object_pairs_hook = None
        parse_float, parse_int, parse_constant = float, int, float

    def _refuse(value):
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")

    _scan = _json.make_scanner(_Options)
    _encode = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, True)

    class json:
        @staticmethod
        def dumps(value):
            return "".join(_encode([value], 0))[1:-1]  # the C encoder takes containers only

        @staticmethod
        def loads(text):
            text = (text if isinstance(text, str) else str(text, "utf-8")).strip(" \t\n\r")
            try:
                value, end = _scan(text, 0)
            except (StopIteration, SystemError):  # SystemError if `json`, whose error the scanner raises, is not loaded
                raise ValueError("this is no JSON") from None
            if end != len(text):
                raise ValueError("something follows the JSON")
            return value


__all__ = ("json", "signal", "socket", "sqlite3")
