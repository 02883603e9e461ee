"""Loads of a fixed number of messages, which brokers take in turns: rates and CPU times as ratios."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.broker import OWN, SERVERS, available, running
from benchmarks.turns import Running, compared


@dataclass(frozen=True)
class Sample:
    rate: float
    cpu_us: float


Found = dict[str, dict[str, list[Sample]]]
"""Samples by load and by server."""
Measure = Callable[[Sequence[Running], int, int], Found]
"""Takes the servers, the number of rounds, and how many messages each has."""


def as_table(found: Found, names: Sequence[str], title: str, unit: str) -> str:
    lines = []
    for other in [name for name in names if name != OWN] or [OWN]:
        lines += [
            f"| {title} | {unit}/s | {other} | ratio | CPU µs each | {other} | ratio |",
            "|---|---|---|---|---|---|---|",
        ]
        for cell, samples in found.items():
            mine, theirs = samples.get(OWN, []), samples[other]
            rates = compared([each.rate for each in mine], [each.rate for each in theirs])
            cpu = compared([each.cpu_us for each in mine], [each.cpu_us for each in theirs])
            lines.append(f"| {cell} | {' | '.join([*rates, *cpu])} |")
    return "\n".join(lines)


def run(description: str | None, measure: Measure, title: str, unit: str) -> None:
    """The program of such a benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--servers", default="pyromq,apache-5.3.3", help=f"of {', '.join(SERVERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=30_000, help=f"{unit} in each round of a load")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = available(options.servers.split(","))
    rounds, count = (1, 4_000) if options.quick else (options.rounds, options.count)
    with running(names, "ASYNC_FLUSH") as servers:
        found = measure(servers, rounds, count)
    print(as_table(found, names, title, unit))
    if options.json:
        document: dict[str, Any] = {
            cell: {server: [asdict(each) for each in rows] for server, rows in samples.items()}
            for cell, samples in found.items()
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
