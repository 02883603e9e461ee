"""Ratios as a picture: a bar from 1 to the median, and a line from the lowest round to the highest.

Scales are logarithmic: twice and half are equally far from 1. What is better for us is drawn in one colour,
what is worse in another, whichever way better is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

TICKS: Final = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
TICK_TEXTS: Final = ("⅛", "¼", "½", "1", "2", "4", "8")
ROW_PX, LABEL_PX, PANEL_PX, VALUE_PX, MARGIN_PX, HEAD_PX = 20, 290, 230, 52, 16, 82
BETTER, WORSE, INK, GRID = "#2a7f8e", "#d1702b", "#22303a", "#dde3e7"


@dataclass(frozen=True)
class Panel:
    key: str
    title: str
    is_more_better: bool


@dataclass(frozen=True)
class Row:
    """One load: the ratios of all rounds by the key of their panel."""

    label: str
    ratios: Mapping[str, Sequence[float]]


def picture(title: str, panels: Sequence[Panel], rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """An SVG; `notes` are lines below it."""
    width = 2 * MARGIN_PX + LABEL_PX + len(panels) * (PANEL_PX + VALUE_PX)
    bottom = HEAD_PX + ROW_PX * len(rows)
    height = bottom + 18 * len(notes) + 2 * MARGIN_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" '
        f'font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + 10}" font-size="15" font-weight="bold">{escape(title)}'
        "</text>",
        f'<rect x="{MARGIN_PX}" y="{MARGIN_PX + 22}" width="10" height="10" fill="{BETTER}"/>',
        f'<text x="{MARGIN_PX + 15}" y="{MARGIN_PX + 31}">ours is better</text>',
        f'<rect x="{MARGIN_PX + 110}" y="{MARGIN_PX + 22}" width="10" height="10" fill="{WORSE}"/>',
        f'<text x="{MARGIN_PX + 125}" y="{MARGIN_PX + 31}">ours is behind</text>',
    ]
    for number, row in enumerate(rows):
        y = HEAD_PX + ROW_PX * number
        if number % 2:
            parts.append(f'<rect x="0" y="{y}" width="{width}" height="{ROW_PX}" fill="#f6f8f9"/>')
        parts.append(f'<text x="{MARGIN_PX}" y="{y + 14}">{escape(row.label)}</text>')
    for number, panel in enumerate(panels):
        left = MARGIN_PX + LABEL_PX + number * (PANEL_PX + VALUE_PX)
        parts += _axis(panel, left, bottom)
        for place, row in enumerate(rows):
            if values := row.ratios.get(panel.key):
                parts += _bar(panel, left, HEAD_PX + ROW_PX * place + ROW_PX / 2, values)
    for number, note in enumerate(notes):
        parts.append(f'<text x="{MARGIN_PX}" y="{bottom + 26 + 18 * number}">{escape(note)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(panel: Panel, left: float, bottom: float) -> list[str]:
    way = "more is better" if panel.is_more_better else "less is better"
    parts = [
        f'<text x="{left}" y="{HEAD_PX - 28}" font-weight="bold">{escape(panel.title)}</text>'
        f'<text x="{left + PANEL_PX}" y="{HEAD_PX - 28}" text-anchor="end" fill="#77858f">{way}</text>'
    ]
    for tick, text in zip(TICKS, TICK_TEXTS, strict=True):
        x = left + _at(tick)
        colour = INK if tick == 1 else GRID
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD_PX}" y2="{bottom}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEAD_PX - 8}" text-anchor="middle" font-size="11">{text}</text>')
    return parts


def _bar(panel: Panel, left: float, middle: float, values: Sequence[float]) -> list[str]:
    ratio = statistics.median(values)
    colour = BETTER if (ratio >= 1) is panel.is_more_better or ratio == 1 else WORSE
    start, end = sorted((_at(1.0), _at(ratio)))
    low, high = _at(min(values)), _at(max(values))
    return [
        f'<rect x="{left + start:.1f}" y="{middle - 5:.1f}" width="{end - start:.1f}" height="10" '
        f'fill="{colour}"/>',
        f'<line x1="{left + low:.1f}" x2="{left + high:.1f}" y1="{middle}" y2="{middle}" stroke="{INK}" '
        'stroke-width="1.5"/>',
        f'<text x="{left + PANEL_PX + VALUE_PX - 14}" y="{middle + 4:.1f}" text-anchor="end">{_short(ratio)}'
        "</text>",
    ]


def _at(ratio: float) -> float:
    """Where a ratio lies in its panel; what is beyond the scale lies at its end."""
    share = (math.log2(max(ratio, TICKS[0])) - math.log2(TICKS[0])) / math.log2(TICKS[-1] / TICKS[0])
    return min(share, 1.0) * PANEL_PX


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
