"""Events under the names of a profile."""

from __future__ import annotations

from outlast.light import replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlast.notices.board import Event
    from outlast.tools.model import Profile

CALL, OVER, KILLED = "tool.call", "task.ended", "task.killed"


def event_as(profile: Profile, event: Event) -> Event | None:
    """An event as that design names it; None if it has no such thing. A design without names has ours."""
    if not profile.events:
        return event
    if event.type == CALL:
        known = event.facts.get("profile") == profile.name and CALL in profile.events
        return replaced(event, type=profile.events[CALL] + event.facts["tool"]) if known else None
    if not event.facts.get("background"):
        return None
    kind = KILLED if event.type == OVER and event.facts.get("reason") == "killed" else event.type
    name = profile.events.get(kind)
    return replaced(event, type=name) if name else None
