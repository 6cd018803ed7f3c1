"""`sqlite3`, without what it does for dates."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import *  # noqa: F403
else:
    from _sqlite3 import *  # noqa: F403
