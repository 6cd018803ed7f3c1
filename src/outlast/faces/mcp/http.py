"""`outlast mcp --http`: Streamable HTTP for whoever has the token, on one address.

A page in a browser can reach a loopback port, and a name that an attacker owns can be made
to point there: so besides the token, Host and Origin have to be ours.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import sys

from outlast.errors import BadInput, SystemRefused, named
from outlast.notices.seal import read_or_create_secret
from outlast.storage.layout import open_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from outlast.faces.mcp.options import Options

PATH = "/mcp"
VARIABLE = "OUTLAST_HTTP_TOKEN"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_EVERYWHERE = ("0.0.0.0", "::", "*")
_SHORTEST_TOKEN = 16
_LEAVE_S = 1  # for streams that are still open


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, :PORT or PORT; without a host the loopback one."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or _LOOPBACK[0]
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{named(text)} is no address; give HOST:PORT, such as 127.0.0.1:8931.")
    if host in _EVERYWHERE:
        raise BadInput(f"{named(host)} would listen everywhere; give one address of this machine.")
    return host, int(port)


def token(home: str) -> tuple[str, str]:
    """What a client has to know, and where it is from."""
    if given := os.environ.get(VARIABLE):
        if len(given) < _SHORTEST_TOKEN or not given.isascii() or not given.isprintable() or " " in given:
            raise BadInput(f"${VARIABLE} must have {_SHORTEST_TOKEN} or more letters and digits, and no blanks.")
        return given, f"${VARIABLE}"
    directory = os.path.join(open_home(home).path, "mcp")
    return read_or_create_secret(directory, "token"), os.path.join(directory, "token")


def serve(options: Options, host: str, port: int) -> int:
    """Serve until we are told to leave. Tasks go on."""
    known, where = token(options.home)
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    # On a terminal somebody reads it; anything else may be a log.
    how = f"token: {known}" if sys.stdout.isatty() else f"the token is in {where}"
    print(f"http://{shown}:{port}{PATH} ({how})", flush=True)

    import uvicorn

    from outlast.faces.mcp.server import build

    async def talk() -> None:
        from mcp.server.transport_security import TransportSecuritySettings

        server = build(options, shared=True)
        # The guard checks more than the SDK would.
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        config = uvicorn.Config(
            Guard(app, known, hosts(host, port)),
            log_level="error",
            access_log=False,
            timeout_graceful_shutdown=_LEAVE_S,
        )
        await uvicorn.Server(config).serve(sockets=[listening])

    asyncio.run(talk())
    return 0


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, reuse_port=False
        )
    except OSError as error:
        raise SystemRefused(f"Nobody can listen on {host}:{port}: {error.strerror}; give another address.") from None


def hosts(host: str, port: int) -> frozenset[str]:
    """What a client may call us."""
    names = _LOOPBACK if host in _LOOPBACK else (host,)
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


class Guard:
    """Lets through only who knows the token, calls us by our name, and is no page of somebody else's."""

    def __init__(self, app: ASGIApp, known: str, hosts: frozenset[str]) -> None:
        self._app, self._known, self._hosts = app, f"Bearer {known}".encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, said = self._judged(scope["headers"])
        if status == 200:
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        if status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="outlast"'))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": said.encode()})

    def _judged(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str]:
        # Whatever a header is given twice for, it counts as wrong: others may choose differently than we would.
        said: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            said.setdefault(name.lower(), []).append(value)
        host, origin, token = (b", ".join(said.get(name, [])) for name in (b"host", b"origin", b"authorization"))
        if host.decode("latin-1").lower() not in self._hosts:
            return 403, "This server answers only under its own name and port.\n"
        if origin and origin.decode("latin-1").lower().partition("://")[2] not in self._hosts:
            return 403, "Pages of other origins may not use this server.\n"
        if not hmac.compare_digest(token, self._known):
            return 401, "Give the token: Authorization: Bearer TOKEN.\n"
        return 200, ""
