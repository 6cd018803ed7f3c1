"""The one format of a duration, for tables, messages and notices."""

from __future__ import annotations


def duration(milliseconds: float) -> str:
    """Return a time as people say it: 0.3s, 12s, 3m 4s, 1h 2m, 3d 4h."""
    seconds = int(milliseconds // 1000)
    if seconds < 10:
        return f"{milliseconds // 100 / 10:.1f}s"
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60}s"
    if seconds < 86400:
        return f"{seconds // 3600}h {seconds % 3600 // 60}m"
    return f"{seconds // 86400}d {seconds % 86400 // 3600}h"
