"""Numbered messages: sent in growing numbers, and looked for afterwards."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyromq.errors import NoRoute, Refused
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.sending import SendMessageBatch
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.spark.cluster import SparkCluster, pull_of
from pyromq.spark.options import Access, Selection

QUEUES = 2
_TRIES, _PAUSE_S = 300, 0.2


class Topics:
    def __init__(self, cluster: SparkCluster, broker: str) -> None:
        self._cluster = cluster
        self._broker = broker

    def create(self, topic: str) -> None:
        with self._cluster.links.borrow(self._broker) as link:
            link.call(
                CreateOrUpdateTopic(
                    topic=topic,
                    default_topic="TBW102",
                    read_queue_nums=QUEUES,
                    write_queue_nums=QUEUES,
                    perm=6,
                    topic_filter_type="SINGLE_TAG",
                )
            )

    def fill(self, topic: str, bodies: Iterable[str], properties: str = "") -> None:
        entries = [BatchEntry(body.encode(), properties.encode()) for body in bodies]
        with self._cluster.links.borrow(self._broker) as link:
            for queue in range(QUEUES):
                link.call(
                    SendMessageBatch(
                        producer_group="kills",
                        topic=topic,
                        default_topic="TBW102",
                        default_topic_queue_nums=QUEUES,
                        queue_id=queue,
                        sys_flag=0,
                        born_timestamp=1_700_000_000_000,
                        flag=0,
                        properties="",
                        batch=True,
                        body=encode_batch(entries[queue::QUEUES]),
                    )
                )

    def bodies(self, topic: str) -> list[str]:
        """In the order of their queues."""
        return [body for body, _ in self._messages(topic)]

    def bodies_soon(self, topic: str, distinct: int) -> list[str]:
        """The same, once so many different ones are there; what is there if they never come."""
        pause = threading.Event()
        for _ in range(_TRIES):
            try:
                found = self.bodies(topic)
            except NoRoute:
                found = []
            if len(set(found)) >= distinct:
                break
            pause.wait(_PAUSE_S)
        return found

    def ids(self, topic: str) -> Counter[tuple[str, str]]:
        """How often a body is there with an id."""
        return Counter(self._messages(topic))

    def _messages(self, topic: str) -> Iterator[tuple[str, str]]:
        for queue, end in self._cluster.latest(self._cluster.queues(Selection(topics=(topic,)))).items():
            offset = 0
            while offset < end:
                answer = self._cluster.ask_brokers({queue: pull_of(queue, offset, 32)})[queue]
                assert not isinstance(answer, Refused)
                offset = answer.next_begin_offset
                for message in decode_records(answer.body):
                    yield message.body.decode(), message.get("UNIQ_KEY") or ""


@contextmanager
def topics_of(namesrv: str, broker: str) -> Iterator[Topics]:
    cluster = SparkCluster(Access((namesrv,), retries=20, retry_interval_ms=100))
    try:
        yield Topics(cluster, broker)
    finally:
        cluster.close()
