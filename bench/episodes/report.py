"""Presents a run: lines and a table for the terminal, the figures as JSON, and the page for the documentation."""

from __future__ import annotations

import json
import os
import platform

from bench.episodes import tokens
from bench.episodes.catalogue import EPISODES
from bench.episodes.play import THINKING_S
from bench.episodes.results import Outcome, Standing, from_dict

OURS = "Outlast"
GOALS = {"solved": 10, "calls": 26, "read": 9_000, "written": 1_000, "tool_tokens": 900}
"""The goals for Outlast: at least so many episodes solved, at most so much of everything else."""
_NAMES = {
    "solved": "episodes solved",
    "calls": "calls",
    "read": "tokens read",
    "written": "tokens written",
    "tool_tokens": "tokens of the tools' schemas",
}


def figures(standing: Standing) -> dict[str, int]:
    """Return the figures that there are goals for."""
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
    """Return one line about one episode."""
    how = "solved" if outcome.is_solved else f"not solved: {outcome.problem}"
    return (
        f"  {outcome.episode:<13} {outcome.calls:>3} calls {outcome.read:>7,} read {outcome.written:>5,} written "
        f"{outcome.seconds:>6.1f} s  {how}"
    )


def table(standings: list[Standing]) -> str:
    head = f"{'':<22} solved  calls     read  written  structured  repeated    tools  seconds"
    body = [
        f"{one.name:<22} {one.solved:>6} {one.sum_of('calls'):>6} {one.sum_of('read'):>8,} "
        f"{one.sum_of('written'):>8,} {one.sum_of('structured'):>11,} {one.sum_of('repeats'):>9} {one.tool_tokens:>8,} "
        f"{one.sum_of('seconds'):>8,}"
        for one in standings
    ]
    return "\n".join([head, *body])


def remarks(standings: list[Standing], missing: dict[str, str]) -> list[str]:
    """Return the goals that are missed, and the contestants that took no part."""
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


def from_json(text: str) -> tuple[list[Standing], dict[str, str], float]:
    """Return what `as_json` was given."""
    known = json.loads(text)
    return [from_dict(one) for one in known["contestants"]], known["missing"], known["scale"]


# --- the page ------------------------------------------------------------------------------

_PAGE = """# Ten episodes

What does a shell cost an agent? Ten pieces of everyday work are done with the tools of several MCP servers and agents.
A scripted model makes the calls: it reads the replies and decides from them what to call next. An episode is solved if
the files and processes are as the user wanted, and if the replies showed what the model has to tell the user.

![solved episodes, calls and tokens](episodes.svg)

{summary}

- *calls*, *read*, *written* and *seconds* are sums over the ten episodes, including those that were not solved.
- *read* is the text of the tool replies, *written* the name and arguments of the tool calls, both in tokens of
  {tokenizer}. Tool definitions are in neither.
- *tools* is the size of the tool definitions in each request, in tokens: names, descriptions and input schemas; in
  brackets, how many tools there are. Of an agent, only the tools that an episode needs count: for Claude Code Bash,
  Read and ToolSearch, for Codex exec_command and write_stdin.
- *structured* is what a server sends beside the text. It is not part of *read*, because few clients show it to the
  model.
- *repeated* counts programs that the model had to start again although the user wanted one start.
- *seconds* is wall time, with {thinking:g} s between a reply and the next call.
{instructions}
## Episode by episode

Calls, tokens read and tokens written. A cross means: not solved.

{episodes}

{problems}
## Goals of Outlast

{goals}

## How the episodes are played

- Every contestant is the real program. MCP servers are called over their standard input and output. Claude Code and
  Codex run with their own shell tools; a server on the loopback address answers in place of the model's API. Each
  contestant runs in process and network namespaces of its own, so it reaches no network, and the kernel kills whatever
  it leaves behind.
- A strategy says what a sensible model does with a set of tools, judging by their descriptions. It may look at
  replies, and in all sets of tools it expects the same words from the programs ("ready on", "build #", "y/n"); it does
  not know that the agent will be killed. It is the same in every run.
  All strategies are in `bench/episodes/strategies`, each with its reason.
- After first runs, strategies were corrected where they had misread a description or had not tried a way that the
  tools offer.
- A client waits 60 s for a reply. Claude Code's limit for a foreground command is set to the same 60 s.{scale}
- After the agent was killed, the model remembers nothing of the conversation before.
- `make episodes` plays everything and writes this page. `ARGS="--fast --only Outlast --transcripts DIRECTORY"` plays
  one contestant in a tenth of the time and keeps every call and reply.

{machine}.
"""


def _markdown(head: list[str], body: list[list[str]]) -> str:
    rule = "|".join(["---"] + ["--:"] * (len(head) - 1))
    rows = [f"| {' | '.join(cells)} |" for cells in [head, *body]]
    return "\n".join([rows[0], f"|{rule}|", *rows[1:]])


def page(standings: list[Standing], missing: dict[str, str], scale: float) -> str:
    """Return the text of `docs/episodes.md`."""
    head = ["", "solved", "calls", "read", "written", "tools", "structured", "repeated", "seconds"]
    summary = [
        [
            f"{one.name} {one.version}",
            f"{one.solved} of {len(one.outcomes)}",
            *(f"{one.sum_of(what):,}" for what in ("calls", "read", "written")),
            f"{one.tool_tokens:,} ({one.tools})",
            *(f"{one.sum_of(what):,}" for what in ("structured", "repeats", "seconds")),
        ]
        for one in standings
    ]
    body = [[episode.title, *(_cell(one.outcome(episode.key)) for one in standings)] for episode in EPISODES]
    shortened = "" if scale == 1 else f" In this run all times, this one too, were multiplied by {scale:g}."
    return _PAGE.format(
        summary=_markdown(head, summary),
        tokenizer=tokens.NAME,
        thinking=THINKING_S * scale,
        instructions=_instructions(standings),
        episodes=_markdown(["", *(one.name for one in standings)], body),
        problems=_problems(standings, missing),
        goals=_goals(standings),
        scale=shortened,
        machine=f"Played on {os.cpu_count()} cores, Linux, Python {platform.python_version()}",
    )


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    return f"{outcome.calls} / {outcome.read:,} / {outcome.written:,}" + ("" if outcome.is_solved else " ✗")


def _instructions(standings: list[Standing]) -> str:
    sizes = [f"{one.name} {one.instruction_tokens:,}" for one in standings if one.instruction_tokens]
    if not sizes:
        return ""
    return f"- A server may also send instructions when a client connects; in tokens: {', '.join(sizes)}.\n"


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
    """Leave out the text that no reply has shown: it is random, so it means nothing to a reader."""
    return "no reply showed what the user asked for" if problem.startswith("no reply has shown") else problem


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
