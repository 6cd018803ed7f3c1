"""How a run is told: the table on the terminal, the figures as JSON, and the page for the documentation."""

from __future__ import annotations

import os
import platform
import tomllib
from pathlib import Path

from bench.measure import Timing
from bench.peers import Ours, Raw
from bench.rows import Row

CAUSES = Path(__file__).parent / "causes.toml"
_HEAD = f"{'what':<42} {'ours':>9} {'p95':>9} {'raw':>9} {'ratio':>7} {'goal':>8} {'':<6}  raw is"


def number(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"×{number(ratio)}"


def goal_of(row: Row) -> str:
    if row.goal is None:
        return "-"
    return f"×{row.goal.most:g}" if row.goal.is_ratio else f"{row.goal.most:g} {row.unit}"


def _p95(row: Row) -> float | None:
    return row.ours.p95 * (1000 if row.unit == "ms" else 1) if len(row.ours.seconds) > 1 else None


def head() -> str:
    return _HEAD


def line(row: Row) -> str:
    """One row of the table, as soon as it is known."""
    if not row.ours.seconds:
        return f"{row.what:<42} {row.ours.trouble}"
    unit = "" if row.unit == "ms" else row.unit
    return (
        f"{row.what:<42} {number(row.figure(Ours.name)) + unit:>9} {number(_p95(row)):>9} "
        f"{number(row.figure(Raw.name)):>9} {times(row.ratio(Ours.name)):>7} {goal_of(row):>8} {row.verdict:<6}  "
        f"{row.raw_is}"
    )


def beside(row: Row, name: str) -> str:
    """What one contestant reached: its ratio to raw, or its figure where raw has none."""
    timing = row.timings.get(name)
    if timing is None or timing.trouble == "-" or (not timing.seconds and not timing.trouble):
        return "-"
    if not timing.seconds:
        return "failed"
    ratio = row.ratio(name)
    return times(ratio) if ratio is not None else number(row.figure(name))


def others_of(rows: list[Row]) -> list[str]:
    """The other contestants of a run, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row.timings if name not in (Ours.name, Raw.name)))


def comparison(rows: list[Row]) -> str:
    """The second table: every contestant's ratio to raw."""
    names = [Ours.name, *others_of(rows)]
    short = [name if len(name) <= 11 else name[:10] + "." for name in names]
    lines = [f"{'ratio to raw (memory: MiB)':<42}" + "".join(f"{name:>12}" for name in short)]
    lines += [f"{row.what:<42}" + "".join(f"{beside(row, name):>12}" for name in names) for row in rows]
    return "\n".join(lines)


def troubles(rows: list[Row]) -> list[str]:
    """What could not be measured, and why."""
    return [
        f"{name}, {row.what}: {timing.trouble}"
        for row in rows
        for name, timing in row.timings.items()
        if timing.trouble not in ("", "-")
    ]


def machine() -> dict[str, object]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "architecture": platform.machine(),
    }


def as_json(rows: list[Row], missing: dict[str, str]) -> dict[str, object]:
    return {"machine": machine(), "missing": missing, "rows": [_row_as_json(row) for row in rows]}


def _row_as_json(row: Row) -> dict[str, object]:
    def told(name: str, timing: Timing) -> dict[str, object]:
        if row.unit != "ms":
            return {row.unit: row.figure(name)} if timing.seconds else timing.as_dict()
        ratio = row.ratio(name)
        return {**timing.as_dict(), **({"ratio": round(ratio, 3)} if ratio is not None else {})}

    goal = {"goal": row.goal.most, "goal_is": "ratio" if row.goal.is_ratio else row.unit} if row.goal else {}
    return {
        "key": row.key,
        "what": row.what,
        "raw": row.raw_is,
        **goal,
        "verdict": row.verdict,
        "contestants": {name: told(name, timing) for name, timing in row.timings.items()},
    }


# --- the page ------------------------------------------------------------------------------

_PAGE = """# Speed

Machines differ and are noisy, so each figure stands beside the raw limit of the same moment: what the standard library
takes for the same thing with nothing kept. All contestants run in turns, in one loop; the ratio to
raw is what is stable.

![ratio to raw](bench.svg)

{machine}.

`make bench` measures again and writes this page; as root on Debian it also installs the other systems, and leaves out
what cannot be had. `ARGS=--quick` takes about a minute, `ARGS="--only start"` measures one row.

## Ours

Medians; `raw` is what the last column says.

{ours}

## Beside others

The multiple of raw (memory: MiB), each system driven through its own interface. A dash: it has no such thing.

{others}
{remarks}
## What misses its goal

{missed}
"""


def _table(head: list[str], body: list[list[str]]) -> str:
    rule = "|".join(["---"] + ["--:"] * (len(head) - 1))
    rows = [f"| {' | '.join(cells)} |" for cells in [head, *body]]
    return "\n".join([rows[0], f"|{rule}|", *rows[1:]])


def _figure(row: Row, name: str) -> str:
    found = row.figure(name)
    return "-" if found is None else f"{number(found)} {row.unit}"


def page(rows: list[Row], missing: dict[str, str]) -> str:
    """`docs/bench.md`. What is written by hand in it comes from `causes.toml`."""
    ours = [
        [
            row.what,
            _figure(row, Ours.name),
            number(_p95(row)),
            _figure(row, Raw.name),
            times(row.ratio(Ours.name)),
            goal_of(row),
            f"**{row.verdict}**" if row.verdict == "missed" else row.verdict,
            f"{len(row.ours.seconds)} × {row.raw_is.replace('|', '/')}",
        ]
        for row in rows
    ]
    names = [Ours.name, *others_of(rows)]
    found = machine()
    return _PAGE.format(
        machine=f"Measured on {found['cores']} cores, Linux {found['kernel']} ({found['architecture']}), "
        f"Python {found['python']}",
        ours=_table(["what", "ours", "p95", "raw", "ratio", "goal", "", "times, beside"], ours),
        others=_table(["what", *names], [[row.what, *(beside(row, name) for name in names)] for row in rows]),
        remarks=_remarks(rows, missing),
        missed=_missed(rows),
    )


def _remarks(rows: list[Row], missing: dict[str, str]) -> str:
    said = [f"- {trouble}" for trouble in troubles(rows)]
    said += [f"- {name} took no part: {why}" for name, why in missing.items()]
    return "\n" + "\n".join(said) + "\n" if said else ""


def _missed(rows: list[Row]) -> str:
    causes = tomllib.loads(CAUSES.read_text()) if CAUSES.exists() else {}
    said = []
    for row in rows:
        if row.verdict == "missed" and row.goal is not None:
            reached = times(row.reached) if row.goal.is_ratio else f"{number(row.reached)} {row.unit}"
            cause = str(causes.get(row.key, "Its cause is not measured yet.")).strip()
            said.append(f"- **{row.what}**: {reached}, the goal is {goal_of(row)}. {cause}")
    return "\n".join(said) or "Nothing."
