"""What is fuzzed: compiled code makes of any bytes what interpreted code makes of them, or it declines.

A target takes the bytes and raises AssertionError if the two differ. It may keep servers for several inputs:
an input takes a millisecond then, and not a second. `fresh_every` says for how many.
"""

import asyncio
import random
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext
from math import inf
from mmap import mmap
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from tests.native_fuzz.inputs import input_of, recorded_frames, stream_of
from tests.property import test_broker_fast_path as broker_paths
from tests.property import test_front_messages as front
from tests.property import test_http2_headers_twin as header_blocks
from tests.property import test_http2_property as http2_streams
from tests.property import test_nameserver_fast_path as route_paths
from tests.property import test_pulled_messages as pulled
from tests.property import test_quick_pulls as quick_pulls
from tests.property import test_quick_sends as quick_sends
from tests.property import test_store_twins as stores
from tests.spark import test_spark_twins as rows
from tests.support.both_paths import (
    HALF,
    UNIQUE,
    LiveBroker,
    Way,
    as_bytes,
    ends_of,
    live_broker,
    outcome,
    plain_pull,
    plain_send,
)
from tests.support.broker_cluster import running_broker
from tests.support.broker_parts import BrokerParts, broker_parts
from tests.support.http2_peer import CALL, HELLO
from tests.support.scratch import IN_MEMORY
from tests.support.small_stores import STORE_HOST, interpreted, read_queue
from tests.support.wire_client import WireClient

from pyromq.broker.flow import half_messages, timed_outline, timing
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.parking import unpark
from pyromq.client.consumer.reading import fetching
from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.filtering.tags import parse_tags
from pyromq.http2 import connection as http2_connection
from pyromq.http2 import frames, header_rules, hpack
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.binary_header import decode_binary_header
from pyromq.protocol.catalogue import declaration_of, decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.json_header import decode_json_header
from pyromq.protocol.names import OP_HALF_TOPIC, REVIVE_GROUP
from pyromq.protocol.record import MIN_RECORD_SIZE, Host, StoredMessage, decode_record, encode_record
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import PullMessageAnswer
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.grpc.framing import MessageReader, frame_message
from pyromq.proxy.incoming import framed, received
from pyromq.proxy.messages import message
from pyromq.proxy.outgoing import prepare
from pyromq.proxy.receipts import decode_handle, popped
from pyromq.security.full_signature import is_fully_signed
from pyromq.security.signature import is_signed, signing_key
from pyromq.spark import encode
from pyromq.store.index import key_hash
from pyromq.store.log import record_checks

Fuzz = Callable[[bytes], None]


class Target(NamedTuple):
    fuzz: Fuzz
    seeds: Callable[[], Iterable[bytes]]
    modules: str
    """The compiled modules that read the bytes."""


TARGETS: Final[dict[str, Target]] = {}


def target(modules: str, seeds: Callable[[], Iterable[bytes]]) -> Callable[[Fuzz], Fuzz]:
    def named(fuzz: Fuzz) -> Fuzz:
        TARGETS[fuzz.__name__] = Target(fuzz, seeds, modules)
        return fuzz

    return named


def native(name: str) -> Any:
    found = twin(name)
    assert found is not None, f"{name} is not compiled"
    return found


# Headers


def _headers() -> Iterator[bytes]:
    for stream in (*recorded_frames(answers=False), *recorded_frames(answers=True)):
        form_and_header = int.from_bytes(stream[4:8], "big")
        yield bytes([form_and_header >> 24]) + stream[8 : 8 + (form_and_header & 0xFFFFFF)]


def _cut_to_16_bits(code: int) -> int:
    """How the binary form writes a code. The general path finds out which long code was meant."""
    return struct.unpack(">h", struct.pack(">H", code & 0xFFFF))[0]  # type: ignore[no-any-return]


@target("protocol.headers", _headers)
def headers(data: bytes) -> None:
    is_binary, header = bool(data[:1] and data[0] & 1), data[1:]
    found = native("protocol.headers").fields_of(header, is_binary)
    if found is None:
        return
    frame = (decode_binary_header if is_binary else decode_json_header)(header)
    code = _cut_to_16_bits(frame.code) if is_binary else frame.code
    assert found == (code, frame.flag, frame.opaque, frame.ext)


_SECRET: Final = "the secret of alice"


@target("protocol.headers security.fast_signature", _headers)
def signatures(data: bytes) -> None:
    """A signature that interpreted code does not make of the fields is never found right."""
    is_binary, header = bool(data[:1] and data[0] & 1), data[1:]
    check = native("security.fast_signature").is_signed_frame
    if check(header, is_binary, b"body", signing_key(_SECRET), is_full=False):
        frame = (decode_binary_header if is_binary else decode_json_header)(header)
        assert is_signed(frame.ext, b"body", _SECRET)
    full_key = signing_key(_SECRET, "sha256")
    if check(header, is_binary, b"body", full_key, is_full=True):
        frame = (decode_binary_header if is_binary else decode_json_header)(header)
        frame.body = b"body"
        assert is_fully_signed(frame, _SECRET)


