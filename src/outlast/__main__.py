"""`python -m outlast`, and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from outlast.faces.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        code = 130  # while we were still being loaded
    sys.exit(code)


if __name__ == "__main__":
    main()
