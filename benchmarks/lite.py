"""Lite topics: what a send, an idle lite topic, a start and a backlog of many of them cost.

    python -m benchmarks.lite [--quick] [--apache] [--counts 1000,10000,…] [--subscriptions 1000000]

All of it takes less than ten minutes on a quiet machine. For each count a new broker gets normal
messages, then one message for each lite topic, then further ones. All figures are CPU time or memory of
the broker's process, so other programs on the machine hardly change them. The broker starts again twice
on what it has: after a clean stop and after a kill. Then it is left alone for some seconds. At last one
client, which subscribes to some of the lite topics, pops and acknowledges all that they have, as another
one does with normal messages. It gets further messages one at a time; so does a push consumer of the
normal topic. The times of these deliveries are by the clock, and other programs on the machine do change
them.

With `--apache`, Apache's newest broker, with the store that its lite topics need, shows its sends, memory
and starts next to ours, up to 100,000 lite topics.

At last a new broker gets that many subscriptions of clients that then do nothing, and gets all of them once
more, as clients repeat them every half minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import selectors
import statistics
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks import wire
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_NEWEST
from tests.support.broker_cluster import BrokerClient
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq import aio
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.lite import (
    ChangeLiteSubscriptions,
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
)
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.addresses import parse_address

LITE, PLAIN, GROUP = "Sessions", "Plain", "agents"
COUNTS: Final = "1000,10000,100000,1000000"
SUBSCRIPTIONS: Final = 1_000_000
IN_FLIGHT: Final = 64
BACKLOG: Final = 10_000
LEAST: Final = 20_000
MOST: Final = 200_000
"""Messages of a load that need not be as many as the lite topics, and how many there are at most."""
ALONE: Final = BACKLOG
"""Messages of which one is in flight at a time."""
BODY: Final = b"x" * 100
DELIVERIES: Final = 500
EVERY_S: Final = 0.01
IDLE_S: Final = 4.0
IDLE_ROUNDS: Final = 4
ROUNDS: Final = 5
NAMES: Final = 10_000
"""Lite topics of each idle client."""
SETTINGS: Final = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "mappedFileSizeCommitLog": str(1 << 28),
    "waitTimeMillsInSendQueue": "30000",
    "osPageCacheBusyTimeOutMills": "30000",
    "maxLiteSubscriptionCount": "10000000",
}

APACHE_SETTINGS: Final = {"storeType": "defaultRocksDB", "liteEventCheckInterval": "1000"}
JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
APACHE_MOST: Final = 100_000
WARM_UP: Final = 20_000
"""Messages for Java's compiler."""


@dataclass(frozen=True)
class Result:
    lite_topics: int
    plain_us: float
    """CPU µs of a send to a normal topic."""
    first_us: float
    """Of the first message of a lite topic."""
    second_us: float
    alone_us: tuple[float, float]
    """Of a normal one and of a second one, if one is in flight at a time."""
    bytes_each: float
    stopped_start_s: float
    killed_start_s: float
    drain_us: float
    drained: int
    normal_drain_us: float
    """The same for normal messages."""
    empty_idle_ms: float
    """CPU ms of the new broker in a second in which nobody asks for anything."""
    idle_ms: float
    """Of the broker with all lite topics."""
    normal_delivery_ms: tuple[float, float]
    """From the call of `send` until the consumer has the message: the median, and the 99th of a hundred."""
    lite_delivery_ms: tuple[float, float]
    load: float

    def line(self) -> str:
        return (
            f"| {self.lite_topics:,} | {self.plain_us:.1f} | {self.first_us:.1f} | {self.second_us:.1f} |"
            f" {self.second_us / self.plain_us:.2f} | {self.alone_us[0]:.1f} / {self.alone_us[1]:.1f} |"
            f" {self.alone_us[1] / self.alone_us[0]:.2f} | {self.bytes_each:,.0f} |"
            f" {self.stopped_start_s:.2f} | {self.killed_start_s:.2f} |"
            f" {self.drained:,} in {self.drain_us:,.0f} µs each,"
            f" normal {self.normal_drain_us:,.0f} |"
            f" {self.empty_idle_ms:.2f} / {self.idle_ms:.2f} |"
            f" {both(self.normal_delivery_ms)} | {both(self.lite_delivery_ms)} | {self.load:.1f} |"
        )


