"""What the standard library has, without the modules that it imports: they would make the command line slow.

`dataclasses` pulls in `inspect` and adds 10 ms to the 33 ms of `outlast ps`; `json`, `signal`, `socket` and `sqlite3`
pull in `re`, `enum`, `datetime` and `selectors` and add 9. Names and meanings are those of the standard library;
JSON has its shortest form only, and a record can do what a frozen dataclass can: construction by position and by
keyword, defaults, equality, hash, `repr` and `match`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    import sqlite3
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")

    class json:
        @staticmethod
        def dumps(value: object) -> str: ...
        @staticmethod
        def loads(text: str | bytes) -> Any: ...

else:
    import _json
    import _signal as signal
    import _socket as socket

    def __getattr__(name):
        if name == "sqlite3":  # when it is asked for: it imports `collections`
            import _sqlite3

            return _sqlite3
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

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


# --- records -----------------------------------------------------------------------------

if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True)
    def frozen(cls: type[T]) -> type[T]: ...

else:

    def _init(self, *args, **given):
        names, count = self.__match_args__, len(args) + len(given)
        given.update(zip(names, args, strict=False))
        is_wrong = len(given) < count
        if given.keys() != self._names:
            given = self._defaults | given
            is_wrong |= given.keys() != self._names
        if is_wrong:
            kind, wrong = self.__class__.__name__, ", ".join(sorted(given.keys() ^ self._names))
            raise TypeError(f"{kind}() takes {', '.join(names)}, none of them twice; missing or unknown: {wrong}")
        self.__dict__.update(given)

    def _eq(self, other):
        return self.__dict__ == other.__dict__ if other.__class__ is self.__class__ else NotImplemented

    def _hash(self):
        return hash((self.__class__, *fields(self).values()))

    def _repr(self):
        return f"{self.__class__.__name__}({', '.join(f'{name}={value!r}' for name, value in fields(self).items())})"

    def _setattr(self, name, value):
        raise AttributeError(f"{self.__class__.__name__} is immutable: {name} cannot be changed")

    def frozen(cls):
        names = tuple(dict.fromkeys(name for base in reversed(cls.__mro__[:-1]) for name in base.__annotations__))
        cls._defaults = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
        cls.__match_args__, cls._names = names, frozenset(names)
        cls.__init__, cls.__eq__, cls.__hash__, cls.__repr__, cls.__setattr__ = _init, _eq, _hash, _repr, _setattr
        return cls


def fields(record: object) -> dict[str, Any]:
    """Return the record's values by name, in the order they were declared."""
    names: tuple[str, ...] = type(record).__match_args__  # type: ignore[attr-defined]
    return {name: record.__dict__[name] for name in names}


def from_json(kind: type[T], values: dict[str, Any]) -> T:
    """Return a record from JSON, where its tuples are lists; TypeError if a value is missing or unknown."""
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def replace(record: T, /, **changes: Any) -> T:
    """Return the same record with some values changed."""
    return extend(type(record), record, **changes)


def extend(kind: type[T], record: object, /, **more: Any) -> T:
    """Return a record of a kind that has all the values of this one, and `more`."""
    values = record.__dict__ | more
    if len(values) != len(kind.__match_args__):  # type: ignore[attr-defined]
        raise TypeError(f"{kind.__name__} has other values than these: {', '.join(values)}")
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    return made


__all__ = ("extend", "fields", "from_json", "frozen", "json", "replace", "signal", "socket", "sqlite3")
