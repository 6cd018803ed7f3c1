"""Events as they happen: a place among them, and what to wait on."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.notices.notice import Event
    from outlast.notices.notice_store import NoticeStore
    from outlast.notices.watcher import StateWatcher

_AT_ONCE = 1000


class EventStream:
    """Events behind a place, which moves along. Closes its board."""

    def __init__(self, board: NoticeStore, after: int | None) -> None:
        """`after` is the number of an event; None: the last that there is now."""
        self._board, self._place = board, after
        self.watch: StateWatcher = board.watch()

    def look(self) -> list[Event]:
        """What has happened since the last look; wait on `watch` if that is nothing."""
        self.watch.arm()
        self.watch.watch_gathered(self._board.gather())
        if self._place is None:
            self._place = self._board.outbox.last_event()
        some = self._board.events(self._place, _AT_ONCE)
        if some:
            self._place = some[-1].number
        return some

    def close(self) -> None:
        self.watch.close()
        self._board.close()
