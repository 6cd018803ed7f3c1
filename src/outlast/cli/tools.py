"""`outlast tools` and `call`: the tools for models, as JSON and as one call."""

from __future__ import annotations

import json
import os
import sys

from outlast.cli.arguments import Asked, Parser
from outlast.cli.common import write
from outlast.errors import BadInput, quote
from outlast.settings import default_home, load
from outlast.shell.validation import session_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

_PROFILES = "default, neovate, jido, registry, mycode or spec"


def tools_parser() -> Parser:
    """Return the options of `outlast tools`."""
    made = Parser(
        "tools",
        "Print the tools for models as JSON: names, descriptions and schemas, in the form that an API takes.",
        "  outlast tools                                the smallest complete set, for Anthropic's API\n"
        "  outlast tools --format openai\n"
        "  outlast tools --profile spec --format mcp    under the names of another design",
    )
    made.add("--profile", default="default", metavar="P", help=f"whose names: {_PROFILES}")
    made.add("--format", default="anthropic", metavar="F", help="the form: anthropic, openai or mcp")
    made.add("--read-only", action="store_true", help="only those that neither run nor end anything")
    return made


def tools(asked: Asked) -> int:
    """Do what `outlast tools` asks; returns the exit code."""
    from outlast.tools import adapters, policy
    from outlast.tools.profiles import profile_named

    if asked.format not in adapters.FORMATS:
        raise BadInput(f"There is no format {quote(asked.format)}; use one of {', '.join(adapters.FORMATS)}.")
    profile = profile_named(asked.profile)
    by = policy.choose(profile, load(default_home(os.environ), os.environ))
    listed = adapters.as_dictionaries(asked.format, adapters.list_offered(profile, write=not asked.read_only), by)
    write(json.dumps(listed, ensure_ascii=False, indent=2) + "\n")
    return 0


def call_parser() -> Parser:
    """Return the options of `outlast call`."""
    made = Parser(
        "call",
        "Call a tool as a model would, and print the reply. The arguments are one JSON object.",
        """  outlast call bash '{"command": "make test"}'\n"""
        """  outlast call Bash '{"command": "pwd"}' --profile spec --session chat-7\n"""
        """  echo '{"command": "ls"}' | outlast call bash -    the arguments from standard input\n"""
        "\nexit code: 0; 1 if the reply is an error; 2 for wrong usage.",
    )
    made.add("tool", metavar="TOOL", help="the name of the tool")
    made.add("arguments", metavar="JSON", help="its arguments, or - for standard input")
    made.add("--profile", default="default", metavar="P", help=f"whose names: {_PROFILES}")
    return made.takes_session()


def call(asked: Asked) -> int:
    """Do what `outlast call` asks; returns the exit code."""
    text = sys.stdin.buffer.read().decode(errors="surrogateescape") if asked.arguments == "-" else asked.arguments
    try:
        given = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"The arguments are not JSON ({error}); write one object, such as '{{}}'.") from None
    from outlast.tools.toolbox import Toolbox

    # Named, whichever it is: what one call changes in its session is there for the next call.
    session = asked.session if asked.session is not None else load(default_home(os.environ), os.environ).session
    # Typing the call is the consent to it. The policy decides all the same.
    with Toolbox.open(session=session_name(session), profile=asked.profile, consent=True, prepare=False) as box:
        reply = box.call(asked.tool, given)
    write(reply.text if reply.text.endswith("\n") else reply.text + "\n")
    return 1 if reply.error else 0
