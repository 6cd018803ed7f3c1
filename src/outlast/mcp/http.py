"""`outlast mcp --http`: Streamable HTTP on one address, for clients that have the token.

A page in a browser can reach a loopback port, and a name that an attacker owns can be made to point there: so besides
the token, Host and Origin have to be ours.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import resource
import socket
import sys

from outlast.errors import BadInput, SystemRefused, named
from outlast.notices.signing import read_or_create_secret
from outlast.storage.layout import open_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from starlette.types import ASGIApp, Receive, Scope, Send

    from outlast.mcp.options import Options

PATH = "/mcp"
VARIABLE = "OUTLAST_HTTP_TOKEN"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_EVERYWHERE = ("0.0.0.0", "::", "*")
_SHORTEST_TOKEN = 16
_LEAVE_S = 1  # for streams that are still open
_SHOW_TOKEN_S = 10.0  # from the connection to the end of the headers: a slow network takes a second
_MOST_UNAUTHENTICATED = 256  # connections that have not shown the token: far more than clients that connect at once
_CONNECTION = "outlast.connection"  # in the state of a request


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT, :PORT or PORT; without a host it is the loopback one."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or _LOOPBACK[0]
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{named(text)} is no address; give HOST:PORT, such as 127.0.0.1:8931.")
    if host in _EVERYWHERE:
        raise BadInput(f"{named(host)} would listen everywhere; give one address of this machine.")
    return host, int(port)


def token(home: str) -> tuple[str, str]:
    """Return the token and where it comes from: the variable, or a file that is created the first time."""
    if given := os.environ.get(VARIABLE):
        if len(given) < _SHORTEST_TOKEN or not given.isascii() or not given.isprintable() or " " in given:
            raise BadInput(f"${VARIABLE} must have {_SHORTEST_TOKEN} or more letters and digits, and no blanks.")
        return given, f"${VARIABLE}"
    directory = os.path.join(open_home(home).path, "mcp")
    return read_or_create_secret(directory, "token"), os.path.join(directory, "token")


def serve(options: Options, host: str, port: int) -> int:
    """Serve until a signal ends us. Tasks go on."""
    known, where = token(options.home)
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    # A person reads a terminal; anything else may be a log.
    how = f"token: {known}" if sys.stdout.isatty() else f"the token is in {where}"
    print(f"http://{shown}:{port}{PATH} ({how})", flush=True)

    import uvicorn

    from outlast.mcp.server import build

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
            http=_bounded_protocol(),
            ws="none",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_LEAVE_S,
        )
        await uvicorn.Server(config).serve(sockets=[listening])

    asyncio.run(talk())
    return 0


def _bounded_protocol() -> type[asyncio.Protocol]:
    """Return the protocol of a connection that is closed unless it shows the token in time.

    Only so many connections may be without it: a new one takes the place of the oldest. So no number of them keeps a
    client with the token out, or takes the descriptors that its commands need.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    most = min(_MOST_UNAUTHENTICATED, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    unauthenticated: dict[Bounded, None] = {}  # oldest first

    class Bounded(H11Protocol):
        def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], *more: Any, **how: Any) -> None:
            super().__init__(config, server_state, {**app_state, _CONNECTION: self}, *more, **how)
            self._deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(_SHOW_TOKEN_S, transport.abort)
            unauthenticated[self] = None
            if len(unauthenticated) > most:
                oldest = next(iter(unauthenticated))
                oldest.admit()  # which frees its place at once; the loss of the connection comes later
                oldest.transport.abort()

        def admit(self) -> None:
            """The connection has shown the token, or is closed."""
            unauthenticated.pop(self, None)
            if self._deadline is not None:
                self._deadline.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            self.admit()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            try:
                super().data_received(data)
            except Exception:  # what such a client sends must not fill the log
                self.transport.abort()

    return Bounded


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, reuse_port=False
        )
    except OSError as error:
        raise SystemRefused(f"Cannot listen on {host}:{port}: {error.strerror}; give another address.") from None


def hosts(host: str, port: int) -> frozenset[str]:
    """Return the values of Host that name this server."""
    names = _LOOPBACK if host in _LOOPBACK else (host,)
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


class Guard:
    """Lets through only requests with the token, under our own name, and not from a page of another origin."""

    def __init__(self, app: ASGIApp, known: str, hosts: frozenset[str]) -> None:
        self._app, self._known, self._hosts = app, f"Bearer {known}".encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        status, said = self._check(scope["headers"])
        connection = scope.get("state", {}).get(_CONNECTION)
        if status == 200:
            if connection is not None:
                connection.admit()
            await self._app(scope, receive, send)
            return
        # Closed: a client without the token does not keep a connection, nor send a body.
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        if status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="outlast"'))
        try:
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": said.encode()})
        except Exception:  # it was no HTTP, and was answered so: no line in the log for each of them
            if connection is None:
                raise
            connection.transport.abort()
            while (await receive())["type"] != "http.disconnect":
                pass

    def _check(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str]:
        # A header that is given twice counts as wrong: another reader may take the other one.
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
