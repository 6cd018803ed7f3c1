"""`outlast mcp`: the MCP server."""

from __future__ import annotations

import os

from outlast.cli.arguments import Asked, Parser
from outlast.errors import Unsupported
from outlast.settings import default_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass


def mcp_parser() -> Parser:
    """Return the options of `outlast mcp`."""
    made = Parser(
        "mcp",
        "Serve the tools for models over MCP: to the one client that started this, or over HTTP.",
        "  outlast mcp                          over standard input and output\n"
        "  outlast mcp --profile spec           under the names of another design\n"
        "  outlast mcp --http 127.0.0.1:8931    over Streamable HTTP, with a token",
    )
    made.add("--http", metavar="HOST:PORT", help="listen there; without HOST on 127.0.0.1")
    made.add(
        "--profile",
        default="default",
        metavar="P",
        help="whose names: default, neovate, jido, registry, mycode or spec",
    )
    made.add(
        "--session",
        metavar="S",
        help="the session (default: $OUTLAST_SESSION, else one for each client and directory)",
    )
    made.takes_policy()
    made.add("--read-only", action="store_true", help="only tools that neither run nor end anything")
    made.add("--yolo", action="store_true", help="do not ask the client's user about anything; what is denied stays so")
    return made


def mcp(asked: Asked) -> int:
    """Do what `outlast mcp` asks; returns the exit code."""
    from outlast.mcp import http, stdio
    from outlast.mcp.options import Options, chosen_session
    from outlast.tools.profiles import profile_named

    home = default_home(os.environ)
    where = http.address(asked.http) if asked.http is not None else None
    options = Options(
        home=home,
        profile=profile_named(asked.profile).name,
        session=chosen_session(asked.session, home),
        read_only=asked.read_only,
        yolo=asked.yolo,
        policy=asked.policy or "",
    )
    _load()
    return stdio.serve(options) if where is None else http.serve(options, *where)


def _load() -> None:
    """The SDK. It makes a thousand classes, none of which is ever garbage: looking for some costs a seventh more."""
    import gc

    from outlast.mcp.lazy_sdk import defer_unused_parts

    gc.disable()
    defer_unused_parts()
    try:
        import outlast.mcp.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"The MCP server needs the package 'mcp' ({error.name} is missing); run: pip install 'outlast[mcp]'."
        ) from None
    finally:
        gc.enable()
    gc.freeze()
