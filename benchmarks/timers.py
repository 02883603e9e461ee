"""Timed messages: how exactly they come, how fast they go in, and what they cost while they wait.

    python -m benchmarks.timers [--quick] [--timers N] [--over SECONDS] [--servers pyromq,apache-5.3.3]

Each broker gets the same load: N messages whose times are spread evenly over some seconds, all of them sent
before the first one is due. The delay of a delivery is the store time of the delivered message minus the time
that its producer asked for. CPU time is the broker's alone, all threads: from the first send until everything
waits in the wheel, and from then until everything is delivered. A million timers take 6 minutes a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import selectors
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.broker import available
from benchmarks.turns import Running
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_5
from tests.support.broker_cluster import BrokerClient
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.remoting.addresses import parse_address

TOPIC: Final = "Later"
QUEUES: Final = 8
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 64
BODY: Final = b"x" * 100
SERVERS: Final = ("pyromq", "apache-5.3.3")
SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "mappedFileSizeTimerLog": str(100 << 20),
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferBytesOnMessageInMemory": str(4 << 20),
    "waitTimeMillsInSendQueue": "30000",
    "diskMaxUsedSpaceRatio": "95",
}


@dataclass(frozen=True)
class Result:
    sent_per_s: float
    intake_us: float
    delivery_us: float
    memory_before_mb: float
    memory_waiting_mb: float
    memory_after_mb: float
    delays_ms: list[int]
    is_whole: bool

    def line(self, server: str) -> str:
        cuts = statistics.quantiles(self.delays_ms, n=100)
        return (
            f"| {server} | {len(self.delays_ms):,}{'' if self.is_whole else ' (not all)'} |"
            f" {min(self.delays_ms):,} | {cuts[49]:,.0f} | {cuts[98]:,.0f} | {max(self.delays_ms):,} |"
            f" {self.sent_per_s:,.0f} | {self.intake_us:.1f} | {self.delivery_us:.1f} |"
            f" {self.memory_before_mb:,.0f} | {self.memory_waiting_mb:,.0f} | {self.memory_after_mb:,.0f} |"
        )

    def figures(self) -> dict[str, float]:
        return {
            "timed messages sent, rate": self.sent_per_s,
            "CPU µs in": self.intake_us,
            "CPU µs out": self.delivery_us,
            "late at the 99th percentile, ms": statistics.quantiles(self.delays_ms, n=100)[98],
            "memory while they wait, MB": self.memory_waiting_mb,
        }


def memory_mb(pid: int) -> float:
    """The memory of a process without the files that it has mapped."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextlib.contextmanager
def running(server: str, name_server: str, root: Path) -> Iterator[tuple[str, int]]:
    if server == "pyromq":
        settings = {**SETTINGS, "storePathRootDir": str(root)}
        with OwnBroker(name_server, settings=settings) as broker:
            yield broker.address, broker.pid
    else:
        with ApacheBroker(APACHE_5, name_server, root, settings=SETTINGS, jvm=("-Xms1g", "-Xmx1g")) as apache:
            assert apache.pid is not None
            yield apache.address, apache.pid


