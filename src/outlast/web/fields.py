"""Checks what a request brings against a schema, which the OpenAPI document shows as it is. Pure.

A schema is a JSON schema with the few words that are used here: type, enum, minimum, maximum, minLength, maxLength,
items, minItems, maxItems, properties, required, default.
"""

from __future__ import annotations

import math

from outlast.errors import BadInput, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Schema = Mapping[str, Any]

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_WORDS = {"integer": "a whole number", "number": "a number", "string": "text", "array": "a list", "object": "an object"}
_TRUTH = {"1": True, "true": True, "0": False, "false": False}
MOST = 1 << 53  # what JavaScript and the index can hold


def text(most: int = 1000, **more: Any) -> dict[str, Any]:
    """Return the schema of a text."""
    return {"type": "string", "maxLength": most, **more}


def whole(least: int = 0, most: int = MOST, **more: Any) -> dict[str, Any]:
    """Return the schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def number(least: float = 0, most: float = 1e9, **more: Any) -> dict[str, Any]:
    """Return the schema of a number."""
    return {"type": "number", "minimum": least, "maximum": most, **more}


def one_of(*values: str, **more: Any) -> dict[str, Any]:
    """Return the schema of one of these words."""
    return {"type": "string", "enum": list(values), **more}


FLAG: dict[str, Any] = {"type": "boolean"}


def read_query(pairs: Iterable[tuple[str, str]], schema: Schema) -> dict[str, Any]:
    """Return the values of a query string, converted, with defaults. Raises `BadInput`."""
    values: dict[str, Any] = {}
    for name, given in pairs:
        if name in values:
            raise BadInput(f"{quote(name)} is given twice; give it once.")
        one = schema["properties"].get(name)
        values[name] = given if one is None else _convert(name, given, one)
    return read_object(values, schema)


def _convert(name: str, given: str, schema: Schema) -> Any:
    kind = schema["type"]
    try:
        if kind == "boolean":
            return _TRUTH[given.lower()]
        return int(given) if kind == "integer" else float(given) if kind == "number" else given
    except (KeyError, ValueError):
        raise BadInput(f"{quote(name)} must be {_WORDS.get(kind, 'true or false')}, not {quote(given)}.") from None


def read_object(given: Any, schema: Schema, where: str = "The request") -> dict[str, Any]:
    """Return an object that fits its schema, with defaults. Raises `BadInput`."""
    _check(given, schema, where)
    defaults = {name: one["default"] for name, one in schema["properties"].items() if "default" in one}
    return {**defaults, **given}


def _check(given: Any, schema: Schema, where: str) -> None:
    kind: str = schema["type"]
    fits: bool = isinstance(given, _KINDS[kind])
    if not fits or (isinstance(given, bool) and kind != "boolean"):
        raise BadInput(f"{where} must be {_WORDS.get(kind, 'true or false')}.")
    if "enum" in schema and given not in schema["enum"]:
        raise BadInput(f"{where} must be one of {', '.join(schema['enum'])}, not {quote(given)}.")
    if kind in ("integer", "number"):
        _check_range(given, schema, where, "")
    elif kind == "string":
        _check_range(
            len(given), {"minimum": schema.get("minLength"), "maximum": schema.get("maxLength")}, where, _CHARS
        )
    elif kind == "array":
        _check_range(
            len(given), {"minimum": schema.get("minItems"), "maximum": schema.get("maxItems")}, where, " items"
        )
        for one in given:
            _check(one, schema["items"], f"Each of {where}")
    elif kind == "object":
        _check_members(given, schema, where)


_CHARS = " characters"


def _check_range(value: float, schema: Schema, where: str, unit: str) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if not math.isfinite(value) or (least is not None and value < least) or (most is not None and value > most):
        says = "have" if unit else "be"
        bound = f"{least if least is not None else 0} to {most}" if most is not None else f"at least {least}"
        raise BadInput(f"{where} must {says} {bound}{unit}.")


def _check_members(given: Mapping[str, Any], schema: Schema, where: str) -> None:
    known = schema["properties"]
    for name in schema.get("required", ()):
        if name not in given:
            raise BadInput(f"{where} needs {quote(name)}.")
    for name, value in given.items():
        if name not in known:
            raise BadInput(f"{where} has no {quote(name)}; known are {', '.join(known) or 'none'}.")
        _check(value, known[name], quote(name))


def object_of(properties: Mapping[str, Schema], *required: str) -> dict[str, Any]:
    """Return the schema of an object that has no other members."""
    found: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**found, "required": list(required)} if required else found