def both(times: tuple[float, float]) -> str:
    return f"{times[0]:.1f} / {times[1]:.1f}"


def frames(topic: str, count: int, lite_topics: int = 0, *, first: int = 0) -> Iterator[bytes]:
    """Sends to so many lite topics in turns, or to none."""
    for number in range(count):
        text = f"UNIQ_KEY\x01{first + number:032X}\x02WAIT\x01true\x02"
        if lite_topics:
            text = f"__LITE_TOPIC\x01session-{number % lite_topics:08d}\x02{text}"
        ext = {
            "a": "benchmark",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": str(int(time.time() * 1000)),
            "h": "0",
            "i": text,
            "j": "0",
            "k": "false",
            "m": "false",
        }
        head = wire.frame(wire.SEND_MESSAGE_V2, ext)[8:]
        yield struct.pack(">ii", 4 + len(head) + len(BODY), len(head)) + head + BODY


def send_us(
    broker: OwnBroker | ApacheBroker, messages: Iterator[bytes], count: int, in_flight: int = IN_FLIGHT
) -> float:
    """CPU µs of the broker for each of them."""
    before = cpu_seconds(pid_of(broker))
    with selectors.DefaultSelector() as selector:
        connection = wire.Wire(broker.port)
        with contextlib.closing(connection):
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.send(*itertools.islice(messages, in_flight))
            answered = 0
            while answered < count:
                selector.select(60)
                headers = connection.receive_headers()
                if refused := [header for header in headers if b'"code":0' not in header]:
                    raise RuntimeError(f"a message was refused: {refused[0]!r}")
                answered += len(headers)
                connection.send(*itertools.islice(messages, len(headers)))
    return (cpu_seconds(pid_of(broker)) - before) / count * 1e6


def alternately(
    broker: OwnBroker | ApacheBroker, lite_topics: int, count: int, in_flight: int = IN_FLIGHT
) -> tuple[float, float]:
    """The medians of rounds of normal sends and of sends to lite topics: a machine's load changes."""
    normal, lite, size = list[float](), list[float](), count // ROUNDS
    first = 2 * in_flight * 10**8
    messages = frames(LITE, count, lite_topics, first=first)
    for number in range(ROUNDS):
        plain = frames(PLAIN, size, first=first + 10**8 + number * size)
        normal.append(send_us(broker, plain, size, in_flight))
        lite.append(send_us(broker, itertools.islice(messages, size), size, in_flight))
    return statistics.median(normal), statistics.median(lite)


def cpu_seconds(pid: int) -> float:
    """What the threads of a process have used, to the nanosecond: small loads are far below a clock tick."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


def memory_bytes(pid: int) -> int:
    """The memory of a process without the files that it has mapped."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def idle_ms(broker: OwnBroker) -> float:
    """The median of some rounds: what follows a start is not idleness."""
    rounds = []
    for _ in range(IDLE_ROUNDS):
        before = cpu_seconds(broker.pid)
        time.sleep(IDLE_S)
        rounds.append((cpu_seconds(broker.pid) - before) / IDLE_S * 1e3)
    return statistics.median(rounds)


async def prepare(address: str) -> None:
    async with BrokerClient(parse_address(address)) as client:
        for topic, kind in ((PLAIN, "NORMAL"), (LITE, "LITE")):
            await client.call(
                CreateOrUpdateTopic(
                    topic=topic,
                    default_topic="TBW102",
                    read_queue_nums=1,
                    write_queue_nums=1,
                    perm=6,
                    topic_filter_type="SINGLE_TAG",
                    attributes=f"+message.type={kind}",
                )
            )
        attributes = {"+lite.bind.topic": LITE, "+lite.sub.client.quota": "-1"}
        body = SubscriptionGroupConfig(group_name=GROUP, attributes=attributes)
        await client.call(CreateOrUpdateGroup(body=body))


async def drain_us(broker: OwnBroker, consumer: aio.SimpleConsumer, messages: int) -> float:
    """CPU µs for each message that one client pops and acknowledges."""
    before, found = cpu_seconds(broker.pid), 0
    while found < messages:
        received = await consumer.receive()
        await asyncio.gather(*map(consumer.ack, received))
        found += len(received)
    return (cpu_seconds(broker.pid) - before) / found * 1e6


