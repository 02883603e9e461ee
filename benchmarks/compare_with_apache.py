"""Our servers and Apache's side by side: runs the benchmarks of both, keeps their tables and pictures.

    python -m benchmarks.compare_with_apache [--minutes 25] [--apache 5.3.3] [--parts namesrv,broker]
                                             [--quick] [--out docs/benchmarks]

Each part writes what it printed into PART.md, below what is written there by hand, its figures into PART.json
and its ratios as a picture for each of Apache's releases.
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

from benchmarks.ratio_plot import Panel, Row, picture
from benchmarks.turns import ratios

SHARES: Final = {"namesrv": 0.2, "broker": 0.8}
"""The parts, and how they divide the time."""
TITLES: Final = {
    "namesrv": "The NameServer compared with Apache's",
    "broker": "The broker compared with Apache's",
}
OWN: Final = "pyromq"
MARK: Final = "<!-- From here on: `python -m benchmarks.compare_with_apache` -->\n"
PANELS: Final = {
    "namesrv": (
        Panel("rate", "look-ups/s", is_more_better=True),
        Panel("cpu_us", "CPU a request", is_more_better=False),
        Panel("p99", "p99", is_more_better=False),
    ),
    "broker": (
        Panel("rate", "messages/s", is_more_better=True),
        Panel("cpu_us", "CPU a message", is_more_better=False),
        Panel("p99", "p99", is_more_better=False),
    ),
}
_KEYS: Final = {"per s": "rate", "server CPU µs": "cpu_us", "p99 µs": "p99"}


def run(part: str, options: argparse.Namespace) -> Mapping[str, Any]:
    """Measure one part; its page is written, its figures returned."""
    figures = options.out / f"{part}.json"
    servers = ",".join([OWN, *(f"apache-{version}" for version in options.apache.split(","))])
    length = ["--quick"] if options.quick else ["--minutes", f"{options.minutes * SHARES[part]:g}"]
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{part}", "--servers", servers, "--json", str(figures), *length],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    document: Mapping[str, Any] = json.loads(figures.read_text("utf-8"))
    others = _others(part, document)
    page = options.out / f"{part}.md"
    before = page.read_text("utf-8").partition(MARK)[0] if page.exists() else f"# {TITLES[part]}\n\n"
    lines = [
        before + MARK,
        f"`python -m benchmarks.{part} {' '.join(length)} --servers {servers}`, "
        + f"{date.today().isoformat()}, {platform.system()} {platform.machine()}"
        + (": a quick run that only shows that it works." if options.quick else "."),
        "",
        *(f"![Ours ÷ {other}]({_picture_name(part, other)})\n" for other in others),
        done.stdout.rstrip() if others else done.stdout.rstrip() + "\n\nApache's servers could not be had.",
        "",
    ]
    page.write_text("\n".join(lines), "utf-8")
    return document


def _picture_name(part: str, other: str) -> str:
    return f"{part}-{other}.svg"


def _others(part: str, document: Mapping[str, Any]) -> list[str]:
    if part == "broker":
        found = {entry["server"] for entry in document["samples"]}
    else:
        found = set(document["results"])
    return sorted(name for name in found if name.startswith("apache-"))


def broker_rows(document: Mapping[str, Any], other: str) -> list[Row]:
    """For each load, ours ÷ Apache's in every round."""
    rounds = {(entry["load"], entry["server"]): entry["rounds"] for entry in document["samples"]}
    return [
        Row(
            load,
            {
                panel.key: ratios(
                    [s[panel.key] for s in samples], [s[panel.key] for s in rounds[load, other]]
                )
                for panel in PANELS["broker"]
            },
        )
        for (load, server), samples in rounds.items()
        if server == OWN and (load, other) in rounds
    ]


def name_server_rows(document: Mapping[str, Any], other: str) -> list[Row]:
    """Figures are called `LOAD: FIGURE`."""
    rows: dict[str, dict[str, list[float]]] = {}
    ours, theirs = document["results"][OWN], document["results"][other]
    for name, values in ours.items():
        load, _, figure = name.rpartition(": ")
        if figure in _KEYS and name in theirs:
            rows.setdefault(load, {})[_KEYS[figure]] = ratios(values, theirs[name])
    return [Row(load, found) for load, found in rows.items()]


def memory_note(figures: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]]) -> str:
    told = [
        f"{name.removesuffix(' RSS').removesuffix(', MB')} × {statistics.median(found):.2f}"
        for name, values in figures.items()
        if name.endswith(("MB RSS", "own, MB")) and (found := ratios(values, others.get(name, [])))
    ]
    return "Memory: " + "; ".join(told)


def write_pictures(part: str, document: Mapping[str, Any], out: Path) -> None:
    for other in _others(part, document):
        if part == "broker":
            rows = broker_rows(document, other)
            by_figure = document["figures"]
            memory = memory_note(
                {name: values.get(OWN, []) for name, values in by_figure.items()},
                {name: values.get(other, []) for name, values in by_figure.items()},
            )
        else:
            rows = name_server_rows(document, other)
            memory = memory_note(document["results"][OWN], document["results"][other])
        title = f"{TITLES[part].partition(' compared')[0]}: PyroMQ ÷ {other}"
        (out / _picture_name(part, other)).write_text(picture(title, PANELS[part], rows, [memory]), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short loads: does it work at all?")
    parser.add_argument("--minutes", type=float, default=25.0, help="about so long altogether")
    parser.add_argument("--apache", default="5.3.3", help="of 5.3.3 and 4.9.7, or both: 5.3.3,4.9.7")
    parser.add_argument("--parts", default=",".join(SHARES))
    parser.add_argument("--out", type=Path, help="by default docs/benchmarks, and build/benchmarks if quick")
    options = parser.parse_args()
    options.out = options.out or Path("build/benchmarks" if options.quick else "docs/benchmarks")
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts.split(","):
        write_pictures(part, run(part, options), options.out)


if __name__ == "__main__":
    main()
