"""`docs/episodes.svg`: what the ten episodes cost each contestant, as bars."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from bench.episodes.report import OURS
from bench.episodes.results import Standing

_WIDTH = 860
_LEFT, _RIGHT, _GAP = 180, 64, 24
_BAR, _STEP = 15, 22
_TOP = 62
_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: #24292f }
.title { font-size: 14px; font-weight: 600 }
.small { font-size: 11.5px; fill: #6e7781 }
.ours-name { font-weight: 700; fill: #0a7d4f }
.ours { fill: #12a66a } .other { fill: #8c9cb3 }
.back { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #8d96a0 } .ours-name { fill: #3fd08f }
  .ours { fill: #2ebd7d } .other { fill: #5d6b80 } .back { fill: #0d1117 }
}
"""
_PANELS: tuple[tuple[str, Callable[[Standing], int]], ...] = (
    ("Episodes solved, of ten", lambda one: one.solved),
    ("Calls", lambda one: one.sum_of("calls")),
    ("Tokens read", lambda one: one.sum_of("read")),
    ("Tokens written", lambda one: one.sum_of("written")),
    ("Tokens of the tools, in each request", lambda one: one.tool_tokens),
)


def draw(standings: list[Standing]) -> str:
    """The whole picture: a panel for each figure, a bar for each contestant."""
    parts, top = [], float(_TOP)
    for title, figure in _PANELS:
        parts.append(_panel(title, [(one.name, figure(one)) for one in standings], top))
        top += 26 + _STEP * len(standings) + _GAP
    height = round(top)
    note = "Ten episodes, played by a scripted model with each set of tools. Each panel has a scale of its own."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="What ten episodes cost with each set of tools">\n'
        f'<style>{_STYLE}</style>\n<rect class="back" width="{_WIDTH}" height="{height}" rx="8"/>\n'
        f'<text class="small" x="24" y="32">{note}</text>\n'
        f'<text class="small" x="24" y="48">Except for the first panel shorter is better.</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _panel(title: str, found: list[tuple[str, int]], top: float) -> str:
    most = max([figure for _, figure in found] or [1]) or 1
    parts = [f'<text class="title" x="24" y="{top + 12:g}">{escape(title)}</text>']
    for place, (name, figure) in enumerate(found):
        parts.append(_bar(name, figure, figure / most, top + 26 + place * _STEP))
    return "\n".join(parts)


def _bar(name: str, figure: int, share: float, y: float) -> str:
    kind, label = ("ours", ' class="ours-name"') if name == OURS else ("other", "")
    width = max(2.0, share * (_WIDTH - _LEFT - _RIGHT))
    base = y + _BAR - 3
    return (
        f'<text{label} x="{_LEFT - 10}" y="{base:g}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{_LEFT}" y="{y:g}" width="{width:.1f}" height="{_BAR}" rx="3"/>'
        f'<text{label} x="{_LEFT + width + 6:.1f}" y="{base:g}">{figure:,}</text>'
    )
