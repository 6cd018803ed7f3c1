"""Writes descriptions for the fuzzer to begin with: `python -m tests.guard.corpus DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from outlast.guard.client import encode_items, encode_launch
from tests.guard.harness import Item

TERMS: list[Item] = [("limit", 1.5), ("grace", "2"), ("head", 7), ("segment", 8), ("floor", 9), ("go", "go\n")]
WORDS = """directory /d|publish /p|bells /b|mark A=b|program /x|cwd /|arg x|env A=b|on-end /y|on-end z|remove launch
|cgroup /g|stdin open|stdin-text t|seccomp 12345678|lock 7|landlock 8|hold 9|split 1|prepare 1|program-waits 1
|drop-capabilities 0|fd 0 stdin|fd 3 ready|fd 4 go|fd 6 inherit 6|rlimit 7 50 60|nice -5
|umask 077|tty 80x24"""


def main(directory: str) -> None:
    launch: list[Item] = []
    for words in WORDS.replace("\n", "").split("|"):
        key, _, value = words.partition(" ")
        launch.append((key, value))
    whole = [encode_launch(launch), encode_launch(launch + TERMS)]
    for number, data in enumerate([b"\1" + whole[0], b"\1" + whole[1], b"\0" + encode_items(TERMS)]):
        (Path(directory) / str(number)).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
