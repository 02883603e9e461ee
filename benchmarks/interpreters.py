"""The same broker and client on several Pythons: what a build with profile-guided optimisation gives.

    python -m benchmarks.interpreters [--quick] PYTHON...

Each PYTHON is that of an environment with pyromq and pyromq-native of the same source; the Python that runs
this is the first. They take turns, load by load and round by round; the figure is CPU time of the broker, or
of the client, for a message: it hardly changes when other programs share the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

import uvloop
from benchmarks.broker import PULLED_TOPIC, SETTINGS, Cell, load
from benchmarks.client import REPOSITORY, create_topics, run_load
from benchmarks.native import run_loadgen
from benchmarks.turns import Running, hold, narrow, orders, ratios, short
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer
from tests.support.server_programs import BROKER

TURN_MS: Final = 200
FILLED: Final = 300_000
QUEUE_LENGTH: Final = 10_000
"""How much of each queue is pulled again and again."""
SEND: Final = ("-m", "send", "-T", "sent", "-b", "100", "-s", "json")
PULL: Final = ("-m", "pull", "-T", PULLED_TOPIC.format(size=100), "-n", "32", "-R", str(QUEUE_LENGTH))
BROKER_CELLS: Final = (
    Cell("broker: sends of 100 B, 1 × 1", (*SEND, "-c", "1", "-w", "1")),
    Cell("broker: sends of 100 B, 8 × 8", (*SEND, "-c", "8", "-w", "8")),
    Cell("broker: sends of 100 B, 64 × 64", (*SEND, "-c", "64", "-w", "64")),
    Cell("broker: pulls of 32 messages of 100 B, 8 connections", (*PULL, "-c", "8"), is_pull=True),
)
CLIENT_CELLS: Final = {
    "client: sends one by one, 64 in flight": ("send", "sent", "100", "64", "1", "{seconds}"),
    "client: sends batched by itself": ("batch", "sent", "100", "1024", "1", "{seconds}"),
    "client: blocking sends, one thread": ("block", "sent", "100", "1", "1", "{seconds}"),
    "client: async handler": ("consume", "filled", "{group}", "20000", str(FILLED)),
    "client: lists of messages": ("consume-lists", "filled", "{group}", "20000", str(FILLED)),
}
Figures = dict[tuple[str, str], list[float]]


def measure_brokers(pythons: dict[str, str], rounds: int, figures: Figures) -> None:
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(OwnNameServer())
        servers = []
        for version, path in pythons.items():
            program = dataclasses.replace(BROKER, python=path)
            own = stack.enter_context(OwnBroker(names.address, settings=SETTINGS, program=program))
            servers.append(Running(version, own.port, own.pid))
            hold(servers[-1], stack)
            with servers[-1].turn():
                filling = ("-m", "send", "-T", PULLED_TOPIC.format(size=100), "-c", "8", "-w", "16")
                load(servers[-1], Cell("", filling), 1)
        for order in orders(servers, rounds):
            for cell in BROKER_CELLS:
                for server in order:
                    with server.turn():
                        note(figures, cell.name, server.name, cpu_us(server, cell))


def cpu_us(server: Running, cell: Cell) -> float:
    """CPU time of a message, in a short turn: with many of them the ratio is known well on a busy machine."""
    said = run_loadgen(
        "-P", str(server.port), "-p", str(server.pid),
        "-u", "0", "-C", str(TURN_MS), "-t", "10", *cell.options,
    )  # fmt: skip
    messages = float(said["messages"] if cell.is_pull else said["rate"])
    return float(said["cpu_us"]) * float(said["rate"]) / messages


def measure_clients(pythons: dict[str, str], rounds: int, seconds: int, figures: Figures) -> None:
    with OwnNameServer() as names, OwnBroker(names.address, settings=SETTINGS) as own:
        uvloop.run(create_topics(own.address, ["sent", "filled"]))
        module = ("-m", "benchmarks.client_load")
        run_load([sys.executable, *module, "fill", names.address, "filled", "100", str(FILLED)], REPOSITORY)
        groups = itertools.count()
        for order in orders(list(pythons.items()), rounds):
            for cell, (mode, *words) in CLIENT_CELLS.items():
                for version, path in order:
                    filled = [word.format(seconds=seconds, group=f"group-{next(groups)}") for word in words]
                    found = run_load([path, *module, mode, names.address, *filled], REPOSITORY)
                    note(figures, cell, version, found.cpu_us)


def note(figures: Figures, cell: str, version: str, cpu_us: float) -> None:
    figures.setdefault((cell, version), []).append(cpu_us)
    sys.stderr.write(f"{cell}: {version}: {cpu_us:.2f} µs\n")


def table(versions: list[str], figures: Figures) -> str:
    """Ratios are to the first one, within each round."""
    first, *others = versions
    lines = [
        "| CPU µs a message | " + " | ".join([first, *(f"{other} | ÷ {first}" for other in others)]) + " |",
        "|---|" + "---:|" * (1 + 2 * len(others)),
    ]
    for cell in dict.fromkeys(cell for cell, _ in figures):
        columns = [cell, short(statistics.median(figures[cell, first]))]
        for other in others:
            columns.append(short(statistics.median(figures[cell, other])))
            columns.append(narrow(ratios(figures[cell, other], figures[cell, first])))
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines)


def version_of(python: str) -> str:
    words = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--turns", type=int, default=20, help="of each broker in each load")
    parser.add_argument("--rounds", type=int, default=5, help="of each client in each load")
    parser.add_argument("--seconds", type=int, default=2, help="length of each round")
    options = parser.parse_args()
    if options.quick:
        options.turns = options.rounds = options.seconds = 1
    pythons = {version_of(str(path)): str(path) for path in (Path(sys.executable), *options.pythons)}
    figures: Figures = {}
    measure_brokers(pythons, options.turns, figures)
    measure_clients(pythons, options.rounds, options.seconds, figures)
    print(table(list(pythons), figures))


if __name__ == "__main__":
    main()