# Servers


class _Broker:
    """Two brokers that are sent the same, one of them on its fast path."""

    fresh_every = 400

    def __init__(
        self, opening: bytes, codes: Iterable[int], left_in: Callable[[LiveBroker], Any] = LiveBroker.log
    ) -> None:
        """`left_in`: what both must have in the end."""
        self._opening = opening
        self._codes = frozenset(codes)
        self._left_in = left_in
        self._loop = asyncio.new_event_loop()
        self._inputs = 0
        self._open = AsyncExitStack()
        self._pair: dict[Way, LiveBroker] = {}

    def __call__(self, data: bytes) -> None:
        stream = stream_of(data)
        found = FrameReader().feed(stream)
        # What other requests are answered may depend on the hour, or change the broker for those to come.
        if found and all(frame.code in self._codes for frame in found):
            self._loop.run_until_complete(self._both(stream))

    async def _both(self, stream: bytes) -> None:
        if self._inputs % self.fresh_every == 0:
            await self._open.aclose()
            for way in ("general", "fast"):
                self._pair[way] = await self._open.enter_async_context(live_broker())
                talk = self._pair[way].connect(way)
                talk.send(self._opening)
                await talk.answers()
                talk.end()
        self._inputs += 1
        answers = {}
        for way, live in self._pair.items():
            random.seed(self._inputs)
            talk = live.connect(way)
            talk.send(stream)
            written = await talk.answers(max_turns=20)
            answers[way] = sorted(_frames_in(written)), talk.is_open
            talk.end()
        assert answers["fast"] == answers["general"]
        if self._inputs % self.fresh_every == 0:
            assert self._left_in(self._pair["fast"]) == self._left_in(self._pair["general"])
            assert _tables(self._pair["fast"]) == _tables(self._pair["general"])


def _messages(live: LiveBroker) -> list[tuple[Any, ...]]:
    """All that a consumer can read. What the broker notes for itself, and when, depends on the hour."""
    store = live.parts.store
    while store.has_dispatch_work:
        store.dispatch()
    return [
        (queue_id, each.queue_offset, each.body, each.properties, each.sys_flag, each.flag)
        for queue_id in range(4)
        for each in read_queue(store, "Orders", queue_id)
    ]


def _ended(live: LiveBroker) -> tuple[Any, ...]:
    """The messages that became of transactions, and which half messages the log says are over."""
    store, ops = live.parts.store, live.parts._transactions.ops
    store.flushes.flush()
    store.flushes.settle()
    ops.write()
    found = _messages(live)
    noted = [each.body.rstrip(b",").split(b",") for each in read_queue(store, OP_HALF_TOPIC, 0)]
    return found, sorted(int(offset) for offsets in noted for offset in offsets), len(ops._waiting)


def _tables(live: LiveBroker) -> tuple[Any, ...]:
    """How far the broker's own reader of acknowledgements has come depends on the hour."""
    offsets, *others = live.tables()
    return {each: at for each, at in offsets.items() if not each.endswith(f"@{REVIVE_GROUP}")}, *others


def _frames_in(answers: bytes) -> Iterator[bytes]:
    while answers:
        end = 4 + int.from_bytes(answers[:4])
        yield answers[:end]
        answers = answers[end:]


_BATCH: Final = encode_batch([BatchEntry(b"1", b"TAGS\x01t\x02"), BatchEntry(b"2")])


def _requests() -> Iterator[list[Any]]:
    for form in (HeaderForm.JSON, HeaderForm.BINARY):
        for request in (
            plain_send(),
            plain_send(SendMessageBatch, body=_BATCH),
            plain_send(properties=HALF + UNIQUE, sys_flag=4),
            plain_send(properties=UNIQUE + "TIMER_DELAY_SEC\x015\x02"),
            plain_pull(sys_flag=4),
            plain_pull(subscription="*", queue_offset=3),
        ):
            yield [(request, form, False)]


def _opening() -> bytes:
    """The first of a kind opens the way, on the general path."""
    return b"".join(map(as_bytes, _requests()))


def _broker_seeds() -> Iterator[bytes]:
    for stream in _requests():
        yield input_of(as_bytes(stream))
    for stream_ in recorded_frames(answers=False):
        yield input_of(stream_)


@target(
    "broker.fast_path broker.fast_sends broker.fast_pulls protocol.requests"
    " protocol.headers store.fast_appending broker.known_queues",
    _broker_seeds,
)
def requests(data: bytes, _kept: list[_Broker] = []) -> None:  # noqa: B006  (kept for the next input)
    """Sends, batches, half messages and pulls."""
    if not _kept:
        _kept.append(_Broker(_opening(), broker_paths.OUR_CODES))
    _kept[0](data)


def _answers_to(opening: bytes) -> bytes:
    """Every fresh broker gives the same ones, so that inputs can name what they say."""
    return asyncio.run(outcome(opening, [], "general")).answers


_HALF_SEND: Final = plain_send(properties=HALF + UNIQUE, sys_flag=4)
_HALVES: Final = as_bytes([(each, HeaderForm.JSON, False) for each in (plain_send(), *[_HALF_SEND] * 20)])


