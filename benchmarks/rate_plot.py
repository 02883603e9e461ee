"""Latency over the rate, one line a system. Both scales are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.ratio_plot import GRID, INK

WIDTH_PX, HEIGHT_PX, LEFT_PX, BOTTOM_PX, TOP_PX, LEGEND_PX = 720, 420, 60, 46, 44, 150
COLOURS: Final = ("#2a7f8e", "#d1702b", "#a0522d", "#5b4b9a", "#c0392b", "#7a8b1f", "#5f6b73")


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]
    """Rates, and milliseconds."""


class _Scale:
    def __init__(self, values: Sequence[float], first_px: float, last_px: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)
        self._first_px, self._last_px = first_px, last_px

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first_px + share * (self._last_px - self._first_px)

    @property
    def ticks(self) -> list[float]:
        return [10.0**each for each in range(self._low, self._high + 1)]


def picture(title: str, curves: Sequence[Curve]) -> str:
    """An SVG; systems without points are left out."""
    curves = [each for each in curves if each.points]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{HEIGHT_PX}" '
        f'viewBox="0 0 {WIDTH_PX} {HEIGHT_PX}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif" '
        f'font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH_PX}" height="{HEIGHT_PX}" fill="white"/>',
        f'<text x="{LEFT_PX}" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    if curves:
        parts += _plot(curves)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _plot(curves: Sequence[Curve]) -> Iterator[str]:
    right, bottom = WIDTH_PX - LEGEND_PX, HEIGHT_PX - BOTTOM_PX
    rates = _Scale([rate for each in curves for rate, _ in each.points], LEFT_PX, right)
    times = _Scale([ms for each in curves for _, ms in each.points], bottom, TOP_PX)
    for rate in rates.ticks:
        x = rates.at(rate)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP_PX}" y2="{bottom}" stroke="{GRID}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{rate:,.0f}</text>'
    for ms in times.ticks:
        y = times.at(ms)
        yield f'<line x1="{LEFT_PX}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        yield f'<text x="{LEFT_PX - 6}" y="{y + 4:.1f}" text-anchor="end">{ms:g} ms</text>'
    yield f'<text x="{(LEFT_PX + right) / 2}" y="{bottom + 36}" text-anchor="middle">messages a second</text>'
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        places = [(rates.at(rate), times.at(ms)) for rate, ms in curve.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
        y = TOP_PX + 12 + 18 * number
        yield f'<rect x="{right + 14}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{right + 29}" y="{y}">{escape(curve.name)}</text>'
