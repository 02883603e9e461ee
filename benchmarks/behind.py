"""The end of `make bench`: one table of every cell in which a peer is ahead of ours, or "ahead everywhere".

    python -m benchmarks.behind FILE...

Each file is what a benchmark wrote with `--json`; those that have a peer write one of the forms below. A peer
is ahead where the median of the rounds is worse for us: a lower rate, more of anything else.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.turns import ratios, short

OWN: Final = "pyromq"
RATES: Final = ("rate", "per s", "messages/s", "MiB/s")
NOT_COMPARED: Final = ("failed", "woken by", "pages of mapped files")
"""Figures that are counted, and neither better nor worse."""


Figures = Mapping[str, float | None]


class Cell(NamedTuple):
    load: str
    figure: str
    peer: str
    ours: float
    theirs: float
    ratio: float

    @property
    def is_behind(self) -> bool:
        return self.ratio < 1 if self.figure.endswith(RATES) else self.ratio > 1


def cells(document: Mapping[str, Any]) -> Iterator[Cell]:
    """Every figure that both have measured."""
    if "samples" in document:
        yield from _broker(document)
    elif "results" in document:
        yield from _name_server(document["results"])
    elif "sync" in document:
        yield from _loads(document["sync"])
        logs = document["streams"].items()
        yield from _loads({"a log that is copied": {name: each for name, each in logs if _is_broker(name)}})
    elif OWN in document:
        yield from _access(document)
    else:
        yield from _loads(document.get("loads", document))


def _loads(loads: Mapping[str, Mapping[str, Figures | list[Figures]]]) -> Iterator[Cell]:
    """Figures of each load and server: their medians, or those of every round."""
    for load, servers in loads.items():
        ours = _rounds(servers.get(OWN, []))
        for peer, figures in servers.items():
            theirs = _rounds(figures)
            for name in dict.fromkeys(name for each in theirs for name in each):
                if peer != OWN and name not in NOT_COMPARED:
                    both = ([each.get(name) or 0.0 for each in rounds] for rounds in (ours, theirs))
                    yield from _compared(load, name, peer, *both)


def _is_broker(name: str) -> bool:
    return name.startswith((OWN, "apache-"))


def _rounds(figures: Figures | list[Figures]) -> list[Figures]:
    return figures if isinstance(figures, list) else [figures]


def _access(servers: Mapping[str, list[Mapping[str, list[float]]]]) -> Iterator[Cell]:
    """Costs of each load, in every turn after every start of a server."""
    for peer, starts in servers.items():
        for load in starts[0] if peer != OWN else ():
            both = [[cost for each in of for cost in each[load]] for of in (servers[OWN], starts)]
            ours, theirs = map(statistics.median, both)
            yield from _compared(f"access control: {load}", "cpu_us", peer, [ours], [theirs])


def _name_server(results: Mapping[str, Mapping[str, list[float]]]) -> Iterator[Cell]:
    for peer, figures in results.items():
        if peer.startswith("apache-"):
            for name, theirs in figures.items():
                load, _, figure = name.rpartition(": ")
                yield from _compared(load or name, figure, peer, results[OWN].get(name, []), theirs)


def _broker(document: Mapping[str, Any]) -> Iterator[Cell]:
    rounds = {(entry["load"], entry["server"]): entry["rounds"] for entry in document["samples"]}
    for (load, peer), theirs in rounds.items():
        ours = rounds.get((load, OWN), [])
        if peer.startswith("apache-") and ours:
            for figure in theirs[0]:
                if figure not in NOT_COMPARED:
                    yield from _compared(
                        load, figure, peer, [each[figure] for each in ours], [each[figure] for each in theirs]
                    )
    for figure, values in document["figures"].items():
        if not any(words in figure for words in NOT_COMPARED):
            for peer, theirs in values.items():
                if peer.startswith("apache-"):
                    yield from _compared(figure, "", peer, values.get(OWN, []), theirs)


def _compared(load: str, figure: str, peer: str, ours: list[float], theirs: list[float]) -> Iterator[Cell]:
    found = [ratio for ratio in ratios(ours, theirs) if ratio > 0]
    if found:
        yield Cell(
            load, figure, peer, statistics.median(ours), statistics.median(theirs), statistics.median(found)
        )


def table(found: list[Cell]) -> str:
    behind = [cell for cell in found if cell.is_behind]
    if not found:
        return "no peer could be had: nothing was compared"
    if not behind:
        return f"ahead everywhere: {len(found)} figures compared"
    lines = ["| load | figure | peer | ours | theirs | ours ÷ theirs |", "|---|---|---|---:|---:|---:|"]
    lines += [
        f"| {cell.load} | {cell.figure} | {cell.peer} | {short(cell.ours)} | {short(cell.theirs)}"
        f" | {cell.ratio:.2f} |"
        for cell in behind
    ]
    lines.append(f"\nA peer is ahead in {len(behind)} of {len(found)} figures.")
    return "\n".join(lines)


def main(*files: str) -> None:
    present = [Path(name) for name in files if Path(name).exists()]
    documents = [json.loads(path.read_text("utf-8")) for path in present]
    print(table([cell for document in documents for cell in cells(document)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