def _ends() -> Iterator[bytes]:
    answers = _answers_to(_HALVES)
    fields = {"producer_group": "p", "from_transaction_check": False}
    for first, form in ((1, HeaderForm.JSON), (10, HeaderForm.BINARY)):
        wanted = [
            (number, fields | {"commit_or_rollback": state}, 0, 0, form, is_oneway)
            for number, (state, is_oneway) in enumerate(
                [(8, True), (12, True), (8, False), (0, True)] * 2, first
            )
        ]
        for each in wanted[:4]:
            yield input_of(ends_of(answers, [each]))
        yield input_of(ends_of(answers, wanted[4:]))


@target(
    "broker.fast_path broker.fast_ends protocol.requests"
    " protocol.headers protocol.records store.fast_appending",
    _ends,
)
def ends(data: bytes, _kept: list[_Broker] = []) -> None:  # noqa: B006  (kept for the next input)
    """Ends of transactions, of twenty half messages."""
    if not _kept:
        _kept.append(_Broker(_HALVES, {declaration_of(EndTransaction).code}, _ended))
    _kept[0](data)


_POPS: Final = [broker_paths.plain_pop(queue_id=queue_id, max_msg_nums=4) for queue_id in (0, 1)]
_POPPING: Final = as_bytes([(each, HeaderForm.JSON, False) for each in _POPS])


def _acks() -> Iterator[bytes]:
    answers = _answers_to(_POPPING)
    plain = dict.fromkeys(("receipt", "topic", "queue_id", "also"))
    usual = plain | {"offset_miss": 0, "has_offset": True, "changes": False}
    for unusual in ({}, {"offset_miss": 1}, {"has_offset": False}, {"receipt": "1 2 3 4 0 a 1 "}):
        wanted = [(number, usual | unusual, HeaderForm.JSON, False) for number in range(7)]
        yield input_of(broker_paths.acks_of(answers, _POPS, wanted))
        yield input_of(broker_paths.acks_of(answers, _POPS, wanted[:1]))


@target("broker.fast_path broker.fast_acks protocol.requests protocol.headers", _acks)
def acks(data: bytes, _kept: list[_Broker] = []) -> None:  # noqa: B006  (kept for the next input)
    """Acknowledgements, of two pops."""
    if not _kept:
        _kept.append(_Broker(_POPPING, {declaration_of(AckMessage).code}))
    _kept[0](data)


class _NameServer:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._directory = tempfile.mkdtemp(dir=IN_MEMORY)
        self._ways: route_paths.Ways | None = None

    def __call__(self, stream: bytes) -> None:
        self._loop.run_until_complete(self._ask(stream))

    async def _ask(self, stream: bytes) -> None:
        if self._ways is None:
            self._ways = route_paths.Ways(self._directory)
        self._ways.agreed(stream)


def _queries() -> Iterator[bytes]:
    for form in route_paths.FORMS:
        yield input_of(route_paths.query("Orders", form) + route_paths.query("Bills", form))
        yield input_of(route_paths.query("Orders", form, {"acceptStandardJsonOnly": "true"}))


@target("nameserver.fast_path protocol.headers", _queries)
def routes(data: bytes, _kept: list[_NameServer] = []) -> None:  # noqa: B006  (kept for the next input)
    stream = stream_of(data)
    found = FrameReader().feed(stream)
    if all(frame.code == route_paths.GET_ROUTE for frame in found):
        if not _kept:
            _kept.append(_NameServer())
        _kept[0](stream)


# The store


class _Stores:
    """Two stores with the same calls, one of them interpreted."""

    fresh_every = 300

    def __init__(self) -> None:
        self._inputs = 0
        self._root: Path | None = None
        self._compiled: Any = None
        self._plain: Any = None

    def __call__(self, data: bytes) -> None:
        if self._inputs % self.fresh_every == 0:
            self._begin()
        self._inputs += 1
        kind, rest = data[:1], data[1:]
        queue = stores.TOPICS[0], 0
        half = len(rest) // 2
        calls: list[tuple[Any, ...]]
        if kind and kind[0] & 1:
            calls = [("batch_of", queue, rest)]
        else:
            calls = [("append", queue, rest[:half], rest[half:], 0, stores.HOSTS[0], stores.HOSTS[0], 0, 0)]
        before = self._compiled.store.queues.max_offset(*queue)
        for call in [*calls, ("read", queue, before, 5, 0)]:
            self._play(self._compiled, call)
            with interpreted():
                self._play(self._plain, call)
            assert self._compiled.answers == self._plain.answers
            self._compiled.answers.clear()
            self._plain.answers.clear()

    def _begin(self) -> None:
        if self._root is not None:
            compiled_files = self._compiled.end()
            with interpreted():
                plain_files = self._plain.end()
            assert compiled_files == plain_files
            shutil.rmtree(self._root)
        self._root = Path(tempfile.mkdtemp(prefix="fuzzed-stores-", dir=IN_MEMORY))
        self._compiled = stores.Played(self._root / "compiled", stores.SIZES[1])
        with interpreted():
            self._plain = stores.Played(self._root / "interpreted", stores.SIZES[1])
        for call in (*stores.FIRST, ("dispatch", 1000)):
            self._compiled.play(call)
            with interpreted():
                self._plain.play(call)
        self._compiled.answers.clear()
        self._plain.answers.clear()

    @staticmethod
    def _play(played: stores.Played, call: tuple[Any, ...]) -> None:
        if call[0] != "batch_of":
            played.play(call)
            return
        try:
            (topic, queue_id), batch = call[1:]
            answer: object = played.store.append_encoded_batch(
                topic,
                queue_id,
                batch,
                born_timestamp=7,
                born_host=stores.HOSTS[0],
                store_host=stores.HOSTS[0],
                appended_properties=b"CLUSTER\x01c\x02",
            )
        except RemoteProtocolError as problem:
            answer = str(problem)
        played.answers.append(answer)


