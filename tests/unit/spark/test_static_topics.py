"""Static topics are read where brokers store them, and written under the numbers of their logical queues."""

from typing import Any

import pytest

from pyromq.protocol.catalogue import Request
from pyromq.protocol.requests.routes import BrokerData, QueueData, TopicRouteData
from pyromq.protocol.requests.topics import TopicQueueMappingInfo
from pyromq.spark.cluster import SparkCluster, pull_of
from pyromq.spark.options import Access, Selection
from pyromq.spark.queues import Queue

ROUTE = TopicRouteData(
    # b has only a replica at the moment.
    broker_datas=[
        BrokerData(broker_name="a", broker_addrs={0: "a:1"}),
        BrokerData(broker_name="b", broker_addrs={1: "b:1"}),
        BrokerData(broker_name="c", broker_addrs={0: "c:1"}),
    ],
    queue_datas=[
        QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=2, perm=6),
        QueueData(broker_name="c", read_queue_nums=1, write_queue_nums=1, perm=6),
    ],
    topic_queue_mapping_by_broker={
        "a": TopicQueueMappingInfo(bname="a", epoch=2, curr_id_map={3: 1}, total_queues=5),
        "b": TopicQueueMappingInfo(bname="b", epoch=2, curr_id_map={2: 0}, total_queues=5),
        "c": TopicQueueMappingInfo(bname="c", epoch=2, curr_id_map={1: 0}, total_queues=5),
    },
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SparkCluster:
    cluster = SparkCluster(Access(("127.0.0.1:9876",)))
    monkeypatch.setattr(cluster, "fresh_route", lambda topic, patient=True: ROUTE)
    return cluster


def test_rows_go_to_logical_queues_at_the_masters_that_have_them_now(cluster: SparkCluster) -> None:
    assert cluster.writable_queues("S") == [Queue("S", "c", 1), Queue("S", "a", 3)]


def test_queues_are_read_where_they_are_stored(
    cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.queues(Selection(topics=("S",))) == [
        Queue("S", "a", 0),
        Queue("S", "a", 1),
        Queue("S", "c", 0),
    ]
    asked: list[Request[Any]] = [pull_of(Queue("S", "a", 1), 7, 32)]

    def note(questions: dict[Queue, Request[Any]]) -> dict[Queue, object]:
        asked.extend(questions.values())
        return {}

    monkeypatch.setattr(cluster, "ask_brokers", note)
    queue = Queue("S", "a", 1)
    cluster.latest([queue])
    cluster.earliest([queue])
    cluster.committed("g", [queue])
    cluster.at_time({queue: 0})
    assert len(asked) == 6
    assert [request.is_logical_queue for request in asked] == [False] * 6  # type: ignore[attr-defined]
