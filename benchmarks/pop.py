"""Pop and acknowledge at the broker, over real sockets; also on Apache's own where Maven can fetch it.

    python -m benchmarks.pop [--quick] [--servers pyromq,apache-5.3.3] [--json FILE]

Consumers on a few connections pop up to 32 messages at a time from a topic that is full, and acknowledge each
one, or all of a pop together. A message that is acknowledged too late comes again: it is acknowledged again,
and counts once. The load is over when all are acknowledged. CPU time is the broker's alone, all
threads, until the invisible time of the last pop is over: what brokers write about pops comes back to them
then. Brokers take turns, round by round (benchmarks/turns.py). The load is one Python process.
"""

from __future__ import annotations

import base64
import json
import selectors
import struct
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks import wire
from benchmarks.rates import Found, Sample, run
from benchmarks.turns import Running, orders

from pyromq.protocol.pop_receipt import NORMAL_TOPIC, decode_offsets, decode_start_offsets, marked_topic

POP, ACK, BATCH_ACK, GET_BROKER_CONFIG = 200050, 200051, 200151, 26
TOPIC, QUEUES, GROUP = "Pops", 8, "poppers"
CONNECTIONS: Final = 4
AT_ONCE: Final = 32
INVISIBLE_MS: Final = 4000
BODY: Final = b"x" * 256
PATIENCE_S: Final = 30.0


def template(code: int, ext: Mapping[str, str]) -> bytes:
    """The header of a request, in which `%` marks what changes: the load must be cheaper than the brokers."""
    return wire.frame(code, ext)[8:]


def framed(header: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(header), len(header)) + header


POP_HEADER: Final = template(
    POP,
    {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": str(AT_ONCE),
        "invisibleTime": str(INVISIBLE_MS),
        "pollTime": "1000",
        "bornTime": "%d",
        "initMode": "0",
        "order": "false",
    },
)
ACK_HEADER: Final = template(
    ACK,
    {
        "consumerGroup": GROUP,
        "topic": "%s",
        "queueId": "%d",
        "extraInfo": f"%d %s {INVISIBLE_MS} %s %s %s %d %d",
        "offset": "%d",
    },
)


class Pops:
    """What one connection does: it pops, acknowledges all it got, and pops again."""

    def __init__(self, server: Running, broker: str, together: bool) -> None:
        self.wire = wire.Wire(server.port)
        self._broker = broker
        self._together = together
        self._unanswered = 0
        self._new = 0
        """New messages among those that are being acknowledged: what came again was counted before."""

    def begin(self) -> None:
        self.wire.send(framed(POP_HEADER % int(time.time() * 1000)))

    def go_on(self) -> int:
        """Handle what arrived; how many messages are acknowledged by it."""
        acknowledged = 0
        for header in self.wire.receive_headers():
            if self._unanswered:
                if b'"code":0,' not in header:
                    raise RuntimeError(f"an acknowledgement was refused: {header!r}")
                self._unanswered -= 1
                if not self._unanswered:
                    acknowledged += self._new
                    self.begin()
            elif not self._acknowledge(json.loads(header).get("extFields") or {}):
                self.begin()
        return acknowledged

    def _acknowledge(self, fields: dict[str, str]) -> bool:
        """Whether there is anything to acknowledge."""
        starts = decode_start_offsets(fields.get("startOffsetInfo", ""))
        offsets = decode_offsets(fields.get("msgOffsetInfo", ""))
        self._new = sum(len(each) for (mark, _), each in offsets.items() if mark == NORMAL_TOPIC)
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
                topic = marked_topic(TOPIC, GROUP, mark).encode()
                broker = self._broker.encode()
                pop_time, revive = fields["popTime"].encode(), fields["reviveQid"].encode()
                for offset in each:
                    values = (
                        topic,
                        queue,
                        start,
                        pop_time,
                        revive,
                        mark.encode(),
                        broker,
                        queue,
                        offset,
                        offset,
                    )
                    frames.append(framed(ACK_HEADER % values))
        if acks:
            body = json.dumps({"acks": acks, "brokerName": self._broker}).encode()
            frames.append(wire.frame(BATCH_ACK, {}, body))
        self._unanswered = len(frames)
        if frames:
            self.wire.send(*frames)
        return bool(frames)


def name_of(server: Running) -> str:
    """The name of a broker: it knows its pops by it, and takes no acknowledgement under another name."""
    asking = wire.Wire(server.port)
    _, body = asking.call(wire.frame(GET_BROKER_CONFIG, {}))
    asking.close()
    settings = dict(line.partition(b"=")[::2] for line in body.splitlines())
    return settings[b"brokerName"].decode().strip()


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
    broker = name_of(server)
    workers = [Pops(server, broker, together) for _ in range(CONNECTIONS)]
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


def measure(servers: Sequence[Running], rounds: int, count: int) -> Found:
    found: Found = defaultdict(lambda: defaultdict(list))
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


if __name__ == "__main__":
    run(__doc__, measure, "popped messages", "messages")
