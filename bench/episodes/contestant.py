"""Plays all episodes with one contestant, in the namespaces that `run` has made for it.

Prints one JSON object per line: first the contestant with the size of its tools, then the outcome of each episode.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.episodes.agents import AGENTS, Agent
from bench.episodes.catalogue import EPISODES, Episode
from bench.episodes.mcp import SERVERS, Server
from bench.episodes.play import Transcript
from bench.episodes.results import Outcome, evaluate, size_tools
from bench.episodes.world import World

CONTESTANTS: dict[str, Server | Agent] = {
    **{server.name: server for server in SERVERS},
    **{agent.name: agent for agent in AGENTS},
}


def play(contestant: Server | Agent, episode: Episode, scale: float, keep: Path | None) -> Outcome:
    """Play one episode in a world of its own, and remove that world."""
    world, began = World(scale), time.monotonic()
    transcript = Transcript()
    try:
        transcript, problem = contestant.play(episode, world)
    except Exception as error:  # a contestant that breaks down has not solved it
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    seconds = time.monotonic() - began
    repeats = world.repeats()
    left = world.remove()
    if left:
        raise RuntimeError(f"processes could not be ended: {left}")
    if keep is not None:
        _write(keep / f"{contestant.name} {episode.key}.txt", transcript, problem)
    return evaluate(episode.key, transcript, problem, repeats, seconds)


def _write(path: Path, transcript: Transcript, problem: str) -> None:
    lines = [f"{problem or 'solved'}"]
    for number, call in enumerate(transcript.calls):
        replies = transcript.replies[number : number + 1]
        lines += ["", f">>> {call.written}", *(reply.text.rstrip("\n") for reply in replies)]
    path.write_text("\n".join(lines) + "\n")


def main(name: str, scale: str, keep: str, *keys: str) -> None:
    contestant = CONTESTANTS[name]
    offered = contestant.tools()
    standing = size_tools(name, contestant.version(), offered, contestant.instructions)
    print(json.dumps({"standing": standing.as_dict()}), flush=True)
    for episode in EPISODES:
        if episode.key in keys:
            outcome = play(contestant, episode, float(scale), Path(keep) if keep else None)
            print(json.dumps({"outcome": vars(outcome)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
