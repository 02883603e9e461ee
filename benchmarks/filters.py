"""What a filter over bodies saves away from the consumer: bytes on the network, CPU time of all sides.

    python -m benchmarks.filters [--quick] [--rounds N] [--messages N] [--seconds S] [--json FILE]

A topic has orders of 1 KiB as JSON. A consumer wants those with a small amount, 1 % or 50 % of them, and
reads the whole topic. Once it takes every message and looks into the body itself; once the broker evaluates
`body.amount < N`; once a filter server next to the broker runs a Python function that decodes the body. The
cases take turns, and each figure is the least of all rounds: others on the machine can only make one longer.
Bytes are those of the records that reach the consumer. A filter server's time has the start of the filter's
process in it.

Beside each case a calm producer sends to another topic, as in `benchmarks.neighbours`, and tells how long it
waited; the topic is read again and again for some seconds. At first there is no reader.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.neighbours import CALM, Calm, Waits
from benchmarks.process_cpu import cpu_seconds, cpu_seconds_of_tree
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.aio import Admin, Message, Producer, PullConsumer, ReceivedMessage, Sql
from pyromq.protocol.record import record_size
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.blocking_link import Link, LinkOptions

TOPIC: Final = "Orders"
BODY_BYTES: Final = 1024
BATCH: Final = 200
PERCENT: Final = (1, 50)
CONSUMER, BROKER, FILTER_SERVER = "consumer", "broker", "filter server"
NOBODY: Final = "no reader"


@dataclass
class Read:
    percent: int
    by: str
    messages: int
    megabytes: float
    consumer_cpu_s: float
    broker_cpu_s: float
    filter_server_cpu_s: float

    @property
    def cpu_s(self) -> float:
        return self.consumer_cpu_s + self.broker_cpu_s + self.filter_server_cpu_s


@dataclass
class Window:
    """Some seconds of one case."""

    case: str
    calm: Waits
    load: float


def is_wanted_1(message: ReceivedMessage) -> bool:
    return bool(json.loads(message.body)["amount"] < 1)


def is_wanted_50(message: ReceivedMessage) -> bool:
    return bool(json.loads(message.body)["amount"] < 50)


FUNCTIONS: Final = {1: is_wanted_1, 50: is_wanted_50}


def body(number: int) -> bytes:
    order = {"id": number, "amount": number % 100, "customer": {"region": "eu", "name": f"customer {number}"}}
    lines = [{"sku": f"sku-{line}", "count": line, "price": 9.5} for line in range(10)]
    encoded = json.dumps(order | {"lines": lines, "note": ""})
    return json.dumps(order | {"lines": lines, "note": "x" * (BODY_BYTES - len(encoded))}).encode()


async def fill(name_server: str, messages: int) -> None:
    async with Producer("fill", namesrv=name_server) as producer:
        for first in range(0, messages, BATCH):
            batch = [Message(TOPIC, body(number)) for number in range(first, min(first + BATCH, messages))]
            await producer.send(batch)


async def read(name_server: str, broker_pid: int, group: str, percent: int, messages: int, by: str) -> Read:
    wanted = sum(number % 100 < percent for number in range(messages))
    consumer = PullConsumer(group, namesrv=name_server, start_from="first")
    if by == FILTER_SERVER:
        consumer.subscribe(TOPIC, filter=FUNCTIONS[percent])
    else:
        consumer.subscribe(TOPIC, Sql(f"body.amount < {percent}") if by == BROKER else "*")
    taken = kept = size_bytes = 0
    began, broker_began = time.process_time(), cpu_seconds(broker_pid)
    all_began = cpu_seconds_of_tree(broker_pid)
    async with consumer:
        while kept < wanted:
            for message in await consumer.poll(30):
                taken += 1
                encoded = len(json.dumps(message.properties)) - 6 * len(message.properties)
                size_bytes += record_size(len(message.body), len(TOPIC), encoded)
                kept += by != CONSUMER or json.loads(message.body)["amount"] < percent
        used, broker_used = time.process_time() - began, cpu_seconds(broker_pid) - broker_began
        beside = cpu_seconds_of_tree(broker_pid) - all_began - broker_used
    return Read(percent, by, taken, size_bytes / 1e6, used, broker_used, max(beside, 0.0))


def least(reads: list[Read]) -> list[Read]:
    """Of each case."""
    best: dict[tuple[int, str], Read] = {}
    for each in reads:
        known = best.setdefault((each.percent, each.by), each)
        known.consumer_cpu_s = min(known.consumer_cpu_s, each.consumer_cpu_s)
        known.broker_cpu_s = min(known.broker_cpu_s, each.broker_cpu_s)
        known.filter_server_cpu_s = min(known.filter_server_cpu_s, each.filter_server_cpu_s)
    return list(best.values())


def table(reads: list[Read]) -> str:
    lines = [
        "| wanted | filtered by | messages | MB | CPU: consumer, s | broker, s | filter server, s | all |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {each.percent} % | the {each.by} | {each.messages:,} | {each.megabytes:.2f}"
        f" | {each.consumer_cpu_s:.2f} | {each.broker_cpu_s:.2f} | {each.filter_server_cpu_s:.2f}"
        f" | {each.cpu_s:.2f} |"
        for each in least(reads)
    ]
    return "\n".join(lines)


def waits_table(windows: list[Window]) -> str:
    """Medians of the rounds."""
    lines = [
        "| read and filtered by | sends of another producer: p50 ms | p99 ms | broker's CPU in a send: p50 ms"
        " | p99 ms |",
        "|---|--:|--:|--:|--:|",
    ]
    for case in dict.fromkeys(each.case for each in windows):
        own = [each.calm for each in windows if each.case == case]
        figures = (
            f"{statistics.median(getattr(each, name) for each in own):.2f}"
            for name in ("p50", "p99", "cpu_p50", "cpu_p99")
        )
        lines.append(f"| {case} | {' | '.join(figures)} |")
    loads = [each.load for each in windows]
    return "\n".join([*lines, "", f"Load of the machine: {min(loads):.1f} to {max(loads):.1f}."])


def wait_for_filter_server(name_server: str) -> None:
    with contextlib.closing(Link(name_server, LinkOptions())) as link:
        while not link.call(GetRoute(topic=TOPIC)).body.filter_server_table:
            time.sleep(0.1)


async def measure(
    names: str, broker: OwnBroker, rounds: int, messages: int, seconds: float
) -> tuple[list[Read], list[Window]]:
    async with Admin(names) as admin:
        await admin.create_topic(TOPIC, queues=1)
        await admin.create_topic(CALM, queues=4)
    await fill(names, messages)
    await asyncio.to_thread(wait_for_filter_server, names)
    found: list[Read] = []
    windows: list[Window] = []
    groups = (f"reader-{number}" for number in itertools.count())

    async def read_for_a_while(percent: int, by: str) -> None:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            found.append(await read(names, broker.pid, next(groups), percent, messages, by))
            print(found[-1], file=sys.stderr, flush=True)

    async def beside_a_calm_producer(case: str, reading: Awaitable[None]) -> None:
        with Calm(broker) as calm:
            await reading
            windows.append(Window(case, calm.waits(), os.getloadavg()[0]))
        print(windows[-1], file=sys.stderr, flush=True)

    for _ in range(rounds):
        await beside_a_calm_producer(NOBODY, asyncio.sleep(seconds))
        for percent in PERCENT:
            for by in (CONSUMER, BROKER, FILTER_SERVER):
                await beside_a_calm_producer(f"the {by}, {percent} %", read_for_a_while(percent, by))
    return found, windows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small round: does it work at all?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=12, help="of each case in a round")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    rounds, messages, seconds = options.rounds, options.messages, options.seconds
    if options.quick:
        rounds, messages, seconds = 1, 2_000, 1.0
    beside = {"filterServerNums": "1", "clientUploadFilterClassEnable": "true"}
    with OwnNameServer() as names, OwnBroker(names.address, settings=beside) as broker:
        found, windows = asyncio.run(measure(names.address, broker, rounds, messages, seconds))
    print(table(found), waits_table(windows), sep="\n\n")
    if options.json is not None:
        both = {"reads": [asdict(each) for each in found], "waits": [asdict(each) for each in windows]}
        options.json.write_text(json.dumps(both, indent=1))


if __name__ == "__main__":
    main()
