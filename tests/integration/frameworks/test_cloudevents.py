"""CloudEvents over a broker, in both modes of the binding."""

from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from pyromq import BadBody, Message, Producer, PullConsumer, ReceivedMessage
from pyromq.cloudevents import from_message, is_event, to_message
from pyromq.testing import RunningCluster

TIMEOUT_S = 60.0
MODES = pytest.mark.parametrize("mode", ["binary", "structured"])


def order(data: Any = None, **attributes: Any) -> CloudEvent:
    usual = {"id": "e-1", "source": "/shop", "type": "org.example.order"}
    return CloudEvent(usual | {"time": datetime(2026, 1, 2, tzinfo=UTC)} | attributes, data)


def passed_through(rocketmq: RunningCluster, *messages: Message) -> list[ReceivedMessage]:
    with Producer("tills", namesrv=rocketmq.namesrv) as producer:
        for message in messages:
            producer.send(message)
    found: list[ReceivedMessage] = []
    with PullConsumer("billing", namesrv=rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe(messages[0].topic)
        while len(found) < len(messages):
            found += consumer.poll(timeout_s=TIMEOUT_S)
    return found


@MODES
@pytest.mark.parametrize(
    "event",
    [
        order({"total": 12.5, "customer": "Zoë"}, datacontenttype="application/json", subject="o-1"),
        order("plain text", datacontenttype="text/plain"),
        order(b"\xff\x00", datacontenttype="application/octet-stream", dataschema="https://example.org/s"),
        order(None),
        order({"a": 1}, tenant="north"),
    ],
    ids=["json", "text", "bytes", "no-data", "extension"],
)
def test_an_event_arrives_as_it_was_sent(rocketmq: RunningCluster, event: CloudEvent, mode: Any) -> None:
    (message,) = passed_through(rocketmq, to_message("Events", event, mode, tags="New"))
    arrived = from_message(message)
    assert is_event(message)
    assert arrived.get_attributes() == event.get_attributes()
    assert arrived.get_data() == event.get_data()
    assert (message.tags, message.keys) == ("New", ("e-1",))


def test_the_properties_and_bodies_are_those_of_the_binding() -> None:
    binary = to_message("Events", order({"a": 1}, datacontenttype="application/json", tenant="north"))
    assert binary.body == b'{"a": 1}'
    assert binary.properties == {
        "CE_id": "e-1",
        "CE_source": "/shop",
        "CE_type": "org.example.order",
        "CE_specversion": "1.0",
        "CE_time": "2026-01-02T00:00:00Z",
        "CE_contenttype": "application/json",
        "CE_tenant": "north",
    }
    assert to_message("Events", order(None)).body == b"\0"
    structured = to_message("Events", order({"a": 1}), "structured", properties={"own": "kept"})
    assert structured.properties == {"CE_contenttype": "application/cloudevents+json", "own": "kept"}
    with pytest.raises(ValueError, match="'batched'"):
        to_message("Events", order(), "batched")  # type: ignore[arg-type]


def test_what_is_no_event_is_named(rocketmq: RunningCluster) -> None:
    arrived = passed_through(
        rocketmq,
        Message("Mixed", b"order"),
        Message("Mixed", b"{}", properties={"CE_specversion": "1.0", "CE_id": "1"}),
        Message("Mixed", b"[", properties={"CE_contenttype": "application/cloudevents+json"}),
        Message("Mixed", b'{"source": "/a", "type": "b", "specversion": "1.0"}',
                properties={"CE_contenttype": "application/cloudevents+json"}),
    )  # fmt: skip
    assert [message.body for message in arrived if not is_event(message)] == [b"order"]
    for message in arrived:
        with pytest.raises(BadBody, match=rf"Mixed {message.message_id} is not a CloudEvent"):
            from_message(message)


@MODES
def test_no_time_is_invented(rocketmq: RunningCluster, mode: Any) -> None:
    event = order()
    del event.get_attributes()["time"]
    (message,) = passed_through(rocketmq, to_message("Timeless", event, mode))
    assert from_message(message).get_time() is None


_NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=20)
_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


@given(
    mode=st.sampled_from(["binary", "structured"]),
    extensions=st.dictionaries(_NAMES.map("x".__add__), _TEXTS, max_size=4),
    data=st.none() | st.binary(min_size=2).filter(lambda data: not _is_text(data)),
)
def test_any_extensions_and_bytes_come_back(
    mode: Any, extensions: dict[str, str], data: bytes | None
) -> None:
    event = order(data, datacontenttype="application/octet-stream", **extensions)
    message = to_message("Events", event, mode)
    arrived = from_message(_Received(message))  # type: ignore[arg-type]
    assert arrived.get_attributes() == event.get_attributes()
    assert arrived.get_data() == data


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Received:
    """What `from_message` asks of a received message."""

    message_id = "id"

    def __init__(self, message: Message) -> None:
        self.topic, self.body, self.properties = message.topic, message.body, dict(message.properties)
