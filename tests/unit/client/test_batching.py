"""Batches: what may be in one, how they are split, and how they gather."""

import asyncio
from collections.abc import Sequence

import pytest

from pyromq.client.batching import (
    Accumulator,
    batching_problem,
    check_batch,
    encode_batch,
    entry_bytes,
    split,
)
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.values import Message, MessageQueue
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import BadMessage, SendFailed
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.requests.sending import SendMessageBatch, SendReplyV2

PREPARER = MessagePreparer()
QUEUE = MessageQueue("t", "a", 0)


def prepared(body: bytes = b"x", topic: str = "t", **fields: object) -> PreparedMessage:
    return PREPARER.prepare(Message(topic, body, **fields), "KEY", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "the batch is empty"),
        ([prepared(), prepared(topic="u")], "must have the same topic, not t, u"),
        ([prepared(), prepared(wait_stored=False)], "must have the same wait_stored"),
        ([prepared(delay_level=1)], "a delayed message"),
        ([prepared(deliver_at_ms=1)], "a delayed message"),
        ([prepared(topic="%RETRY%g")], "a message to a retry topic"),
        ([prepared(b"x" * 5000)], "only plain messages"),
        ([PREPARER.prepare(Message("t", b"x"), "K", 5, kind=SendReplyV2)], "only plain messages"),
    ],
)
def test_what_cannot_be_a_batch(messages: list[PreparedMessage], problem: str) -> None:
    with pytest.raises(BadMessage, match=problem):
        check_batch(messages)


def test_messages_with_different_tags_and_keys_can_be_a_batch() -> None:
    check_batch([prepared(tags="A"), prepared(tags="B", keys="k"), prepared()])
    assert batching_problem(prepared(tags="A")) is None


@pytest.mark.parametrize("text", ["abc", "grün"])
def test_an_entry_takes_as_much_as_it_says(text: str) -> None:
    one = prepared(properties={"p": text})
    assert entry_bytes(one) == len(encode_batch([one]).body)


def test_a_batch_is_split_where_it_does_not_fit() -> None:
    messages = [prepared(bytes([65 + number]) * 10) for number in range(7)]
    size_bytes = entry_bytes(messages[0])
    parts = split(messages, 3 * size_bytes)
    assert [len(part) for part in parts] == [3, 3, 1]
    assert [each for part in parts for each in part] == messages
    assert [len(part) for part in split(messages, 3 * size_bytes - 1)] == [2, 2, 2, 1]
    assert [len(part) for part in split(messages, 1)] == [1] * 7, "what fits nowhere is left to the broker"


def test_a_batch_holds_every_message() -> None:
    messages = [prepared(b"1", tags="A", flag=7, wait_stored=False), prepared(b"2", wait_stored=False)]
    batch = encode_batch(messages)
    assert batch.kind is SendMessageBatch
    assert (batch.topic, batch.unique_key, batch.born_ms) == ("t", "KEY", 5)
    assert batch.properties == "WAIT\x01false\x02", "a unique key would become that of every message"
    first, second = decode_batch(batch.body)
    assert (first.body, first.flag, second.body) == (b"1", 7, b"2")
    assert first.properties.decode() == messages[0].properties
    assert encode_batch([prepared()]).properties == ""