async def read(
    names: str, broker: OwnBroker, lite_topics: int, messages: int
) -> tuple[float, float, tuple[float, float], tuple[float, float]]:
    """What a message costs that a client pops and acknowledges, subscriptions left out, of lite topics and of
    the normal topic; then the times of deliveries to a push consumer of the latter, and to this client."""
    async with aio.SimpleConsumer("pops", namesrv=names, start_from="first") as plain:
        plain.subscribe(PLAIN)
        normal_drain = await drain_us(broker, plain, LEAST)
    subscribed = [f"session-{number:08d}" for number in range(lite_topics)]
    async with aio.LiteConsumer(GROUP, LITE, namesrv=names) as consumer:
        await consumer.subscribe_lite(*subscribed)
        drain = await drain_us(broker, consumer, messages)
        return (
            drain,
            normal_drain,
            await normal_deliveries(names),
            await lite_deliveries(names, consumer, subscribed),
        )


async def normal_deliveries(names: str) -> tuple[float, float]:
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def handle(_: aio.ReceivedMessage) -> None:
        arrived.put_nowait(time.perf_counter())

    consumer = aio.PushConsumer("plain", namesrv=names, start_from="last")
    consumer.subscribe(PLAIN, "*", handle)
    async with consumer, aio.Producer("plain", namesrv=names) as producer:
        return await deliveries(producer, lambda: aio.Message(PLAIN, BODY), arrived.get)


async def lite_deliveries(
    names: str, consumer: aio.LiteConsumer, subscribed: list[str]
) -> tuple[float, float]:
    async def arrived() -> float:
        while not (received := await consumer.receive()):
            pass
        now = time.perf_counter()
        await asyncio.gather(*map(consumer.ack, received))
        return now

    async with aio.Producer("lite", namesrv=names) as producer:
        return await deliveries(
            producer, lambda: aio.Message(LITE, BODY, lite_topic=random.choice(subscribed)), arrived
        )


async def deliveries(
    producer: aio.Producer, message: Callable[[], aio.Message], arrived: Callable[[], Awaitable[float]]
) -> tuple[float, float]:
    """The median and the 99th of a hundred, in ms."""
    taken = []
    for number in range(DELIVERIES + 20):
        arrival = asyncio.ensure_future(arrived())
        await asyncio.sleep(EVERY_S)  # the consumer waits at the broker again
        began = time.perf_counter()
        await producer.send(message())
        if number >= 20:
            taken.append((await arrival - began) * 1e3)
        await arrival
    taken.sort()
    return statistics.median(taken), taken[int(len(taken) * 0.99)]


