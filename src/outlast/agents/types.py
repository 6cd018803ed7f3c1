"""Types of agents that are commands: their templates, built in or from the settings; a prompt as a command line."""

from __future__ import annotations

import shlex

from outlast.errors import BadInput, quote
from outlast.light import frozen, replace
from outlast.types import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT = "{prompt}"
STREAM_JSON, CODEX, ACP, TEXT = FORMATS = ("stream-json", "codex", "acp", "text")
LONGEST_PROMPT = 500_000  # characters
_LONGEST_WORD_BYTES = 128 * 1024 - 1  # of one argument, for the kernel
_KEYS = ("command", "format", "pass", "allow", "description")


@frozen
class Type:
    """A type of agent that is a command line.

    Without `{prompt}` in it the prompt is its standard input, which no option parser reads. `passes` are the names of
    secret variables that it gets, `format` is how what it prints is to be understood. `allow`: an agent that asks
    over ACP whether it may use a tool is told yes, not no.
    """

    name: str
    command: str
    format: str
    passes: tuple[str, ...] = ()
    description: str = ""
    allow: bool = False


@frozen
class Agent(Task):
    """An agent, as those see it who know only running, completed and failed: what was stopped shows as failed."""

    id: str
    type: str


@frozen
class Stopped:
    """What became of a wish to stop an agent."""

    success: bool
    message: str
    id: str
    status: str


BUILT_IN = {
    "claude": Type(
        "claude",
        "claude -p --output-format stream-json --verbose",
        STREAM_JSON,
        ("ANTHROPIC_*", "CLAUDE_*"),
        "Claude Code, without a terminal",
    ),
    "codex": Type("codex", "codex exec --json -", CODEX, ("OPENAI_*", "CODEX_*"), "Codex, without a terminal"),
    "gemini": Type("gemini", "gemini --acp", ACP, ("GEMINI_*", "GOOGLE_*"), "Gemini, over ACP"),
}


def known(settings: Mapping[str, object]) -> dict[str, Type]:
    """The built-in types and those of the settings, which come first."""
    return {**BUILT_IN, **{name: from_settings(name, value) for name, value in settings.items()}}


def from_settings(name: str, value: object) -> Type:
    """A type as it stands in the settings: a command line, or a table with one."""
    where = f"The agent {quote(name)} in the settings"
    if isinstance(value, str):
        value = {"command": value}
    if not isinstance(value, dict) or not isinstance(value.get("command"), str):
        raise BadInput(f"{where} is a command line, or a table with a command; write one.")
    if unknown := [key for key in value if key not in _KEYS]:
        raise BadInput(f"{where} has no key {quote(unknown[0])}; known are {', '.join(_KEYS)}.")
    passes = value.get("pass", [])
    if not isinstance(passes, list) or not all(isinstance(one, str) for one in passes):
        raise BadInput(f"{where}: pass is a list of names of variables.")
    if not isinstance(value.get("allow", False), bool):
        raise BadInput(f"{where}: allow is true or false.")
    usual = BUILT_IN.get(name)
    found = make_type(name, value["command"], value.get("format"))
    return replace(
        found,
        passes=tuple(passes) if "pass" in value or usual is None else usual.passes,
        description=str(value.get("description", "")),
        allow=value.get("allow", False),
    )


def make_type(name: str, command: str, format: object = None) -> Type:
    """A type, checked. A format that is not given is guessed from the command."""
    words = _words(name, command)
    if format is None:
        format = _guess_format(words)
    if format not in FORMATS:
        raise BadInput(f"There is no format {quote(format)} of agents; known are {', '.join(FORMATS)}.")
    return Type(name, command, str(format))


def _words(name: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"The command of the agent {quote(name)} cannot be read: {error}; close the quotes.") from None
    if not words:
        raise BadInput(f"The command of the agent {quote(name)} is empty; say what to run.")
    return words


def _guess_format(words: list[str]) -> str:
    if "stream-json" in words or "--output-format=stream-json" in words:
        return STREAM_JSON
    if "--json" in words and "exec" in words:
        return CODEX
    return ACP if any(word.endswith("acp") for word in words) else TEXT


def command_line(type: Type, prompt: str) -> tuple[str, str]:
    """The command line for a prompt, and what is its standard input."""
    words = _words(type.name, type.command)
    if not any(PROMPT in word for word in words):
        return shlex.join(words), prompt
    # A prompt must not be taken for an option. A blank before it means nothing to a model.
    safe = f" {prompt}" if prompt.startswith("-") else prompt
    filled = [word.replace(PROMPT, safe if word.startswith(PROMPT) else prompt) for word in words]
    if any(len(word.encode("utf-8", "surrogateescape")) > _LONGEST_WORD_BYTES for word in filled):
        raise BadInput(
            f"The prompt is too long for an argument of the agent {quote(type.name)}; "
            f"take {PROMPT} out of its command, and it gets the prompt on its standard input."
        )
    return shlex.join(filled), ""


def check_prompt(prompt: object) -> str:
    """A prompt that can be given."""
    if not isinstance(prompt, str):
        raise BadInput(f"A prompt is text, not {prompt.__class__.__name__}.")
    if not prompt.strip():
        raise BadInput("The prompt is empty; say what the agent is to do.")
    if "\0" in prompt:
        raise BadInput("The prompt contains a NUL byte, which no program can be given; remove it.")
    try:
        prompt.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadInput("The prompt contains half a surrogate pair, which is no character; remove it.") from None
    if len(prompt) > LONGEST_PROMPT:
        raise BadInput(f"The prompt has {len(prompt)} characters and at most {LONGEST_PROMPT} are taken; shorten it.")
    return prompt
