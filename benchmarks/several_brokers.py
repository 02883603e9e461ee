"""Two brokers on one machine beside one, under the same load: what a second core gives.

    python -m benchmarks.several_brokers [--quick] [--seconds 3] [--rounds 3]

All brokers are up and take turns (benchmarks/turns.py); the load of two is spread over both by connections.
The generator needs a part of the cores, too. So the table has its CPU time, and the rate at which both cores
would be full: nothing that is added to the brokers can give more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import wire
from benchmarks.native import run_loadgen
from benchmarks.turns import Running, hold, ratios, short, spread
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

TOPIC: Final = "several"
BATCH: Final = 100
"""Messages in a request, which costs the generator little."""
QUEUES: Final = 4
SEND_BATCH: Final = 320
SETTINGS: Final = {"mappedFileSizeCommitLog": str(1 << 30), "waitTimeMillsInSendQueue": "60000"}


class Load(NamedTuple):
    name: str
    options: tuple[str, ...]
    messages: int = 1
    """In each request."""


class Sample(NamedTuple):
    rate: float
    broker_us: float
    generator_us: float


def batch(queue: int) -> bytes:
    """A request with many small messages; the first of them has a tag."""
    body = b"ten bytes!"
    messages = b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for properties in (b"TAGS\x01rare\x02", *[b""] * (BATCH - 1))
    )
    ext = {
        "a": "group", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
        "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "true",
    }  # fmt: skip
    return wire.frame(SEND_BATCH, ext, messages)


def rare(queue: int) -> bytes:
    """A pull of the messages with that tag: a broker looks at 800 to find eight."""
    ext = {
        "consumerGroup": "group", "topic": TOPIC, "queueId": str(queue), "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "rare", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return wire.frame(wire.PULL_MESSAGE, ext)


def loads(directory: Path) -> list[Load]:
    send = ("-m", "send", "-T", TOPIC, "-b", "100")
    batches, pulls = directory / "batches", directory / "pulls"
    batches.write_bytes(b"".join(map(batch, range(QUEUES))))
    pulls.write_bytes(b"".join(map(rare, range(QUEUES))))
    return [
        Load("sends of 100 B, 8 × 8", (*send, "-c", "8", "-w", "8")),
        Load("sends of 100 B, 64 × 64", (*send, "-c", "64", "-w", "64")),
        Load(
            f"{BATCH} messages of 10 B in a request, 8 × 8",
            ("-m", "replay", "-f", str(batches), "-c", "8", "-w", "8"),
            BATCH,
        ),
        Load("pulls by tag, 8 × 8", ("-m", "replay", "-f", str(pulls), "-c", "8", "-w", "8")),
    ]


def fill(port: int) -> None:
    """Messages to look for tags in, the same in each queue."""
    asking = wire.Wire(port)
    asking.call(wire.create_topic(TOPIC, QUEUES))
    for number in range(QUEUES * 20):
        header, _ = asking.call(batch(number % QUEUES))
        if header["code"] != 0:
            raise RuntimeError(f"refused: {header}")
    asking.close()


def measured(brokers: Sequence[Running], load: Load, seconds: int) -> Sample:
    """With a fixed CPU time for each broker, so that a busy machine makes it longer."""
    with contextlib.ExitStack() as turns:
        for broker in brokers:
            turns.enter_context(broker.turn())
        said = run_loadgen(
            "-P", ",".join(str(broker.port) for broker in brokers),
            "-p", ",".join(str(broker.pid) for broker in brokers),
            "-u", "1", "-C", str(1000 * seconds * len(brokers)), "-t", str(4 * seconds), *load.options,
        )  # fmt: skip
    if int(said["errors"]):
        raise RuntimeError(f"{said['errors']} requests were refused")
    return Sample(
        float(said["rate"]) * load.messages,
        float(said["cpu_us"]) / load.messages,
        float(said["gen_us"]) / load.messages,
    )


def middle(samples: Sequence[Sample]) -> Sample:
    return Sample(*(statistics.median(values) for values in zip(*samples, strict=True)))


def row(load: Load, ones: Sequence[Sample], twos: Sequence[Sample]) -> str:
    cores = os.cpu_count() or 1
    cells = [load.name]
    for sample in (middle(ones), middle(twos)):
        cells += [f"{sample.rate:,.0f}", short(sample.broker_us), short(sample.generator_us)]
    rates = [each.rate for each in ones]
    full = [cores * 1e6 / (each.broker_us + each.generator_us) for each in twos]
    cells += [spread(ratios([each.rate for each in twos], rates)), spread(ratios(full, rates))]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--seconds", type=int, default=3, help="CPU time of a broker in each load")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        options.seconds = options.rounds = 1
    print("| load | one: per s | broker µs | generator µs | two: per s | broker µs | generator µs "
          "| two ÷ one | with full cores |")  # fmt: skip
    print("|---|" + "---:|" * 8)
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(OwnNameServer())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = []
        for name in ("broker-a", "broker-b"):
            own = stack.enter_context(OwnBroker(names.address, name, settings=SETTINGS))
            fill(own.port)
            brokers.append(Running(name, own.port, own.pid))
            hold(brokers[-1], stack)
        for load in loads(directory):
            ones, twos = [], []
            for number in range(options.rounds):
                ones.append(measured([brokers[number % 2]], load, options.seconds))
                twos.append(measured(brokers, load, options.seconds))
                sys.stderr.write(f"{load.name}: {ones[-1]} {twos[-1]}\n")
            print(row(load, ones, twos))


if __name__ == "__main__":
    main()
