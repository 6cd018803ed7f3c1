"""`signal`, with numbers that are only numbers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import *  # noqa: F403
else:
    from _signal import *  # noqa: F403
