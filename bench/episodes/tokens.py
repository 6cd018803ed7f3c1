"""Counts tokens with the vocabulary o200k_base, which the npm package gpt-tokenizer ships."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from bench.episodes.places import PEERS, node

NAME = "o200k_base (gpt-tokenizer)"
_PLACE = PEERS / "npm" / "gpt-tokenizer" / "node_modules" / "gpt-tokenizer" / "cjs" / "encoding" / "o200k_base.js"
_PROGRAM = """
const { countTokens } = require(process.argv[1]);
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
// Text that looks like a special token is text here.
console.log(JSON.stringify(texts.map((text) => countTokens(text, { disallowedSpecial: new Set() }))));
"""
_PATIENCE_S = 60.0


def missing() -> str:
    """What has to be installed before tokens can be counted; empty if nothing."""
    if not node():
        return "node"
    return "" if _PLACE.exists() else "gpt-tokenizer (scripts/setup episodes)"


def count(texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text."""
    ran = subprocess.run(
        [node(), "-e", _PROGRAM, str(_PLACE)],
        input=json.dumps(list(texts)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_PATIENCE_S,
    )
    found: list[int] = json.loads(ran.stdout)
    return found
