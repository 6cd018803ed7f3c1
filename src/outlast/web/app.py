"""The application: routes from the table, static files, and errors as JSON."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from json import JSONDecodeError, loads

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as StarletteRoute
from starlette.staticfiles import StaticFiles

from outlast.errors import BadInput, OutlastError
from outlast.light import json
from outlast.web.fields import object_of, read_object, read_query
from outlast.web.given import Given
from outlast.web.routes import ROUTES, STATIC, describe, status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from outlast.web.place import Place
    from outlast.web.routes import Route

MOST_BODY_BYTES = 1 << 20


def build(place: Place) -> Starlette:
    """Return the application of one state directory."""

    @asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        work = asyncio.create_task(place.run())
        try:
            yield
        finally:
            work.cancel()
            await asyncio.wait({work})
            await place.close()

    routes = [
        StarletteRoute("/", _page, methods=["GET"]),
        StarletteRoute("/openapi.json", _document, methods=["GET"]),
        *(StarletteRoute(one.path, _endpoint(one, place), methods=[one.method]) for one in ROUTES),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    refused: dict[Any, Any] = {HTTPException: _http_error, OutlastError: _our_error, OSError: _system_error}
    return Starlette(routes=routes, lifespan=running, exception_handlers=refused)


async def _page(request: Request) -> Response:
    return FileResponse(os.path.join(STATIC, "index.html"), headers={"cache-control": "no-cache"})


async def _document(request: Request) -> Response:
    return reply(describe())


def reply(value: Any, status: int = 200) -> Response:
    """Return a value as a JSON response."""
    return Response(json.dumps(value), status, media_type="application/json")


def _endpoint(route: Route, place: Place) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        query = read_query(request.query_params.multi_items(), route.query_schema)
        body = await _read_body(request, route) if route.method != "GET" else {}
        found = await route.handler(Given(place, request.path_params.get("id", ""), query, body))
        if isinstance(found, Response):
            return found
        return reply(found, 202 if "approval" in found else 200)

    return answer


async def _read_body(request: Request, route: Route) -> dict[str, Any]:
    data = b""
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > MOST_BODY_BYTES:
                raise BadInput(f"A request has at most {MOST_BODY_BYTES} bytes.")
    except ClientDisconnect:
        raise BadInput("The request ended too soon.") from None
    try:
        value = loads(data.decode() or "{}")
    except (UnicodeDecodeError, JSONDecodeError, RecursionError) as error:
        raise BadInput(f"The request is no JSON: {error}.") from None
    return read_object(value, route.body or object_of({}))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "unknown-path", 405: "wrong-method"}.get(error.status_code, "error")
    said = f"{error.detail}: {request.method} {request.url.path}."
    found = reply({"error": code, "message": said}, error.status_code)
    found.headers.update(error.headers or {})
    return found


async def _our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OutlastError)
    return reply({"error": error.code, "message": error.message}, status_of(error))


async def _system_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, OSError)
    said = f"The system refused what is needed: {error.strerror}; try again."
    return reply({"error": "system-refused", "message": said}, 503)