def _batches() -> Iterator[bytes]:
    yield b"\1" + _BATCH
    yield b"\1" + encode_batch([BatchEntry(b"x" * 30, UNIQUE.encode(), 7)] * 3)
    yield b"\0" + UNIQUE.encode() + b"TAGS\x01a\x02KEYS\x01k1 k2\x02"
    yield b"\0" + b"x" * 60 + UNIQUE.encode() + b"TAGS\x01a\x02KEYS\x01k1 k2 k3\x02" + UNIQUE.encode()


@target(
    "store.fast_appending store.fast_dispatch protocol.records"
    " store.fast_reading store.fast_key_hash protocol.checksums",
    _batches,
)
def batches(data: bytes, _kept: list[_Stores] = []) -> None:  # noqa: B006  (kept for the next input)
    if not _kept:
        _kept.append(_Stores())
    _kept[0](data)


def _log_of(data: bytes, start: int) -> bytes:
    """Any bytes as a log from `start` on, so that few inputs are wasted: records get their own offset, their
    size and the checksum of their body if the input says so.

    ( how 1 | length 2 | record )*
    """
    log = bytearray()
    while len(data) > 3:
        how, record = data[0], bytearray(data[3 : 3 + int.from_bytes(data[1:3])])
        data = data[3 + len(record) :]
        if how & 1 and len(record) >= MIN_RECORD_SIZE:
            record[28:36] = (start + len(log)).to_bytes(8)
            if how & 2:
                record[:4] = len(record).to_bytes(4)
            body_at = 88 + 12 * bool(record[39] & 0x10) + 12 * bool(record[39] & 0x20)
            body_bytes = int.from_bytes(record[body_at - 4 : body_at], signed=True)
            if how & 4 and 0 <= body_bytes <= len(record) - body_at:
                crc = zlib.crc32(record[body_at : body_at + body_bytes]) & 0x7FFFFFFF
                record[8:12] = crc.to_bytes(4)
        log += record
    return bytes(log)


def _as_log(*records: bytes) -> bytes:
    """The input that gives these records."""
    return b"".join(b"\7" + len(each).to_bytes(2) + each for each in records)


def _logs() -> Iterator[bytes]:
    for each in _records():
        yield _as_log(each)
    yield _as_log(*(_record(queue_offset=number) for number in range(3)))
    tagged = _record(properties=b"UNIQ_KEY\x01u\x02TAGS\x01a\x02KEYS\x01k1 k2\x02")
    yield _as_log(tagged) + b"\0" + len(tagged).to_bytes(2) + tagged


@target("protocol.records", _logs)
def whole_records(data: bytes) -> None:
    """Compiled code passes over sound records only, and finds the first damaged one."""
    start = 4096
    log = _log_of(data, start)
    passed, last, count = native("protocol.records").whole_records(log, 0, len(log), len(log), start)
    sizes: list[int] = []
    while sum(sizes) < passed:
        outline = record_checks.sound_in(log, sum(sizes), start + sum(sizes), 1 << 40)
        assert outline is not None
        sizes.append(outline.size)
    assert (sum(sizes), len(sizes)) == (passed, count)
    assert last == (passed - sizes[-1] if sizes else -1)
    damaged = native("protocol.records").first_damaged(log, 0)
    with patch.object(record_checks, "_native", None):
        assert record_checks.first_damaged(memoryview(log)) == damaged


