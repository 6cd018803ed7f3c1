"""Which client a request is from, and the shell and the tools of its session.

A session is named by the host (`--session`, `$OUTLAST_SESSION`), by the client (the header
`Outlast-Session` over HTTP), or after the client and the directory that the server was
started in: so the next server finds what the last one left, also after `kill -9`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, PaginatedRequestParams

from outlast.errors import BadInput, OutlastError
from outlast.settings import load
from outlast.shell.async_shell import AsyncShell
from outlast.shell.validation import session_name
from outlast.storage.lease import Lease
from outlast.tools import policy
from outlast.tools.profiles import profile_named
from outlast.tools.toolbox import Toolbox
from outlast.tools.untrusted import show_invisible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from mcp.server.context import ServerRequestContext

    from outlast.mcp.options import Options
    from outlast.settings import Settings
    from outlast.tools.model import Profile

    Context = ServerRequestContext[Any, Any]
    Ask = Callable[[Any], Awaitable[str]]

HEADER = "outlast-session"
_APPROVAL_WAIT_S = 40.0  # on the page of `outlast serve`: less than clients give a call
_LEAVING_S = 1.0  # a client that starts its server anew may do so before the old one has left
_PART = 20  # characters of a name's parts
_LINE = 200


class ConnectedClient:
    """One client: the shell of its session, and tools over it."""

    def __init__(
        self, shell: AsyncShell, profile: Profile, policy: object, options: Options, lease: Lease | None
    ) -> None:
        self.shell, self.profile = shell, profile
        self._policy, self._options, self._lease = policy, options, lease
        self._boxes: dict[tuple[float, bool], Toolbox] = {}

    @property
    def session(self) -> str:
        return self.shell.session

    @property
    def settings(self) -> Settings:
        return self.shell.plain.settings

    def box(self, longest_wait: float, keeps_position: bool = False) -> Toolbox:
        """Return the tools, none of which waits longer. With `keeps_position` no reply counts as read."""
        key = longest_wait, keeps_position
        if key not in self._boxes:
            self._boxes[key] = Toolbox(
                self.shell.plain,
                self.profile,
                policy=self._policy,
                write=not self._options.read_only,
                longest_wait=longest_wait,
                keeps_position=keeps_position,
                waiting=self.shell,
            )
        return self._boxes[key]

    async def last_line(self, task_id: str) -> str:
        """Return the last line that a task printed."""
        read = await self.shell.read(task_id, tail=1, max_chars=_LINE)
        return show_invisible(read.output).strip()

    async def last_lines(self, task_id: str, count: int) -> list[str]:
        """Return the last lines that a task printed, at most `count`."""
        read = await self.shell.read(task_id, tail=count)
        return show_invisible(read.output).split("\n")

    async def close(self) -> None:
        for box in self._boxes.values():
            await asyncio.to_thread(box.acknowledge)
        await self.shell.close()
        if self._lease:
            self._lease.close()


class Clients:
    """The clients of one server."""

    def __init__(self, options: Options, ask: Ask, shared: bool) -> None:
        """`shared`: several clients talk to this server, each in its own session."""
        self.options = options
        self.profile = profile_named(options.profile)
        self.settings = load(options.home, os.environ, self.profile.settings)
        self._ask, self._shared = ask, shared
        self._by_name: dict[str, ConnectedClient] = {}
        self._opening = asyncio.Lock()

    async def find(self, ctx: Context) -> ConnectedClient:
        """Return the client that a request is from."""
        try:
            return await self._find_client(ctx)
        except OutlastError as error:
            code = INVALID_PARAMS if isinstance(error, BadInput) else INTERNAL_ERROR
            raise MCPError(code, self.profile.message_of(error)) from None

    async def _find_client(self, ctx: Context) -> ConnectedClient:
        name = self._named_by(ctx)
        if name not in self._by_name:
            async with self._opening:
                if name not in self._by_name:
                    self._by_name[name] = await asyncio.to_thread(
                        self._open_client, name or derive_session_name(client_name(ctx)), ctx
                    )
        return self._by_name[name]

    def _named_by(self, ctx: Context) -> str:
        """Return the session's name, as far as it is known; over stdio there is one client."""
        if self.options.session or not self._shared:
            return self.options.session
        asked = ctx.request.headers.get(HEADER) if ctx.request is not None else None
        return session_name(asked) if asked is not None else derive_session_name(client_name(ctx))

    def _open_client(self, name: str, ctx: Context) -> ConnectedClient:
        lease = None
        if not self.options.session and not self._shared:
            lease = Lease(os.path.join(self.options.home, "mcp", "sessions"), name, _LEAVING_S)
            name = lease.name
        by = policy.choose(self.profile, self.settings, self.options.policy or None)
        how: dict[str, Any] = {"mode": "yolo"} if self.options.yolo else {"ask": self._ask}
        shell = AsyncShell.open(
            self.options.home, name, by, defaults={"approval_wait_s": _APPROVAL_WAIT_S, **self.profile.settings}, **how
        )
        return ConnectedClient(shell, self.profile, by, self.options, lease)

    async def close(self) -> None:
        while self._by_name:
            await self._by_name.popitem()[1].close()


def client_name(ctx: Context) -> str:
    """Return the name that a client gave when it connected."""
    params = ctx.session.client_params
    return params.client_info.name if params is not None else "client"


def derive_session_name(client: str) -> str:
    """Return the name of a client's session: the same one each time it works in this directory."""
    here = os.path.realpath(".")
    place = hashlib.sha256(os.fsencode(here)).hexdigest()[:8]
    return f"mcp-{_plain(client)}-{_plain(os.path.basename(here))}-{place}"


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_PART].strip("-") or "x"


def refuse_cursor(params: PaginatedRequestParams | None) -> None:
    """Refuse the cursor of a list that fits on one page."""
    if params is not None and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "There is no such cursor: all is on the first page; list without one.")
