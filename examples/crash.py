"""A cluster, a stream of orders, a crash in the middle, and not a cent lost: `python examples/crash.py`.

1. `pyromq standalone` runs a name server and a broker with synchronous flush, as a process of its own.
2. A producer sends a seeded stream of orders, many at a time.
3. Half-way the cluster is killed with SIGKILL and started again; it recovers, and the producer goes on.
4. Two members of one consumer group share the orders and add up the revenue of each region.
5. The totals must agree to the cent: at-least-once delivery, doubles recognised by their keys.

Prints what happens, a table of the totals, and `Totals agree to the cent.`
"""

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyromq import Message, PyroError, ReceivedMessage
from pyromq.aio import Producer, PushConsumer

TOPIC = "Orders"
REGIONS = ("africa", "americas", "asia", "europe", "oceania")
READY = re.compile(r"name server (\S+), broker (\S+),")

console = Console()


class Cluster:
    """`pyromq standalone` as a child process that can be killed and started again on the same ports."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._ports = ["0", "0"]
        self._process: subprocess.Popen[str] | None = None
        self.namesrv = ""

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "pyromq",
            "standalone",
            "--flush",
            "sync",
            "--store",
            str(self._store),
        ]
        command += ["--namesrv-port", self._ports[0], "--broker-port", self._ports[1]]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = READY.search(line)
        if found is None:
            raise SystemExit(f"the cluster did not start: {line!r}")
        self._ports = [address.rpartition(":")[2] for address in found.groups()]
        self.namesrv = found[1]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@dataclass
class Order:
    number: int
    region: str
    cents: int

    def message(self) -> Message:
        body = json.dumps({"region": self.region, "cents": self.cents}).encode()
        return Message(TOPIC, body, tags=self.region, keys=[f"order-{self.number}"])


@dataclass
class Revenue:
    """What the consumers have seen."""

    cents: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seen: set[str] = field(default_factory=set)
    doubles: int = 0
    by_member: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, member: str, message: ReceivedMessage) -> None:
        key = message.keys[0]
        if key in self.seen:
            self.doubles += 1
            return
        self.seen.add(key)
        order = json.loads(message.body)
        self.cents[order["region"]] += order["cents"]
        self.by_member[member] += 1


def orders(count: int) -> list[Order]:
    chance = random.Random(2026)
    return [Order(number, chance.choice(REGIONS), chance.randint(100, 50_000)) for number in range(count)]


async def send_all(cluster: Cluster, stream: list[Order], progress: Progress) -> tuple[int, float]:
    """Send everything, with a crash in the middle; how often a send had to be repeated, and the time."""
    bar = progress.add_task("orders sent", total=len(stream))
    repeated = 0
    room = asyncio.Semaphore(1000)
    started = time.monotonic()

    async def send(producer: Producer, order: Order) -> None:
        nonlocal repeated
        while True:
            try:
                await producer.send(order.message())
            except PyroError:
                # Not acknowledged: it may or may not be stored, so it is sent again under the same key.
                repeated += 1
                await asyncio.sleep(0.1)
            else:
                progress.advance(bar)
                room.release()
                return

    async with (
        Producer("crash-producer", namesrv=cluster.namesrv, linger_ms=1, send_timeout_s=10) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        for order in stream:
            if order.number == len(stream) // 2:
                await asyncio.to_thread(cluster.kill)
                progress.console.print(f"[red]killed the cluster with SIGKILL at order {order.number:,}")
                began = time.monotonic()
                await asyncio.to_thread(cluster.start)
                progress.console.print(
                    f"[green]back after {time.monotonic() - began:.2f} s: log recovered, same ports"
                )
            await room.acquire()
            tasks.create_task(send(producer, order))
    return repeated, time.monotonic() - started


async def consume_all(namesrv: str, expected: int, progress: Progress) -> tuple[Revenue, float]:
    """Let two members of a group share the topic until every order was seen."""
    revenue = Revenue()
    bar = progress.add_task("orders consumed", total=expected)
    everything = asyncio.Event()
    started = time.monotonic()

    def member(name: str) -> PushConsumer:
        consumer = PushConsumer("crash-revenue", namesrv=namesrv, start_from="first", instance_name=name)

        @consumer.on(TOPIC)
        async def add(message: ReceivedMessage) -> None:
            revenue.add(name, message)
            progress.update(bar, completed=len(revenue.seen))
            if len(revenue.seen) == expected:
                everything.set()

        return consumer

    async with member("one"), member("two"):
        await everything.wait()
    return revenue, time.monotonic() - started


def report(stream: list[Order], revenue: Revenue, repeated: int, send_s: float, consume_s: float) -> bool:
    sent: dict[str, int] = defaultdict(int)
    for order in stream:
        sent[order.region] += order.cents
    table = Table(title="Revenue by region")
    for column in ("region", "sent", "consumed", ""):
        table.add_column(column, justify="left" if column == "region" else "right")
    for region in REGIONS:
        agrees = sent[region] == revenue.cents[region]
        table.add_row(
            region,
            f"{sent[region] / 100:,.2f}",
            f"{revenue.cents[region] / 100:,.2f}",
            "[green]equal" if agrees else "[red]DIFFERENT",
        )
    console.print(table)
    shares = ", ".join(f"{name} {count:,}" for name, count in sorted(revenue.by_member.items()))
    console.print(
        f"{len(stream):,} orders: sent in {send_s:.1f} s ({len(stream) / send_s:,.0f}/s, crash included), "
        f"consumed in {consume_s:.1f} s ({len(stream) / consume_s:,.0f}/s); members: {shares}; "
        f"{repeated} sends repeated, {revenue.doubles} doubles recognised"
    )
    return dict(sent) == dict(revenue.cents)


async def run(count: int, store: Path) -> bool:
    stream = orders(count)
    cluster = Cluster(store)
    began = time.monotonic()
    cluster.start()
    console.print(
        f"cluster ready in {time.monotonic() - began:.2f} s: name server {cluster.namesrv}, sync flush"
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console) as progress:
            repeated, send_s = await send_all(cluster, stream, progress)
            revenue, consume_s = await consume_all(cluster.namesrv, count, progress)
    finally:
        cluster.stop()
    return report(stream, revenue, repeated, send_s, consume_s)


def main() -> int:
    options = argparse.ArgumentParser(description="Kill a cluster while it works, and lose nothing.")
    options.add_argument("--orders", type=int, default=20_000, help="how many orders to send (20,000)")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="pyromq-crash-") as directory:
        agrees = asyncio.run(run(chosen.orders, Path(directory)))
    console.print("[bold green]Totals agree to the cent." if agrees else "[bold red]Totals differ.")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
