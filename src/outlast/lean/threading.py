"""The locks of `threading`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Lock, RLock
else:
    from _thread import RLock
    from _thread import allocate_lock as Lock

__all__ = ("Lock", "RLock")
