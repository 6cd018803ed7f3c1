"""What each route does. A handler takes what a request brought, checked, and returns what is sent as JSON."""

from __future__ import annotations

import asyncio
import socket
import time

from outlast import __version__
from outlast.errors import BadInput
from outlast.light import fields
from outlast.types import Stdin
from outlast.web import details, metrics
from outlast.web.viewers import PING_S, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from contextlib import AbstractAsyncContextManager
    from typing import Any

    from starlette.responses import Response

    from outlast.types import Task
    from outlast.web.given import Given
    from outlast.web.viewers import Viewer

    Reply = dict[str, Any]

_REASONS = 200


async def get_state(given: Given) -> Reply:
    """What this server serves, and under which policy."""
    shell = given.place.shell
    await given.place.live.loaded.wait()
    return {
        "version": __version__,
        "home": given.place.home,
        "hostname": socket.gethostname(),
        "session": shell.session,
        "policy": given.place.policy_name,
        "now": time.time(),
        "max_running": shell.plain.settings.max_running,
        "sessions": sorted({one.session for one in given.place.live.catalogue.entries()}),
    }


# --- many tasks --------------------------------------------------------------------------


async def list_tasks(given: Given) -> Reply:
    """Tasks, a page of them."""
    live, query = given.place.live, dict(given.query)
    await live.loaded.wait()
    limit, offset = query.pop("limit"), query.pop("offset")

    def select() -> Reply:
        ids = live.catalogue.select(**query)
        tasks, gone = live.catalogue.refresh(ids[offset : offset + limit])
        return {"tasks": [live.show(task) for task in tasks], "total": len(ids) - len(gone)}

    return await asyncio.to_thread(select)


async def watch_overview(given: Given) -> Response:
    """What changes, as it happens."""
    live = given.place.live
    pending = encode("approvals", {"pending": given.place.approvals.pending()})
    return _stream(live.viewer(live.overview), [encode("hello", {"now": time.time()}), pending])


async def get_timeline(given: Given) -> Reply:
    """Tasks of the last minutes, with their beginnings and ends."""
    live, now = given.place.live, time.time()
    await live.loaded.wait()
    since = now - 60 * given.query["minutes"]
    names = ("task_id", "command", "status", "started_at", "ended_at", "session")
    found = [one for one in live.catalogue.entries() if one.ended_at is None or one.ended_at >= since]
    found = sorted((one for one in found if one.status != "pending"), key=lambda one: -one.started_at)
    return {
        "now": now,
        "tasks": [{name: getattr(one, name) for name in names} for one in found[: given.query["limit"]]],
    }


async def get_metrics(given: Given) -> Response:
    """Numbers for Prometheus."""
    from starlette.responses import Response

    await given.place.live.loaded.wait()
    return Response(await asyncio.to_thread(metrics.render, given.place), media_type=metrics.MEDIA_TYPE)


async def list_notices(given: Given) -> Reply:
    """The latest notices, oldest first."""
    found = await given.place.shell.notices(given.query["most"])
    return {"notices": [fields(one) for one in found]}


# --- one task ----------------------------------------------------------------------------


async def get_task(given: Given) -> Reply:
    """Everything about one task."""
    task, live = await given.place.find(given.task), given.place.live
    cpu = live.usage.of_processes(task.task_id)
    shown = await asyncio.to_thread(live.show, task)
    return {"task": shown, **await asyncio.to_thread(details.describe, live.plain, task, cpu)}


async def get_screen(given: Given) -> Reply:
    """The screen of its terminal, as it is now."""
    return (await given.place.shell.screen(given.task)).to_page()


async def resize_screen(given: Given) -> Reply:
    """Set the size of its terminal."""
    await given.place.shell.resize(given.task, given.body["columns"], given.body["rows"])
    return {}


async def read_lines(given: Given) -> Reply:
    """Lines of its output; from -200 on: the last 200."""
    view, query = given.place.live.view(await given.place.find(given.task)), given.query
    return await asyncio.to_thread(view.read, query["stream"], query["from"], query["count"])


async def search_lines(given: Given) -> Reply:
    """Where its output matches a text or an expression."""
    view, query = given.place.live.view(await given.place.find(given.task)), given.query
    how = {"first": query["from"], **{name: query[name] for name in ("regex", "case", "limit")}}
    return await asyncio.to_thread(lambda: view.search(query["stream"], query["q"], **how))


