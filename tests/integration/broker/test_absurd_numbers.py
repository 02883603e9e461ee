"""Numbers that make no sense: each request that has them is answered, and the broker goes on as ever."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect
from tests.support.broker_cluster import GROUP, TOPIC, Bench, consumer, pull

import pyromq.protocol.requests  # noqa: F401  fills the catalogue
from pyromq.broker.unserved import UNSERVED
from pyromq.errors import Refused
from pyromq.protocol.catalogue import CATALOGUE, Declaration, Peer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.names import dlq_topic
from pyromq.protocol.requests.offsets import QueryConsumerOffset, ResetOffset, UpdateConsumerOffset
from pyromq.protocol.requests.sending import SendMessageBack

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1

TEXTS = {"topic_filter_type": "SINGLE_TAG", "expression_type": "TAG", "subscription": "*", "properties": ""}


def absurd(kind: inspect.Type, name: str, number: int, queue_id: int) -> Any:
    """A value for a field: names that exist, and a number as far out as its type allows."""
    match kind:
        case inspect.IntType(ge=least, le=most):
            if name == "queue_id":
                return queue_id
            least, most = -MAX_INT64 - 1 if least is None else least, MAX_INT64 if most is None else most
            return max(least, min(number, most))
        case inspect.StrType():
            return TEXTS.get(name, TOPIC if "topic" in name else GROUP)
        case inspect.BytesType():
            return b"x"
        case inspect.BoolType():
            return False
        case inspect.UnionType(types=types):
            return absurd(types[0], name, number, queue_id)
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{each.name: absurd(each.type, each.name, number, queue_id) for each in fields})
        case inspect.ListType(item_type=of) | inspect.SetType(item_type=of):
            return [absurd(of, name, number, queue_id)]
        case inspect.DictType(key_type=keys, value_type=values) if name != "attributes":
            return {absurd(keys, name, number, queue_id): absurd(values, name, number, queue_id)}
        case inspect.DictType():
            return {}
        case inspect.EnumType(cls=enum):
            return next(iter(enum))
        case _:
            return None


def absurd_request(declaration: Declaration, number: int, queue_id: int) -> Request[Any]:
    declared = inspect.type_info(declaration.request_type)
    assert isinstance(declared, inspect.StructType)
    fields = {each.name: absurd(each.type, each.name, number, queue_id) for each in declared.fields}
    return declaration.request_type(**fields)


SERVED = [
    declaration
    for code, declaration in CATALOGUE.items()
    if Peer.BROKER in declaration.to and code not in UNSERVED
]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, HeaderForm.JSON) as bench:
        await bench.client.create_topic()
        await bench.client.heartbeat(consumer())
        yield bench


@pytest.mark.parametrize("queue_id", [0, MAX_INT32, -MAX_INT32])
@pytest.mark.parametrize("number", [-MAX_INT64, -1, 0, MAX_INT64])
async def test_every_request_is_answered_and_the_broker_goes_on(
    bench: Bench, number: int, queue_id: int
) -> None:
    """An internal error would be logged, which fails a test."""
    for declaration in SERVED:
        await bench.client.create_topic()
        await bench.client.heartbeat(consumer())
        await bench.client.send(b"x")
        # An absurd commit may have moved the group behind the last message, where it would wait for ever.
        await bench.client.call(
            UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=0)
        )
        with contextlib.suppress(Refused):
            await bench.client.call(absurd_request(declaration, number, queue_id))
    await bench.client.create_topic("Another")
    await bench.client.send(b"as ever", topic="Another")
    await bench.restart()
    assert (await bench.client.pull(0, topic="Another", group="others")).bodies == [b"as ever"]


@pytest.mark.parametrize("wanted", [MAX_INT32, 1_000])
async def test_a_pull_of_very_many_messages_gets_as_many_as_the_broker_gives(
    bench: Bench, wanted: int
) -> None:
    for _ in range(50):
        await bench.client.send(b"x")
    assert len((await bench.client.pull(0, max_msg_nums=wanted)).bodies) == 32


@pytest.mark.parametrize("wanted", [0, -1, -MAX_INT32])
async def test_a_pull_of_no_messages_gets_one(bench: Bench, wanted: int) -> None:
    """As from Apache's broker: an answer has one message at least."""
    await bench.client.send_batch(b"a", b"b")
    assert (await bench.client.pull(0, max_msg_nums=wanted)).bodies == [b"a"]


@pytest.mark.parametrize("offset", [-1, -MAX_INT64])
async def test_a_pull_from_a_negative_offset_is_sent_to_the_first_message(bench: Bench, offset: int) -> None:
    await bench.client.send(b"x")
    pulled = await bench.client.pull(offset)
    assert pulled.answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert pulled.answer.next_begin_offset == 0


@pytest.mark.parametrize("plain", [True, False])
async def test_a_negative_offset_that_a_pull_commits_is_ignored(bench: Bench, plain: bool) -> None:
    await bench.client.send_batch(b"a", b"b")
    await bench.client.pull(0, commit=1)
    if plain:
        await bench.client.pull(0)  # from now on such pulls take the fast path
    await bench.client.call(pull(0, commit=-5))
    stands = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    assert (await bench.client.call(stands)).offset == 1


async def test_unknown_bits_of_the_flags_change_nothing(bench: Bench) -> None:
    """Bits for IPv6 follow from the addresses; a sender's own would make the record unreadable."""
    for flag in (0x10, 0x20, 0x30, 0x100000, -(2**31)):
        await bench.client.send(b"%d" % flag, sys_flag=flag)
    assert (await bench.client.pull(0)).bodies == [b"16", b"32", b"48", b"1048576", b"-2147483648"]


@pytest.mark.parametrize("level", ["-3", "0", "99999999999999999999", "x"])
async def test_a_delay_level_that_is_no_level_means_no_delay(bench: Bench, level: str) -> None:
    await bench.client.send(b"x", properties={"DELAY": level})
    assert (await bench.client.pull(0)).bodies == [b"x"]


async def test_a_delay_level_beyond_the_highest_means_the_highest(bench: Bench) -> None:
    await bench.client.send(b"x", properties={"DELAY": "1000000"})
    assert (await bench.client.pull(0)).bodies == []
    waiting = await bench.client.pull(0, topic="SCHEDULE_TOPIC_XXXX", queue_id=17)
    assert waiting.bodies == [b"x"]


@pytest.mark.parametrize("level", [0, MAX_INT32, -MAX_INT32])
async def test_a_message_that_failed_more_often_than_can_be_counted_is_dead(bench: Bench, level: int) -> None:
    await bench.client.send(b"x", reconsume_times=MAX_INT32)
    (message,) = (await bench.client.pull(0)).messages
    await bench.client.call(
        SendMessageBack(
            offset=message.log_offset,
            group=GROUP,
            delay_level=level,
            max_reconsume_times=16,
            origin_topic=TOPIC,
        )
    )
    (dead,) = (await bench.client.pull(0, topic=dlq_topic(GROUP))).messages
    assert dead.reconsume_times == MAX_INT32


@pytest.mark.parametrize("queue_id", [4, MAX_INT32])
async def test_a_queue_that_does_not_exist_is_not_reset(bench: Bench, queue_id: int) -> None:
    reset = ResetOffset(topic=TOPIC, group=GROUP, queue_id=queue_id, timestamp=0, is_force=True)
    refused = await bench.client.refusal(reset)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert (
        refused.remark == f"the topic {TOPIC} has no queue {queue_id}: expected one of its 4, or -1 for all"
    )
