"""`outlast serve`: the web page."""

from __future__ import annotations

import os

from outlast.cli.arguments import Asked, Parser, whole
from outlast.errors import BadInput, Unsupported
from outlast.settings import default_home

_HIGHEST_PORT = 65535


def serve_parser() -> Parser:
    """Return the options of `outlast serve`."""
    made = Parser(
        "serve",
        "Serve a web page with all tasks of the state directory, on this machine only. Prints its link.",
        "  outlast serve              on port 8930, or another one if that is taken\n"
        "  outlast serve --open       and open the browser\n"
        "  outlast serve --port 9000  on this port",
    )
    made.add("--port", type=whole, metavar="N", help="listen on this port; 0: on any that is free")
    made.add("--open", action="store_true", help="open the link in the browser")
    made.takes_policy()
    return made


def serve(asked: Asked) -> int:
    """Do what `outlast serve` asks; returns the exit code."""
    if asked.port is not None and not 0 <= asked.port <= _HIGHEST_PORT:
        raise BadInput(f"{asked.port} is no port; give a number from 0 to {_HIGHEST_PORT}.")
    _check_packages()
    from outlast.web.serve import serve as serve_page

    return serve_page(default_home(os.environ), asked.port, asked.policy, opens=asked.open)


def _check_packages() -> None:
    try:
        import sse_starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"The web page needs more packages ({error.name} is missing); run: pip install 'outlast[web]'."
        ) from None
