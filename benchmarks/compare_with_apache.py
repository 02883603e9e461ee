"""Our servers and Apache's side by side: run the benchmarks that measure both, keep their tables and a plot.

    python -m benchmarks.compare_with_apache [--quick] [--parts namesrv,broker] [--out docs/benchmarks]

Each part writes what it printed into PART.md, below what is written there by hand, and its figures into
PART.json; the broker's ratios become broker.svg.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

PARTS: Final = ("namesrv", "broker")
TITLES: Final = {
    "namesrv": "The NameServer beside Apache's",
    "broker": "The broker beside Apache's",
}
OWN: Final = "pyromq"
MARK: Final = "<!-- From here on: `python -m benchmarks.compare_with_apache` -->\n"
ROW_PX, LEFT_PX, BAR_PX, GAP_PX = 16, 330, 300, 60


def run(part: str, out: Path, quick: bool) -> Mapping[str, Any]:
    figures = out / f"{part}.json"
    command = [sys.executable, "-m", f"benchmarks.{part}", "--json", str(figures)]
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])], stdout=subprocess.PIPE, text=True, check=True
    )
    page = out / f"{part}.md"
    before = page.read_text("utf-8").partition(MARK)[0] if page.exists() else f"# {TITLES[part]}\n\n"
    lines = [
        before + MARK,
        f"`python -m benchmarks.{part}` on {date.today().isoformat()}, "
        + f"{platform.system()} {platform.machine()}"
        + (", a quick run that only shows that it works." if quick else "."),
        "",
        *(["![Ratios](broker.svg)", ""] if part == "broker" else []),
        done.stdout,
    ]
    page.write_text("\n".join(lines), "utf-8")
    document: Mapping[str, Any] = json.loads(figures.read_text("utf-8"))
    return document


def ratios(document: Mapping[str, Any], other: str) -> list[tuple[str, list[float], list[float]]]:
    """For each load, ours ÷ Apache's in every round: rate and CPU a message."""
    rounds = {(entry["load"], entry["server"]): entry["rounds"] for entry in document["samples"]}
    rows = []
    for (load, server), samples in rounds.items():
        if server != OWN or (load, other) not in rounds:
            continue
        pairs = list(zip(samples, rounds[load, other], strict=True))
        rows.append(
            (
                load,
                [ours["rate"] / theirs["rate"] for ours, theirs in pairs if theirs["rate"]],
                [ours["cpu_us"] / theirs["cpu_us"] for ours, theirs in pairs if theirs["cpu_us"]],
            )
        )
    return rows


def plot(rows: Sequence[tuple[str, list[float], list[float]]], other: str) -> str:
    """Bars of the medians, whiskers from the lowest to the highest round; the red line is Apache's figure."""
    height = ROW_PX * (len(rows) + 4)
    width = LEFT_PX + 2 * BAR_PX + 2 * GAP_PX
    columns = ((LEFT_PX, "messages/s, ×", 4.0), (LEFT_PX + BAR_PX + GAP_PX, "CPU a message, ×", 1.5))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="{ROW_PX}">PyroMQ ÷ {escape(other)}: better is more on the left, '
        "less on the right</text>",
    ]
    for x, title, most in columns:
        one = x + BAR_PX / most
        parts.append(f'<text x="{x}" y="{2 * ROW_PX}">{title}</text>')
        parts.append(
            f'<line x1="{one}" x2="{one}" y1="{2.3 * ROW_PX}" y2="{height - ROW_PX}" stroke="#c33"/>'
        )
    for number, (load, rates, cpus) in enumerate(rows):
        y = ROW_PX * (number + 3)
        parts.append(f'<text x="8" y="{y}">{escape(load)}</text>')
        for (x, _, most), values in zip(columns, (rates, cpus), strict=True):
            if values:
                parts += _bar(x, y, [min(value, most) / most * BAR_PX for value in values], values)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(x: float, y: float, lengths: Sequence[float], values: Sequence[float]) -> list[str]:
    middle, low, high = statistics.median(lengths), min(lengths), max(lengths)
    return [
        f'<rect x="{x}" y="{y - 10}" width="{middle:.1f}" height="10" fill="#69b"/>',
        f'<line x1="{x + low:.1f}" x2="{x + high:.1f}" y1="{y - 5}" y2="{y - 5}" stroke="#234"/>',
        f'<text x="{x + high + 4:.1f}" y="{y}">{statistics.median(values):.2f}</text>',
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short loads: does it work at all?")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts.split(","):
        document = run(part, options.out, options.quick)
        if part == "broker":
            others = sorted({entry["server"] for entry in document["samples"]} - {OWN})
            for other in others[:1]:
                (options.out / "broker.svg").write_text(plot(ratios(document, other), other), "utf-8")


if __name__ == "__main__":
    main()
