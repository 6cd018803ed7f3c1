"""`python -m outlast`, and the console script."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    gc.disable()  # until all is loaded: that leaves no garbage
    try:
        from outlast.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        code = 130  # while we were still being loaded
    if not sys.modules.keys() & {"atexit", "threading"}:
        # No exit handler and no thread is left, and to finalize the interpreter takes as long as a short verb.
        try:
            sys.stderr.flush()  # the other one is
        except OSError:
            pass  # its reader has gone
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
