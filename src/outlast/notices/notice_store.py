"""The notices and events of one shell: gathered, shown as this shell may show them, sealed."""

from __future__ import annotations

import time

from outlast.notices import words
from outlast.notices.gatherer import Gatherer
from outlast.notices.notice import Event, Notice
from outlast.notices.signer import NoticeSigner, parse_notice
from outlast.notices.watcher import StateWatcher
from outlast.notices.while_running import RunningTaskNotices
from outlast.storage.claims import Claims
from outlast.storage.outbox import EVERYBODY, Happened, Outbox

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from outlast.notices.gatherer import Gathered
    from outlast.output.redaction import Mask
    from outlast.storage.outbox import Stored
    from outlast.storage.registry import Registry

TOOL_CALL = "tool.call"
_MASKED = ("command", "description", "line", "pattern", "error", "ended_by", "cwd", "name", "arguments")
_FORGET_EVERY_S = 3600.0


class NoticeStore:
    """For one state directory and one session, or (None) for the operator, who sees all."""

    def __init__(self, registry: Registry, session: str | None, mask: Callable[[], Mask], kept_s: float) -> None:
        self._registry, self._scope, self._mask, self._kept_s = registry, session, mask, kept_s
        self.outbox = Outbox(registry.home.path)
        self._gatherer = Gatherer(registry, self.outbox, RunningTaskNotices(self.outbox))
        self._seal = NoticeSigner(self.outbox.directory)
        self._tidy_at = 0.0

    @property
    def session(self) -> str:
        return EVERYBODY if self._scope is None else self._scope

    def gather(self, everything: bool = True) -> Gathered:
        """Put into the outbox what there is to tell."""
        found = self._gatherer.gather(self._scope, everything)
        if (now := time.monotonic()) >= self._tidy_at:
            self._tidy_at = now + _FORGET_EVERY_S
            self.outbox.forget(self._kept_s, lambda task_id: self._registry.index.row(task_id) is not None)
        return found

    def watch(self) -> StateWatcher:
        return StateWatcher(self.outbox.directory)

    def claims(self, name: str, from_now: bool = False) -> Claims:
        return Claims(self.outbox, name, self.session, from_now=from_now)

    def close(self) -> None:
        self.outbox.close()

    # --- notices ---------------------------------------------------------------------------

    def show(self, stored: Stored) -> Notice:
        """A notice as it is shown: without secrets, sealed as it is shown."""
        facts = self._mask_facts(stored.facts)
        text = words.sentence(stored.task, stored.kind, facts)
        code = self._seal.code(stored.number, text)
        return Notice(
            number=stored.number,
            code=code,
            kind=stored.kind,
            task_id=stored.task,
            session=stored.session,
            at=stored.at,
            text=text,
            facts=facts,
            repeated=stored.times > 1,
        )

    def _mask_facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        mask = self._mask()
        return {
            name: mask.text(value) if name in _MASKED and isinstance(value, str) else value
            for name, value in facts.items()
        }

    def newest(self, most: int) -> list[Notice]:
        return [self.show(one) for one in self.outbox.newest(self.session, most)]

    def behind(self, number: int) -> list[Notice]:
        """The notices behind that number, in order."""
        return [self.show(one) for one in self.outbox.behind(self.session, number)]

    def verify(self, said: str) -> Notice | None:
        """Return the notice that is quoted, if it is genuine: its number, its code and, if given, its text fit."""
        found = parse_notice(said)
        if found is None:
            return None
        number, code, text = found
        stored = self.outbox.notice(number, self.session)
        if stored is None:
            return None
        notice = self.show(stored)
        # The text was sealed as it was shown then; another reader masks other secrets.
        genuine = self._seal.fits(number, text, code) if text else notice.code == code
        return notice if genuine else None

    # --- events ----------------------------------------------------------------------------

    def events(self, after: int, most: int = -1) -> list[Event]:
        return [self._event(one) for one in self.outbox.events(self.session, after, most)]

    def _event(self, stored: Stored) -> Event:
        facts = self._mask_facts(stored.facts)
        return Event(
            number=stored.number,
            type=stored.kind,
            at=stored.at,
            session=stored.session,
            task_id=stored.task or facts.get("task_id") or "",
            traceparent=facts.pop("trace", ""),
            facts=facts,
        )

    def record_call(self, session: str, facts: Mapping[str, Any]) -> None:
        """A tool was called."""
        self.outbox.add(Happened(None, TOOL_CALL, session, time.time(), facts))
