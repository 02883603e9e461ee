"""Our client on our broker next to Kafka's Python clients on a Kafka broker.

    python -m benchmarks.compare_with_kafka [--quick] [--clients pyromq,aiokafka,confluent] [--json FILE]

Brokers are processes of their own, and so is every load. Systems take turns, cell by cell, round by round;
the figure is the median. CPU time is the client's alone, all threads. The broker comes from Maven Central,
the clients from PyPI into a virtual environment of their own; what cannot be had is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.client import (
    BROKER_SETTINGS,
    IN_FLIGHT,
    QUEUES,
    REPOSITORY,
    SIZES,
    Results,
    Run,
    Sample,
    as_table,
    create_topics,
    pyromq_client,
    run_load,
    say,
)
from tests.support.apache_releases import PeerUnavailable, cache_directory
from tests.support.kafka import KAFKA_VERSION, KafkaBroker, fetch_kafka
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

KAFKA_CLIENTS: Final = ("aiokafka", "confluent")
PACKAGES: Final = ("aiokafka==0.14.0", "confluent-kafka==2.16.1", "uvloop==0.23.0")
JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


def python_with(packages: Sequence[str]) -> Path:
    """An interpreter that has these packages and nothing of ours; raises PeerUnavailable."""
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    home = cache_directory().parent / "peers" / f"clients-{digest}"
    python = home / "bin" / "python"
    if python.exists():
        return python
    say(f"installing {', '.join(packages)} ...")
    with tempfile.TemporaryDirectory(prefix="arriving-", dir=_made(home.parent)) as scratch:
        arriving = Path(scratch) / "venv"
        venv.create(arriving, with_pip=True)
        pip = [str(arriving / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(
                f"pip could not install {', '.join(packages)}: {done.stderr.strip()[-500:]}"
            )
        arriving.rename(home)
    return python


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def kafka_client(name: str) -> Run:
    fetch_kafka()
    python = python_with(PACKAGES)

    def run(mode: str, words: Sequence[str]) -> Sample:
        return run_load([str(python), "-m", "benchmarks.kafka_load", name, mode, *words], REPOSITORY)

    return run


def measure(
    results: Results,
    runs: dict[str, Run],
    places: dict[str, str],
    *,
    rounds: int,
    warm_up_s: float,
    seconds: float,
    consumed: int,
) -> None:
    """`places`: the name server or broker that each client is told of."""
    groups = itertools.count()
    for place, client in {places[client]: client for client in runs}.items():
        fill = runs["pyromq"] if client == "pyromq" else kafka_client("confluent")
        for size in SIZES:
            fill("fill", [place, f"filled-{size}", str(size), str(consumed)])
    for _, size in itertools.product(range(rounds), SIZES):
        for mode, what in (("send", "one by one"), ("batch", "batched by itself")):
            words = (f"load-{size}", str(size), str(IN_FLIGHT[mode]), str(warm_up_s), str(seconds))
            for client, run in runs.items():
                name = f"send {size} B, {what}, {IN_FLIGHT[mode]} in flight"
                results.add(name, client, run(mode, [places[client], *words]))
        for client, run in runs.items():
            # Every consumer is a new group that reads everything.
            group = f"group-{os.getpid()}-{next(groups)}"
            reading = [places[client], f"filled-{size}", group, str(consumed // 4), str(consumed)]
            results.add(f"consume {size} B", client, run("consume", reading))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short loads: does it work at all?")
    parser.add_argument("--clients", default="pyromq,aiokafka,confluent")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="measured time of each send load")
    parser.add_argument("--warm-up", type=float, default=8, help="seconds of each send load before that")
    parser.add_argument("--messages", type=int, default=500_000, help="of each consume load")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    runs: dict[str, Run] = {}
    places: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for client in options.clients.split(","):
            try:
                runs[client] = pyromq_client() if client == "pyromq" else kafka_client(client)
            except PeerUnavailable as reason:
                say(f"{client} left out: {reason}")
        if "pyromq" in runs:
            places["pyromq"] = _our_place(stack)
        if runs.keys() - {"pyromq"}:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyromq-kafka-")))
            broker = stack.enter_context(KafkaBroker(directory, partitions=QUEUES, jvm=JVM))
            places |= dict.fromkeys(KAFKA_CLIENTS, broker.address)
        results = Results(list(runs))
        measure(
            results,
            runs,
            places,
            rounds=1 if options.quick else options.rounds,
            warm_up_s=2 if options.quick else options.warm_up,
            seconds=2 if options.quick else options.seconds,
            consumed=40_000 if options.quick else options.messages,
        )
    python = sys.version.split()[0]
    print(f"Each on its own broker (Kafka {KAFKA_VERSION}); Python {python}; {os.cpu_count()} cores\n")
    print(as_table(results))
    if options.json:
        options.json.write_text(json.dumps(results.as_json(), indent=1) + "\n")


def _our_place(stack: contextlib.ExitStack) -> str:
    name_server = stack.enter_context(OwnNameServer())
    broker = stack.enter_context(OwnBroker(name_server.address, settings=BROKER_SETTINGS))
    topics = [f"{kind}-{size}" for size in SIZES for kind in ("load", "filled")]
    asyncio.run(create_topics(broker.address, topics))
    return name_server.address


if __name__ == "__main__":
    main()