async def find_first_error(given: Given) -> Reply:
    """The line at which its first error begins."""
    view = given.place.live.view(await given.place.find(given.task))
    n, count = await asyncio.to_thread(view.find_first_error)
    return {"n": n, "count": count}


async def follow_task(given: Given) -> Response:
    """How one task goes on, until it is closed."""
    task = await given.place.find(given.task)
    return _stream(given.place.live.follower(task.task_id), [])


def _stream(opened: AbstractAsyncContextManager[Viewer], first: list[bytes]) -> Response:
    from sse_starlette import EventSourceResponse

    async def messages() -> AsyncGenerator[bytes, None]:
        for one in first:
            yield one
        async with opened as viewer:
            async for message in viewer.messages():
                yield message

    return EventSourceResponse(messages(), ping=PING_S)


async def download_log(given: Given) -> Response:
    """Its output as a file, without secrets."""
    from starlette.responses import StreamingResponse

    task, stream = await given.place.find(given.task), given.query["stream"]
    if stream == "stderr" and not task.split:
        raise BadInput("This task was not run with --split: its stderr is in its one output; download that one.")
    name = f"{task.task_id}{'' if stream == 'both' else f'.{stream}'}.log"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_read_log(given, task, stream), media_type="text/plain; charset=utf-8", headers=headers)


async def _read_log(given: Given, task: Task, stream: str) -> AsyncGenerator[bytes, None]:
    """Yield what is there now, without secrets."""
    async for piece in given.place.shell.follow(task, timeout=0):
        if stream in ("both", piece.stream):
            yield piece.data


# --- act ---------------------------------------------------------------------------------


async def start_task(given: Given) -> Reply:
    """Start a command in the background."""
    options: dict[str, Any] = dict(given.body)
    command, session = options.pop("command"), options.pop("session", "")
    if options.pop("stdin_open", False):
        options["stdin"] = Stdin(open=True)
    if "tty" in options:
        options["tty"] = tuple(options["tty"])
    shell = await given.place.shell_of(session)
    return await _started_or_asked(given, shell.start(command, **options))


async def start_again(given: Given) -> Reply:
    """Start the same command once more."""
    task = await given.place.find(given.task)
    shell = await given.place.shell_of(task.session)
    return await _started_or_asked(given, shell.start(like=task.task_id))


async def _started_or_asked(given: Given, start: Coroutine[Any, Any, Task]) -> Reply:
    task, question = await given.place.ask_or_do(start)
    return {"approval": question} if task is None else await _show_started(given, task)


async def _show_started(given: Given, task: Task) -> Reply:
    await given.place.live.announce({task.task_id})
    now = await given.place.find(task.task_id)
    return {"task": await asyncio.to_thread(given.place.live.show, now)}


async def check_command(given: Given) -> Reply:
    """How the policy judges a command; nothing runs."""
    shell = await given.place.shell_of(given.body.get("session", ""))
    found = await shell.check(given.body["command"], cwd=given.body.get("cwd"))
    reasons = [{"command": one.command, "verdict": one.verdict, "why": one.why} for one in found.parts[:_REASONS]]
    return {"verdict": found.verdict, "reasons": reasons}


async def kill_task(given: Given) -> Reply:
    """End its whole tree; returns when it is gone."""
    task = await given.place.find(given.task)
    receipt, question = await given.place.ask_or_do(given.place.shell.kill(task, given.body.get("grace")))
    if receipt is None:
        return {"approval": question}
    return {"ended": receipt.ended, "survivors": receipt.survivors, **await _show_started(given, task)}


async def list_approvals(given: Given) -> Reply:
    """The questions that wait for an answer."""
    return {"pending": given.place.approvals.pending()}


async def answer_approval(given: Given) -> Reply:
    """Answer a question: for this time, for its session, or always."""
    await given.place.approvals.answer(given.task, given.body["answer"])
    return {}


async def send_input(given: Given) -> Reply:
    """Send input to it, and end its input."""
    await given.place.shell.send(given.task, **{"text": "", **given.body})
    return {}


async def remove_task(given: Given) -> Reply:
    """Remove it, if it is over."""
    task = await given.place.shell.remove(given.task)
    await given.place.live.announce({task.task_id})
    return {}
