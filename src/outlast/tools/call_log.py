"""What a toolbox does beside each call: the model's new notices go into the reply, and the call becomes an event."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

from outlast.errors import OutlastError
from outlast.light import replace
from outlast.tools.reply_fields import add_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.notices.notice import Event, Notice
    from outlast.notices.subscription import Subscription
    from outlast.shell.shell import Shell
    from outlast.tools.model import Profile, Reply

SUBSCRIBER = "model"
_CALL, _ENDED, _KILLED = "tool.call", "task.ended", "task.killed"


class CallLog:
    """The log of one toolbox. Nothing that goes wrong in here may spoil a reply."""

    def __init__(self, shell: Shell, profile: Profile) -> None:
        self._shell, self._profile = shell, profile
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()  # calls may end at the same time

    def finish(self, name: str, label: str, reply: Reply, began: float) -> Reply:
        """Write a call down; returns its reply with the new notices."""
        try:
            self._write(name, label, reply, time.monotonic() - began)
            with self._lock:
                return self._with_notices(reply) if self._profile.shows_notices else reply
        except (OSError, OutlastError, sqlite3.Error):
            return reply  # a full disk, say: the model has asked for something else

    def _write(self, name: str, label: str, reply: Reply, took: float) -> None:
        facts = {
            "tool": name,
            "profile": self._profile.name,
            "label": label,
            "task_id": reply.data.get("task_id"),
            "status": reply.data.get("status"),
            "failed": reply.error,
            "elapsed_ms": round(took * 1000),
            "trace": (self._shell.context.trace or dict)().get("TRACEPARENT") or os.environ.get("TRACEPARENT", ""),
        }
        self._shell.notice_board.board.record_call(self._shell.session, facts)

    def _with_notices(self, reply: Reply) -> Reply:
        if self._subscription is None:
            from outlast.notices.subscription import Subscription

            self._subscription = Subscription(self._shell.notice_board.board, SUBSCRIBER)
        ended = reply.data.get("status") not in ("running", "pending", None)
        shown = str(reply.data.get("task_id")) if ended and reply.data.get("task_id") else ""

        def is_known(notice: Notice) -> bool:
            return notice.kind == "ended" and notice.task_id == shown

        text = self._subscription.text(self._shell.settings.notice_chars, is_known)
        return add_text(reply, "notices", text, f"\n{text}") if text else reply

    def close(self) -> None:
        """Acknowledge the notices in the replies. If we are killed instead, the next toolbox repeats them."""
        if self._subscription is not None:
            self._subscription.confirm_text()
            self._subscription.close()
            self._subscription = None


def event_as(profile: Profile, event: Event) -> Event | None:
    """Return an event under the profile's name for it; None if it has none. A profile without names has ours."""
    if not profile.events:
        return event
    if event.type == _CALL:
        known = event.facts.get("profile") == profile.name and _CALL in profile.events
        return replace(event, type=profile.events[_CALL] + event.facts["tool"]) if known else None
    if not event.facts.get("background"):
        return None
    kind = _KILLED if event.type == _ENDED and event.facts.get("reason") == "killed" else event.type
    name = profile.events.get(kind)
    return replace(event, type=name) if name else None