def measure(count: int) -> Result:
    with OwnNameServer() as names, tempfile.TemporaryDirectory(prefix="pyromq-lite-") as root:
        settings = {**SETTINGS, "storePathRootDir": root}
        with OwnBroker(names.address, settings=settings) as broker:
            asyncio.run(prepare(broker.address))
            empty_idle = idle_ms(broker)
            warm, plenty = 5000, min(max(count, LEAST), MOST)
            send_us(broker, frames(PLAIN, warm, first=10**7), warm)
            before = memory_bytes(broker.pid)
            first = send_us(broker, frames(LITE, count, count, first=10**12), count)
            each = (memory_bytes(broker.pid) - before) / count
            plain, second = alternately(broker, count, plenty)
            alone = alternately(broker, count, ALONE, 1)
            broker.terminate()
        with OwnBroker(names.address, settings=settings) as broker:
            stopped_s = cpu_seconds(broker.pid)
            broker.kill()
        with OwnBroker(names.address, settings=settings) as broker:
            killed_s = cpu_seconds(broker.pid)
            idle = idle_ms(broker)
            drained = min(count, BACKLOG)
            messages = drained * (1 + max(plenty // count, 1)) + ALONE
            drain, normal_drain, normal, lite = asyncio.run(read(names.address, broker, drained, messages))
        load = os.getloadavg()[1]
        return Result(
            count,
            plain,
            first,
            second,
            alone,
            each,
            stopped_s,
            killed_s,
            drain,
            messages,
            normal_drain,
            empty_idle,
            idle,
            normal,
            lite,
            load,
        )


def measure_apache(count: int) -> str:
    """A line of the table with what is the same there: its lite consumers need its proxy."""
    with OwnNameServer() as names, tempfile.TemporaryDirectory(prefix="apache-lite-") as root:
        settings = {**SETTINGS, **APACHE_SETTINGS}

        def broker() -> ApacheBroker:
            return ApacheBroker(APACHE_NEWEST, names.address, Path(root), settings=settings, jvm=JVM)

        with broker() as first_run:
            asyncio.run(prepare(first_run.address))
            send_us(first_run, frames(PLAIN, WARM_UP, first=10**7), WARM_UP)
            before = memory_bytes(pid_of(first_run))
            first = send_us(first_run, frames(LITE, count, count, first=10**12), count)
            each = (memory_bytes(pid_of(first_run)) - before) / count
            plain, second = alternately(first_run, count, min(max(count, LEAST), MOST))
            alone = alternately(first_run, count, ALONE, 1)
            first_run.terminate()
        with broker() as stopped:
            stopped_s = cpu_seconds(pid_of(stopped))
            stopped.kill()
        with broker() as killed:
            killed_s = cpu_seconds(pid_of(killed))
        return (
            f"| {count:,}, Apache {APACHE_NEWEST.servers} | {plain:.1f} | {first:.1f} | {second:.1f} |"
            f" {second / plain:.2f} | {alone[0]:.1f} / {alone[1]:.1f} | {alone[1] / alone[0]:.2f} |"
            f" {each:,.0f} | {stopped_s:.2f} | {killed_s:.2f} | | | | | {os.getloadavg()[1]:.1f} |"
        )


def pid_of(broker: OwnBroker | ApacheBroker) -> int:
    assert broker.pid is not None
    return broker.pid


async def subscribe(address: str, count: int) -> None:
    async with BrokerClient(parse_address(address)) as client:
        for first in range(0, count, NAMES):
            change = LiteSubscriptionDTO(
                action=LiteSubscriptionAction.COMPLETE_ADD,
                client_id=f"client-{first // NAMES}",
                group=GROUP,
                topic=LITE,
                lite_topic_set={
                    f"session-{number:08d}" for number in range(first, min(first + NAMES, count))
                },
            )
            body = LiteSubscriptionCtlRequestBody(subscription_set=[change])
            await client.call(ChangeLiteSubscriptions(body=body))


def measure_subscriptions(count: int) -> str:
    with OwnNameServer() as names, OwnBroker(names.address, settings=SETTINGS) as broker:
        asyncio.run(prepare(broker.address))
        empty_idle, memory = idle_ms(broker), memory_bytes(broker.pid)
        costs = []
        for _ in range(2):
            before = cpu_seconds(broker.pid)
            asyncio.run(subscribe(broker.address, count))
            costs.append((cpu_seconds(broker.pid) - before) / count * 1e6)
        each = (memory_bytes(broker.pid) - memory) / count
        return (
            f"{count:,} subscriptions: CPU {costs[0]:.1f} µs each, {costs[1]:.1f} µs to repeat one,"
            f" {each:,.0f} bytes each; idle CPU, ms a second: {empty_idle:.2f} / {idle_ms(broker):.2f} with"
            f" them; load {os.getloadavg()[1]:.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="500 lite topics")
    parser.add_argument("--counts", default=COUNTS)
    parser.add_argument(
        "--subscriptions", type=int, help="idle ones; 0 to measure none", default=SUBSCRIPTIONS
    )
    parser.add_argument("--apache", action="store_true", help="Apache's broker as well")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    chosen = parser.parse_args()
    print(
        "| lite topics | CPU µs of a normal send | of a first one | of a second one | ratio |"
        " one in flight, of a normal one / of a second one | ratio | bytes each |"
        " start after a stop, CPU s | after a kill | one client drains |"
        " idle CPU, ms a second: empty / with them | delivery of a normal message: p50 / p99 ms"
        " | of one to a lite topic | load |"
    )
    print("|---" * 15 + "|")
    found = []
    for count in [500] if chosen.quick else map(int, filter(None, chosen.counts.split(","))):
        found.append(measure(count))
        print(found[-1].line(), flush=True)
        if chosen.apache and count <= APACHE_MOST:
            print(measure_apache(count), flush=True)
    if chosen.subscriptions:
        print(measure_subscriptions(10_000 if chosen.quick else chosen.subscriptions))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
