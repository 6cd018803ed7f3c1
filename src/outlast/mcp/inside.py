"""Which task a server is inside of, if its client started it without saying so."""

from __future__ import annotations

import os

from outlast.launch_builder import TASK_ID
from outlast.linux import process

_GENERATIONS = 20


def remember() -> None:
    """Have in our environment what our client has in its own: some start a server with few of their variables.

    So what an agent starts through us is known as its own, and is ended with it.
    """
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        if TASK_ID in os.environ or pid <= 1:
            return
        for variable in process.environment(pid):
            name, _, value = variable.partition(b"=")
            if name == TASK_ID.encode() and value:
                os.environ[TASK_ID] = os.fsdecode(value)
        stat = process.stat_of(pid)
        pid = stat.parent if stat else 0
