"""`docs/bench.svg`: the ratio to raw of every contestant as bars on a logarithmic scale."""

from __future__ import annotations

import math
from html import escape

from bench.peers import OTHERS, Ours
from bench.report import others_of, times
from bench.rows import Row

WIDTH = 860
_LEFT, _RIGHT = 190, 70
_BAR, _STEP = 16, 23
_PANELS = {
    "foreground-warm": "Run `true` and get its result",
    "start": "Start in the background",
    "wake-up": "Learn that it has ended",
}
_REFERENCES = {peer.name for peer in OTHERS if peer.is_reference}
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.small { font-size: 11.5px; fill: #6e7781 }
.ours-name { font-weight: 700; fill: #0a7d4f }
.ours { fill: #12a66a } .other { fill: #8c9cb3 } .reference { fill: #c9d1db }
.grid { stroke: #d0d7de; stroke-width: 1 } .raw { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 4 3 }
.back { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #8d96a0 } .ours-name { fill: #3fd08f }
  .ours { fill: #2ebd7d } .other { fill: #5d6b80 } .reference { fill: #3a4452 }
  .grid { stroke: #30363d } .raw { stroke: #ff7b72 } .back { fill: #0d1117 }
}
"""


class _Scale:
    """From a ratio to a place on the line."""

    def __init__(self, ratios: list[float]) -> None:
        self.low = max(-1, math.floor(math.log10(min([*ratios, 1.0]))))  # a bar of no length says enough below
        self.high = max(1, math.ceil(math.log10(max([*ratios, 1.0]))))

    def x(self, ratio: float) -> float:
        share = (math.log10(ratio) - self.low) / (self.high - self.low)
        return _LEFT + max(0.0, share) * (WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _panel(title: str, found: list[tuple[str, float]], scale: _Scale, top: float) -> tuple[str, float]:
    parts = [f'<text class="title" x="24" y="{top + 14:g}">{escape(title.replace("`", ""))}</text>']
    first = top + 28
    bottom = first + _STEP * len(found)
    for tick in scale.ticks():
        x = scale.x(tick)
        if tick != 1:
            parts.append(_line("grid", x, first - 4, bottom))
        parts.append(
            f'<text class="small" x="{x:.1f}" y="{bottom + 14:g}" text-anchor="middle">'
            f"{'raw' if tick == 1 else f'×{tick:g}'}</text>"
        )
    for place, (name, ratio) in enumerate(found):
        parts.append(_bar(name, ratio, scale, first + place * _STEP))
    parts.append(_line("raw", scale.x(1), first - 4, bottom))
    return "\n".join(parts), bottom + 36


def _line(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'


def _bar(name: str, ratio: float, scale: _Scale, y: float) -> str:
    kind = "ours" if name == Ours.name else "reference" if name in _REFERENCES else "other"
    start, end = scale.x(scale.ticks()[0]), scale.x(ratio)
    label = ' class="ours-name"' if kind == "ours" else ""
    base = y + _BAR - 4
    return (
        f'<text{label} x="{_LEFT - 10}" y="{base:g}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{start:.1f}" y="{y:g}" width="{max(2.0, end - start):.1f}" height="{_BAR}" rx="3"/>'
        f'<text{label} x="{end + 6:.1f}" y="{base:g}">{escape(times(ratio))}</text>'
    )


def draw(rows: list[Row]) -> str:
    """The whole picture; shorter is faster."""
    by_key = {row.key: row for row in rows}
    names = [Ours.name, *others_of(rows)]
    panels = []
    for key, title in _PANELS.items():
        row = by_key.get(key)
        found = [(name, ratio) for name in names if row is not None and (ratio := row.ratio(name)) is not None]
        if found:
            panels.append((title, sorted(found, key=lambda one: one[1])))
    scale = _Scale([ratio for _, found in panels for _, ratio in found])
    parts, top = [], 62.0
    for title, found in panels:
        drawn, top = _panel(title, found, scale, top)
        parts.append(drawn)
    note = "Time as a multiple of what the standard library takes with nothing kept. Logarithmic; shorter is faster."
    height = math.ceil(top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="Time of each system as a multiple of raw">\n<style>{_STYLE}</style>\n'
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="8"/>\n'
        f'<text class="small" x="24" y="32">{note}</text>\n'
        f'<text class="small" x="24" y="48">Paler bars: ways to do it by hand that keep nothing.</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
