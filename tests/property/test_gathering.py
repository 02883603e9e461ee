"""Plain messages in batches: the compiled core writes what the general path writes, or declines."""

import asyncio
import traceback
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.client.batching import encode_batch
from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.values import Message, MessageQueue, SendResult, SendStatus
from pyromq.compiled import WHY, twin
from pyromq.errors import BadMessage
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.request_forms import RequestForm, as_text
from pyromq.protocol.requests.sending import SendMessageBatch

native: Any = twin("client.fast_batches")

compiled = pytest.mark.skipif(native is None, reason=f"nothing is gathered: {WHY}")

LOOP = asyncio.new_event_loop()
"""One for all examples: making a loop takes longer than they do."""

KEY = "C000020200009FCF0000000000000001"
BODY_LIMIT = 300

texts = st.text(st.characters(codec="utf-8") | st.sampled_from(" \x01\x02"), max_size=6) | st.just("\ud800")
messages = st.builds(
    Message,
    st.just("Orders"),
    st.binary(max_size=BODY_LIMIT + 2) | st.binary(max_size=9).map(bytearray),
    tags=st.none() | texts | st.integers(),
    keys=st.just(()) | texts | st.lists(texts | st.integers(), max_size=2) | st.tuples(texts),
    properties=st.just({}) | st.dictionaries(texts, texts, max_size=1),
    delay_level=st.sampled_from([0, 0, 0, 1, -1]),
    delay_ms=st.sampled_from([None, None, None, 5]),
    deliver_at_ms=st.sampled_from([None, None, None, 5]),
    priority=st.sampled_from([None, None, None, 5]),
    wait_stored=st.sampled_from([True, True, True, False]),
    flag=st.just(0) | st.integers(-(2**31) - 1, 2**31) | st.booleans(),
)
plain_messages = st.builds(
    Message,
    st.just("Orders"),
    st.binary(min_size=1, max_size=BODY_LIMIT - 1),
    tags=st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=6),
    keys=st.just(()) | st.sampled_from([["o-1"], "o-1 o-2", "grün"]),
    flag=st.integers(-(2**31), 2**31 - 1),
)


def suffix(namespace: str | None) -> str:
    return MessagePreparer(namespace=namespace).suffix


class Producer:
    """The parts of a producer that gathering works with; full batches stay here."""

    def __init__(self, namespace: str | None = None, max_bytes: int = 100_000, max_count: int = 1000) -> None:
        self.in_flight = InFlightLimit(max_count, 2**30)
        self.batches: list[Any] = []
        self.full: list[Any] = []
        self.now_ms = 1_700_000_000_000
        self.keys = UniqueKeys(b"\x01\x02\x03\x04", 5, 6)
        self.wrong_loop = 0
        self.gathering = native.Gathering(
            Message,
            {"Orders": "Orders"},
            {"Blue": "blue%Blue"}.get,
            self.in_flight,
            self.keys,
            lambda: self.now_ms,
            self.is_on_another_loop,
            self.batches.append,
            self.flush,
            self.send_generally,
            suffix=suffix(namespace),
            body_limit=BODY_LIMIT,
            max_bytes=max_bytes,
        )

    def add(self, message: Message) -> Any:
        """A send that has begun; None if the general path took the message."""
        sending = self.gathering.send(message)
        try:
            sending.send(None)
        except StopIteration:
            return None
        return sending

    def is_on_another_loop(self) -> None:
        raise RuntimeError("another loop")

    async def send_generally(self, message: Message) -> str:
        return f"general {message.body!r}"

    def flush(self, batch: Any) -> None:
        batch.is_closed = True
        self.full.append(batch)


def general(message: Message, namespace: str | None, key: str = KEY) -> bytes:
    preparer = MessagePreparer(namespace=namespace, max_bytes=BODY_LIMIT - 1, compress_from_bytes=BODY_LIMIT)
    return encode_batch([preparer.prepare(message, key, 5)]).body


def gathered(given_messages: list[Message], namespace: str | None = None) -> list[tuple[Message, str, bytes]]:
    """Each message that was taken, with its key and its part of the request."""

    async def gather() -> list[tuple[Message, str, bytes]]:
        producer = Producer(namespace)
        taken = [each for each in given_messages if producer.add(each) is not None]
        found: list[tuple[Message, str, bytes]] = []
        for batch in producer.batches:
            body, position = batch.body, 0
            for message, key in zip(batch.messages, batch.keys, strict=True):
                size = int.from_bytes(body[position : position + 4], "big")
                found.append((message, key, body[position : position + size]))
                position += size
            assert position == len(body)
        assert sorted(map(id, taken)) == sorted(id(message) for message, _, _ in found)
        assert producer.in_flight.count == len(taken)
        assert producer.in_flight.size_bytes == sum(batch.size_bytes for batch in producer.batches)
        return found

    return LOOP.run_until_complete(gather())


