"""`python -m outlast`, and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    from outlast.faces.cli.main import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
