"""What a request brings, for its handler."""

from __future__ import annotations

from outlast.light import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outlast.web.place import Place


@frozen
class Given:
    """What a request brings, checked."""

    place: Place
    task: str
    query: dict[str, Any]
    body: dict[str, Any]
