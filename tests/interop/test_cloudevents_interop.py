"""CloudEvents' Java SDK and our own module over our broker: both modes of the binding, both directions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from tests.support.apache_releases import PeerUnavailable
from tests.support.front import SharedFront, front_in_thread, read_all
from tests.support.official_clients import CLOUDEVENTS, OfficialClient, program_of

from pyromq import Producer
from pyromq.cloudevents import from_message, to_message

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MODES = pytest.mark.parametrize("mode", ["binary", "structured"])
JSON = JSONFormat()


def event(number: int, data: Any, **attributes: Any) -> CloudEvent:
    usual = {"id": f"e-{number}", "source": "/shop", "type": "org.example.order"}
    return CloudEvent(usual | {"time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)} | attributes, data)


EVENTS = [
    event(0, {"total": 12.5, "customer": "Zo\u00eb"}, datacontenttype="application/json", subject="o-1"),
    event(1, b"\xff\x00", datacontenttype="application/octet-stream", dataschema="https://example.org/s"),
    event(2, {"a": 1}, datacontenttype="application/json", tenant="north"),
    event(3, None),
]


def contents(events: list[BaseCloudEvent]) -> list[tuple[dict[str, Any], Any]]:
    """The attributes and data of each event, by its id."""
    return [
        (dict(each.get_attributes()), each.get_data()) for each in sorted(events, key=lambda e: e.get_id())
    ]


@pytest.fixture(scope="module")
def running() -> Iterator[SharedFront]:
    try:
        program_of(CLOUDEVENTS)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with front_in_thread() as started:
        yield started


@MODES
def test_java_reads_our_events(running: SharedFront, mode: Any) -> None:
    topic = f"Ours-{mode}"
    asyncio.run(running.create_topic(topic))
    with OfficialClient(
        CLOUDEVENTS, running.target, "receive", topic, f"Java-{mode}", str(len(EVENTS))
    ) as java:
        java.wait("ready")
        with Producer("tills", namesrv=running.namesrv) as producer:
            for each in EVENTS:
                producer.send(to_message(topic, each, mode))
        said = [json.dumps(line["event"]).encode() for line in java.wait("received", len(EVENTS))]
    assert contents([JSON.read(None, text) for text in said]) == contents([*EVENTS])


@MODES
def test_we_read_the_events_of_java(running: SharedFront, mode: str) -> None:
    topic = f"Javas-{mode}"
    asyncio.run(running.create_topic(topic))
    texts = [JSON.write(each).decode() for each in EVENTS]
    with OfficialClient(CLOUDEVENTS, running.target, "send", topic, mode, *texts) as java:
        java.wait("sent", len(EVENTS))
        found = asyncio.run(read_all(running.namesrv, topic, len(EVENTS)))
    is_structured = [m.properties.get("CE_contenttype") == "application/cloudevents+json" for m in found]
    assert is_structured == [mode == "structured"] * len(EVENTS)
    assert contents([from_message(message) for message in found]) == contents([*EVENTS])
