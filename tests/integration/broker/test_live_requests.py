"""Requests and replies between clients, and single messages found again, over real sockets in both forms."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import CLUSTER, TOPIC, Bench, BrokerClient, message

from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.properties import decode_properties
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.pulling import QueryMessage, QueryMessageAnswer, ViewMessage
from pyromq.protocol.requests.pushes import PushReply
from pyromq.protocol.requests.sending import SendMessage, SendReply, SendReplyV2

REPLIES = f"{CLUSTER}_REPLY_TOPIC"
FOR_EVER_MS = 2**62


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param, trace_topic_enabled=True) as running:
        yield running


# Request and reply


def reply(body: bytes = b"pong", to: str = "asker", **fields: Any) -> SendReplyV2:
    sent = message(
        body,
        REPLIES,
        properties={"REPLY_TO_CLIENT": to, "CORRELATION_ID": "42", "MSG_TYPE": "reply"},
        **fields,
    )
    return SendReplyV2(**{name: getattr(sent, name) for name in SendReplyV2.__struct_fields__})


async def asker(bench: Bench) -> BrokerClient:
    client = await bench.new_client("asker")
    await client.heartbeat(producers=("askers",))
    return client


async def test_a_reply_is_handed_to_the_producer_that_asked(bench: Bench) -> None:
    asking = await asker(bench)
    answer = await bench.client.call(reply())
    assert (answer.code, answer.queue_offset) == (ResponseCode.SUCCESS, 0)
    pushed = await asking.next_push()
    assert isinstance(pushed, PushReply)
    assert pushed.body == b"pong"
    properties = decode_properties(pushed.properties or "")
    assert (properties["CORRELATION_ID"], properties["MSG_TYPE"]) == ("42", "reply")
    assert "PUSH_REPLY_TIME" in properties
    assert pushed.store_host == bench.broker.advertised_address
    assert pushed.born_host == (await bench.client.connection()).local_address
    assert (await bench.client.pull(0, REPLIES)).bodies == [b"pong"], "a copy is kept"


async def test_a_reply_in_the_long_form(bench: Bench) -> None:
    asking = await asker(bench)
    short = reply()
    names = (name for name in SendMessage.__struct_fields__ if hasattr(short, name))
    await bench.client.call(SendReply(**{name: getattr(short, name) for name in names}))
    assert isinstance(await asking.next_push(), PushReply)


async def test_a_reply_to_someone_who_is_not_there_fails(bench: Bench) -> None:
    refusal = await bench.client.refusal(reply(to="nobody"))
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert "nobody" in (refusal.remark or "")


async def test_a_reply_that_is_not_taken_fails(bench: Bench) -> None:
    asking = await asker(bench)
    asking.refuses_with = Refused(ResponseCode.SYSTEM_ERROR, "nobody waits for it")
    assert "nobody waits for it" in ((await bench.client.refusal(reply())).remark or "")


async def test_a_reply_fails_when_the_asker_has_gone(bench: Bench) -> None:
    asking = await asker(bench)
    await asking.close()
    assert (await bench.client.refusal(reply())).code == ResponseCode.SYSTEM_ERROR


async def test_a_request_goes_round(bench: Bench) -> None:
    """What clients do: an ordinary message asks, the consumer that gets it replies."""
    asking = await asker(bench)
    await asking.send(b"ping", properties={"CORRELATION_ID": "42", "REPLY_TO_CLIENT": "asker", "TTL": "3000"})
    (question,) = (await bench.client.pull()).messages
    assert question.get("CLUSTER") == CLUSTER, "it tells which topic replies go to"
    await bench.client.call(reply(b"re: " + question.body, question.get("REPLY_TO_CLIENT") or ""))
    pushed = await asking.next_push()
    assert isinstance(pushed, PushReply)
    assert pushed.body == b"re: ping"


# Finding single messages


async def found(bench: Bench, key: str, *, unique: bool | None = None, **fields: Any) -> list[bytes]:
    values: dict[str, Any] = {
        "topic": TOPIC,
        "key": key,
        "max_num": 32,
        "begin_timestamp": 0,
        "end_timestamp": FOR_EVER_MS,
        "is_unique_key": unique,
    }
    answer: QueryMessageAnswer = await bench.client.call(QueryMessage(**values | fields))
    return [stored.body for stored in decode_records(answer.body)]


async def test_messages_are_found_by_each_of_their_keys(bench: Bench) -> None:
    await bench.client.send(b"1", properties={"KEYS": "red green"})
    await bench.client.send(b"2", queue_id=1, properties={"KEYS": "green"})
    assert await found(bench, "red") == [b"1"]
    assert sorted(await found(bench, "green")) == [b"1", b"2"]
    assert len(await found(bench, "green", max_num=1)) == 1


@pytest.mark.parametrize("wrong", [{"topic": "Another"}, {"key": "blue"}, {"end_timestamp": 1}])
async def test_what_is_not_found_is_said_so(bench: Bench, wrong: dict[str, Any]) -> None:
    await bench.client.send(b"1", properties={"KEYS": "red"})
    with pytest.raises(Refused) as refusal:
        await found(bench, **{"key": "red"} | wrong)
    assert refusal.value.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_message_is_found_by_its_unique_id(bench: Bench) -> None:
    sent = await bench.client.send(b"mine")
    await bench.client.send(b"other")
    assert sent.transaction_id is not None
    assert await found(bench, sent.transaction_id, unique=True, max_num=0) == [b"mine"]


async def test_a_message_is_found_by_its_place(bench: Bench) -> None:
    await bench.client.send(b"other")
    sent = await bench.client.send(b"mine")
    offset = decode_offset_message_id(sent.msg_id).log_offset
    (stored,) = decode_records((await bench.client.call(ViewMessage(offset=offset))).body)
    assert (stored.body, stored.log_offset) == (b"mine", offset)
    assert (await bench.client.refusal(ViewMessage(offset=offset + 1))).code == ResponseCode.SYSTEM_ERROR


async def test_messages_are_found_after_a_restart(bench: Bench) -> None:
    sent = await bench.client.send(b"mine", properties={"KEYS": "red"})
    await bench.restart()
    assert await found(bench, "red") == [b"mine"]
    assert sent.transaction_id is not None
    assert await found(bench, sent.transaction_id, unique=True) == [b"mine"]


async def test_the_trace_topic_is_a_topic_like_others(bench: Bench) -> None:
    await bench.client.send(b"Pub\x01...", "RMQ_SYS_TRACE_TOPIC", properties={"KEYS": "traced"})
    assert (await bench.client.pull(0, "RMQ_SYS_TRACE_TOPIC")).bodies == [b"Pub\x01..."]
    assert await found(bench, "traced", topic="RMQ_SYS_TRACE_TOPIC") == [b"Pub\x01..."]