@compiled
@settings(max_examples=examples(200))
@given(st.lists(messages | plain_messages, max_size=5), st.sampled_from([None, "shop"]))
@example([Message("Orders", b"x", tags="x" * 32800)], None)
@example([Message("Orders", b"x", keys=("o-1",))], None)
def test_what_is_not_declined_is_what_the_general_path_writes(
    several: list[Message], namespace: str | None
) -> None:
    for message, key, entry in gathered(several, namespace):
        assert entry == general(message, namespace, key)


@compiled
@settings(max_examples=examples(200))
@given(plain_messages, st.sampled_from([None, "shop"]))
def test_plain_messages_are_not_declined(message: Message, namespace: str | None) -> None:
    assert len(gathered([message], namespace)) == 1


@compiled
@given(messages)
def test_what_the_general_path_refuses_is_declined(message: Message) -> None:
    try:
        general(message, None)
    except BadMessage:
        assert gathered([message]) == []


@compiled
@given(
    st.lists(plain_messages, min_size=1, max_size=3),
    st.integers(-1, 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
)
def test_the_request_of_a_batch_is_what_the_general_path_writes(
    several: list[Message], queue_id: int, opaque: int
) -> None:
    sample = SendMessageBatch(
        producer_group="p", topic="a%b", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=0, flag=0, properties="", batch=True, target_broker_name="%d",
    )  # fmt: skip
    form = RequestForm(sample, ("queue_id", "sys_flag", "born_timestamp", "flag", "properties"))

    async def check() -> None:
        producer = Producer()
        for message in several:
            producer.add(message)
        for batch in producer.batches:
            values = (queue_id, 0, producer.now_ms, 0, as_text(""))
            head = form.head(values, opaque, len(batch.body), DEFAULT_MAX_FRAME_BYTES)
            assert batch.frame(form.pieces, queue_id, opaque) == head + batch.body

    LOOP.run_until_complete(check())


@compiled
async def test_a_send_is_gathered_or_takes_the_general_path() -> None:
    producer = Producer()
    send = producer.gathering.send
    gathered, unusual = Message("Orders", b"1"), Message("Orders", b"2", delay_level=3)
    sending = [asyncio.create_task(send(each)) for each in (gathered, unusual)]
    await asyncio.sleep(0)
    (batch,) = producer.batches
    (key,) = batch.keys
    settle(batch)
    assert (await sending[0]).message_id == key
    assert await sending[1] == "general b'2'"
    producer.gathering.close()
    assert await send(gathered) == "general b'1'"


@compiled
def test_properties_may_be_as_long_as_they_may_be() -> None:
    room = 32767 - len("TAGS\x01\x02") - len(f"UNIQ_KEY\x01{KEY}\x02")
    assert len(gathered([Message("Orders", b"x", tags="x" * room)])) == 1
    assert gathered([Message("Orders", b"x", tags="x" * (room + 1))]) == []


@compiled
async def test_keys_are_those_of_the_general_path_and_never_the_same() -> None:
    producer = Producer()
    keys = []
    for number in range(300):
        if number % 100 == 99:
            producer.now_ms += 1
        keys.append(producer.keys.next(producer.now_ms))
        assert producer.add(Message("Orders", b"x")) is not None
        own = producer.batches[-1].keys[-1]
        assert own[:-4] == keys[-1][:-4]
        keys.append(own)
    assert len(set(keys)) == 600


@compiled
async def test_messages_of_one_topic_and_tag_share_a_batch_until_it_is_full() -> None:
    size = len(general(Message("Orders", b"x"), None))
    producer = Producer(max_bytes=2 * size)
    for message in (
        Message("Orders", b"1"),
        Message("Orders", b"2", tags="A"),
        Message("Blue", b"3"),
        Message("Orders", b"4"),
        Message("Orders", b"5"),
        Message("Orders", b"66"),
    ):
        producer.add(message)
    assert [(batch.topic, [each.body for each in batch.messages]) for batch in producer.batches] == [
        ("Orders", [b"1", b"4"]),
        ("Orders", [b"2"]),
        ("blue%Blue", [b"3"]),
        ("Orders", [b"5"]),
        ("Orders", [b"66"]),
    ]
    assert producer.full == [producer.batches[0], producer.batches[3]]
    assert producer.add(Message("Orders", b"x" * 2 * size)) is None, "it fits in no batch"
    assert producer.add(Message("Unknown", b"x")) is None, "its topic may not be batched"


@compiled
async def test_only_so_many_are_gathered() -> None:
    producer = Producer(max_count=2)
    added = [producer.add(Message("Orders", b"x")) for _ in range(3)]
    assert added[2] is None
    assert producer.in_flight.count == 2


async def result_of(sending: Any) -> SendResult:
    result: SendResult = await sending
    return result


async def begun(producer: Producer, count: int) -> "list[asyncio.Task[SendResult]]":
    """Tasks that await the results of so many messages in one batch."""
    sends = [producer.add(Message("Orders", b"%d" % number)) for number in range(count)]
    tasks = [asyncio.create_task(result_of(each)) for each in sends]
    await asyncio.sleep(0)
    return tasks


QUEUE = MessageQueue("Orders", "a", 1)


def settle(batch: Any) -> None:
    ids = [f"id-{number}" for number in range(len(batch))]
    batch.settle(SendResult, ids, SendStatus.SEND_OK, QUEUE, 7, None, None, "moon")


@compiled
async def test_who_gives_up_is_left_out_and_the_others_get_their_results() -> None:
    producer = Producer()
    tasks = await begun(producer, 4)
    (batch,) = producer.batches
    keys = batch.keys
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    batch.drop_cancelled()
    assert [entry.body for entry in decode_batch(batch.body)] == [b"0", b"2", b"3"]
    assert len(batch) == 3
    tasks[3].cancel()
    settle(batch)
    assert [await tasks[0], await tasks[2]] == [
        SendResult(SendStatus.SEND_OK, keys[0], "id-0", QUEUE, 7, None, None, "moon"),
        SendResult(SendStatus.SEND_OK, keys[2], "id-1", QUEUE, 8, None, None, "moon"),
    ]
    with pytest.raises(asyncio.CancelledError):
        await tasks[3]
    assert len(batch) == 0, "it keeps no messages"


@compiled
async def test_who_is_cancelled_after_the_answer_came_is_cancelled() -> None:
    producer = Producer()
    (task,) = await begun(producer, 1)
    settle(producer.batches[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@compiled
async def test_tasks_go_on_in_their_own_contexts() -> None:
    producer = Producer()
    name: ContextVar[int] = ContextVar("name")

    async def send(number: int) -> int:
        name.set(number)
        await producer.add(Message("Orders", b"x"))
        assert asyncio.current_task() in tasks
        return name.get()

    tasks = [asyncio.create_task(send(number)) for number in range(100)]
    await asyncio.sleep(0)
    settle(producer.batches[0])
    assert await asyncio.gather(*tasks) == list(range(100))


@compiled
async def test_a_task_that_raises_keeps_nobody_waiting() -> None:
    producer = Producer()

    async def send() -> None:
        await producer.add(Message("Orders", b"x"))
        raise ValueError("after the answer")

    failing = asyncio.create_task(send())
    await asyncio.sleep(0)
    tasks = await begun(producer, 3)
    settle(producer.batches[0])
    assert len(await asyncio.gather(*tasks)) == 3
    with pytest.raises(ValueError, match="after the answer"):
        await failing


@compiled
async def test_a_failure_is_everyones() -> None:
    producer = Producer()
    tasks = await begun(producer, 3)
    tasks[0].cancel()
    problem = ValueError("no")
    producer.batches[0].fail(problem)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [problem] * 2
    frames = [frame.name for frame in traceback.extract_tb(problem.__traceback__)]
    assert frames.count("result_of") <= 1, "none adds to the traceback of the others"


@compiled
async def test_a_batch_that_is_cancelled_cancels_its_messages() -> None:
    producer = Producer()
    tasks = await begun(producer, 2)
    producer.batches[0].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2


@compiled
async def test_another_loop_is_noticed() -> None:
    producer = Producer()
    add = producer.add

    def elsewhere() -> None:
        asyncio.run(asyncio.sleep(0, add(Message("Orders", b"x"))))

    with pytest.raises(RuntimeError, match="another loop"):
        await asyncio.to_thread(elsewhere)
