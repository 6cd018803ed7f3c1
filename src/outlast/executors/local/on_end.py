"""A one-shot program that `outlast-guard` executes when a command ended: `python -I -S on_end.py HOME [AGENT]`.

It starts the queued tasks that may begin now. With the directory of an agent whose time limit ended it, it also ends
the tasks that the agent started. Every caller that starts or ends a task advances the queue too, so a guard that was
killed at this moment delays the queue only until then.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Isolated Python does not know where the package is.
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../../.."))

from outlast.executors.local import LocalExecutor, offspring
from outlast.settings import load
from outlast.storage import record, task_directory


def main() -> int:
    """End what an agent started if its limit ended it, and start the next pending tasks."""
    home, *agents = sys.argv[1:]
    for directory in agents:
        if record.read(directory).get("ending", {}).get("by") == "limit":
            offspring.cancel_pending_offspring(directory, "limit")
            offspring.end_offspring(directory, task_directory.read_launch(directory)[0].grace, "limit")
    executor = LocalExecutor(home, load(home, {}))
    executor.advance()
    executor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
