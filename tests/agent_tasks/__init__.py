"""Agents that are scripts, each speaking what a real one speaks. The first word of the prompt says what they do."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

HERE = Path(__file__).parent


def template(script: str, *words: str) -> str:
    """The command line of one of the scripts beside this file."""
    return shlex.join([sys.executable, str(HERE / f"{script}.py"), *words])


def settings(home: str, **agents: str) -> None:
    """Write types of agents into the settings of a state directory."""
    Path(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = "".join(f'{name} = """{command}"""\n' for name, command in agents.items())
    Path(home, "config.toml").write_text(f"[agents]\n{lines}")
