"""What a model gives a tool: the JSON schema of its arguments, and the check against that schema.

A model that is told what is wrong, by name, gets it right the second time.
"""

from __future__ import annotations

from math import isfinite

from outlast.errors import BadInput, quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.tools.model import Tool

IDS = ("task_id", "bash_id", "shell_id", "id")  # names of the same thing, in every profile
# Each type of a JSON schema in words, and the Python types of its values.
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("text", (str,)),
    "boolean": ("true or false", (bool,)),
    "number": ("a number", (int, float)),
    "integer": ("a whole number", (int,)),
    "array": ("a list of texts", (list,)),
    "null": ("null", (type(None),)),
}


def schema(required: Sequence[str] = (), /, **parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a tool's parameters, in the order given."""
    return {"type": "object", "properties": parameters, "required": list(required)}


def text(description: str = "") -> dict[str, Any]:
    """Return the schema of a text."""
    return {"type": "string", **({"description": description} if description else {})}


def number(description: str) -> dict[str, Any]:
    """Return the schema of a number that is not negative."""
    return {"type": "number", "description": description, "minimum": 0}


def integer(description: str, least: int = 0) -> dict[str, Any]:
    """Return the schema of a whole number."""
    return {"type": "integer", "description": description, "minimum": least}


def flag(description: str) -> dict[str, Any]:
    """Return the schema of true or false."""
    return {"type": "boolean", "description": description}


def texts(description: str) -> dict[str, Any]:
    """Return the schema of a list of texts."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


def check(tool: Tool, given: object) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments under the schema's names, and what the reply has to say about them.

    Models add parameters that they know from other tools (`description` most of all): the call goes on without them,
    and they are named. A parameter that is null counts as left out. Numbers and flags may come as text.
    """
    if not isinstance(given, dict):
        raise BadInput(f"The arguments of {tool.name} are one JSON object, not {_describe(given)}.")
    known: Mapping[str, Any] = tool.schema["properties"]
    taken = _with_own_id(tool, {key: value for key, value in given.items() if value is not None})
    remarks: list[str] = []
    if tool.normalise:
        taken, remarks = tool.normalise(tool.name, taken)
    unknown = [key for key in taken if key not in known]
    if missing := [key for key in tool.schema["required"] if key not in taken]:
        also = f"; {', '.join(map(quote, unknown))} is not known" if unknown else ""
        raise BadInput(f"{tool.name} needs {' and '.join(map(quote, missing))}{also}; give it.")
    if unknown:
        are = "is no parameter" if len(unknown) == 1 else "are no parameters"
        remarks.append(f"Ignored: {', '.join(map(quote, unknown))} {are} of {tool.name}.")
    return {key: _check_value(key, value, known[key]) for key, value in taken.items() if key in known}, remarks


def _with_own_id(tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the id under the name that this tool has for it."""
    own = next((name for name in IDS if name in tool.schema["properties"]), None)
    names = [name for name in IDS if name in given]
    if own is None or names in ([], [own]):
        return given
    values = {str(given[name]) for name in names}
    if len(values) > 1:
        raise BadInput(f"{' and '.join(sorted(values))} are different tasks; give {tool.name} one {own}.")
    return {own: given[names[0]], **{key: value for key, value in given.items() if key not in IDS}}


def _check_value(key: str, value: object, wanted: Mapping[str, Any]) -> object:
    """Return a value as the schema wants it, or raise `BadInput`."""
    kinds: list[str] = wanted["type"] if isinstance(wanted["type"], list) else [wanted["type"]]
    value = _convert(key, value, kinds[0])
    if not any(_is(value, kind) for kind in kinds):
        raise BadInput(f"{quote(key)} must be {' or '.join(_TYPES[one][0] for one in kinds)}, not {_describe(value)}.")
    if "minimum" in wanted and isinstance(value, (int, float)) and not value >= wanted["minimum"]:
        raise BadInput(f"{quote(key)} must be {wanted['minimum']} or more, not {value}.")
    return value


def _convert(key: str, value: object, kind: str) -> object:
    """Convert a number or a flag that came as text, an id or a cursor that came as a number, 20.0 for 20."""
    if isinstance(value, str) and kind in ("number", "integer", "boolean"):
        try:
            meant = {"true": True, "false": False}[value.strip().lower()] if kind == "boolean" else float(value)
        except (KeyError, ValueError):
            return value
        value = meant if isfinite(meant) else value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if key in (*IDS, "cursor") and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind][1]):
        return isinstance(value, bool) and kind == "boolean"  # in Python, true is an int
    return not isinstance(value, list) or all(isinstance(one, str) for one in value)


def _describe(value: object) -> str:
    """Return what a JSON value is, in words."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {quote(value)}"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case None:
            return "null"
    return type(value).__name__
