"""A stream of requests through the fast path of a broker and through the general one: both do the same."""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from msgspec.structs import replace
from tests.support.fake_transport import FakeTransport
from tests.support.scratch import IN_MEMORY

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.clock import ManualClock
from pyromq.protocol.catalogue import Request, encode_request
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import FrameReader, encode_frame
from pyromq.protocol.record import Host
from pyromq.protocol.requests.pulling import PullMessage
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.remoting.access.control import AccessControl, Strictness
from pyromq.remoting.connection import Connection
from pyromq.security.decision import Rules
from pyromq.store.message_store import MessageStore
from pyromq.store.settings import StoreSettings

Flush = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
Way = Literal["general", "fast"]

FORMS = [HeaderForm.JSON, HeaderForm.BINARY]
MAX_AGE_MS = 60_000
READABLE = 6
"""Messages in each queue of the topic that is pulled."""
LITE = "Sessions"
"""A topic with lite topics."""
UNIQUE = "UNIQ_KEY\x01AC1234\x02"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01p\x02"


Signer = Callable[[Frame], None]


def as_bytes(stream: Sequence[tuple[Request[Any], int, bool]], *signers: Signer) -> bytes:
    """The frames of requests, each with its form and whether it is oneway; signers take turns."""
    encoded = b""
    for opaque, (request, form, oneway) in enumerate(stream):
        frame = encode_request(request, opaque, form=form, oneway=oneway)
        if signers:
            signers[opaque % len(signers)](frame)
        encoded += encode_frame(frame)
    return encoded


def plain_send(kind: Any = SendMessageV2, **fields: Any) -> Request[Any]:
    plain: dict[str, Any] = {
        "producer_group": "p",
        "topic": "Orders",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 1,
        "sys_flag": 0,
        "flag": 0,
        "properties": UNIQUE + "KEYS\x01k\x02",
        "body": b"x",
        "born_timestamp": 1,
    }
    return kind(**plain | fields)  # type: ignore[no-any-return]


def plain_pull(kind: Any = PullMessage, **fields: Any) -> Request[Any]:
    plain: dict[str, Any] = {
        "consumer_group": "g",
        "topic": "Full",
        "queue_id": 1,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": 5,
        "commit_offset": 2,
        "suspend_timeout_millis": 1000,
        "subscription": "a || b",
        "sub_version": 1,
        "expression_type": "TAG",
    }
    return kind(**plain | fields)  # type: ignore[no-any-return]


def ends_of(answers: bytes, wanted: list[Any], sign: Signer | None = None) -> bytes:
    """The frames that end the transactions of the half messages that were answered."""
    found = [frame for frame in FrameReader().feed(answers) if frame.code == 0 and "queueOffset" in frame.ext]
    found.sort(key=lambda frame: frame.opaque)
    frames = b""
    for opaque, (which, fields, log_miss, queue_miss, form, oneway) in enumerate(wanted, 500):
        if not found:
            break
        ext = found[which % len(found)].ext
        request = EndTransaction(
            tran_state_table_offset=int(ext["queueOffset"]) + queue_miss,
            commit_log_offset=int(ext["msgId"][-16:], 16) + log_miss,
            msg_id=ext.get("transactionId", "none"),
            **fields,
        )
        frame = encode_request(request, opaque, form=form, oneway=oneway)
        if sign is not None:
            sign(frame)
        frames += encode_frame(frame)
    return frames


class Outcome:
    def __init__(
        self,
        answers: bytes,
        log: bytes,
        taken: int,
        pulled: int,
        ended: int,
        acked: int,
        tables: object,
        also: int,
    ) -> None:
        self.answers = answers
        self.log = log
        self.taken = taken
        """How many frames took the fast path."""
        self.pulled = pulled
        self.ended = ended
        self.acked = acked
        self.tables = tables
        self.also = also

    @property
    def frames(self) -> list[bytes]:
        """Answers may come in another order: those that wait for the disk come later on either path."""
        frames = []
        answers = self.answers
        while answers:
            end = 4 + int.from_bytes(answers[:4])
            frames.append(answers[:end])
            answers = answers[end:]
        return sorted(frames)


class FixedHost:
    """The port is the system's choice; what is stored must not depend on it."""

    @staticmethod
    def of(_: str, __: int) -> Host:
        return Host.of("127.0.0.1", 10911)


