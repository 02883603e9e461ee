"""Pop and acknowledge at the broker, over real sockets; also on Apache's own where Maven can fetch it.

    python -m benchmarks.pop [--quick] [--servers pyromq,apache-5.3.3] [--json FILE]

Consumers on a few connections pop up to 32 messages at a time from a topic that is full, and acknowledge each
one, or all of a pop together. The load is over when all are acknowledged. CPU time is the broker's alone, all
threads, until the invisible time of the last pop is over: what brokers write about pops comes back to them
then. Brokers take turns, round by round (benchmarks/turns.py). The load is one Python process.
"""

from __future__ import annotations

import argparse
import base64
import json
import selectors
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import wire
from benchmarks.broker import OWN, SERVERS, available, running
from benchmarks.turns import Running, compared, orders

from pyromq.protocol.pop_receipt import decode_offsets, decode_start_offsets

POP, ACK, BATCH_ACK = 200050, 200051, 200151
TOPIC, QUEUES, GROUP = "Pops", 8, "poppers"
CONNECTIONS: Final = 4
AT_ONCE: Final = 32
INVISIBLE_MS: Final = 4000
BODY: Final = b"x" * 256
PATIENCE_S: Final = 30.0


@dataclass(frozen=True)
class Sample:
    rate: float
    cpu_us: float


def pop_frame() -> bytes:
    ext = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": str(AT_ONCE),
        "invisibleTime": str(INVISIBLE_MS),
        "pollTime": "1000",
        "bornTime": str(int(time.time() * 1000)),
        "initMode": "0",
        "order": "false",
    }
    return wire.frame(POP, ext)


class Pops:
    """What one connection does: it pops, acknowledges all it got, and pops again."""

    def __init__(self, server: Running, together: bool) -> None:
        self.wire = wire.Wire(server.port)
        self._together = together
        self._unanswered = 0
        self.acknowledged = 0

    def begin(self) -> None:
        self.wire.send(pop_frame())

    def go_on(self) -> int:
        """Handle what arrived; how many messages are acknowledged by it."""
        before = self.acknowledged
        for header, _ in self.wire.receive_whole():
            fields = header.get("extFields") or {}
            if self._unanswered:
                if header["code"] != 0:
                    raise RuntimeError(f"an acknowledgement was refused: {header}")
                self._unanswered -= 1
            else:
                self._acknowledge(fields)
            if not self._unanswered:
                self.begin()
        return self.acknowledged - before

    def _acknowledge(self, fields: dict[str, str]) -> None:
        starts = decode_start_offsets(fields.get("startOffsetInfo", ""))
        offsets = decode_offsets(fields.get("msgOffsetInfo", ""))
        frames, acks = [], []
        for (mark, queue), each in offsets.items():
            start = starts[mark, queue]
            if self._together:
                bits = sum(1 << (offset - start) for offset in each)
                packed = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
                acks.append(
                    {
                        "b": packed,
                        "c": GROUP,
                        "it": INVISIBLE_MS,
                        "pt": int(fields["popTime"]),
                        "q": queue,
                        "r": mark,
                        "rq": int(fields["reviveQid"]),
                        "so": start,
                        "t": TOPIC,
                    }
                )
            else:
                receipt = (
                    f"{start} {fields['popTime']} {INVISIBLE_MS} {fields['reviveQid']} {mark} bench {queue}"
                )
                for offset in each:
                    ext = {
                        "consumerGroup": GROUP,
                        "topic": TOPIC,
                        "queueId": str(queue),
                        "extraInfo": f"{receipt} {offset}",
                        "offset": str(offset),
                    }
                    frames.append(wire.frame(ACK, ext))
            self.acknowledged += len(each)
        if acks:
            body = json.dumps({"acks": acks, "brokerName": "bench"}).encode()
            frames.append(wire.frame(BATCH_ACK, {}, body))
        self._unanswered = len(frames)
        if frames:
            self.wire.send(*frames)


def fill(server: Running, count: int) -> None:
    asking = wire.Wire(server.port)
    frames = [wire.send(TOPIC, number % QUEUES, BODY) for number in range(256)]
    for start in range(0, count, len(frames)):
        batch = frames[: min(len(frames), count - start)]
        asking.send(*batch)
        for _ in batch:
            asking.receive()
    asking.close()


def load(server: Running, count: int, together: bool) -> Sample:
    fill(server, count)
    time.sleep(0.5)
    workers = [Pops(server, together) for _ in range(CONNECTIONS)]
    acknowledged = 0
    cpu, began = server.cpu_s(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.wire, selectors.EVENT_READ, worker)
            worker.begin()
        while acknowledged < count:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise RuntimeError(f"{server.name} has not answered for {PATIENCE_S:.0f} s")
            acknowledged += sum(key.data.go_on() for key, _ in ready)
    seconds = time.monotonic() - began
    time.sleep(INVISIBLE_MS / 1000 + 3)
    used = server.cpu_s() - cpu
    for worker in workers:
        worker.wire.close()
    return Sample(count / seconds, used / count * 1e6)


CELLS: Final = {"each acknowledged alone": False, "all of a pop together": True}


def measure(servers: Sequence[Running], rounds: int, count: int) -> dict[str, dict[str, list[Sample]]]:
    found: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for server in servers:
        with server.turn():
            asking = wire.Wire(server.port)
            asking.call(wire.create_topic(TOPIC, QUEUES))
            asking.close()
            load(server, count, together=False)  # a JVM compiles its hot paths
    for cell, together in CELLS.items():
        for order in orders(servers, rounds):
            for server in order:
                with server.turn():
                    found[cell][server.name].append(load(server, count, together))
    return found


def as_table(found: dict[str, dict[str, list[Sample]]], names: Sequence[str]) -> str:
    lines = []
    for other in [name for name in names if name != OWN] or [OWN]:
        lines += [
            f"| popped messages | messages/s | {other} | ratio | CPU µs each | {other} | ratio |",
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
    parser.add_argument("--count", type=int, default=30_000, help="messages in each round of a load")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    names = available(options.servers.split(","))
    rounds, count = (1, 4_000) if options.quick else (options.rounds, options.count)
    with running(names, "ASYNC_FLUSH") as servers:
        found = measure(servers, rounds, count)
    print(as_table(found, names))
    if options.json:
        document: dict[str, Any] = {
            cell: {server: [asdict(each) for each in rows] for server, rows in samples.items()}
            for cell, samples in found.items()
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
