"""Judged lines, read from the files beside this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outlast.policy.rules import Rules

HERE = Path(__file__).parent


def read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


def rules_of(line: dict[str, Any]) -> Rules:
    policy = line["policy"]
    return Rules(tuple(policy["allow"]), tuple(policy["deny"]), policy.get("otherwise", "ask"))
