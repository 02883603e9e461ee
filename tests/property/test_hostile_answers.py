"""Whatever brokers and name servers answer, clients raise an error of ours or try again.

They hand out nothing that was not asked for, do not grow without bound, and do not go round in circles.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest.mock import patch

from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.held_messages import QUEUE
from tests.support.hostile_network import (
    BODIES,
    CODES,
    OFFSETS,
    TEXTS,
    HostileNetwork,
    an_answer,
    sometimes,
)
from tests.support.many_cases import eight_at_a_time

from pyromq.client.consumer.group.locks import MemberLocks
from pyromq.client.consumer.group.rebalancing import Division, Rebalancing
from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.in_flight import Thresholds
from pyromq.client.consumer.reading.offsets import RemoteOffsets, StartPositions
from pyromq.client.consumer.reading.queue_reader import QueueReader, ReadingContext, Source
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.values import ReceivedMessage
from pyromq.clock import ManualClock, SystemClock
from pyromq.cluster.assignment import Average
from pyromq.cluster.routes import MAX_QUEUES_PER_ROUTE, Route
from pyromq.errors import PyroError
from pyromq.protocol import json_body
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import CATALOGUE, Declaration, decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.compression import Compression
from pyromq.protocol.frame import Frame
from pyromq.protocol.record import StoredMessage, SysFlag, encode_record
from pyromq.protocol.requests.undeclared import UNDECLARED
from pyromq.remoting.addresses import parse_address

assert UNDECLARED, "importing it has completed the catalogue"

T = TypeVar("T")

BROKERS = {"broker-a": {0: "a:1"}}
ORDERS = Route("Orders", (QUEUE,), (QUEUE,), BROKERS)
ASKED_AT = 7


def run(work: Coroutine[Any, Any, T]) -> T | PyroError:
    """What came of it; every error that is not ours fails the test."""
    try:
        return asyncio.run(work)
    except PyroError as problem:
        return problem


# Every answer that anyone waits for

DECLARATIONS = eight_at_a_time("declarations", CATALOGUE.values(), named=lambda each: each.name)


@DECLARATIONS
@settings(max_examples=examples(15))
@given(data=st.data())
def test_an_answer_is_read_or_refused(declarations: list[Declaration], data: st.DataObject) -> None:
    for declaration in declarations:
        note(declaration.name)
        names = [wire_name for _, wire_name, _ in declaration.answer_part.written]
        ext = {name: data.draw(TEXTS, name) for name in names if data.draw(st.booleans())}
        code = data.draw(st.sampled_from(sorted(declaration.accepts)))
        frame = Frame(code, 1, ext=ext, body=data.draw(BODIES))
        with contextlib.suppress(PyroError):
            decode_answer(declaration.request_type, frame)


# Pulls


@dataclass(frozen=True)
class HostileRecord:
    topic: str = "Orders"
    queue_id: int = 0
    queue_offset: int = ASKED_AT
    sys_flag: int = 0
    body: bytes = b"hello"
    cut: int = 0
    """How many bytes are missing at the end."""
    broken_at: int | None = None
    """Which byte is another one."""

    def encoded(self) -> bytes:
        record = bytearray(
            encode_record(
                StoredMessage(
                    self.topic,
                    self.body,
                    queue_id=self.queue_id,
                    queue_offset=self.queue_offset,
                    sys_flag=self.sys_flag,
                )
            )
        )
        if self.broken_at is not None:
            record[self.broken_at % len(record)] ^= 0xFF
        return bytes(record[: len(record) - self.cut])


BATCH = encode_batch([BatchEntry(b"one"), BatchEntry(b"two")])
RECORDS = st.builds(
    HostileRecord,
    topic=st.sampled_from(("Orders", "Orders", "Orders", "Payments", "shop%Orders", "")),
    queue_id=st.sampled_from((0, 0, 0, 1, -1)),
    queue_offset=st.integers(5, 12) | st.sampled_from((-1, 0, 2**63 - 1, -(2**63))),
    sys_flag=st.sampled_from(
        (
            0,
            0,
            *(kind.sys_flag for kind in Compression),
            SysFlag.COMPRESSED | 7 << 8,
            SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
            2**31 - 1 & ~0x30,
        )
    ),
    body=st.sampled_from((b"hello", b"", zlib.compress(b"hello"), zlib.compress(BATCH), BATCH, BATCH[:-1])),
    cut=st.sampled_from((0, 0, 0, 1, 50)),
    broken_at=st.none() | st.integers(0, 200),
)
PULL_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "suggestWhichBrokerId": st.sampled_from(("0", "1", "-1")) | TEXTS,
        "nextBeginOffset": OFFSETS,
        "minOffset": OFFSETS,
        "maxOffset": OFFSETS,
        "offsetDelta": st.sampled_from(("0", "1", "-9", str(2**63 - 1))) | TEXTS,
    },
)


def header(next_begin: int, **more: str) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_begin),
        "minOffset": "0",
        "maxOffset": "100",
        **more,
    }


@settings(max_examples=examples(200))
@given(code=CODES, ext=PULL_HEADERS, records=st.lists(RECORDS, max_size=4), garbage=st.none() | BODIES)
@example(0, header(8), [HostileRecord(topic="Payments")], None)  # another topic
@example(0, header(8), [HostileRecord(queue_id=1)], None)  # another queue
@example(0, header(8), [HostileRecord(queue_offset=3)], None)  # before what was asked for
@example(0, header(8), [HostileRecord(queue_offset=8)], None)  # behind where the next pull starts
@example(0, header(7), [HostileRecord()], None)  # the same message for ever
@example(0, header(3), [HostileRecord()], None)  # backwards
@example(0, header(7), [], None)  # nothing, for ever
@example(0, header(9), [HostileRecord(), HostileRecord()], None)  # the same offset twice
@example(0, header(9), [HostileRecord(queue_offset=8), HostileRecord()], None)  # the wrong way round
@example(19, header(-1), [], None)  # to before the beginning
@example(21, header(-5), [], None)
@example(20, header(2), [], None)
@example(0, header(8, offsetDelta=str(2**63 - 1)), [HostileRecord()], None)
def test_a_pull_brings_what_was_asked_for_or_an_error(
    code: int, ext: dict[str, str], records: list[HostileRecord], garbage: bytes | None
) -> None:
    body = b"".join(record.encoded() for record in records) if garbage is None else garbage
    network = HostileNetwork(lambda _: an_answer(code, ext, body), ORDERS)
    fetching = Fetching(network, "billing")
    pulled = run(fetching.pull(QUEUE, Subscription.of("Orders", "*", 0), ASKED_AT))
    if isinstance(pulled, PyroError):
        return
    assert pulled.next_offset >= 0
    assert pulled.is_moved or pulled.next_offset >= ASKED_AT
    if code == ResponseCode.SUCCESS:
        assert pulled.next_offset > ASKED_AT, "the same pull again would bring the same again"
    offsets = [message.queue_offset for message in pulled.messages]
    assert offsets == sorted(set(offsets))
    assert all(ASKED_AT <= offset < pulled.next_offset for offset in offsets)
    for message in pulled.messages:
        assert message.topic == "Orders"
        assert message.stored.topic in ("Orders", "shop%Orders")
        if "offsetDelta" not in ext:
            assert message.stored.queue_id == QUEUE.queue_id
        assert message.message_id
        assert repr(message)


def test_what_unpacks_to_very_much_is_taken_in_parts() -> None:
    """Small records can hold large messages: a thousand of them would not fit into memory."""
    packed = zlib.compress(bytes(33 << 20), 1)
    flag = Compression.ZLIB.sys_flag
    records = [HostileRecord(queue_offset=7 + n, sys_flag=flag, body=packed) for n in range(4)]
    body = b"".join(record.encoded() for record in records)
    network = HostileNetwork(lambda _: an_answer(0, header(11), body), ORDERS)
    pulled = run(Fetching(network, "billing").pull(QUEUE, Subscription.of("Orders", "*", 0), ASKED_AT))
    assert not isinstance(pulled, PyroError)
    assert sum(len(message.body) for message in pulled.messages) <= 128 << 20
    assert pulled.messages
    assert pulled.next_offset == pulled.messages[-1].queue_offset + 1, "the rest comes with the next pull"


# Routes

NAMES = st.sampled_from(("broker-a", "broker-b", "", "a\x00b", "__syslo__none__"))
NUMBERS: st.SearchStrategy[Any] = st.sampled_from(
    (0, 1, 4, 6, 7, -1, 2**31 - 1, 2**31, 2**63, 1.5, None, "4", "x", [], True)
)
ADDRESSES = st.sampled_from(
    (
        "a:1",
        ":::",
        "h:70000",
        "h:-1",
        "",
        "h",
        "[::1]:2",
        "[x]:2",
        "h:٣",
        "a\x00:1",
        "h:" + "9" * 5000,
        None,
        7,
    )
)


ROUTES = sometimes(
    brokerDatas=st.none()
    | st.lists(
        sometimes(
            brokerName=NAMES,
            cluster=NAMES,
            brokerAddrs=st.none()
            | st.dictionaries(
                st.sampled_from(("0", "1", "-1", "x", str(2**63), "9" * 5000)), ADDRESSES, max_size=3
            ),
        ),
        max_size=3,
    ),
    queueDatas=st.none()
    | st.lists(
        sometimes(brokerName=NAMES, perm=NUMBERS, readQueueNums=NUMBERS, writeQueueNums=NUMBERS), max_size=3
    ),
    orderTopicConf=st.sampled_from(
        ("", "a:4", "a:-1", "a", ":", "a:" + "9" * 30, "a:" + "9" * 5000, "a:1;" * 99, 7)
    ),
    topicQueueMappingByBroker=st.none()
    | st.dictionaries(
        NAMES,
        sometimes(
            topic=NAMES,
            scope=NAMES,
            bname=NAMES,
            epoch=NUMBERS,
            totalQueues=NUMBERS,
            currIdMap=st.dictionaries(
                st.sampled_from(("0", "1", "-1", "x", str(2**31))), NUMBERS, max_size=3
            ),
        ),
        max_size=2,
    ),
)


def a_route(**counts: Any) -> dict[str, Any]:
    return {
        "brokerDatas": [{"brokerName": "broker-a", "brokerAddrs": {"0": "a:1"}}],
        "queueDatas": [{"brokerName": "broker-a", "perm": 6, **counts}],
    }


def a_static_route(total: int, queue_id: int) -> dict[str, Any]:
    mapping = {
        "scope": "s",
        "bname": "broker-a",
        "epoch": 1,
        "totalQueues": total,
        "currIdMap": {queue_id: 0},
    }
    return {"topicQueueMappingByBroker": {"broker-a": mapping}}


@settings(max_examples=examples(150))
@given(route=ROUTES)
@example(a_route(readQueueNums=2**31 - 1))  # more queues than memory
@example(a_route(writeQueueNums=2**31 - 1))
@example({"queueDatas": a_route(readQueueNums=65_536)["queueDatas"] * 1000})
@example({"orderTopicConf": "a:" + "9" * 5000})  # more digits than Python reads
@example({"orderTopicConf": "a:2147483647"})
@example(a_static_route(total=2**31 - 1, queue_id=0))
@example(a_static_route(total=1, queue_id=-1))
def test_a_route_is_understood_or_an_error(route: dict[str, Any]) -> None:
    network = HostileNetwork(lambda _: an_answer(0, {}, json_body.encode(route)))

    async def look_up() -> Route:
        return await network.routes.refresh("Orders")

    found = run(look_up())
    if isinstance(found, PyroError):
        assert network.routes.cached("Orders") is None
        return
    queues = {*found.publish_queues, *found.subscribe_queues}
    assert len(queues) <= 2 * MAX_QUEUES_PER_ROUTE
    assert all(queue.topic == "Orders" and queue.queue_id >= 0 for queue in queues)
    for addresses in found.brokers.values():
        for address in addresses.values():
            with contextlib.suppress(PyroError):
                parse_address(address)
    for queue in list(queues)[:9]:
        network.routes.address(found.broker_of(queue))


# What consumers ask besides

SUBSCRIPTION = Subscription.of("Orders", "*", 0)


async def start_position(network: HostileNetwork, start_from: Any) -> int:
    brokers = QueueBrokers(network)
    return await StartPositions(brokers, start_from, SystemClock()).find(
        QUEUE, RemoteOffsets(brokers, "billing")
    )


@settings(max_examples=examples(60))
@given(
    code=CODES,
    ext=sometimes(offset=OFFSETS, timestamp=OFFSETS),
    seek=st.sampled_from((StartPositions.first, StartPositions.last)),
)
@example(0, {"offset": "-7"}, StartPositions.last)
@example(0, {"offset": str(2**63)}, StartPositions.last)
def test_an_offset_is_one_that_can_be_pulled_from_or_an_error(
    code: int, ext: dict[str, str], seek: Callable[[StartPositions, MessageQueue], Coroutine[Any, Any, int]]
) -> None:
    network = HostileNetwork(lambda _: an_answer(code, ext), ORDERS)
    found = (
        run(start_position(network, "last")),
        run(seek(StartPositions(QueueBrokers(network), "last", SystemClock()), QUEUE)),
        run(StartPositions(QueueBrokers(network), "last", SystemClock()).at(QUEUE, 0)),
    )
    for offset in found:
        assert isinstance(offset, PyroError) or 0 <= offset < 2**63


QUEUE_TEXTS = st.sampled_from(
    (
        {"topic": "Orders", "brokerName": "broker-a", "queueId": 0},
        {"topic": "Payments", "brokerName": "broker-a", "queueId": 0},
        {"topic": "Orders", "brokerName": "broker-a", "queueId": 2**31},
        {"topic": "Orders"},
        None,
        7,
    )
)


@settings(max_examples=examples(100))
@given(code=CODES, body=BODIES | st.lists(QUEUE_TEXTS, max_size=3).map(lambda all: locked(all)))
def test_only_queues_that_were_asked_for_are_locked(code: int, body: bytes) -> None:
    network = HostileNetwork(lambda _: an_answer(code, {}, body), ORDERS)
    granted = run(MemberLocks(network, "billing", "me").acquire([QUEUE]))
    assert isinstance(granted, set)
    assert granted <= {QUEUE}


def locked(queues: list[Any]) -> bytes:
    return json_body.encode({"lockOKMQSet": queues})


@settings(max_examples=examples(100))
@given(
    code=CODES,
    body=BODIES
    | st.lists(st.sampled_from(("me", "you", "", None, 7)), max_size=5).map(
        lambda ids: json_body.encode({"consumerIdList": ids})
    ),
)
def test_queues_are_divided_among_whoever_is_named_or_not_at_all(code: int, body: bytes) -> None:
    network = HostileNetwork(lambda _: an_answer(code, {}, body), ORDERS)
    held: list[set[MessageQueue]] = []

    async def hold(topic: str, queues: set[MessageQueue]) -> bool:
        held.append(queues)
        return True

    async def divide() -> bool:
        return await Rebalancing(
            network, "billing", "me", Division(Average()), lambda: ["Orders"], hold
        ).once()

    assert isinstance(run(divide()), bool), "the task that divides goes on"
    assert all(queues <= {QUEUE} for queues in held)


# Reading goes on

GOOD = an_answer(0, header(8), HostileRecord(body=b"good").encoded())
BAD = (
    an_answer(0, header(8), HostileRecord(topic="Payments").encoded()),
    an_answer(0, header(7), HostileRecord().encoded()),
    an_answer(0, header(8), b"garbage"),
    an_answer(0, {}),
    an_answer(0, {**header(8), "nextBeginOffset": "9" * 30}),
    an_answer(19, header(2)),
    an_answer(20, header(7)),
    an_answer(21, header(-1)),
    an_answer(21, header(ASKED_AT)),
    an_answer(2**31 - 1, {}),
    an_answer(-1, {}),
)


@settings(max_examples=examples(40))
@given(answers=st.lists(st.sampled_from(BAD), max_size=8))
@example([an_answer(20, header(7))] * 50)  # nothing, at once, again and again
@example([an_answer(21, header(ASKED_AT))] * 50)  # sent away to where one is
def test_a_queue_is_read_on_after_whatever_was_answered(answers: list[Frame]) -> None:
    script = iter(answers)
    network = HostileNetwork(lambda _: next(script, GOOD), ORDERS)
    delivered: list[ReceivedMessage] = []
    pauses: list[float] = []

    async def read() -> None:
        is_delivered = asyncio.Event()

        def deliver(reader: QueueReader, messages: list[ReceivedMessage]) -> None:
            delivered.extend(messages)
            is_delivered.set()
            reader.pause()

        class Owner:
            async def moved(self, reader: QueueReader, offset: int) -> None:
                reader.begin_at(offset)

            async def lock(self, queue: MessageQueue) -> bool:
                raise AssertionError("the queue needs no lock")

        async def introduce() -> None:
            pass

        reading = ReadingContext(
            subscriptions={QUEUE.topic: SUBSCRIPTION},
            fetching=Fetching(network, "billing"),
            deliver=deliver,
            introduce=introduce,
            stats=ConsumerStats(),
            clock=ManualClock(),
            source=Source(thresholds=lambda _: Thresholds(), commits=True),
        )
        reader = QueueReader(QUEUE, ASKED_AT, Owner(), reading)
        reader.start()
        await is_delivered.wait()
        assert not reader.has_died
        await reader.stop()

    async def paused(pause_s: float) -> None:
        pauses.append(pause_s)
        await no_time(0)

    no_time = asyncio.sleep
    with patch("pyromq.client.consumer.reading.queue_reader.asyncio.sleep", paused):
        asyncio.run(read())
    assert [message.body for message in delivered] == [b"good"]
    assert len(pauses) >= len(answers) - 3, "nobody is asked as fast as he can lie"
