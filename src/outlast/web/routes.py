"""The routes: one table from which come the routing, the checks of what a request brings, and the OpenAPI document."""

from __future__ import annotations

import os

from outlast import __version__
from outlast.errors import (
    BadInput,
    OutlastError,
    Refused,
    SystemRefused,
    UnknownSession,
    UnknownTask,
    Unsupported,
)
from outlast.light import frozen
from outlast.shell.approval_link import ANSWERS
from outlast.web import handlers
from outlast.web.catalogue import ORDERS
from outlast.web.fields import FLAG, number, object_of, one_of, text, whole
from outlast.web.output_view import MOST_LINES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    Handler = Callable[..., Awaitable[Any]]

JSON, STREAM, TEXT = "application/json", "text/event-stream", "text/plain"
LONGEST_COMMAND = 100_000
_STATUSES = {
    Refused: 403,
    UnknownTask: 404,
    UnknownSession: 404,
    BadInput: 400,
    Unsupported: 400,
    SystemRefused: 503,
}
_NOT_NOW = 409  # what can be asked for, and is not so at this moment


def status_of(error: OutlastError) -> int:
    """Return the HTTP status of an error of ours."""
    kinds = type(error).__mro__
    return next((status for kind, status in _STATUSES.items() if kind in kinds), _NOT_NOW)


@frozen
class Route:
    """One method of one path. `replies` is the type of what comes, `errors` what may go wrong besides bad input."""

    method: str
    path: str
    handler: Handler
    summary: str
    query: Mapping[str, Any] = {}
    needs: tuple[str, ...] = ()  # of the query
    body: Mapping[str, Any] | None = None
    replies: str = JSON
    errors: tuple[int, ...] = ()
    may_wait: bool = False  # for a yes of the user: then the answer is 202

    @property
    def query_schema(self) -> dict[str, Any]:
        return object_of(self.query, *self.needs)