class LiveBroker:
    """A fresh broker with two topics, asked on either path."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory
        self.parts = broker._started
        self._group = self.parts.server._group
        self.fast_path: Any = self._group.fast_path
        self.taken = self.pulled = self.ended = self.acked = 0

    def connect(self, path: Way) -> "Talk":
        self._group.fast_path = None if path == "general" else self._counting
        return Talk(self.parts.store, Connection(self._group, peer_address="10.0.0.1:4000"))

    def _counting(self, data: bytes, connection: Connection) -> tuple[int, int]:
        frames, position = self.fast_path(data, connection)
        self.taken += frames
        self.pulled += self.fast_path.pulls_taken
        self.ended += self.fast_path.ends_taken
        self.acked += self.fast_path.acks_taken
        return frames, position

    def tables(self) -> tuple[Any, ...]:
        tables, quotas = self.parts.tables, self.parts._quotas
        counts, halves = tables.transaction_counts, self.parts._transactions.halves
        return (
            tables.offsets.wrapper().offset_table,
            {topic: count for topic, count in counts.open.items() if count},
            counts.committed,
            counts.rolled_back,
            [offset for offset in range(30) if halves.is_open(offset)],
            {
                place: (each.calls, each.messages, each.size_bytes)
                for place, each in tables.statistics.puts()
                if each.calls
            },
            quotas.delayed,
            quotas.refused,
            self.light_queues(),
        )

    def light_queues(self) -> dict[str, int]:
        light = self.parts.store.light
        assert light is not None
        return {name: light.next_offset(name) for name in light.names("")}

    def log(self) -> bytes:
        """And the entries of light queues."""
        files = sorted((self.directory / "commitlog").iterdir())
        light = sorted(self.parts.store.paths.light_queues.glob("0*"))
        return b"".join(path.read_bytes().rstrip(b"\0") for path in files + light)


class Talk:
    """A connection to it without a socket."""

    def __init__(self, store: MessageStore, connection: Connection) -> None:
        self._store = store
        self._connection = connection
        self._transport = FakeTransport(connection)
        connection.connection_made(self._transport)

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    def send(self, data: bytes, cuts: Sequence[int] = ()) -> None:
        start = 0
        for cut in [*sorted(cuts), len(data)]:
            if self._connection.is_open:
                self._connection.data_received(data[start:cut])
            start = cut

    async def answers(self, max_turns: int | None = None) -> bytes:
        """All that was written, when everything is answered; with `max_turns`, or after that many turns."""
        turns = 0
        while self._connection.in_flight and (max_turns is None or turns < max_turns):
            self._store.flushes.flush()
            self._store.flushes.settle()
            await asyncio.sleep(0)
            turns += 1
        await asyncio.sleep(0)
        return b"".join(self._transport.writes)

    def end(self) -> None:
        self._connection.close()
        self._connection.connection_lost(None)


@asynccontextmanager
async def live_broker(
    flush: Flush = "ASYNC_FLUSH", rules: Rules | None = None, quotas: Mapping[str, str] | None = None
) -> AsyncIterator[LiveBroker]:
    # Unique keys that the broker makes, and queues it chooses, are the same each time.
    random.seed(1)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        clock = ManualClock()
        broker = Broker(
            BrokerConfiguration(
                BrokerSettings(
                    broker_name="a",
                    broker_ip1="127.0.0.1",
                    bind_address="127.0.0.1",
                    listen_port=0,
                    auto_create_topics=False,
                ),
                StoreSettings(
                    root=Path(directory),
                    log_segment_bytes=65_536,
                    queue_file_bytes=2000,
                    index_slots=64,
                    index_units=256,
                    flush_disk_type=flush,
                    disk_warning_percent=100,
                    light_queues=True,
                    multi_dispatch=True,
                ),
            ),
            clock=clock,
            admission=None
            if rules is None
            else AccessControl(rules, clock, Strictness(max_send_age_ms=MAX_AGE_MS)),
        )
        with patch("pyromq.broker.addresses.Host", FixedHost):
            await broker.start()
        live = LiveBroker(broker, Path(directory))
        topics = live.parts.tables.topics
        topics.create_if_absent("Orders", 4)
        if quotas is not None:
            topics.update(replace(topics.all()["Orders"], attributes=quotas))
            live.parts._quotas.call_later = lambda _, call: asyncio.get_running_loop().call_soon(call)
        topics.create_if_absent("Full", 2)
        topics.create_if_absent(LITE, 2)
        topics.update(replace(topics.all()[LITE], attributes={"message.type": "LITE"}))
        await topics.saved()  # the first message of a topic waits until the topic is on disk
        fill(live.parts.store)
        yield live
        await broker.stop()


async def outcome(
    data: bytes,
    cuts: list[int],
    path: Way,
    flush: Flush = "ASYNC_FLUSH",
    then: Callable[[bytes], bytes] | None = None,
    also: Callable[[Any], Awaitable[int]] | None = None,
    rules: Rules | None = None,
    reset_groups: Sequence[str] = (),
    quotas: Mapping[str, str] | None = None,
) -> Outcome:
    """What a fresh broker makes of a stream, and of another that `then` makes of its answers; and what `also`
    makes of its fast path afterwards. With `rules` there is access control. Queue 0 of the topic that is
    pulled is reset to its start for `reset_groups`. The topic of sends has `quotas`; delays end at once."""
    async with live_broker(flush, rules, quotas) as live:
        for each in reset_groups:
            live.parts.tables.offsets.assign_reset(each, "Full", 0, 0)
        talk = live.connect(path)
        talk.send(data, cuts)
        answers = await talk.answers()
        if then is not None and talk.is_open:
            talk.send(then(answers))
            answers = await talk.answers()
        tables = live.tables()
        more = await also(live.fast_path) if also is not None else 0
        talk.end()
        await live.broker.stop()
        return Outcome(answers, live.log(), live.taken, live.pulled, live.ended, live.acked, tables, more)


def fill(store: MessageStore) -> None:
    host = Host.of("10.0.0.2", 1).pack()
    for number in range(2 * READABLE):
        tag = b"TAGS\x01" + (b"a", b"b", b"c")[number % 3] + b"\x02"
        store.append("Full", number % 2, b"x" * 50, tag, born_timestamp=1, born_host=host, store_host=host)
    store.flushes.flush()
    store.dispatch()


def compare(
    data: bytes,
    cuts: list[int],
    flush: Flush,
    then: Callable[[bytes], bytes] | None = None,
    rules: Rules | None = None,
    quotas: Mapping[str, str] | None = None,
) -> Outcome:
    """What both paths make of a stream, which must be the same."""

    async def both() -> Outcome:
        general = await outcome(data, cuts, "general", flush, then, rules=rules, quotas=quotas)
        short = await outcome(data, cuts, "fast", flush, then, rules=rules, quotas=quotas)
        assert short.frames == general.frames
        assert short.log == general.log
        assert short.tables == general.tables
        return short

    return asyncio.run(both())
