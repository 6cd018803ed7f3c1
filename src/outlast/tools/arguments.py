"""What a model gives a tool: the JSON schema that says it, and the check that holds it to that.

A model that is told what is wrong, by name, gets it right the second time.
"""

from __future__ import annotations

from math import isfinite

from outlast.errors import BadInput, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from outlast.tools.model import Tool

IDS = ("task_id", "bash_id", "shell_id", "id")  # they name the same thing, in every profile
_WORDS = {
    "string": "text",
    "boolean": "true or false",
    "number": "a number",
    "integer": "a whole number",
    "array": "a list of texts",
    "null": "null",
}


def schema(required: Sequence[str] = (), /, **parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a tool's parameters, in the order given."""
    return {"type": "object", "properties": parameters, "required": list(required)}


def text(description: str = "") -> dict[str, Any]:
    return {"type": "string", **({"description": description} if description else {})}


def number(description: str, least: float | None = 0) -> dict[str, Any]:
    return {"type": "number", "description": description, **({} if least is None else {"minimum": least})}


def whole(description: str, least: int = 0) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": least}


def flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


def words(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def checked(tool: Tool, given: object) -> tuple[dict[str, Any], list[str]]:
    """The arguments if they are right, under the schema's names, and what the reply has to say about them.

    Models add parameters that they know from other tools (`description` most of all): the call goes on without them,
    and they are named. What is null was left out. Numbers and flags may come as text.
    """
    if not isinstance(given, dict):
        raise BadInput(f"The arguments of {tool.name} are one JSON object, not {_kind(given)}.")
    known: Mapping[str, Any] = tool.schema["properties"]
    named_well = _with_own_id(tool, known, {key: value for key, value in given.items() if value is not None})
    remarks: list[str] = []
    if tool.understand:
        named_well, remarks = tool.understand(named_well)
    unknown = [key for key in named_well if key not in known]
    if missing := [key for key in tool.schema["required"] if key not in named_well]:
        also = f"; {', '.join(map(named, unknown))} is not known" if unknown else ""
        raise BadInput(f"{tool.name} needs {' and '.join(map(named, missing))}{also}; give it.")
    taken = {key: _as_meant(key, value, known[key]) for key, value in named_well.items() if key in known}
    for key, value in taken.items():
        _check(key, value, known[key])
    if unknown:
        remarks.append(_ignored(unknown, tool))
    return taken, remarks


def _ignored(names: Sequence[str], tool: Tool) -> str:
    one = "is no parameter" if len(names) == 1 else "are no parameters"
    return f"Ignored: {', '.join(map(named, names))} {one} of {tool.name}."


def _as_meant(key: str, value: object, wanted: Mapping[str, Any]) -> object:
    """A number or a flag that came as text, an id or a cursor that came as a number, 20.0 for 20."""
    kind = wanted["type"]
    if isinstance(value, str) and kind in ("number", "integer", "boolean"):
        try:
            said = {"true": True, "false": False}[value.strip().lower()] if kind == "boolean" else float(value)
        except (KeyError, ValueError):
            return value
        value = said if isfinite(said) else value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if key in (*IDS, "cursor") and kind == "string" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _with_own_id(tool: Tool, known: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The same with the id under the name that this tool has for it."""
    own = next((name for name in IDS if name in known), None)
    others = [name for name in IDS if name in given and name != own]
    if own is None or not others:
        return given
    values = {str(given[name]) for name in (*others, *([own] if own in given else []))}
    if len(values) > 1:
        raise BadInput(f"{' and '.join(sorted(values))} are different tasks; give {tool.name} one {own}.")
    found = {own: given[others[0]]}
    return {**found, **{key: value for key, value in given.items() if key not in IDS}}


def _check(key: str, value: object, wanted: Mapping[str, Any]) -> None:
    types = wanted["type"] if isinstance(wanted["type"], list) else [wanted["type"]]
    if not any(_is(value, one) for one in types):
        raise BadInput(f"{named(key)} must be {' or '.join(_WORDS[one] for one in types)}, not {_kind(value)}.")
    if "minimum" in wanted and isinstance(value, (int, float)) and not value >= wanted["minimum"]:
        raise BadInput(f"{named(key)} must be {wanted['minimum']} or more, not {value}.")


def _is(value: object, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return value is None


def _kind(value: object) -> str:
    """What a JSON value is, in words."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {named(value)}"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case None:
            return "null"
    return type(value).__name__
