"""How a run is told: lines and a table for the terminal, the figures as JSON, and the page for the documentation."""

from __future__ import annotations

import json
import os
import platform

from bench.episodes import tokens
from bench.episodes.catalogue import EPISODES
from bench.episodes.results import Outcome, Standing

OURS = "Outlast"
GOALS = {"solved": 10, "calls": 26, "read": 9_000, "written": 1_000, "tool_tokens": 900}
"""What Outlast is to reach: all solved, at most so much of the others."""
_NAMES = {
    "solved": "episodes solved",
    "calls": "calls",
    "read": "tokens read",
    "written": "tokens written",
    "tool_tokens": "tokens of the tools' schemas",
}


def figures(standing: Standing) -> dict[str, int]:
    """What the goals are about."""
    return {
        "solved": standing.solved,
        "calls": standing.sum_of("calls"),
        "read": standing.sum_of("read"),
        "written": standing.sum_of("written"),
        "tool_tokens": standing.tool_tokens,
    }


def is_reached(what: str, found: int) -> bool:
    return found >= GOALS[what] if what == "solved" else found <= GOALS[what]


def outcome_line(outcome: Outcome) -> str:
    """One episode, as soon as it is played."""
    how = "solved" if outcome.is_solved else f"not solved: {outcome.problem}"
    return (
        f"  {outcome.episode:<13} {outcome.calls:>3} calls {outcome.read:>7,} read {outcome.written:>5,} written "
        f"{outcome.seconds:>6.1f} s  {how}"
    )


def line(standing: Standing) -> str:
    found = figures(standing)
    return (
        f"  {'sum':<13} {found['calls']:>3} calls {found['read']:>7,} read {found['written']:>5,} written "
        f"          {standing.solved} of {len(standing.outcomes)} solved"
    )


def table(standings: list[Standing]) -> str:
    head = f"{'':<22} solved  calls     read  written  structured  repeated    tools"
    body = [
        f"{one.name:<22} {one.solved:>6} {one.sum_of('calls'):>6} {one.sum_of('read'):>8,} "
        f"{one.sum_of('written'):>8,} {one.sum_of('structured'):>11,} {one.sum_of('repeats'):>9} {one.tool_tokens:>8,}"
        for one in standings
    ]
    return "\n".join([head, *body])


def remarks(standings: list[Standing], missing: dict[str, str]) -> list[str]:
    """The goals that are missed, and who took no part."""
    said = []
    for standing in standings:
        if standing.name != OURS or len(standing.outcomes) < len(EPISODES):
            continue
        said += [
            f"{OURS} misses a goal: {_NAMES[what]} {found:,}, the goal is {GOALS[what]:,}"
            for what, found in figures(standing).items()
            if not is_reached(what, found)
        ]
    return said + [f"{name} took no part: {why}" for name, why in missing.items()]


def as_json(standings: list[Standing], missing: dict[str, str], scale: float) -> str:
    known = {
        "tokens": tokens.NAME,
        "scale": scale,
        "goals": GOALS,
        "missing": missing,
        "contestants": [standing.as_dict() for standing in standings],
    }
    return json.dumps(known, indent=1) + "\n"


# --- the page ------------------------------------------------------------------------------

