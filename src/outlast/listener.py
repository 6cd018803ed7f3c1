"""What our HTTP servers share: a listening socket, who is let in, and bounded connections without a token.

A page in a browser can reach a loopback port, and a name that an attacker owns can be made to point there: so besides
the token, Host and Origin have to be ours.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import resource
import socket
from contextlib import suppress

from outlast.errors import BadInput, SystemRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from starlette.types import ASGIApp, Receive, Scope, Send

    Headers = dict[bytes, bytes]
    Refusal = tuple[int, str]

VARIABLE = "OUTLAST_HTTP_TOKEN"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SHORTEST_TOKEN = 16
_LEAVE_S = 1  # for streams that are still open
_LINGER_S = 1.0  # for the rest of a request that was refused
_SHOW_TOKEN_S = 10.0  # from the connection to the end of the headers: a slow network takes a second
_MOST_UNAUTHENTICATED = 256  # connections that have not shown the token: far more than clients that connect at once
_CONNECTION = "outlast.connection"  # in the state of a request


def given_token() -> str:
    """Return the token that the variable has; empty without one."""
    given = os.environ.get(VARIABLE, "")
    if given and (len(given) < _SHORTEST_TOKEN or not given.isascii() or not given.isprintable() or " " in given):
        raise BadInput(f"${VARIABLE} must have {_SHORTEST_TOKEN} or more letters and digits, and no blanks.")
    return given


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `SystemRefused`."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, reuse_port=False
        )
    except OSError as error:
        # `strerror` would say the address once more.
        why = os.strerror(error.errno) if error.errno else error
        raise SystemRefused(f"Cannot listen on {host}:{port}: {why}; give another port.") from None


def hosts(host: str, port: int) -> frozenset[str]:
    """Return the values of Host that name this server."""
    names = LOOPBACK if host in LOOPBACK else (host,)
    return frozenset(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names)


async def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serve an app behind a `Guard` until a signal ends us. It prints nothing, and logs no request."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http=_bounded_protocol(),
        ws="none",
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_LEAVE_S,
    )
    await uvicorn.Server(config).serve(sockets=[listening])


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


class Guard:
    """Lets through only requests with the token, under our own name, and not from a page of another origin."""

    def __init__(self, app: ASGIApp, known: str, hosts: frozenset[str]) -> None:
        self._app, self._known, self._hosts = app, f"Bearer {known}".encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = _join_headers(scope["headers"])
        refusal = self._refuse_foreign(headers) or self.refuse(scope, headers)
        if refusal is None:
            self.admit(scope)
            await self._app(scope, receive, send)
            return
        connection = scope.get("state", {}).get(_CONNECTION)
        try:
            await self.answer(refusal, scope, receive, send)
        except Exception:  # it was no HTTP, and was answered so: no line in the log for each of them
            if connection is None:
                raise
            connection.transport.abort()
            while (await receive())["type"] != "http.disconnect":
                pass

    def _refuse_foreign(self, headers: Headers) -> Refusal | None:
        host, origin = (headers.get(name, b"").decode("latin-1").lower() for name in (b"host", b"origin"))
        if host not in self._hosts:
            return 403, "This server answers only under its own name and port.\n"
        if origin and (not origin.startswith("http://") or origin[len("http://") :] not in self._hosts):
            return 403, "Pages of other origins may not use this server.\n"
        return None

    def has_token(self, headers: Headers) -> bool:
        return hmac.compare_digest(headers.get(b"authorization", b""), self._known)

    def refuse(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Return why a request under our own name is refused; None if it is let through."""
        return None if self.has_token(headers) else (401, "Give the token: Authorization: Bearer TOKEN.\n")

    def admit(self, scope: Scope) -> None:
        """The connection of this request has shown the token."""
        connection = scope.get("state", {}).get(_CONNECTION)
        if connection is not None:
            connection.admit()

    def names_us(self, scope: Scope) -> bool:
        """Return whether a request comes under our own name, and not from a page of another origin."""
        return self._refuse_foreign(_join_headers(scope["headers"])) is None

    async def answer(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is refused."""
        await send_closing(receive, send, *refusal, "text/plain; charset=utf-8")


async def send_closing(receive: Receive, send: Send, status: int, said: str, kind: str) -> None:
    """Answer and close: a client without the token does not keep a connection."""
    body = said.encode()
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="outlast"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    # A close with unread bytes resets the connection, and the client may lose the answer: read the request first.
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body", "body": b""})


def _join_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    # A header that is given twice counts as wrong: another reader may take the other one.
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        said.setdefault(name.lower(), []).append(value)
    return {name: b", ".join(values) for name, values in said.items()}
