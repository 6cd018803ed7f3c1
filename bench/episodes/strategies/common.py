"""What all strategies need: finding things in replies."""

from __future__ import annotations

import re

from bench.episodes.play import GaveUp
from bench.episodes.world import World

READY = r"ready on (http://[\d.]+:\d+)"
ARTIFACT = r"artifact \w+\.tar"
QUESTION = r"\[y/n\]"
MOST_WAITS = 12
"""So often a model waits for something before it gives up."""
MOST_LOOKS = 3
"""So often it looks at something that does not wait, before it tries another way."""


def find(pattern: str, text: str) -> str:
    """The first group of what matches (or all of it); a model that does not find it cannot go on."""
    found = re.search(pattern, text)
    if not found:
        raise GaveUp(f"no {pattern} in: {text[:300]}")
    return found[1] if found.re.groups else found[0]


def has(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def newest_build(text: str) -> int:
    """The number of the newest build that a reply shows; 0 if it shows none."""
    return max((int(number) for number in re.findall(r"build #(\d+)", text)), default=0)


def answer_to(text: str) -> str:
    """What the user wants as the answer to the last question in a reply."""
    question = text[: text.rindex("[y/n]")].rstrip().rpartition("\n")[2]
    return "y" if "configuration" in question.lower() else "n"


def wait_for(world: World, text: str, log: str, seconds: float = 30) -> str:
    """A command that looks into a file until a text is there, and shows the end of it."""
    loop = f'until grep -q "{text}" {log}; do sleep 0.2; done'
    return f"timeout {world.seconds(seconds):g} bash -c '{loop}'; tail -n 6 {log}"


def shows_first_failure(reply: str) -> bool:
    """Whether a reply has the beginning of pytest's failures, and an error behind it (in JSON, too)."""
    behind = reply.partition("= FAILURES =")[2]
    return re.search(r"(?:^|\\n)E  ", behind, re.MULTILINE) is not None


LIST_NEWEST = "ps -eo pid,etimes,args --sort=etimes | head -n 20"
"""What a shell offers to find out what was started here."""


def look_at_output(pid: str) -> str:
    """A command that shows where a process writes to."""
    return f"readlink /proc/{pid}/fd/1"


def own_processes(listing: str) -> list[str]:
    """The pids in such a list whose command is a program of the working directory."""
    return re.findall(r"^\s*(\d+)\s+\d+\s.*(?:\./|work/)(?:serve|watch|build|install)\.py", listing, re.MULTILINE)
