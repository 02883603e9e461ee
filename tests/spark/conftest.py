"""One Spark session for all tests here; without Spark or Java there is nothing to test."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.support.quick_jvm import make_jvms_quick

from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.routes import DeleteTopicFromNameServer
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, DeleteTopicFromBroker
from pyromq.protocol.requests.upkeep import DeleteExpiredCommitLog
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import Access, Selection
from pyromq.testing import RunningCluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

make_jvms_quick()

A = TypeVar("A", bound=Answer)

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def kept_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pipelines of a test tell of themselves: not in the home of whoever runs it."""
    directory = tmp_path / "kept runs"
    monkeypatch.setenv("PYROMQ_PIPELINE_RUNS", str(directory))
    return directory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("default"))
            if item.get_closest_marker("timeout") is None:
                # A session starts in seconds on a quiet machine, and in minutes on a busy one.
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from tests.support.spark_session import small_session

    spark = small_session(tmp_path_factory.mktemp("warehouse"))
    yield spark
    spark.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster(tmp_path / "store") as running:
        yield running


class Topics:
    """Makes topics and fills them, over the wire."""

    def __init__(self, running: RunningCluster) -> None:
        self.running = running
        self.access = Access((running.namesrv,), retries=3, retry_interval_ms=50)
        self._cluster = SparkCluster(self.access)

    def options(self, topic: str | None = None, **more: str) -> dict[str, str]:
        """Options for reading `topic`, with retries short enough for tests."""
        quick = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "50"}
        named = {name.replace("__", "."): value for name, value in more.items()}
        chosen = {"subscribe": topic} if topic is not None else {}
        return {"namesrv": self.running.namesrv} | quick | chosen | named

    def create(self, topic: str, queues: int = 2, broker: int = 0, *, attributes: str | None = None) -> None:
        self._call(
            CreateOrUpdateTopic(
                topic=topic,
                default_topic="TBW102",
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=6,
                topic_filter_type="SINGLE_TAG",
                attributes=attributes,
            ),
            broker,
        )

    def delete(self, topic: str) -> None:
        self._call(DeleteTopicFromBroker(topic=topic))
        self._call_name_server(DeleteTopicFromNameServer(topic=topic))

    def fill(
        self, topic: str, queue_id: int, bodies: Iterable[bytes], properties: bytes = b"", broker: int = 0
    ) -> None:
        """Send in batches to one queue."""
        entries = [BatchEntry(body, properties) for body in bodies]
        for first in range(0, len(entries), 500):
            self._call(
                SendMessageBatch(
                    producer_group="tests",
                    topic=topic,
                    default_topic="TBW102",
                    default_topic_queue_nums=4,
                    queue_id=queue_id,
                    sys_flag=0,
                    born_timestamp=1_700_000_000_000,
                    flag=0,
                    properties="",
                    batch=True,
                    body=encode_batch(entries[first : first + 500]),
                ),
                broker,
            )

    def send(self, topic: str, queue_id: int, body: bytes, properties: str = "", sys_flag: int = 0) -> None:
        self._call(
            SendMessageV2(
                producer_group="tests",
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=queue_id,
                sys_flag=sys_flag,
                born_timestamp=1_700_000_000_000,
                flag=0,
                properties=properties,
                body=body,
            )
        )

    def earliest(self, topic: str) -> int:
        """The first offset that the only queue of a topic has."""
        (first,) = self._cluster.earliest(self._cluster.queues(Selection(topics=(topic,)))).values()
        return first

    def change_settings(self, change: str) -> None:
        self._call(UpdateBrokerConfig(body=change))

    def expire_data(self) -> None:
        """Delete all segments of the log but the last."""
        self.running.restart()  # nothing is left to be flushed, which would make the files young again
        segments = sorted((self.running.store / "commitlog").iterdir())
        assert len(segments) >= 3
        for segment in segments:
            os.utime(segment, (1, 1))
        self.delete_expired()

    def figures(self) -> dict[str, str]:
        """What the broker tells of itself."""
        return self._call(GetBrokerRuntimeInfo()).body.table

    def delete_expired(self) -> None:
        self._call(DeleteExpiredCommitLog())

    def reach(self, topic: str) -> int:
        """How many messages a topic holds."""
        return sum(self._cluster.latest(self._cluster.queues(Selection(topics=(topic,)))).values())

    def committed(self, group: str, topic: str) -> dict[int, int]:
        queues = self._cluster.queues(Selection(topics=(topic,)))
        return {queue.queue_id: at for queue, at in self._cluster.committed(group, queues).items()}

    def close(self) -> None:
        self._cluster.close()

    def _call(self, request: Request[A], broker: int = 0) -> A:
        def attempt() -> A:
            with self._cluster.links.borrow(self.running.broker_addresses[broker]) as link:
                return link.call(request)

        return self._cluster.persist("the broker", attempt)

    def _call_name_server(self, request: Request[A]) -> A:
        return self._cluster.ask_name_server(request)


@pytest.fixture
def topics(broker: RunningCluster) -> Iterator[Topics]:
    topics = Topics(broker)
    yield topics
    topics.close()


@pytest.fixture
def topics_of_two(tmp_path: Path) -> Iterator[Topics]:
    """Two brokers."""
    with cluster(tmp_path / "store", brokers=2) as running:
        topics = Topics(running)
        yield topics
        topics.close()
