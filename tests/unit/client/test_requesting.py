"""Requests between clients: what makes one, what makes a reply, and who waits."""

import asyncio

import pytest

from pyromq.client.requesting import PendingReplies, reply_to, request_properties
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.errors import BadMessage
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage


def received(**properties: str) -> ReceivedMessage:
    stored = StoredMessage("Questions", b"?", encode_properties(properties).encode())
    return ReceivedMessage(stored, MessageQueue("Questions", "a", 0))


def test_a_request_says_who_waits_and_how_long() -> None:
    assert request_properties("id-1", "10.0.0.1@1", 2.5) == {
        "CORRELATION_ID": "id-1",
        "REPLY_TO_CLIENT": "10.0.0.1@1",
        "TTL": "2500",
    }


@pytest.mark.parametrize("ttl", [None, "2500"])
def test_a_reply_goes_where_the_request_says(ttl: str | None) -> None:
    more = {"TTL": ttl} if ttl else {}
    request = received(CLUSTER="c", CORRELATION_ID="id-1", REPLY_TO_CLIENT="x", **more)
    message, system = reply_to(request, b"!", tags="A", properties={"p": "q"})
    assert (message.topic, message.body, message.tags) == ("c_REPLY_TOPIC", b"!", "A")
    assert message.properties == {"p": "q"}
    assert system == {"MSG_TYPE": "reply", "CORRELATION_ID": "id-1", "REPLY_TO_CLIENT": "x"} | more


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_a_message_that_is_no_request(missing: str) -> None:
    properties = {"CLUSTER": "c", "CORRELATION_ID": "id-1", "REPLY_TO_CLIENT": "x"}
    del properties[missing]
    with pytest.raises(BadMessage, match="no client waits for a reply"):
        reply_to(received(**properties), b"!", tags=None, properties={})


async def test_a_reply_finds_the_one_who_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    replies = PendingReplies()
    replied = replies.expect("id-1")
    other = replies.expect("id-2")
    reply = received(CORRELATION_ID="id-1")
    replies.take(reply)
    assert await replied is reply
    assert len(replies) == 1
    replies.take(reply)
    assert caplog.text.count("a reply came too late, or to no request") == 1
    other.cancel()
    replies.take(received(CORRELATION_ID="id-2"))
    replies.take(received())
    replies.forget("id-2")
    assert caplog.text.count("a reply came too late, or to no request") == 3
    await asyncio.gather(other, return_exceptions=True)
