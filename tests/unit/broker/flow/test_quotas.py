"""Quotas delay first and refuse later."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import BrokerParts, at_once, broker_parts, caller_on
from tests.support.pulls import GROUP, TOPIC, Pulls, bodies

from pyromq.broker.flow.quotas import Quotas, count_sized
from pyromq.broker.services.sending import Sending
from pyromq.errors import Refused
from pyromq.protocol import names
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.quotas import OF_USERS, checked_rates
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.sending import SendMessage


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[BrokerParts]:
    with broker_parts(tmp_path) as made:
        yield made


def send(
    parts: BrokerParts, topic: str = TOPIC, user: str = "", body: bytes = b"hello", **more: Any
) -> "RawAnswer | asyncio.Future[RawAnswer]":
    service = Sending(parts.live, parts.inbound, parts.tables, parts.clock)
    caller = caller_on()
    caller.user = user
    return service.send(
        SendMessage(
            producer_group="producers",
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_600_000_000_000,
            flag=0,
            properties="",
            body=body,
            **more,
        ),
        caller,
    )


def pending(reply: "RawAnswer | asyncio.Future[RawAnswer]") -> "asyncio.Future[RawAnswer]":
    assert isinstance(reply, asyncio.Future)
    assert not reply.done()
    return reply


def limited(parts: BrokerParts, **quotas: str) -> None:
    parts.add_topic(TOPIC, attributes={key.replace("_", "."): value for key, value in quotas.items()})


async def test_a_second_worth_of_messages_is_answered_at_once_and_the_next_when_there_is_room(
    parts: BrokerParts,
) -> None:
    limited(parts, quota_send_messages="4")
    for _ in range(4):
        at_once(send(parts))
    late = pending(send(parts))
    assert len(parts.messages(TOPIC)) == 5, "it is stored; only its answer waits"
    parts.pass_time(0.2)
    assert not late.done()
    parts.pass_time(0.1)
    assert late.result().code == ResponseCode.SUCCESS
    assert parts.quotas.delayed == {("topic", TOPIC, "quota.send.messages"): 1}


async def test_who_goes_on_is_refused_late_and_by_name_and_nothing_is_stored(parts: BrokerParts) -> None:
    limited(parts, quota_send_bytes="10")
    at_once(send(parts, body=b"x" * 10))
    first = pending(send(parts, body=b"x" * 15))
    refused = pending(send(parts))
    assert len(parts.messages(TOPIC)) == 2
    parts.pass_time(1.0)
    assert first.done(), "no answer waits longer than quotaMaxDelayMillis"
    with pytest.raises(Refused, match=r"\[QUOTA\]the topic .* is over its quota.send.bytes of 10") as found:
        refused.result()
    assert found.value.code == ResponseCode.SYSTEM_BUSY
    assert parts.quotas.figures() == {"quotaDelayedRequests": "1", "quotaRefusedRequests": "1"}
    parts.pass_time(1.0)
    await asyncio.sleep(0)  # the end of the turn in which the first were sent
    at_once(send(parts))


async def test_a_batch_counts_its_messages(parts: BrokerParts) -> None:
    limited(parts, quota_send_messages="4")
    batch = encode_batch([BatchEntry(body, b"UNIQ_KEY\x01%b\x02" % body) for body in (b"a", b"b")])
    at_once(send(parts, body=batch, batch=True))
    at_once(send(parts, body=batch, batch=True))
    pending(send(parts, body=batch, batch=True))
    parts.pass_time(1)


async def test_a_user_has_its_own_quota_whatever_the_topic(parts: BrokerParts) -> None:
    parts.add_topic(TOPIC)
    parts.add_topic("Other")
    parts.users["ann"] = {"quota.send.messages": "1"}
    at_once(send(parts, user="ann"))
    pending(send(parts, "Other", user="ann"))
    at_once(send(parts, user="bob"))
    parts.pass_time(1)
    assert parts.quotas.delayed == {("user", "ann", "quota.send.messages"): 1}


async def test_a_quota_that_is_changed_or_ended_counts_from_now(parts: BrokerParts) -> None:
    limited(parts, quota_send_messages="1")
    at_once(send(parts))
    pending(send(parts))
    limited(parts, quota_send_messages="2")
    at_once(send(parts))
    limited(parts, quota_send_messages="0")
    for _ in range(5):
        at_once(send(parts))
    parts.pass_time(1)


async def test_the_compiled_path_knows_which_queues_have_a_quota(parts: BrokerParts) -> None:
    limited(parts, quota_send_messages="0", quota_read_messages="5")
    at_once(send(parts))
    queue = parts.inbound.writable_queues.find(TOPIC, 0)
    assert queue is not None
    assert queue.is_plain
    assert not queue.has_only_quota
    limited(parts, quota_send_messages="5")
    at_once(send(parts))
    queue = parts.inbound.writable_queues.find(TOPIC, 0)
    assert queue is not None
    assert not queue.is_plain
    assert queue.has_only_quota


# Reading


async def test_a_pull_gets_no_more_messages_than_the_quota_has_left_and_the_next_waits(
    parts: BrokerParts,
) -> None:
    bench = Pulls(parts)
    limited(parts, quota_read_messages="3")
    for number in range(5):
        bench.put(str(number))
    bench.subscribe()
    assert bodies(at_once(bench.pull())) == ["0", "1", "2"]
    assert bodies(at_once(bench.pull(3))) == ["3"], "a bucket that is empty has no debt yet"
    late = pending(bench.pull(4))
    parts.pass_time(0.4)
    assert bodies(late.result()) == ["4"]
    assert not bench.read_grants._kept, "the compiled path would not count them"


async def test_a_group_is_limited_in_bytes_on_all_topics_and_refused_when_others_were_faster(
    parts: BrokerParts,
) -> None:
    bench = Pulls(parts)
    parts.groups.update(SubscriptionGroupConfig(group_name=GROUP, attributes={"quota.read.bytes": "200"}))
    bench.put("a" * 200)
    bench.subscribe()
    at_once(bench.pull())
    waiting = [pending(bench.pull()) for _ in range(2)]
    parts.pass_time(5)
    assert bodies(waiting[0].result()) == ["a" * 200]
    with pytest.raises(Refused, match=rf"the group {GROUP} is over its quota.read.bytes of 200"):
        await waiting[1]


async def test_a_held_pull_is_counted_when_it_is_answered_and_one_that_left_is_not_read_for(
    parts: BrokerParts,
) -> None:
    bench = Pulls(parts)
    limited(parts, quota_read_messages="1")
    bench.subscribe()
    held = pending(bench.pull(sys_flag=2))
    bench.put("0")
    bench.put("1")
    await asyncio.sleep(0)
    assert bodies(await held) == ["0"]
    await asyncio.sleep(0)
    at_once(bench.pull())
    gone = pending(bench.pull(1))
    bench.connection.is_open = False
    parts.pass_time(2)
    assert gone.cancelled()


async def test_a_quota_that_is_no_number_is_refused_by_name() -> None:
    assert checked_rates({"quota.send.bytes": "5", "quota.read.bytes": "0"}, OF_USERS) == {
        "quota.send.bytes": "5"
    }
    with pytest.raises(ValueError, match=r"quota.send.bytes=fast: expected a whole number"):
        checked_rates({"quota.send.bytes": "fast"}, OF_USERS)
    with pytest.raises(ValueError, match=r"'quota.sends' is unknown: expected one of quota.send.messages"):
        checked_rates({"quota.sends": "1"}, OF_USERS)


async def test_bytes_that_are_no_records_are_one_message() -> None:
    assert [count_sized(data) for data in (b"", b"abc", bytes(9), b"\0\0\0\x05x\0\0\0\x06yz")] == [0, 1, 1, 2]


async def test_buckets_are_forgotten_before_there_are_too_many(parts: BrokerParts) -> None:
    quotas = Quotas(parts.live, parts.tables, parts.clock, lambda user: {"quota.send.messages": "1"})
    for number in range(5000):
        quotas.of_sends("none", f"user-{number}")
    assert len(quotas._kept) <= 4096
