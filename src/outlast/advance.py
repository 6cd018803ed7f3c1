"""A one-shot program: start the queued tasks that may begin now.

`outlast-guard` executes it when a command ended and the queue is not empty. Every caller that starts or ends a task
does the same, so a guard that was killed at that moment delays the queue only until then.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Isolated Python does not know where the package is.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from outlast.executors.local import LocalExecutor
from outlast.settings import load


def main() -> int:
    [home] = sys.argv[1:]
    executor = LocalExecutor(home, load(home, {}))
    executor.advance()
    executor.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
