"""JSON in the shortest form, as it is stored. `loads` raises ValueError."""

from __future__ import annotations

from json import JSONEncoder, loads

__all__ = ("dumps", "loads")

dumps = JSONEncoder(separators=(",", ":")).encode
