"""Who may use the page: the link with the token once, then a cookie; programs send the token with each request.

A cookie of 127.0.0.1 goes to every port of it, also to a server that a task started. So the cookie alone only reads:
what changes something also needs a key that the page keeps in the storage of its origin, which no other port sees.
"""

from __future__ import annotations

import hmac
import os

from outlast.light import json
from outlast.listener import Guard, send_closing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from starlette.types import ASGIApp, Receive, Scope, Send

    from outlast.listener import Headers, Refusal

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_NOT_STORED = (b"cache-control", b"no-store")
_KEY = b"x-outlast-key"
_READS = ("GET", "HEAD")
_LONGEST_QUERY = 300  # of the link
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Outlast</title>
<h1>This page needs its link</h1>
<p>Open the link that <code>outlast serve</code> printed. It works until that server ends.</p></html>
"""


class PageGuard(Guard):
    """Lets through what comes from our page or has the token, and gives every answer the headers of `HEADERS`."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], port: int) -> None:
        super().__init__(app, token, hosts)
        self._token, self._name = token, f"outlast-{port}"
        # Neither of the two is the token: what leaves the server cannot be turned back into it.
        self._cookie, self._key = (os.urandom(32).hex() for _ in range(2))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_protected(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = [(name, value) for name, value in message["headers"] if name != b"server"]
                stored = any(name == b"cache-control" for name, _ in given)
                message["headers"] = [*given, *HEADERS, *(() if stored else (_NOT_STORED,))]
            await send(message)

        if scope["type"] == "http" and self._is_link(scope) and self.names_us(scope):
            await self._follow_link(scope, receive, send_protected)
        else:
            await super().__call__(scope, receive, send_protected)

    # --- the link --------------------------------------------------------------------------

    def _is_link(self, scope: Scope) -> bool:
        query: bytes = scope["query_string"]
        is_link = scope["method"] == "GET" and scope["path"] == "/" and query.startswith(b"token=")
        return is_link and len(query) < _LONGEST_QUERY

    async def _follow_link(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set the cookie, and hand the key to the page in a fragment, which no browser sends anywhere."""
        given = scope["query_string"].removeprefix(b"token=")
        if not hmac.compare_digest(given, self._token.encode()):
            await self.answer((401, _PAGE), scope, receive, send)
            return
        cookie = f"{self._name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"
        headers = [(b"location", f"/#key={self._key}".encode()), (b"set-cookie", cookie.encode())]
        self.admit(scope)
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    # --- every request ---------------------------------------------------------------------

    def refuse(self, scope: Scope, headers: Headers) -> Refusal | None:
        is_change = scope["method"] not in _READS
        if not self.has_token(headers):
            if not self._has_cookie(headers):
                return 401, "Open the link that `outlast serve` printed, or send Authorization: Bearer TOKEN."
            if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
                return 403, "Pages of other origins may not use this server."
            if is_change and b"origin" not in headers:
                return 403, "What changes something has to say its origin."
            if is_change and not hmac.compare_digest(headers.get(_KEY, b""), self._key.encode()):
                return 403, "Open the link that `outlast serve` printed once more: this page has lost its key."
        if is_change and headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
            return 415, "What changes something is sent as application/json."
        return None

    def _has_cookie(self, headers: Headers) -> bool:
        given = (one.strip().partition(b"=") for one in headers.get(b"cookie", b"").split(b";"))
        values = [value for name, _, value in given if name == self._name.encode()]
        return len(values) == 1 and hmac.compare_digest(values[0], self._cookie.encode())

    async def answer(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        status, said = refusal
        if status == 401 and scope["path"] == "/":
            await send_closing(receive, send, status, _PAGE, "text/html; charset=utf-8")
            return
        codes = {401: "no-token", 403: "no-key" if "its key" in said else "forbidden", 415: "wrong-content-type"}
        body = json.dumps({"error": codes[status], "message": said.strip()})
        await send_closing(receive, send, status, body, "application/json")