_PAGE = """# Ten episodes

What does an agent pay for a shell? Ten pieces of everyday work, played with the tools of several servers and agents by
a scripted model, which reads the replies and decides from them what to call next. An episode is solved if the world is
as it should be (files, processes) and if the replies have shown what the model has to tell its user.

![solved episodes, calls and tokens](episodes.svg)

{summary}

- *calls*, *read* and *written* are sums over the ten episodes, also of those that were not solved; *read* is the text
  of the replies, *written* the name and arguments of the calls, both in tokens of {tokenizer}. The schemas
  are in neither.
- *structured* is what a server sends beside the text. It is not in *read*: few clients show it to the model.
- *repeated* counts the programs that had to be started again, though the user wanted them to be started once.
- *tools* is what the tools themselves cost in each request: names, descriptions and schemas.

## Episode by episode

Calls, and tokens read. A cross: not solved.

{episodes}

{problems}
## Outlast's goals

{goals}

## How it is played

- Every contestant is the real program: MCP servers are spoken to over their standard input and output, Claude Code and
  Codex run with their own shell tools against a model's API on loopback. Each runs in process and network namespaces
  of its own, so nothing can leave the machine and nothing is left at the end.
- A strategy says what a sensible model does with a set of tools, as far as their descriptions tell. It is written down,
  the same in every run, may look at what replies say, and does not know what a program will print or what will happen.
  Where a first run showed that a set of tools has a way that the strategy had not tried, it was added, to the
  contestant's favour. All of them are in `bench/episodes/strategies`, each with the reason in a sentence.
- A client waits 60 s for a reply. {scale} `make episodes ARGS=--full` plays in real time.
- After the agent was killed, the model remembers nothing of the conversation before.
- `make episodes` plays again and writes this page; `ARGS="--only Outlast --transcripts DIRECTORY"` plays one contestant
  and keeps every call and reply.

{machine}.
"""


def _markdown(head: list[str], body: list[list[str]]) -> str:
    rule = "|".join(["---"] + ["--:"] * (len(head) - 1))
    rows = [f"| {' | '.join(cells)} |" for cells in [head, *body]]
    return "\n".join([rows[0], f"|{rule}|", *rows[1:]])


def page(standings: list[Standing], missing: dict[str, str], scale: float) -> str:
    """`docs/episodes.md`."""
    head = ["", "solved", "calls", "read", "written", "structured", "repeated", "tools"]
    summary = [
        [
            f"{one.name} {one.version}",
            f"{one.solved} of {len(one.outcomes)}",
            *(f"{one.sum_of(what):,}" for what in ("calls", "read", "written", "structured", "repeats")),
            f"{one.tool_tokens:,} ({one.tools})",
        ]
        for one in standings
    ]
    body = [[episode.title, *(_cell(one.outcome(episode.key)) for one in standings)] for episode in EPISODES]
    shortened = "" if scale == 1 else f"All times are shortened to {scale:.0%} of real ones here, this one too."
    return _PAGE.format(
        summary=_markdown(head, summary),
        tokenizer=tokens.NAME,
        episodes=_markdown(["", *(one.name for one in standings)], body),
        problems=_problems(standings, missing),
        goals=_goals(standings),
        scale=shortened,
        machine=f"Played on {os.cpu_count()} cores, Linux, Python {platform.python_version()}",
    )


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    return f"{outcome.calls} / {outcome.read:,}" + ("" if outcome.is_solved else " ✗")


def _problems(standings: list[Standing], missing: dict[str, str]) -> str:
    titles = {episode.key: episode.title for episode in EPISODES}
    said = [
        f"- {standing.name}, {titles[outcome.episode]}: {_without_secrets(outcome.problem)}"
        for standing in standings
        for outcome in standing.outcomes
        if not outcome.is_solved
    ]
    said += [f"- {name} took no part: {why}" for name, why in missing.items()]
    return "\n".join(said) + "\n" if said else ""


def _without_secrets(problem: str) -> str:
    """What no reply has shown is a random text, so it says nothing to a reader."""
    return "no reply has shown what was asked for" if problem.startswith("no reply has shown") else problem


def _goals(standings: list[Standing]) -> str:
    ours = next((standing for standing in standings if standing.name == OURS), None)
    if ours is None:
        return "Outlast took no part in this run."
    body = [
        [
            _NAMES[what],
            f"{found:,}",
            f"{'' if what == 'solved' else 'at most '}{GOALS[what]:,}",
            "reached" if is_reached(what, found) else "**missed**",
        ]
        for what, found in figures(ours).items()
    ]
    return _markdown(["", "found", "goal", ""], body)