def form() -> bytes:
    """A message without its queue, its time (13 digits) and its number: unique key 32, opaque number 7."""
    ext = {
        "a": "benchmark",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": "%d",
        "f": "0",
        "g": "%d",
        "h": "0",
        "i": "TIMER_DELIVER_MS\x01%d\x02UNIQ_KEY\x01%s\x02WAIT\x01true\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    head = wire.frame(wire.SEND_MESSAGE_V2, ext)[8:].replace(str(wire.FIRST_OPAQUE).encode(), b"%d")
    header_bytes = len(head) - len("%d%d%d%s%d") + 1 + 13 + 13 + 32 + 7
    return struct.pack(">ii", 4 + header_bytes + len(BODY), header_bytes) + head + BODY


def frames(timers: int, first_ms: int, over_s: float) -> Iterator[bytes]:
    whole, now_ms = form(), int(time.time() * 1000)
    for number in range(timers):
        due_ms = first_ms + int(number * over_s * 1000 / timers)
        opaque = wire.FIRST_OPAQUE + number
        yield whole % (number % QUEUES, now_ms, due_ms, b"%032X" % number, opaque)


def send_all(port: int, messages: Iterator[bytes], count: int) -> None:
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = wire.Wire(port)
            stack.callback(connection.close)
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.send(*itertools.islice(messages, IN_FLIGHT))
        answered = 0
        while answered < count:
            for key, _ in selector.select(60):
                headers = key.data.receive_headers()
                if refused := [header for header in headers if b'"code":0' not in header]:
                    raise RuntimeError(f"a message was refused: {refused[0]!r}")
                answered += len(headers)
                key.data.send(*itertools.islice(messages, len(headers)))


async def measure(address: str, pid: int, timers: int, over_s: float, lead_s: float) -> Result:
    server = Running(address, parse_address(address)[1], pid)
    async with BrokerClient(parse_address(address)) as client:
        await client.create_topic(TOPIC, QUEUES)
        before_mb = memory_mb(pid)
        first_ms = int((time.time() + lead_s) * 1000)
        cpu_s, began = server.cpu_s(), time.monotonic()
        send_all(server.port, frames(timers, first_ms, over_s), timers)
        sent_per_s = timers / (time.monotonic() - began)
        if time.time() * 1000 > first_ms:
            print("the first messages were due before the last ones were sent: --lead is too short")
        while int((await runtime(client))["timerOffsetBehind"]):
            pass
        intake_s = server.cpu_s() - cpu_s
        waiting_mb = memory_mb(pid)
        # What an idle broker uses is not the timers'.
        await asyncio.sleep(max(first_ms / 1000 - 0.5 - time.time(), 0))
        cpu_s = server.cpu_s()
        await asyncio.sleep(max(first_ms / 1000 + over_s + 3 - time.time(), 0))
        delivery_s, after_mb = server.cpu_s() - cpu_s, memory_mb(pid)
        delays = [delay for queue_id in range(QUEUES) for delay in await delays_in(client, queue_id)]
        return Result(
            sent_per_s,
            intake_s / timers * 1e6,
            delivery_s / timers * 1e6,
            before_mb,
            waiting_mb,
            after_mb,
            delays,
            len(delays) == timers,
        )


async def runtime(client: BrokerClient) -> dict[str, str]:
    return (await client.call(GetBrokerRuntimeInfo())).body.table


async def delays_in(client: BrokerClient, queue_id: int) -> list[int]:
    delays: list[int] = []
    while messages := (await client.pull(len(delays), TOPIC, queue_id, max_msg_nums=1000)).messages:
        delays += [each.store_timestamp - int(each.get("TIMER_DELIVER_MS") or 0) for each in messages]
    return delays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 timers over 5 s")
    parser.add_argument("--timers", type=int, default=1_000_000)
    parser.add_argument("--over", type=float, default=60.0, help="seconds over which their times are spread")
    parser.add_argument("--lead", type=float, default=300.0, help="seconds from the start to the first time")
    parser.add_argument("--servers", default=",".join(SERVERS))
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    chosen = parser.parse_args()
    timers, over_s, lead_s = chosen.timers, chosen.over, chosen.lead
    if chosen.quick:
        timers, over_s, lead_s = 20_000, 5.0, 15.0
    print(
        "| broker | timers | first ms | p50 ms | p99 ms | last ms | sent/s | CPU µs in | CPU µs out"
        " | MB before | MB waiting | MB after |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    found: dict[str, dict[str, float]] = {}
    for server in available(chosen.servers.split(",")):
        with (
            tempfile.TemporaryDirectory() as root,
            OwnNameServer() as names,
            running(server, names.address, Path(root) / "store") as (address, pid),
        ):
            result = asyncio.run(measure(address, pid, timers, over_s, lead_s))
        print(result.line(server), flush=True)
        found[server] = result.figures()
    if chosen.json:
        chosen.json.write_text(json.dumps({f"{timers:,} timed messages": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
