"""Transactions at the broker, over real sockets; the same load on Apache's own where Maven can fetch it.

    python -m benchmarks.transactions [--quick] [--servers pyromq,apache-5.3.3] [--json FILE]

A producer sends half messages over a few connections and ends each transaction, oneway, as soon as its half
message is answered. The load is over when the last committed message can be read. Brokers take turns, round
by round (benchmarks/turns.py). CPU time is the broker's alone, all threads; the load itself is in Python and
limits the rate, so the CPU time is the figure to compare.
"""

from __future__ import annotations

import argparse
import itertools
import json
import selectors
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import wire
from benchmarks.broker import OWN, SERVERS, available, running
from benchmarks.turns import Running, compared, orders

GROUP: Final = "payers"
END_TRANSACTION: Final = 37
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
ONEWAY: Final = b'"flag":2'
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 32
BODY: Final = b"x" * 256
PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class Cell:
    name: str
    ends: tuple[int, ...]
    """How transactions end, in turn."""


CELLS: Final = (
    Cell("commit", (COMMIT,)),
    Cell("roll back", (ROLLBACK,)),
    Cell("nine of ten commit", (*[COMMIT] * 9, ROLLBACK)),
)


@dataclass(frozen=True)
class Sample:
    rate: float
    cpu_us: float


def half_message(topic: str, unique_key: str, opaque: int) -> bytes:
    properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": unique_key, "WAIT": "true", "TAGS": "t"}
    ext = {
        "a": GROUP,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": str(PREPARED),
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return wire.frame(wire.SEND_MESSAGE_V2, ext, BODY, opaque)


def end(answer: dict[str, str], state: int) -> bytes:
    ext = {
        "producerGroup": GROUP,
        "tranStateTableOffset": answer["queueOffset"],
        "commitLogOffset": str(int(answer["msgId"][-16:], 16)),
        "commitOrRollback": str(state),
        "fromTransactionCheck": "false",
        "msgId": answer["transactionId"],
        "transactionId": answer["transactionId"],
    }
    return wire.frame(END_TRANSACTION, ext).replace(b'"flag":0', ONEWAY)


def load(server: Running, topic: str, cell: Cell, count: int) -> Sample:
    """Run `count` transactions, and wait until the broker has delivered what they committed."""
    connections = [wire.Wire(server.port) for _ in range(CONNECTIONS)]
    states, numbers = itertools.cycle(cell.ends), iter(range(count))
    committed = answered = 0
    before = wire.max_offset(connections[0], topic, 0)
    cpu, began = server.cpu_s(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.send(*itertools.islice(_halves(topic, numbers), IN_FLIGHT))
        while answered < count:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise RuntimeError(f"{server.name} has not answered for {PATIENCE_S:.0f} s")
            for key, _ in ready:
                frames = key.data.receive_whole()
                ends: list[bytes] = []
                for header, _ in frames:
                    if header["code"] != 0:
                        raise RuntimeError(f"{server.name} refused a half message: {header}")
                    state = next(states)
                    committed += state == COMMIT
                    ends.append(end(header["extFields"], state))
                answered += len(frames)
                key.data.send(*ends, *itertools.islice(_halves(topic, numbers), len(frames)))
    deadline = time.monotonic() + PATIENCE_S
    while wire.max_offset(connections[0], topic, 0) < before + committed:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name} has not delivered all of {committed} committed messages")
    seconds, used = time.monotonic() - began, server.cpu_s() - cpu
    for connection in connections:
        connection.close()
    return Sample(count / seconds, used / count * 1e6)


def _halves(topic: str, numbers: Iterator[int]) -> Iterator[bytes]:
    for number in numbers:
        yield half_message(topic, f"{time.monotonic_ns():024X}{number:08X}", wire.FIRST_OPAQUE + number)


def measure(
    servers: Sequence[Running], rounds: int, count: int, warm_up: int
) -> dict[str, dict[str, list[Sample]]]:
    found: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    topic = "Transactions"
    for server in servers:
        with server.turn():
            asking = wire.Wire(server.port)
            asking.call(wire.create_topic(topic, 1))
            asking.call(wire.send(topic, 0))
            asking.close()
            # A JVM compiles its hot paths only after some seconds of them.
            load(server, topic, CELLS[-1], warm_up)
    for cell in CELLS:
        for order in orders(servers, rounds):
            for server in order:
                with server.turn():
                    found[cell.name][server.name].append(load(server, topic, cell, count))
    return found


def as_table(found: dict[str, dict[str, list[Sample]]], names: Sequence[str]) -> str:
    lines = []
    for other in [name for name in names if name != OWN] or [OWN]:
        lines += [
            f"| transactions | transactions/s | {other} | ratio | CPU µs each | {other} | ratio |",
            "|---|---|---|---|---|---|---|",
        ]
        for cell, samples in found.items():
            mine, theirs = samples.get(OWN, []), samples[other]
            rates = compared([each.rate for each in mine], [each.rate for each in theirs])
            cpu = compared([each.cpu_us for each in mine], [each.cpu_us for each in theirs])
            lines.append(f"| {cell} | {' | '.join([*rates, *cpu])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    parser.add_argument("--servers", default="pyromq,apache-5.3.3", help=f"of {', '.join(SERVERS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=30_000, help="transactions in each round of a load")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = available(options.servers.split(","))
    rounds, count = (1, 4_000) if options.quick else (options.rounds, options.count)
    with running(names, "ASYNC_FLUSH") as servers:
        found = measure(servers, rounds, count, warm_up=count)
    print(as_table(found, names))
    if options.json:
        document: dict[str, Any] = {
            cell: {server: [asdict(each) for each in rows] for server, rows in samples.items()}
            for cell, samples in found.items()
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