_STREAMS = one_of("both", "stdout", "stderr", default="both")
_OF_TASK = (404, 409)
_SIDE = whole(1, 1000)  # of a terminal

ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/state", handlers.get_state, "What this server serves, and under which policy"),
    Route(
        "GET",
        "/api/tasks",
        handlers.list_tasks,
        "Tasks, a page of them",
        {
            "status": one_of("pending", "running", "completed", "failed", "killed", "error", "cancelled", "active"),
            "session": text(200),
            "kind": text(50),
            "q": text(500),
            "sort": one_of(*ORDERS, default="newest"),
            "limit": whole(1, 500, default=100),
            "offset": whole(0, default=0),
        },
    ),
    Route("GET", "/api/events", handlers.watch_overview, "What changes, as it happens", replies=STREAM),
    Route("GET", "/api/tasks/{id}", handlers.get_task, "Everything about one task", errors=_OF_TASK),
    Route(
        "GET",
        "/api/tasks/{id}/lines",
        handlers.read_lines,
        "Lines of its output; from -200 on: the last 200",
        {"stream": _STREAMS, "from": whole(-MOST_LINES, default=1), "count": whole(1, MOST_LINES, default=500)},
        errors=_OF_TASK,
    ),
    Route(
        "GET",
        "/api/tasks/{id}/follow",
        handlers.follow_task,
        "How one task goes on, until it is closed",
        replies=STREAM,
        errors=_OF_TASK,
    ),
    Route(
        "GET",
        "/api/tasks/{id}/search",
        handlers.search_lines,
        "Where its output matches a text or an expression",
        {
            "q": text(500, minLength=1),
            "regex": {**FLAG, "default": False},
            "case": {**FLAG, "default": False},
            "stream": _STREAMS,
            "limit": whole(1, 10_000, default=1000),
        },
        ("q",),
        errors=_OF_TASK,
    ),
    Route(
        "GET",
        "/api/tasks/{id}/first-error",
        handlers.find_first_error,
        "The line at which its first error begins",
        errors=_OF_TASK,
    ),
    Route(
        "GET",
        "/api/tasks/{id}/log",
        handlers.download_log,
        "Its output as a file, without secrets",
        {"stream": _STREAMS},
        replies=TEXT,
        errors=_OF_TASK,
    ),
    Route(
        "POST",
        "/api/tasks",
        handlers.start_task,
        "Start a command in the background",
        body=object_of(
            {
                "command": text(LONGEST_COMMAND, minLength=1),
                "cwd": text(4096),
                "session": text(200),
                "name": text(200),
                "description": text(1000),
                "limit": number(0, 1e9),
                "tty": {"type": "array", "items": _SIDE, "minItems": 2, "maxItems": 2},
                "stdin_open": FLAG,
                "sandbox": FLAG,
            },
            "command",
        ),
        errors=(403, 409),
        may_wait=True,
    ),
    Route(
        "POST",
        "/api/tasks/{id}/again",
        handlers.start_again,
        "Start the same command once more",
        errors=_OF_TASK,
        may_wait=True,
    ),
    Route(
        "GET",
        "/api/tasks/{id}/screen",
        handlers.get_screen,
        "The screen of its terminal, as it is now",
        errors=_OF_TASK,
    ),
    Route(
        "POST",
        "/api/tasks/{id}/resize",
        handlers.resize_screen,
        "Set the size of its terminal",
        body=object_of({"columns": _SIDE, "rows": _SIDE}, "columns", "rows"),
        errors=_OF_TASK,
    ),
    Route(
        "POST",
        "/api/check",
        handlers.check_command,
        "How the policy judges a command; nothing runs",
        body=object_of(
            {"command": text(LONGEST_COMMAND, minLength=1), "cwd": text(4096), "session": text(200)}, "command"
        ),
        errors=(409,),
    ),
    Route(
        "POST",
        "/api/tasks/{id}/kill",
        handlers.kill_task,
        "End its whole tree; returns when it is gone",
        body=object_of({"grace": number(0, 60)}),
        errors=_OF_TASK,
        may_wait=True,
    ),
    Route(
        "POST",
        "/api/tasks/{id}/send",
        handlers.send_input,
        "Send input to it, and end its input",
        body=object_of({"text": text(100_000), "keys": text(10_000), "eof": FLAG}),
        errors=_OF_TASK,
    ),
    Route("GET", "/api/approvals", handlers.list_approvals, "The questions that wait for an answer"),
    Route(
        "POST",
        "/api/approvals/{id}",
        handlers.answer_approval,
        "Answer a question: for this time, for its session, or always",
        body=object_of({"answer": one_of(*ANSWERS)}, "answer"),
        errors=(404,),
    ),
    Route("DELETE", "/api/tasks/{id}", handlers.remove_task, "Remove it, if it is over", errors=_OF_TASK),
    Route(
        "GET",
        "/api/notices",
        handlers.list_notices,
        "The latest notices, oldest first",
        {"most": whole(1, 1000, default=100)},
    ),
    Route("GET", "/metrics", handlers.get_metrics, "Numbers for Prometheus", replies=TEXT),
    Route(
        "GET",
        "/api/timeline",
        handlers.get_timeline,
        "Tasks of the last minutes, with their beginnings and ends",
        {"minutes": whole(1, 10_080, default=60), "limit": whole(1, 5000, default=1000)},
    ),
)
STATIC = os.path.join(os.path.dirname(__file__), "static")


# --- the document ------------------------------------------------------------------------

_ERROR = object_of({"error": text(), "message": text()}, "error", "message")
_SAID = {400: "Bad input", 401: "No token", 403: "Refused", 404: "Unknown", 409: "Not as it is now", 415: "No JSON"}


def describe() -> dict[str, Any]:
    """Return the OpenAPI document of the table."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outlast", "version": __version__, "description": "Tasks of one state directory."},
        "paths": paths,
        "components": {"securitySchemes": schemes, "schemas": {"Error": _ERROR}},
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [
            {"name": name, "in": "query", "required": name in route.needs, "schema": schema}
            for name, schema in route.query.items()
        ],
        "responses": _responses(route),
    }
    if "{id}" in route.path:
        schema = text(200, minLength=1)
        found["parameters"].append({"name": "id", "in": "path", "required": True, "schema": schema})
    if route.method != "GET":
        body = route.body or object_of({})
        found["requestBody"] = {"required": "required" in body, "content": {JSON: {"schema": body}}}
    return found


def _responses(route: Route) -> dict[str, Any]:
    error = {"content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    schema: dict[str, Any] = {"schema": {"type": "object"}} if route.replies == JSON else {}
    found: dict[str, Any] = {"200": {"description": route.summary, "content": {route.replies: schema}}}
    if route.may_wait:
        found["202"] = {"description": "It waits for a yes", "content": {JSON: {"schema": {"type": "object"}}}}
    refused = {400, 401, 403, *route.errors, *((415,) if route.method != "GET" else ())}
    return found | {str(status): {"description": _SAID[status], **error} for status in sorted(refused)}
