"""Static topics of Apache's brokers: Spark's parts and our clients read each message once; queues move."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.support.apache import ApacheBroker, ApacheNameServer, ClientOf, wait_for_broker, wait_until
from tests.support.apache_releases import APACHE_5

from pyromq import Message, Producer, PullConsumer
from pyromq.errors import NoRoute
from pyromq.spark.batch_reader import BatchReader
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.offsets import ends_of, seen_of
from pyromq.spark.options import Access, read_options, write_options
from pyromq.spark.stream_reader import StreamReader
from pyromq.spark.writer import write_rows

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

VALUE = StructType([StructField("value", BinaryType())])
TOPIC = "Static"


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    """The name server of two brokers."""
    with (
        ApacheNameServer(APACHE_5) as running,
        ApacheBroker(APACHE_5, running.address, tmp_path / "a", name="broker-a"),
        ApacheBroker(APACHE_5, running.address, tmp_path / "b", name="broker-b"),
    ):
        for name in ("broker-a", "broker-b"):
            wait_for_broker(running.address, name)
        yield running.address


def hosts(names: str) -> set[str]:
    """The brokers that take messages now."""
    cluster = SparkCluster(Access((names,)))
    try:
        return {queue.broker for queue in cluster.writable_queues(TOPIC, patient=False)}
    except NoRoute:
        return set()
    finally:
        cluster.close()


def write(names: str, first: int) -> None:
    """From Spark, and with a client."""
    options = write_options({"namesrv": names, "topic": TOPIC})
    values = [str(number) for number in range(first, first + 50)]
    write_rows(iter([pa.RecordBatch.from_pydict({"value": values})]), options, "task")
    with Producer("static", namesrv=names) as producer:
        for number in range(first + 50, first + 100):
            producer.send(Message(TOPIC, b"%d" % number))


def numbers(reader: Any, partitions: list[Any]) -> list[int]:
    return sorted(
        int(body)
        for partition in partitions
        for batch in reader.read(partition)
        for body in batch.column("value").to_pylist()
    )


def test_each_message_is_read_once_while_queues_move(names: str, client_of: ClientOf) -> None:
    mqadmin = client_of(APACHE_5, "JSON").mqadmin
    place = ("-n", names, "-t", TOPIC)
    mqadmin("updateStaticTopic", *place, "-b", "broker-a,broker-b", "-qn", "5")
    wait_until(lambda: hosts(names) == {"broker-a", "broker-b"}, "the mapping")
    stream = StreamReader(
        read_options({"namesrv": names, "subscribe": TOPIC, "startingOffsets": "earliest"}, streaming=True),
        VALUE,
    )
    start, found = stream.initialOffset(), []

    def follow(until: int) -> None:
        """Apache's brokers show a moment later what they have stored."""
        nonlocal start

        def have_all() -> bool:
            nonlocal start
            end = stream.latestOffset(start, ReadAllAvailable())
            found.extend(numbers(stream, stream.partitions(start, end)))
            start = end
            return len(found) >= until

        wait_until(have_all, f"{until} messages")
        assert sorted(found) == list(range(until))

    try:
        write(names, 0)
        follow(100)
        mqadmin("remappingStaticTopic", *place, "-b", "broker-b")
        wait_until(lambda: hosts(names) == {"broker-b"}, "the move")
        write(names, 100)
        follow(200)
        # Were the topic made anew, each queue that has messages would tell.
        assert seen_of(start).keys() == {queue for queue, end in ends_of(start).items() if end}
    finally:
        stream.stop()
    batch = BatchReader(read_options({"namesrv": names, "subscribe": TOPIC}, streaming=False), VALUE)
    assert numbers(batch, batch.partitions()) == list(range(200))
    places = BatchReader(batch._options, StructType().add("offset", "long"))
    assert sum(part.num_rows for span in places.partitions() for part in places.read(span)) == 200
    polled: list[int] = []
    consumer = PullConsumer("static", names, start_from="first")
    consumer.subscribe(TOPIC)
    with consumer:
        while len(polled) < 200:
            polled += [int(message.body) for message in consumer.poll()]
    assert sorted(polled) == list(range(200))
