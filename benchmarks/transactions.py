"""Transactions at the broker, over real sockets; the same load on Apache's own where Maven can fetch it.

    python -m benchmarks.transactions [--quick] [--servers pyromq,apache-5.3.3] [--json FILE]

A producer sends half messages over a few connections and ends each transaction, oneway, as soon as its half
message is answered. The load is over when the last committed message can be read. Brokers take turns, round
by round (benchmarks/turns.py). CPU time is the broker's alone, all threads. The load is one Python process
that fills in prepared frames, about 10 µs for each transaction: it must not be what limits the rate.
"""

from __future__ import annotations

import itertools
import re
import selectors
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks import wire
from benchmarks.rates import Found, Sample, run
from benchmarks.turns import Running, orders

GROUP: Final = "payers"
END_TRANSACTION: Final = 37
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
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


def half_form(topic: str) -> bytes:
    """A half message without its number: the unique key has 32 digits, the opaque number 7."""
    unique_key = "%s"
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
    whole = wire.frame(wire.SEND_MESSAGE_V2, ext, BODY)
    head = whole[8 : -len(BODY)].replace(str(wire.FIRST_OPAQUE).encode(), b"%d")
    header_bytes = len(head) - len("%s%d") + 32 + 7
    return struct.pack(">ii", 4 + header_bytes + len(BODY), header_bytes) + head + BODY


def end_form(state: int) -> bytes:
    """The header of an end, sent oneway, without what it ends."""
    ext = {
        "producerGroup": GROUP,
        "tranStateTableOffset": "%s",
        "commitLogOffset": "%d",
        "commitOrRollback": str(state),
        "fromTransactionCheck": "false",
        "msgId": "%s",
        "transactionId": "%s",
    }
    return wire.frame(END_TRANSACTION, ext)[8:].replace(b'"flag":0', b'"flag":2')


END_FORMS: Final = {state: end_form(state) for state in (COMMIT, ROLLBACK)}
ANSWER: Final = re.compile(
    rb'"code":0\b(?=[^}]*"msgId":"(?:[^"]*)([0-9A-F]{16})")(?=[^}]*"queueOffset":"(\d+)")'
    rb'(?=[^}]*"transactionId":"(\w+)")'
)


def end(answer: re.Match[bytes], state: int) -> bytes:
    place, queue_offset, unique_key = answer.groups()
    head = END_FORMS[state] % (queue_offset, int(place, 16), unique_key, unique_key)
    return struct.pack(">ii", 4 + len(head), len(head)) + head


def load(server: Running, topic: str, cell: Cell, count: int) -> Sample:
    """Run `count` transactions, and wait until the broker has delivered what they committed."""
    connections = [wire.Wire(server.port) for _ in range(CONNECTIONS)]
    states, halves = itertools.cycle(cell.ends), _halves(half_form(topic), count)
    committed = answered = 0
    before = wire.max_offset(connections[0], topic, 0)
    cpu, began = server.cpu_s(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.send(*itertools.islice(halves, IN_FLIGHT))
        while answered < count:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise RuntimeError(f"{server.name} has not answered for {PATIENCE_S:.0f} s")
            for key, _ in ready:
                headers = key.data.receive_headers()
                ends: list[bytes] = []
                for header in headers:
                    if (answer := ANSWER.search(header)) is None:
                        raise RuntimeError(f"{server.name} refused a half message: {header!r}")
                    state = next(states)
                    committed += state == COMMIT
                    ends.append(end(answer, state))
                answered += len(headers)
                key.data.send(*ends, *itertools.islice(halves, len(headers)))
    deadline = time.monotonic() + PATIENCE_S
    while wire.max_offset(connections[0], topic, 0) < before + committed:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name} has not delivered all of {committed} committed messages")
    seconds, used = time.monotonic() - began, server.cpu_s() - cpu
    for connection in connections:
        connection.close()
    return Sample(count / seconds, used / count * 1e6)


def _halves(form: bytes, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield form % (b"%024X%08X" % (time.monotonic_ns(), number), wire.FIRST_OPAQUE + number)


def measure(servers: Sequence[Running], rounds: int, count: int) -> Found:
    found: Found = defaultdict(lambda: defaultdict(list))
    topic = "Transactions"
    for server in servers:
        with server.turn():
            asking = wire.Wire(server.port)
            asking.call(wire.create_topic(topic, 1))
            asking.call(wire.send(topic, 0))
            asking.close()
            # A JVM compiles its hot paths only after some seconds of them.
            load(server, topic, CELLS[-1], count)
    for cell in CELLS:
        for order in orders(servers, rounds):
            for server in order:
                with server.turn():
                    found[cell.name][server.name].append(load(server, topic, cell, count))
    return found


if __name__ == "__main__":
    run(__doc__, measure, "transactions", "transactions")
