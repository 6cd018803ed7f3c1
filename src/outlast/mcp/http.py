"""`outlast mcp --http`: Streamable HTTP on one address, for clients that have the token."""

from __future__ import annotations

import asyncio
import os
import sys

from outlast.errors import BadInput, quote
from outlast.listener import LOOPBACK, VARIABLE, Guard, given_token, hosts, listen
from outlast.listener import serve as serve_app
from outlast.notices.signer import read_or_create_secret
from outlast.storage.layout import open_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.mcp.options import Options

PATH = "/mcp"
_EVERYWHERE = ("0.0.0.0", "::", "*")


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT, :PORT or PORT; without a host it is the loopback one."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK[0]
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{quote(text)} is no address; give HOST:PORT, such as 127.0.0.1:8931.")
    if host in _EVERYWHERE:
        raise BadInput(f"{quote(host)} would listen everywhere; give one address of this machine.")
    return host, int(port)


def token(home: str) -> tuple[str, str]:
    """Return the token and where it comes from: the variable, or a file that is created the first time."""
    if given := given_token():
        return given, f"${VARIABLE}"
    directory = os.path.join(open_home(home).path, "mcp")
    return read_or_create_secret(directory, "token"), os.path.join(directory, "token")


def serve(options: Options, host: str, port: int) -> int:
    """Serve until a signal ends us. Tasks go on."""
    known, where = token(options.home)
    listening = listen(host, port)
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    # A person reads a terminal; anything else may be a log.
    how = f"token: {known}" if sys.stdout.isatty() else f"the token is in {where}"
    print(f"http://{shown}:{port}{PATH} ({how})", flush=True)

    from outlast.mcp.server import build

    async def talk() -> None:
        from mcp.server.transport_security import TransportSecuritySettings

        server = build(options, shared=True)
        # The guard checks more than the SDK would.
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        await serve_app(Guard(app, known, hosts(host, port)), listening)

    asyncio.run(talk())
    return 0
