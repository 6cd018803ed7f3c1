"""What a toolbox tells besides its replies: notices for the model behind them, and an event for each call."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

from outlast.errors import OutlastError
from outlast.light import replaced
from outlast.tools.shapes import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.notices.board import Notice
    from outlast.notices.subscription import Subscription
    from outlast.shell.shell import Shell
    from outlast.tools.model import Profile, Reply

SUBSCRIBER = "model"


class Telling:
    """For one toolbox. Nothing that goes wrong in here may spoil a reply."""

    def __init__(self, shell: Shell, profile: Profile) -> None:
        self._shell, self._profile = shell, profile
        self._subscription: Subscription | None = None
        self._one_at_a_time = threading.Lock()  # calls may end at the same time

    def told(self, name: str, label: str, reply: Reply, began: float) -> Reply:
        """A reply, with what else there is to tell the model; the call is written down."""
        try:
            self._note_call(name, label, reply, time.monotonic() - began)
            with self._one_at_a_time:
                return self._with_notices(reply) if self._profile.tells else reply
        except (OSError, OutlastError, sqlite3.Error):
            return reply  # a full disk, say: the model has asked for something else

    def _note_call(self, name: str, label: str, reply: Reply, took: float) -> None:
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
        self._shell.notice_board.board.called(self._shell.session, facts)

    def _with_notices(self, reply: Reply) -> Reply:
        if self._subscription is None:
            from outlast.notices.subscription import Subscription

            self._subscription = Subscription(self._shell.notice_board.board, SUBSCRIBER)
        over = reply.data.get("status") not in ("running", "pending", None)
        shown = str(reply.data.get("task_id")) if over and reply.data.get("task_id") else ""

        def known(notice: Notice) -> bool:
            return notice.kind == "ended" and notice.task_id == shown

        text = self._subscription.text(self._shell.settings.notice_chars, known)
        if text and isinstance(reply.json, dict):
            said = {**reply.json, "notices": text}
            return replaced(reply, text=as_json(said), json=said)
        if reply.json is not None:
            return reply
        end = "" if reply.text.endswith("\n") else "\n"
        return replaced(reply, text=f"{reply.text}{end}\n{text}") if text else reply

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.told()  # whoever closes us has what we said; only who dies has it not
            self._subscription.close()
            self._subscription = None