class Wire:
    """Remembers what was delivered; the results are the bodies."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self.queues: list[MessageQueue | None] = []
        self.problem: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def deliver(self, messages: list[PreparedMessage], queue: MessageQueue | None) -> Sequence[object]:
        bodies = [each.body for each in messages]
        self.batches.append(bodies)
        self.queues.append(queue)
        if self.gate is not None:
            await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return bodies


def accumulator(wire: Wire, linger_s: float = 60, max_bytes: int = 10_000) -> Accumulator[object]:
    return Accumulator(wire.deliver, linger_s=linger_s, max_bytes=max_bytes)


def added(
    gathering: Accumulator[object], each: PreparedMessage, queue: MessageQueue | None
) -> "asyncio.Future[object]":
    promise = gathering.maybe_add(each, queue)
    assert promise is not None
    return promise


async def test_messages_of_one_turn_leave_together_and_get_their_own_results() -> None:
    wire = Wire()
    gathering = accumulator(wire, linger_s=0)
    promises = [added(gathering, prepared(b"%d" % number), None) for number in range(5)]
    assert await asyncio.gather(*promises) == [b"0", b"1", b"2", b"3", b"4"]
    assert wire.batches == [[b"0", b"1", b"2", b"3", b"4"]]
    assert (gathering.batches, gathering.messages) == (1, 5)


async def test_messages_linger() -> None:
    wire = Wire()
    gathering = accumulator(wire, linger_s=0.01)
    first = added(gathering, prepared(b"1"), None)
    await asyncio.sleep(0)
    second = added(gathering, prepared(b"2"), None)
    await asyncio.gather(first, second)
    assert wire.batches == [[b"1", b"2"]]


async def test_only_messages_that_agree_share_a_batch() -> None:
    wire = Wire()
    gathering = accumulator(wire)
    for each, queue in [
        (prepared(b"1"), None),
        (prepared(b"2"), QUEUE),
        (prepared(b"3", wait_stored=False), None),
        (prepared(b"4", tags="A"), None),
        (prepared(b"5", topic="u"), None),
        (prepared(b"6"), None),
    ]:
        added(gathering, each, queue)
    await gathering.close()
    assert wire.batches == [[b"1", b"6"], [b"2"], [b"3"], [b"4"], [b"5"]]
    assert wire.queues == [None, QUEUE, None, None, None]


async def test_messages_of_a_chosen_queue_keep_their_order_whatever_else_differs() -> None:
    wire = Wire()
    gathering = accumulator(wire)
    for number in range(8):
        message = prepared(b"%d" % number, tags="AB"[number % 2], wait_stored=number < 6)
        added(gathering, message, QUEUE)
    await gathering.close()
    assert wire.batches == [[b"0", b"1", b"2", b"3", b"4", b"5"], [b"6", b"7"]]
    assert wire.queues == [QUEUE, QUEUE]


async def test_a_full_batch_does_not_linger() -> None:
    wire = Wire()
    size_bytes = entry_bytes(prepared(b"1"))
    gathering = accumulator(wire, max_bytes=2 * size_bytes)
    await asyncio.gather(*(added(gathering, prepared(b"%d" % number), None) for number in range(4)))
    assert wire.batches == [[b"0", b"1"], [b"2", b"3"]]


async def test_what_does_not_fit_any_more_starts_the_next_batch() -> None:
    wire = Wire()
    size_bytes = entry_bytes(prepared(b"1"))
    gathering = accumulator(wire, max_bytes=2 * size_bytes + 1)
    first = added(gathering, prepared(b"1"), None)
    second = added(gathering, prepared(b"2" * (size_bytes // 2)), None)
    await first
    assert wire.batches == [[b"1"]]
    gathering.flush("u")
    assert not second.done()
    gathering.flush("t")
    await second
    assert gathering.maybe_add(prepared(b"x" * 3 * size_bytes), None) is None
    assert gathering.maybe_add(prepared(delay_level=1), None) is None


async def test_a_failure_is_everyones() -> None:
    wire = Wire()
    wire.problem = SendFailed("a message", [])
    gathering = accumulator(wire, linger_s=0)
    outcomes = await asyncio.gather(
        *(added(gathering, prepared(), None) for _ in range(3)), return_exceptions=True
    )
    assert outcomes == [wire.problem] * 3


async def test_who_gives_up_before_leaving_does_not_leave() -> None:
    wire = Wire()
    gathering = accumulator(wire)
    first, second = added(gathering, prepared(b"1"), None), added(gathering, prepared(b"2"), None)
    first.cancel()
    await gathering.close()
    assert wire.batches == [[b"2"]]
    assert second.result() == b"2"
    added(gathering, prepared(b"3"), None).cancel()
    await gathering.close()
    assert len(wire.batches) == 1


async def test_who_gives_up_on_the_way_harms_nobody() -> None:
    wire = Wire()
    wire.gate = asyncio.Event()
    gathering = accumulator(wire, linger_s=0)
    first, second = added(gathering, prepared(b"1"), None), added(gathering, prepared(b"2"), None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    wire.gate.set()
    assert await second == b"2"
