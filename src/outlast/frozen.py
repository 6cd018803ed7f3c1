"""Immutable records, declared like frozen dataclasses.

Importing `dataclasses` pulls in `inspect` and costs every command line about 15 ms,
more than the rest of `outlast ps` together. This decorator does the part we use:
keyword and positional construction, defaults, equality, `repr` and `match`.
Type checkers see it as the standard library's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")

    @dataclass_transform(frozen_default=True)
    def frozen(cls: type[T]) -> type[T]: ...

else:
    # The same few functions for all of them, and not closures for each: what is used often lies in few pages then.

    def _completed(cls, args, given):
        names = cls.__match_args__
        if args:
            if not given.keys().isdisjoint(names[: len(args)]):
                raise TypeError(f"{cls.__name__}() was given a value twice")
            given.update(zip(names, args, strict=False))
        state = {**cls._defaults, **given}
        if state.keys() != set(names) or len(args) > len(names):
            wrong = sorted(set(names) ^ state.keys())
            raise TypeError(f"{cls.__name__}() takes {', '.join(names)}; missing or unknown: {', '.join(wrong)}")
        return state

    def _init(self, *args, **given):
        # Mostly there is nothing to find out: all by position, or all by name.
        names = self.__match_args__
        if not given and len(args) == len(names):
            given = zip(names, args, strict=True)
        elif args or given.keys() != self._wanted:
            given = _completed(self.__class__, args, given)
        self.__dict__.update(given)

    def _eq(self, other):
        return self.__dict__ == other.__dict__ if other.__class__ is self.__class__ else NotImplemented

    def _hash(self):
        return hash((self.__class__, *(self.__dict__[name] for name in self.__match_args__)))

    def _repr(self):
        values = (f"{name}={self.__dict__[name]!r}" for name in self.__match_args__)
        return f"{self.__class__.__name__}({', '.join(values)})"

    def _setattr(self, name, value):
        raise AttributeError(f"{self.__class__.__name__} is immutable: {name} cannot be changed")

    _METHODS = {"__init__": _init, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _setattr}

    def frozen(cls):
        names = tuple(dict.fromkeys(name for base in reversed(cls.__mro__[:-1]) for name in base.__annotations__))
        cls._defaults = {name: getattr(cls, name) for name in names if hasattr(cls, name)}
        cls._wanted = frozenset(names)
        for name, method in _METHODS.items():
            setattr(cls, name, method)
        cls.__match_args__ = names
        return cls


def fields(record: object) -> dict[str, Any]:
    """The record's values by name, in the order they were declared."""
    names: tuple[str, ...] = type(record).__match_args__  # type: ignore[attr-defined]
    return {name: record.__dict__[name] for name in names}


def replaced(record: T, /, **changes: Any) -> T:
    """The same record with some values changed."""
    return extended(type(record), record, **changes)


def extended(kind: type[T], record: object, /, **more: Any) -> T:
    """A record of a kind that has all the values of this one, and `more`."""
    values = record.__dict__ | more
    if len(values) != len(kind.__match_args__):  # type: ignore[attr-defined]
        raise TypeError(f"{kind.__name__} has other values than these: {', '.join(values)}")
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    return made
