"""Queries that ask for nothing but places of messages are answered without them, where that is exact."""

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.requests.topics import GetTopicConfig, TopicConfigAndQueueMapping
from pyromq.remoting.blocking_link import Link
from pyromq.spark import reading
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import DataLoss
from pyromq.spark.options import read_options
from pyromq.spark.queues import Queue, Span

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

A0 = Queue("Orders", "broker-a", 0)
PLACES = StructType().add("offset", "long").add("topic", "string").add("queueId", "integer")


class Fetched(Exception):
    """Messages are being read."""


def rows(topics: "Topics", span: Span, **more: str) -> list[tuple[int, str, int]]:
    options = read_options(topics.options("Orders", **more), streaming=False)
    cluster = SparkCluster(options.access)
    try:
        batches = reading.read_span(cluster, options, PLACES, span)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    finally:
        cluster.close()


@pytest.fixture
def orders(topics: "Topics") -> "Topics":
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"%d" % number for number in range(100)])
    return topics


@pytest.fixture
def without_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Fetched

    monkeypatch.setattr(reading, "Fetch", refuse)


@pytest.mark.usefixtures("without_messages")
def test_places_are_known_without_the_messages(orders: "Topics", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ROWS", 30)
    assert rows(orders, Span(A0, 10, 100)) == [(offset, "Orders", 0) for offset in range(10, 100)]


@pytest.mark.usefixtures("without_messages")
@pytest.mark.parametrize(
    ("span", "more"),
    [(Span(A0, 0, 101), {}), (Span(A0, 0, 100), {"tags": "a"}), (Span(A0, 0, 100), {"sqlFilter": "a > 1"})],
    ids=["beyond the end", "tags", "SQL"],
)
def test_messages_are_read_if_some_may_be_missing(orders: "Topics", span: Span, more: dict[str, str]) -> None:
    with pytest.raises(Fetched):
        rows(orders, span, **more)


@pytest.mark.usefixtures("without_messages")
def test_messages_of_a_compacted_topic_are_read(orders: "Topics", monkeypatch: pytest.MonkeyPatch) -> None:
    ask_all = Link.call_all
    compacted = TopicConfigAndQueueMapping(topic_name="Orders", attributes={"cleanup.policy": "COMPACTION"})

    def answer(link: Link, requests: list[object]) -> list[object]:
        if isinstance(requests[0], GetTopicConfig):
            return [BodyAnswer(body=compacted)]
        return ask_all(link, requests)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(Link, "call_all", answer)
    with pytest.raises(Fetched):
        rows(orders, Span(A0, 0, 100))


def test_places_of_messages_that_are_gone_are_a_loss(orders: "Topics") -> None:
    with pytest.raises(DataLoss, match="messages 100 to 109 of Orders@broker-a:0 are gone"):
        rows(orders, Span(A0, 90, 110))
    assert len(rows(orders, Span(A0, 90, 110), failOnDataLoss="false")) == 10