class _Copies:
    """Two replicas with the same bytes from a master, one of them interpreted."""

    fresh_every = 200
    sizes = 1 << 21, 20_000, 5000
    """A log of one file takes all inputs until fresh replicas begin."""

    def __init__(self) -> None:
        self._inputs = 0
        self._root: Path | None = None
        self._pair: list[tuple[stores.Played, Callable[[], AbstractContextManager[None]]]] = []

    def __call__(self, data: bytes) -> None:
        if self._inputs % self.fresh_every == 0:
            self._begin()
        self._inputs += 1
        answers = []
        for played, way in self._pair:
            with way():
                answers.append(self._copied(played, data))
        assert answers[0] == answers[1]

    def _copied(self, played: stores.Played, data: bytes) -> list[Any]:
        store = played.store
        start, played.answers = store.log.end, []
        try:
            store.copying.append(start, memoryview(_log_of(data, start)))
        except StoreError as problem:
            played.answers.append(str(problem))
        store.copying.drop_part()
        played.answers.append(store.log.end)
        played.dispatch(1000)
        for topic in store.topics.names():
            for queue_id in store.queues.ids(topic):
                if store.queues.max_offset(topic, queue_id):
                    for filtering in (0, 3):
                        played.read(
                            (topic, queue_id),
                            max(store.queues.max_offset(topic, queue_id) - 3, 0),
                            5,
                            filtering,
                        )
        return played.answers

    def _begin(self) -> None:
        if self._root is not None:
            files = []
            for played, way in self._pair:
                with way():
                    files.append(played.end())
            assert files[0] == files[1]
            shutil.rmtree(self._root)
        self._root = Path(tempfile.mkdtemp(prefix="fuzzed-copies-", dir=IN_MEMORY))
        self._pair = []
        for way in (nullcontext, interpreted):
            with way():
                played = stores.Played(self._root / way.__name__, self.sizes)
                played.store.copying.begin()
                self._pair.append((played, way))


@target(
    "protocol.records store.fast_dispatch store.fast_reading store.fast_key_hash protocol.checksums", _logs
)
def copied_logs(data: bytes, _kept: list[_Copies] = []) -> None:  # noqa: B006  (kept for the next input)
    """What a master sends is appended, dispatched and read."""
    if not _kept:
        _kept.append(_Copies())
    _kept[0](data)


_UNITS: Final = 12


