"""Replies between clients: handed to whoever waits, and stored as well."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import (
    CLUSTER,
    PEER,
    BrokerParts,
    FakeChannel,
    broker_parts,
    caller_on,
)

from pyromq.broker.services.replies import Replies
from pyromq.broker.tables.clients import Client
from pyromq.errors import CallTimeout, ConnectionLost, Refused
from pyromq.protocol import names
from pyromq.protocol.catalogue import Answer, RawAnswer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.properties import decode_properties, encode_properties
from pyromq.protocol.requests.pushes import PushReply
from pyromq.protocol.requests.sending import SendReply, SendReplyV2
from pyromq.store.faults import Fault

TOPIC = names.reply_topic(CLUSTER)
REQUESTER = "10.0.0.9@77"
PAIRS = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": REQUESTER, "TTL": "3000", "MSG_TYPE": "reply"}
STAMPED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

FIELDS: dict[str, Any] = {
    "producer_group": "repliers",
    "topic": TOPIC,
    "default_topic": names.AUTO_CREATE_TOPIC,
    "default_topic_queue_nums": 4,
    "queue_id": 0,
    "sys_flag": 1,
    "born_timestamp": 1_600_000_000_000,
    "flag": 7,
    "properties": encode_properties(PAIRS),
    "body": b"the answer",
}


class Bench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.requester = FakeChannel("10.0.0.9:5000")
        client = Client(self.requester, REQUESTER, 0, 0, 0)
        parts.producers.register("requesters", client)
        self.statistics = parts.statistics
        self.replies = Replies(parts.live, parts.inbound, parts.tables, parts.clock, "10.9.8.7:10911")

    async def reply(self, **fields: Any) -> RawAnswer:
        return await self.replies.send_reply(SendReply(**(FIELDS | fields)), caller_on())

    def fail_with(self, problem: Exception) -> None:
        def answers(_: Request[Any]) -> Answer:
            raise problem

        self.requester.answers = answers


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with broker_parts(tmp_path) as parts:
        yield Bench(parts)


async def test_a_reply_is_handed_to_the_producer_that_waits(bench: Bench) -> None:
    await bench.reply(reconsume_times=2, unit_mode=True)
    (push,) = bench.requester.calls
    assert isinstance(push, PushReply)
    now_ms = bench.parts.clock.now_ms()
    assert decode_properties(push.properties or "") == PAIRS | STAMPED | {"PUSH_REPLY_TIME": str(now_ms)}
    assert push == PushReply(
        producer_group="repliers",
        topic=TOPIC,
        default_topic=names.AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=1,
        born_timestamp=1_600_000_000_000,
        flag=7,
        properties=push.properties,
        reconsume_times=2,
        unit_mode=True,
        born_host=PEER,
        store_host="10.9.8.7:10911",
        store_timestamp=now_ms,
        body=b"the answer",
    )


async def test_a_reply_is_stored_as_it_came(bench: Bench) -> None:
    answer = await bench.reply()
    (message,) = bench.parts.messages(TOPIC)
    assert (message.body, message.flag, message.sys_flag) == (b"the answer", 7, 1)
    assert str(message.born_host) == PEER
    assert message.property_map() == PAIRS | STAMPED
    assert decode_offset_message_id(answer.ext["msgId"]).log_offset == message.log_offset
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "0", "0")
    assert bench.statistics.put_messages == 1


async def test_a_reply_that_is_not_stored_is_answered_without_an_id(bench: Bench) -> None:
    bench.parts.change(storeReplyMessageEnable="false")
    answer = await bench.reply()
    assert answer == RawAnswer(ext=STAMPED | {"msgId": "0", "queueId": "0", "queueOffset": "0"})
    assert bench.parts.messages(TOPIC) == []


async def test_a_reply_that_cannot_be_stored_has_arrived_all_the_same(bench: Bench) -> None:
    bench.parts.store._faults.refuse(Fault.DISK_FULL, "full")
    answer = await bench.reply()
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
    assert bench.statistics.put_failures == 1


@pytest.mark.parametrize(
    ("pairs", "remark"),
    [
        ({"CORRELATION_ID": "c"}, "REPLY_TO_CLIENT"),
        ({"REPLY_TO_CLIENT": "stranger"}, "stranger that waits for the reply is not connected"),
    ],
)
async def test_a_reply_to_nobody_is_an_error_but_stored(
    bench: Bench, pairs: dict[str, str], remark: str
) -> None:
    answer = await bench.reply(properties=encode_properties(pairs))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    assert len(bench.parts.messages(TOPIC)) == 1


@pytest.mark.parametrize(
    "problem", [CallTimeout("no answer"), ConnectionLost("gone"), Refused(1, "unknown correlation")]
)
async def test_a_producer_that_does_not_take_the_reply_is_named(bench: Bench, problem: Exception) -> None:
    bench.fail_with(problem)
    answer = await bench.reply()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert REQUESTER in (answer.remark or "")
    assert str(problem) in (answer.remark or "")


async def test_both_forms_of_a_reply_do_the_same(bench: Bench) -> None:
    await bench.reply()
    await bench.replies.send_reply_v2(SendReplyV2(**FIELDS), caller_on())
    first, second = bench.requester.calls
    assert first == second
    assert len(bench.parts.messages(TOPIC)) == 2


async def test_properties_without_a_last_separator_are_understood(bench: Bench) -> None:
    await bench.reply(properties=FIELDS["properties"][:-1])
    assert bench.parts.messages(TOPIC)[0].property_map() == PAIRS | STAMPED


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "a/b"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": names.SCHEDULE_TOPIC}, ResponseCode.NO_PERMISSION),
        ({"topic": "New", "default_topic": "Nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_replies_are_checked_as_messages_are(bench: Bench, fields: dict[str, Any], code: int) -> None:
    with pytest.raises(Refused) as refused:
        await bench.reply(**fields)
    assert refused.value.code == code
    assert bench.requester.calls == []
