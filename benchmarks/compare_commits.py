"""CPU time per operation of two checkouts, in turns: what a change costs, however busy the machine is.

    python -m benchmarks.compare_commits BEFORE AFTER [--only store,rows,broker,client] [--rounds 5]

Both are directories with a `.venv` and, if the compiled core is to be measured, its modules. A figure is the
least of the rounds, as other programs can only make a round slower. The last column shows the ratios of the
single rounds, from the lower to the upper quartile: their distance from each other is the noise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.broker import Cell, sample
from benchmarks.client import BROKER_SETTINGS, create_topics, run_load
from benchmarks.turns import Running, hold
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer
from tests.support.server_programs import BROKER

ROWS: Final = Path(__file__).with_name("rows.py")
CPU_S: Final = 2
WARM_UP_S: Final = 1
CONSUMED: Final = 60_000

Figures = dict[str, float]
Measure = Callable[[Path], Figures]


def python(checkout: Path) -> str:
    return str(checkout / ".venv" / "bin" / "python")


# ------------------------------------------------------------------------------------------- one process


def _figures(checkout: Path, *arguments: str) -> dict[str, Figures]:
    """What a benchmark of a checkout writes with --json."""
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-") as directory:
        kept = Path(directory) / "figures.json"
        command = [python(checkout), *arguments, "--json", str(kept)]
        subprocess.run(command, cwd=checkout, check=True, capture_output=True)
        found: dict[str, Figures] = json.loads(kept.read_text())
    return found


def _store(checkout: Path) -> Figures:
    found = _figures(checkout, "-m", "benchmarks.store", "--quick", "--only", "append,batch,read")
    figures = {f"store: {name}": value for name, value in found["figures"].items()}
    figures |= {f"store, interpreted: {name}": value for name, value in found["interpreted"].items()}
    # The first touch of each page of the log is a matter of the kernel: the best turns have none.
    wanted = ("best 256", "batch of", "CPU µs a read")
    return {name: value for name, value in figures.items() if any(word in name for word in wanted)}


def _rows(checkout: Path) -> Figures:
    found = _figures(checkout, "-P", str(ROWS))
    return {f"Spark: {name}": value for name, value in found["figures"].items()}


@contextlib.contextmanager
def store(checkouts: list[Path]) -> Iterator[Measure]:
    yield _store


@contextlib.contextmanager
def rows(checkouts: list[Path]) -> Iterator[Measure]:
    yield _rows


# ------------------------------------------------------------------------------------------- over sockets

SENDS: Final = {
    "send of 100 B, one at a time": ("-c", "1", "-w", "1"),
    "send of 100 B, 8 connections": ("-c", "8", "-w", "1"),
    "send of 100 B, 32 in flight": ("-c", "1", "-w", "32"),
}
PULL: Final = Cell("pull", ("-m", "pull", "-T", "sent", "-n", "32", "-c", "4", "-R", "20000"), is_pull=True)
FLUSHES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")


@contextlib.contextmanager
def broker(checkouts: list[Path]) -> Iterator[Measure]:
    """All brokers are up, and all but one are stopped."""
    with contextlib.ExitStack() as stack:
        name_server = stack.enter_context(OwnNameServer())
        running: dict[tuple[Path, str], Running] = {}
        for checkout, flush in itertools.product(checkouts, FLUSHES):
            started = stack.enter_context(
                OwnBroker(
                    name_server.address,
                    f"{checkout.name}-{flush}",
                    settings={
                        "flushDiskType": flush,
                        "mappedFileSizeCommitLog": str(1 << 30),
                        "maxTransferCountOnMessageInDisk": "32",
                        "maxTransferBytesOnMessageInDisk": str(1 << 20),
                        "waitTimeMillsInSendQueue": "5000",
                    },
                    program=dataclasses.replace(BROKER, python=python(checkout)),
                )
            )
            server = running[checkout, flush] = Running(started.name, started.port, started.pid)
            hold(server, stack)

        def measure(checkout: Path) -> Figures:
            found: Figures = {}
            for flush in FLUSHES:
                server = running[checkout, flush]
                with server.turn():
                    for name, options in SENDS.items():
                        cell = Cell(name, ("-m", "send", "-T", "sent", "-b", "100", *options))
                        figure = f"broker, {flush}: {name}: CPU µs a message"
                        found[figure] = sample(server, cell, CPU_S, WARM_UP_S).cpu_us
                    if flush == "ASYNC_FLUSH":
                        pulled = sample(server, PULL, CPU_S, WARM_UP_S)
                        found["broker: pull of 32 × 100 B: CPU µs a pull"] = 32 * pulled.cpu_us
            return found

        yield measure


@contextlib.contextmanager
def client(checkouts: list[Path]) -> Iterator[Measure]:
    """Both clients talk to the same broker, that of the last checkout."""
    program = dataclasses.replace(BROKER, python=python(checkouts[-1]))
    groups = itertools.count()
    with (
        OwnNameServer() as name_server,
        OwnBroker(name_server.address, settings=BROKER_SETTINGS, program=program) as server,
    ):
        asyncio.run(create_topics(server.address, ["load", "filled"]))
        fill = [python(checkouts[-1]), "-m", "benchmarks.client_load", "fill"]
        run_load([*fill, name_server.address, "filled", "100", str(CONSUMED)], checkouts[-1])

        def measure(checkout: Path) -> Figures:
            loads = {
                "send of 100 B, 64 in flight": ("send", "load", "100", "64", "1", "3"),
                "send of 100 B, batched": ("batch", "load", "100", "1024", "1", "3"),
                "consume 100 B": (
                    "consume",
                    "filled",
                    f"group-{os.getpid()}-{next(groups)}",
                    "10000",
                    str(CONSUMED),
                ),
            }
            found: Figures = {}
            for name, (mode, *words) in loads.items():
                command = [
                    python(checkout),
                    "-m",
                    "benchmarks.client_load",
                    mode,
                    name_server.address,
                    *words,
                ]
                found[f"client: {name}: CPU µs a message"] = run_load(command, checkout).cpu_us
            return found

        yield measure


# ------------------------------------------------------------------------------------------- all of it

PARTS: Final = {"store": store, "rows": rows, "broker": broker, "client": client}


def table(before: dict[str, list[float]], after: dict[str, list[float]]) -> str:
    lines = ["| figure | before | after | ratio | of single rounds |", "|---|---:|---:|---:|---:|"]
    for name in before:
        if name not in after:
            continue
        least_before, least_after = min(before[name]), min(after[name])
        ratios = [mine / theirs for theirs, mine in zip(before[name], after[name], strict=True)]
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        lines.append(
            f"| {name} | {least_before:.2f} | {least_after:.2f} | **{least_after / least_before:.2f}** "
            f"| {quartiles[0]:.2f}–{quartiles[2]:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    checkouts = [options.before.resolve(), options.after.resolve()]
    found: dict[Path, dict[str, list[float]]] = {checkout: {} for checkout in checkouts}
    for part in options.only.split(","):
        with PARTS[part](checkouts) as measure:
            for number in range(options.rounds):
                # Whoever begins has the colder machine: they take turns in that, too.
                for checkout in checkouts[:: 1 if number % 2 else -1]:
                    for name, value in measure(checkout).items():
                        found[checkout].setdefault(name, []).append(value)
                        sys.stderr.write(f"  {checkout.name}: {name} = {value:.2f}\n")
    print(table(*found.values()))


if __name__ == "__main__":
    main()
