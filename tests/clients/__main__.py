"""Plays all clients that are installed, and tells figures: `make clients`.

python -m tests.clients [--json] [SCENE...]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from tests.clients import claude, codex, conformance, inspector
from tests.clients.alone import in_own_network, names_of_networks
from tests.clients.figures import Figures
from tests.clients.place import ROOT, missing

SCENES: dict[str, tuple[str, Callable[[], Figures]]] = {
    "claude": ("claude", claude.at_a_terminal),
    "claude-fails": ("claude", claude.with_failures),
    "claude-asks": ("claude", claude.with_approval),
    "claude-print": ("claude", claude.in_print_mode),
    "codex": ("codex", codex.by_exec),
    "inspector": ("inspector", inspector.by_hand),
    "conformance": ("conformance", conformance.suite),
    "conformance-few": ("conformance", lambda: conformance.suite(conformance.FEW)),
}
ALL = ("claude", "claude-fails", "claude-asks", "claude-print", "codex", "inspector", "conformance")


def played(scene: str) -> Figures:
    """Play a scene where nothing can leave the machine."""
    from tests.clients.figures import from_json

    words = in_own_network([sys.executable, "-m", "tests.clients", "--json", scene])
    ran = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise AssertionError(f"the scene {scene} went wrong; what it said is above")
    return from_json(ran.stdout)


def _here(scene: str) -> None:
    figures = SCENES[scene][1]()
    figures.notes.append(f"networks: {', '.join(names_of_networks())}")
    print(figures.as_json())


def main(words: list[str]) -> int:
    if words[:1] == ["--json"]:
        _here(words[1])
        return 0
    code = 0
    for scene in words or ALL:
        if lacking := missing(SCENES[scene][0]):
            print(f"{scene}: skipped, {lacking}")
            continue
        try:
            print(played(scene).as_text(), flush=True)
        except AssertionError as error:
            print(f"{scene}: {error}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
