"""Serves the page until a signal ends it. Tasks go on."""

from __future__ import annotations

import asyncio
import os

from outlast import listener
from outlast.errors import SystemRefused
from outlast.listener import LOOPBACK, given_token, hosts, listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

USUAL_PORT = 8930
_TOKEN_BYTES = 24


def serve(home: str, port: int | None, policy: str | None, *, opens: bool = False) -> int:
    """Serve the state directory `home` on loopback; prints the link first."""
    from outlast.web.access import PageGuard
    from outlast.web.app import build
    from outlast.web.place import Place

    # It is in memory only: a command that reads the files of the state directory does not find it.
    token = given_token() or os.urandom(_TOKEN_BYTES).hex()
    listening = _listen(port)
    taken = listening.getsockname()[1]
    link = f"http://{LOOPBACK[0]}:{taken}/?token={token}"

    async def talk() -> None:
        place = Place(home, policy, os.environ.get("OUTLAST_SESSION", ""))
        await place.open()  # before the link says that there is a page
        print(link, flush=True)
        if not place.takes_questions:
            print("It runs inside a task, so what a policy asks about cannot be answered there.", flush=True)
        if opens:
            _open_browser(link)
        app = PageGuard(build(place), token, hosts(LOOPBACK[0], taken), taken)
        await listener.serve(app, listening)

    asyncio.run(talk())
    return 0


def _listen(port: int | None) -> socket.socket:
    if port is not None:
        return listen(LOOPBACK[0], port)
    try:
        return listen(LOOPBACK[0], USUAL_PORT)
    except SystemRefused:
        return listen(LOOPBACK[0], 0)  # another server has the usual one


def _open_browser(link: str) -> None:
    import webbrowser

    if not webbrowser.open(link):
        print("No browser could be opened; open the link yourself.", flush=True)
