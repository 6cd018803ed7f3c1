"""Whether a request may run. Only this module makes a `Grant`, and nothing runs without one.

The command line is the user's own typing, so its policy is `yolo`: everything is allowed.
"""

from __future__ import annotations

from outlast.errors import BadInput
from outlast.model import Grant, Request

POLICIES = ("yolo",)


def decide(request: Request, policy: str) -> Grant:
    """Judge a request by a named policy."""
    if policy not in POLICIES:
        raise BadInput(f"There is no policy '{policy}'; known are {', '.join(POLICIES)}.")
    return Grant(request, policy)