class _Queues:
    """Two stores with the same twelve messages, one of them interpreted; their queue is overwritten."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="fuzzed-queues-", dir=IN_MEMORY))
        self._pair: list[tuple[stores.Played, Callable[[], AbstractContextManager[None]]]] = []
        for way in (nullcontext, interpreted):
            with way():
                played = stores.Played(self._root / way.__name__, stores.SIZES[1])
                for _ in range(_UNITS):
                    played.play(stores.USUAL)
                    played.play(("append", ("Ordersx", 0), *stores.USUAL[2:]))
                played.dispatch(1000)
                self._pair.append((played, way))

    def units(self) -> bytes:
        buffer, position = self._place(self._pair[0][0])
        return buffer[position : position + 20 * _UNITS]

    @staticmethod
    def _place(played: stores.Played) -> tuple[mmap, int]:
        queue = played.store.queues.find("Orders", 0)
        assert queue is not None
        return queue.place(0)

    def __call__(self, units: bytes) -> None:
        answers = []
        for played, way in self._pair:
            buffer, position = self._place(played)
            before = buffer[position : position + 20 * _UNITS]
            played.answers = []
            for offset, count, filtering in ((0, 32, 0), (3, 5, 3), (1, 32, 2)):
                buffer[position : position + len(units)] = units
                with way(), patch.object(played.store._reader._mending, "mend", return_value=False):
                    played.read(("Orders", 0), offset, count, filtering)
                buffer[position : position + len(before)] = before
            answers.append(played.answers)
        assert answers[0] == answers[1]


def _queues(_kept: list[_Queues] = []) -> _Queues:  # noqa: B006  (kept for the next input)
    if not _kept:
        _kept.append(_Queues())
    return _kept[0]


def _units() -> Iterator[bytes]:
    units = _queues().units()
    yield units
    yield units[:60] + units[20:80] + units[80:]
    yield units[:20] + bytes(20) + units[40:]


@target("store.fast_reading", _units)
def queue_units(data: bytes) -> None:
    """A queue file with any bytes leads to records of its queue only."""
    _queues()(data[: 20 * _UNITS])


# Records


def _record(topic: str = "Orders", properties: bytes = b"TAGS\x01a\x02", **more: Any) -> bytes:
    hosts = {"born_host": Host.of("10.0.0.1", 1), "store_host": Host.of("10.0.0.2", 2)}
    return encode_record(StoredMessage(topic, b"hello", properties, 2, **(hosts | more)))


_TIMED: Final = b"REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02TIMER_OUT_MS\x0117\x02TIMER_DELAY_SEC\x015\x02"
_HALF: Final = b"PGROUP\x01p\x02UNIQ_KEY\x01AC1234\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"


def _records() -> Iterator[bytes]:
    yield _record()
    yield _record(queue_offset=5) + _record(queue_offset=6)
    yield _record("t" * 200, _TIMED)
    yield _record(properties=_TIMED, born_host=Host.of("::1", 1))
    yield _record(properties=_HALF, store_host=Host.of("::1", 1))
    yield _record(properties=_HALF + b"TRANSACTION_CHECK_TIMES\x013\x02")
    yield _record(properties=b"UNIQ_KEY\x01K\x02KEYS\x01k1 k2\x02gr\xc3\xbcn\x01ja\x02own\x01x\x02")
    for stream in recorded_frames(answers=True):
        body = stream[8 + int.from_bytes(stream[5:8], "big") :]
        if body[4:8] in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
            yield body


@target("protocol.requests protocol.records", _records)
def outlines(data: bytes) -> None:
    """Messages that wait for their time, and half messages."""
    timed = timed_outline.read_timed(memoryview(data))
    if timed is not None and timed.is_usual:
        with patch.object(timed_outline, "_native", None):
            assert timed_outline.read_timed(memoryview(data)) == timed._replace(is_usual=False)
    if native("protocol.requests").read_half(memoryview(data)) is not None:
        half = half_messages.read_half(memoryview(data))
        with patch.object(half_messages, "_native", None):
            assert half_messages.read_half(memoryview(data)) == half


_AGAIN: Final = _HALF[:-1] + b"\x02TIMER_OUT_MS\x0117\x02TIMER_DELIVER_MS\x0118\x02"


class _Deliveries:
    """Two brokers that deliver the same timed messages: straight from the record, and the usual way."""

    fresh_every = 500

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._inputs = 0
        self._open = ExitStack()
        self._pair: list[BrokerParts] = []

    def __call__(self, record: bytes) -> None:
        self._loop.run_until_complete(self._both(record))

    async def _both(self, record: bytes) -> None:
        if self._inputs % self.fresh_every == 0:
            self._open.close()
            root = Path(self._open.enter_context(tempfile.TemporaryDirectory(dir=IN_MEMORY)))
            self._pair = [
                self._open.enter_context(broker_parts(root / way, store={"log_segment_bytes": 1 << 22}))
                for way in ("straight", "usual")
            ]
            for parts in self._pair:  # the first message of a queue goes the usual way
                for queue_id in range(8):
                    parts.appending.append(Draft("Orders", queue_id, b"first", b"", 1, STORE_HOST))
        self._inputs += 1
        outline = timed_outline.read_timed(memoryview(record))
        if outline is None or not outline.is_usual or outline.topic is None or outline.queue_id is None:
            return
        straight, usual = self._pair
        stamps = timing.stamps(7, 9)
        found = straight.appending.append_again(memoryview(record), outline.topic, outline.queue_id, stamps)
        if found is None:
            return
        draft = unpark(decode_record(record))
        draft.properties = timing.stamped(draft.properties, 7, 9)
        with interpreted():
            expected = usual.appending.append(draft)
        assert found == expected
        records = [parts.store.log.record_at(found.log_offset) for parts in self._pair]
        assert records[0] is not None
        assert records[0] == records[1]


def _timed_logs() -> Iterator[bytes]:
    for properties in (_TIMED, _AGAIN, _TIMED + b"TIMER_ENQUEUE_MS\x013\x02"):
        yield _as_log(_record("rmq_sys_wheel_timer", properties))
        yield _as_log(_record("rmq_sys_wheel_timer", properties, born_host=Host.of("::1", 1), flag=3))


@target("store.fast_appending protocol.requests protocol.records", _timed_logs)
def delivered_again(data: bytes, _kept: list[_Deliveries] = []) -> None:  # noqa: B006
    """A timed message that is stored in its own queue, straight from its record."""
    if not _kept:
        _kept.append(_Deliveries())
    _kept[0](_log_of(data, 0))


def _keys() -> Iterator[bytes]:
    yield b"Orders#k1 Orders#k2"
    yield b"polygenelubricants " + b"x" * 300
    yield "grün a".encode()


@target("store.fast_key_hash", _keys)
def key_hashes(data: bytes) -> None:
    keys = data.split(b" ")
    compiled = key_hash.index_key_hashes(keys)
    with patch.object(key_hash, "_native", None):
        assert key_hash.index_key_hashes(keys) == compiled


@target("spark.fast_columns", _records)
def columns(data: bytes) -> None:
    rows.assert_same([data], ["value", "key", "properties", "offset", "msgId", "tags"], 0, 2**62)


_CELL: Final = b"\0"


def _cells() -> Iterator[bytes]:
    yield _CELL.join((b"\7", b"hello", b"k1", b"TagA", b"s", b"own", b"x"))
    yield _CELL.join((b"\1", b"x" * 50, "grün".encode(), b"a\x01", b"", b"KEYS", b"k\x02"))


@target("spark.fast_encode", _cells)
def written_rows(data: bytes) -> None:
    """Rows of a table that is written: a body, a key, tags, and a map of properties."""
    how, *cells = data.split(_CELL)
    texts = [each.decode(errors="replace") or None for each in (*cells, *[b""] * 6)]
    value, key, tags, sharding_key, name, text = texts[:6]
    arrays = {"value": pa.array([(value or "").encode() or None, b"second"], pa.binary())}
    for bit, column, cell in ((1, "key", key), (2, "tags", tags), (4, "shardingKey", sharding_key)):
        if how[:1] and how[0] & bit:
            arrays[column] = pa.array([cell, cell], pa.string())
    arrays["properties"] = pa.array([[(name or "", text)], None], rows.MAP)
    batch = pa.RecordBatch.from_pydict(arrays)
    compiled = rows.entries_of(batch, "q:1:0", with_properties=True)
    with patch.object(encode, "_native", None):
        assert rows.entries_of(batch, "q:1:0", with_properties=True) == compiled


@target("client.twin_pulled_message", _records)
def pulled_records(data: bytes) -> None:
    answer = PullMessageAnswer(
        suggest_which_broker_id=0, next_begin_offset=7, min_offset=0, max_offset=100, body=data
    )
    compiled = pulled.shown(pulled.understood(answer, "*"))
    with patch.object(fetching, "pulled_messages", None):
        assert compiled == pulled.shown(pulled.understood(answer, "*"))


# What brokers answer to clients


def _pull_answers() -> Iterator[bytes]:
    for count in (1, 3):
        yield input_of(quick_pulls.as_data(pulled.plain_answer(count), {}))
    for stream in recorded_frames(answers=True):
        yield input_of(stream)


@target("client.twin_pulled_message protocol.headers", _pull_answers)
def pull_answers(data: bytes) -> None:
    stream = stream_of(data)
    caller, count, position = quick_pulls.read(stream)
    assert 0 <= position <= len(stream)
    if count == 1 and position == len(stream) and 7 in caller.quick:
        (opaque,) = {5, 6} - caller.quick.keys()
        expected = quick_pulls.numbers(quick_pulls.general(stream))
        assert quick_pulls.numbers(caller.answered[opaque].result()) == expected


def _send_answers() -> Iterator[bytes]:
    ext = {"msgId": "7F0000010000", "queueId": "2", "queueOffset": "9", "transactionId": "T"}
    yield input_of(quick_sends.as_frame({"code": 0, "extFields": ext, "flag": 1, "opaque": 5}))
    for stream in recorded_frames(answers=True):
        yield input_of(stream)


@target("client.fast_sends protocol.headers", _send_answers)
def send_answers(data: bytes) -> None:
    stream = stream_of(data)
    if len(FrameReader().feed(stream)) == 1:
        count, result = quick_sends.quick_result(stream)
        if count:
            assert result == quick_sends.general_result(stream)


@target("proxy.calls protocol.headers", _send_answers)
def front_answers(data: bytes) -> None:
    stream = stream_of(data)
    plain = front.READER.read(frame_message(front.an_ordinary_send().SerializeToString()), b"h")
    waiting = front._Quick(plain)
    waiting.quick = {5: waiting.quick[front.OPAQUE]}
    count, position = front.front_calls.QuickAnswers(1 << 24)(stream, waiting)
    assert 0 <= position <= len(stream)
    if count and waiting.told is not None:
        answer = decode_answer(SendMessageV2, FrameReader().feed(stream)[0])
        (told,) = MessageReader(1 << 20).feed(waiting.told)
        entry = message("SendMessageResponse").FromString(told).entries[0]
        assert entry.offset == answer.queue_offset
        assert entry.transaction_id == (answer.transaction_id or "01AB")


# HTTP/2 and the gRPC front


def _blocks() -> Iterator[bytes]:
    literal = header_blocks._literal
    for block in (
        hpack.encode(CALL),
        literal(0x40, b"x-mq-client-id", b"value", True),
        literal(0x00, b"te", b"trailers", False) + b"\x82\x86\x84",
        b"\x3f\xe1\x1f" + literal(0x40, b"x", b"y", True) + b"\xbe",
    ):
        yield bytes([len(block)]) + block


@target("http2.twin_hpack", _blocks)
def header_lists(data: bytes) -> None:
    plain, compiled = hpack.Decoder(4096), header_blocks.native.Decoder(4096)
    while data:
        block, data = data[1 : 1 + data[0]], data[1 + data[0] :]
        expected = header_blocks._outcome(plain, block)
        assert header_blocks._outcome(compiled, block) == expected
        if isinstance(expected, tuple):
            return
        assert isinstance(expected, list)
        if header_blocks.native.is_well_formed(expected, {b"te", b"x-mq"}):
            assert header_rules.problem_by_rule(expected) is None


def _http2_streams() -> Iterator[bytes]:
    request = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, hpack.encode(CALL))
    request += frames.frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\2hi")
    yield request
    yield request + request.replace(b"\0\0\0\1", b"\0\0\0\3")
    yield frames.settings({3: 100}) + frames.window_update(0, 100) + request


@target("http2.twin_hpack", _http2_streams)
def http2(data: bytes) -> None:
    compiled = http2_connection.Http2Connection()
    events = http2_streams._one_by_one(compiled.receive(HELLO + data, 0.0))
    output = compiled.take_output()
    with (
        patch.object(http2_connection, "_native", None),
        patch.object(http2_connection, "new_decoder", hpack.Decoder),
        patch.object(header_rules, "_native", None),
    ):
        plain = http2_connection.Http2Connection()
        assert http2_streams._one_by_one(plain.receive(HELLO + data, 0.0)) == events
        assert plain.take_output() == output


def _front_sends() -> Iterator[bytes]:
    request = front.an_ordinary_send()
    yield request.SerializeToString()
    request.messages[0].system_properties.message_group = "g1"
    request.messages[0].user_properties["käse"] = 'x "y"'
    yield request.SerializeToString()


@target("proxy.fast_sends proxy.calls", _front_sends)
def front_sends(data: bytes) -> None:
    plain = front.READER.read(frame_message(data), b"10.1.2.3")
    front.READER.read(data, b"10.1.2.3")
    if plain is None:
        return
    request = front.SendMessageRequest.FromString(data)
    assert len(request.messages) == 1
    try:
        expected = prepare(request.messages[0], front.SETTINGS, front.NOW_MS, "10.1.2.3:4567")
    except Rejected as problem:
        if problem.code is Code.ILLEGAL_TOPIC:  # names are looked up, not read
            return
        raise
    assert (plain.topic, plain.message_group or "") == (expected.message.topic, expected.message_group)
    assert front.comparable(front.frame_of(plain)) == front.comparable(front.general_frame(expected))


def _front_acks() -> Iterator[bytes]:
    request = front.AckMessageRequest()
    request.group.name, request.topic.name = "group", "Orders"
    request.entries.add(message_id="01AB", receipt_handle="12 1700000000000 60000 3 0 broker-a 5 13 4711")
    yield request.SerializeToString()


@target("proxy.fast_acks proxy.calls", _front_acks)
def front_acks(data: bytes) -> None:
    ack = front.front_acks.read_ack(frame_message(data))
    front.front_acks.read_ack(data)
    if ack is None:
        return
    request = front.AckMessageRequest.FromString(data)
    (entry,) = request.entries
    handle = decode_handle(entry.receipt_handle)
    assert (ack.topic, ack.group, ack.handle) == (
        request.topic.name,
        request.group.name,
        entry.receipt_handle,
    )
    assert (ack.broker_name, ack.expires_ms) == (handle.receipt.broker_name, handle.expires_ms)


@target("proxy.fast_incoming", _records)
def front_received(data: bytes) -> None:
    answer = front._pop([], False)
    answer.body = data
    found = framed(answer, "broker-a", "ns%Orders", parse_tags("*"), 16)
    if found is None:
        return
    expected, handles = [], []
    for stored, handle in popped(answer, "broker-a"):
        shown = received(stored, "ns%Orders")
        shown.system_properties.receipt_handle = str(handle)
        expected.append(message("ReceiveMessageResponse")(message=shown))
        handles.append((str(handle), stored.reconsume_times + 1))
    pieces = MessageReader(1 << 22).feed(found.data)
    assert [message("ReceiveMessageResponse").FromString(each) for each in pieces] == expected
    assert found.handles == handles


# A whole broker


class AtASocket:
    """A broker with access control off. It answers what it is sent or hangs up, and serves the next caller;
    nothing that a frame says keeps its loop for long."""

    fresh_every = 500
    max_hold_s = inf
    """`one_target` limits it: no test asserts a duration."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._inputs = 0
        self._open = AsyncExitStack()
        self._address = ("", 0)

    def __call__(self, stream: bytes) -> None:
        self._loop.run_until_complete(self._attack(stream))

    async def _attack(self, stream: bytes) -> None:
        if self._inputs % self.fresh_every == 0:
            await self._open.aclose()
            root = Path(self._open.enter_context(tempfile.TemporaryDirectory(dir=IN_MEMORY)))
            broker = await self._open.enter_async_context(running_broker(root, auto_create_topics=True))
            self._address = broker.address
        self._inputs += 1
        watching = asyncio.create_task(self._longest_hold())
        async with asyncio.timeout(_PATIENCE_S):
            async with await WireClient.connect(self._address) as wire:
                wire.write(stream)
                wire.end()
                await wire.wait_closed()
            async with await WireClient.connect(self._address) as wire:
                answer = await wire.call(Frame(_UNKNOWN_CODE, opaque=7))
        assert (answer.opaque, answer.code) == (7, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        watching.cancel()
        held_s = await watching
        assert held_s <= self.max_hold_s, f"the loop was held for {held_s * 1000:.0f} ms"

    @staticmethod
    async def _longest_hold() -> float:
        """The most CPU time of one turn of the loop, until it is cancelled."""
        longest_s = 0.0
        try:
            while True:
                before_s = time.thread_time()
                await asyncio.sleep(0)
                longest_s = max(longest_s, time.thread_time() - before_s)
        except asyncio.CancelledError:
            return longest_s


_UNKNOWN_CODE: Final = 29_999
_PATIENCE_S: Final = 50


@target(
    "broker.fast_path broker.fast_sends broker.fast_pulls broker.fast_ends"
    " broker.fast_acks protocol.requests protocol.headers store.fast_appending",
    _broker_seeds,
)
def live_broker_at_a_socket(data: bytes, _kept: list[AtASocket] = []) -> None:  # noqa: B006
    """Recorded requests of every kind, mutated, at a running broker."""
    if not _kept:
        _kept.append(AtASocket())
    _kept[0](stream_of(data))


DICTIONARY: Final = sorted(
    {
        *(name.encode() for name in props.RESERVED_NAMES),
        *(b'"%s":"' % name.encode() for name in ("topic", "queueId", "opaque", "flag", "extFields", "code")),
        b"\x01",
        b"\x02",
        b'\\"',
        b"\\u0001",
    }
)
"""Words that chance would take long to find."""
