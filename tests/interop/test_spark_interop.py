"""The Spark connector against Apache's name servers and brokers; Apache's own client is at the other end."""

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import ApacheBroker, ApacheServers, wait_for_broker, wait_until
from tests.support.apache_releases import APACHE_5

pytest.importorskip("pyspark", reason="the Spark connector needs the extra spark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.spark_session import small_session
from tests.support.transactional_rows import ROWS, die_while_committing, numbers, rows

from pyromq.errors import NoRoute, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import TRACE_TOPIC
from pyromq.protocol.record import SysFlag
from pyromq.spark.batch_journal import DIRECTORY, BatchJournal
from pyromq.spark.checks import Checks
from pyromq.spark.cluster import SparkCluster, pull_of
from pyromq.spark.ending import Ending
from pyromq.spark.options import Access, Selection, write_options
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.dlq import read_dead_letters, summarized, with_outcomes
from pyromq.spark.pipelines.history import history
from pyromq.spark.pipelines.redrive import Target, redrive
from pyromq.spark.pipelines.replay import replay
from pyromq.spark.pipelines.sql import run_sql
from pyromq.spark.pipelines.trace import latencies, read_messages, records
from pyromq.spark.queues import Queue
from pyromq.spark.transactional import commit, prepare

# JVMs take their time to start, and longer on a busy machine. Spark itself warns now and then.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]

SETTINGS = {
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    # It asks about half messages soon, and discards none.
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000000",
}
# Replicas of 5.x refuse pulls otherwise.
READABLE = {"slaveReadEnable": "true"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    spark = small_session(tmp_path_factory.mktemp("warehouse"))
    yield spark
    spark.stop()


class Apache(ApacheServers):
    def create(self, topic: str, *attributes: str) -> None:
        if not attributes:
            self.client.create_topic(self.names, self.broker.address, topic, queues=2)
            return
        place = ("-n", self.names, "-b", self.broker.address, "-t", topic, "-r", "2", "-w", "2")
        self.client.mqadmin("updateTopic", *place, "-a", *attributes)
        known = ("topicList", "-n", self.names)
        wait_until(lambda: topic in self.client.mqadmin(*known).split(), f"the route of {topic}")

    def send(self, topic: str, numbers: range, **more: Any) -> None:
        """Each number to a queue, odd and even apart."""
        self.send_all([{"topic": topic, "body": b"%d" % n, "queue": n % 2, **more} for n in numbers])

    def send_all(self, messages: list[dict[str, Any]], **options: object) -> list[dict[str, Any]]:
        """Returns when all can be read: Apache's brokers show only a moment later what they have stored."""
        sent = self.client.send(self.names, messages, **options)  # type: ignore[arg-type]
        topic = messages[0]["topic"]
        last = {Queue(topic, row["brokerName"], row["queueId"]): row["queueOffset"] for row in sent}
        cluster = SparkCluster(Access((self.names,)))
        try:
            wait_until(
                lambda: all(reach > last[queue] for queue, reach in cluster.latest(last).items()),
                f"messages of {topic}",
            )
        finally:
            cluster.close()
        return sent


@pytest.fixture(scope="module")
def apache(servers: ApacheServers) -> Apache:
    return Apache(servers.release, servers.names, servers.broker, servers.client_of)


def load(spark: SparkSession, names: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").option("namesrv", names).options(**options).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def drain(spark: SparkSession, apache: Apache, directory: Path, **options: str) -> StreamingQuery:
    """Append what has come since the last time to the Parquet files of a directory."""
    stream = spark.readStream.format("rocketmq").option("namesrv", apache.names).options(**options).load()
    writer = stream.select("value").writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(directory / "out"), format="parquet")
    assert query.awaitTermination(300)
    return query


def landed(spark: SparkSession, directory: Path) -> list[int]:
    return values(spark.read.schema("value binary").parquet(str(directory / "out")))


def test_rows_are_what_apaches_client_sent(spark: SparkSession, apache: Apache) -> None:
    apache.create("Rows")
    sent = apache.send_all(
        [
            {"topic": "Rows", "body": b"x" * 5000, "tags": "A", "keys": "k1 k2", "properties": {"n": "7"}},
            {"topic": "Rows", "body": b"plain"},
        ],
        compressOver=1000,
    )
    rows = {bytes(row.value): row for row in load(spark, apache.names, subscribe="Rows").collect()}
    packed, plain = rows[b"x" * 5000], rows[b"plain"]
    assert (packed.tags, packed.key, packed.properties["n"]) == ("A", "k1 k2", "7")
    assert (plain.tags, plain.key) == (None, None)
    assert {packed.msgId, plain.msgId} == {row["msgId"] for row in sent}


def test_filters_are_applied_by_apaches_broker(spark: SparkSession, apache: Apache) -> None:
    apache.create("Filters")
    for tag in ("Aa", "BB", "C"):
        apache.send("Filters", range(10), tags=tag, properties={"colour": tag.lower()})
    assert values(load(spark, apache.names, subscribe="Filters", tags="Aa||C")) == sorted([*range(10)] * 2)
    found = load(spark, apache.names, subscribe="Filters", sqlFilter="colour = 'bb'")
    assert {row.tags for row in found.collect()} == {"BB"}
    assert found.count() == 10


def test_times_are_looked_up_at_apaches_broker(spark: SparkSession, apache: Apache) -> None:
    apache.create("Times")
    apache.send("Times", range(6))
    frame = load(spark, apache.names, subscribe="Times")
    newest = max(int(row.timestamp.timestamp() * 1000) for row in frame.collect())
    assert load(spark, apache.names, subscribe="Times", startingTimestamp="0").count() == 6
    late = {"startingTimestamp": str(newest + 60_000), "startingOffsetsByTimestampStrategy": "latest"}
    assert load(spark, apache.names, subscribe="Times", **late).count() == 0
    assert load(spark, apache.names, subscribe="Times", endingTimestamp=str(newest + 60_000)).count() == 6


def test_a_stream_goes_on_over_restarts_and_shows_its_lag(
    spark: SparkSession, apache: Apache, tmp_path: Path
) -> None:
    apache.create("Stream")
    apache.send("Stream", range(100))
    options = {
        "subscribe": "Stream",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "consumerGroup": "lake",
        "commitOffsets": "true",
    }
    drain(spark, apache, tmp_path, **options)
    apache.broker.kill()
    apache.broker.start()
    wait_for_broker(apache.names, apache.broker.name)
    apache.send("Stream", range(100, 150))
    drain(spark, apache, tmp_path, **options)
    assert landed(spark, tmp_path) == list(range(150))
    apache.send("Stream", range(150, 157))
    shown = apache.client.mqadmin("consumerProgress", "-n", apache.names, "-g", "lake")
    assert re.search(r"Diff Total: 7", shown), shown


def test_apaches_client_reads_what_spark_wrote(spark: SparkSession, apache: Apache) -> None:
    apache.create("Written")
    rows = spark.range(300).selectExpr(
        "cast(id as string) as value", "concat('k', id) as key", "'T' as tags", "map('n', 'x') as properties"
    )
    writer = rows.write.format("rocketmq").option("namesrv", apache.names).option("topic", "Written")
    writer.option("idPrefix", "run").mode("append").save()
    read = apache.client.read(apache.names, "Written", at_least=300)
    assert sorted(int(row["body"]) for row in read) == list(range(300))
    assert len({row["properties"]["UNIQ_KEY"] for row in read}) == 300
    for row in read:
        expected = {"KEYS": f"k{int(row['body'])}", "TAGS": "T", "n": "x"}
        assert expected.items() <= row["properties"].items()


def test_inner_batches_are_taken_apart(spark: SparkSession, apache: Apache) -> None:
    if apache.release is not APACHE_5:
        pytest.skip("brokers before 5.0 take batches apart when they store them")
    apache.create("Inner", "+queue.type=BatchCQ")
    for first in (0, 5, 10):
        apache.send_all(
            [{"topic": "Inner", "body": b"%d" % n, "batch": f"b{first}"} for n in range(first, first + 5)]
        )
    frame = load(spark, apache.names, subscribe="Inner")
    assert values(frame) == list(range(15))
    assert len({(row.queueId, row.offset) for row in frame.collect()}) == 15
    # Cut in the middle of a batch.
    assert values(load(spark, apache.names, subscribe="Inner", maxRecordsPerPartition="2")) == list(range(15))


REVENUE = """
CREATE TEMPORARY VIEW sales USING rocketmq OPTIONS (subscribe 'Sales', startingOffsets 'earliest',
  valueFormat 'json', valueSchema 'region string, cents bigint');
CREATE TEMPORARY VIEW revenue USING rocketmq OPTIONS (topic 'Revenue', outputMode 'complete');
INSERT INTO revenue SELECT value.region AS tags, cast(sum(value.cents) AS string) AS value
  FROM sales GROUP BY value.region
"""


def test_topics_are_archived_continued_replayed_and_summed_up(
    spark: SparkSession, apache: Apache, tmp_path: Path
) -> None:
    for topic in ("Sales", "SalesAgain", "Revenue"):
        apache.create(topic)

    def sell(numbers: range) -> None:
        sales = [b'{"region": "%s", "cents": %d}' % ((b"east", b"west")[n % 2], n) for n in numbers]
        messages = [{"topic": "Sales", "body": sale, "queue": n % 2} for n, sale in enumerate(sales)]
        apache.send_all(messages, compressOver=10)

    lake, options = str(tmp_path / "lake"), {"namesrv": apache.names}
    sell(range(40))
    assert archive(spark, options | {"subscribe": "Sales"}, lake).rows_in == 40
    sell(range(40, 50))
    whole = history(spark, options, lake).selectExpr("get_json_object(string(value), '$.cents') AS cents")
    assert sorted(int(row.cents) for row in whole.collect()) == list(range(50))
    target = options | {"topic": "SalesAgain"}
    assert replay(spark, lake, target, where="queueId = 1", keeps_queues=True).rows_out == 20
    again = apache.client.read(apache.names, "SalesAgain", at_least=20)
    assert [(row["queueId"], json.loads(row["body"])["cents"]) for row in again] == [
        (1, cents) for cents in range(1, 40, 2)
    ]
    run_sql(spark, REVENUE, options, checkpoint=str(tmp_path / "sql"), trigger={"availableNow": True})
    totals = apache.client.read(apache.names, "Revenue", at_least=2)
    assert {row["properties"]["TAGS"]: int(row["body"]) for row in totals} == {"east": 600, "west": 625}


def test_traces_and_dead_letters_of_apaches_clients_are_understood(
    spark: SparkSession, apache: Apache, tmp_path: Path
) -> None:
    options = {"namesrv": apache.names}
    apache.create("Payments")
    messages = [{"topic": "Payments", "body": b"%d" % n, "keys": f"p{n}"} for n in range(5)]
    apache.client.send(apache.names, messages, trace=True)
    cluster = SparkCluster(Access((apache.names,)))

    def stored() -> int:
        try:
            queues = cluster.queues(Selection(topics=("%DLQ%payers",)))
        except NoRoute:
            return 0
        return sum(cluster.latest(queues).values())

    with apache.client.member(apache.names, "payers", "Payments", fails=9, attempts=0, trace=True):
        wait_until(lambda: stored() >= 5, "five dead letters")
        apache.client.wait_committed(apache.names, "payers", "Payments", queues=2)

    def is_told() -> bool:
        told = b"".join(row["body"] for row in apache.client.read(apache.names, TRACE_TOPIC))
        return min(told.count(b"Pub\x01"), told.count(b"SubAfter\x01")) >= 5

    wait_until(is_told, "the traces of five messages")
    traces = records(read_messages(spark, options))
    [row] = latencies(traces).where("group = 'payers'").collect()
    assert (row.topic, row.messages, row.failures) == ("Payments", 5, 5)
    letters = read_dead_letters(spark, options, ("payers",))
    # A busy broker may get a dead letter twice: its sender repeats what was not answered in time.
    dead = Counter(row.key for row in letters.collect())
    assert set(dead) == {f"p{n}" for n in range(5)}
    assert dead.total() == stored()
    cluster.close()
    [kind] = summarized(with_outcomes(letters, traces)).collect()
    assert (kind.origin, kind.reason, kind.letters) == ("Payments", "given up: failed", dead.total())
    chosen: list[tuple[Target, str]] = [("origin", "p1"), ("group", "p2")]
    for target, key in chosen:
        sent = redrive(spark, options, target, str(tmp_path / target), where=f"key = '{key}'")
        assert (sent.rows_in, sent.rows_out) == (dead.total(), dead[key])
    with apache.client.member(apache.names, "payers", "Payments") as member:
        again = member.received(dead["p1"] + dead["p2"])
    assert {(row["properties"]["KEYS"], row["reconsumeTimes"] > 0) for row in again} == {
        ("p1", False),
        ("p2", True),
    }


def test_a_replica_is_read_while_its_master_is_away(
    spark: SparkSession, apache: Apache, tmp_path: Path
) -> None:
    queue = Queue("Mirrored", "pair", 0)
    cluster = SparkCluster(Access((apache.names,)))
    with (
        ApacheBroker(apache.release, apache.names, tmp_path / "master", name="pair") as master,
        ApacheBroker(
            apache.release, apache.names, tmp_path / "copy", name="pair", broker_id=1, settings=READABLE
        ) as replica,
    ):
        wait_for_broker(apache.names, "pair")
        apache.client.create_topic(apache.names, master.address, "Mirrored", queues=1)
        apache.client.send(
            apache.names, [{"topic": "Mirrored", "body": b"%d" % n, "queue": 0} for n in range(50)]
        )

        def is_copied() -> bool:
            try:
                with cluster.links.borrow(replica.address) as link:
                    return link.call(pull_of(queue, 49, 1)).code == ResponseCode.SUCCESS
            except Refused:
                return False  # it does not know the topic yet

        def is_read_from_the_replica() -> bool:
            cluster.forget_routes()
            return cluster.address(queue) == replica.address

        wait_until(is_copied, "the replica holding everything")
        master.kill()
        wait_until(is_read_from_the_replica, "the master leaving the route")
        assert values(load(spark, apache.names, subscribe="Mirrored")) == list(range(50))
    cluster.close()


def test_a_batch_is_committed_once_wherever_the_driver_dies(
    apache: Apache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apache.create("Exactly")
    options = write_options({"namesrv": apache.names, "topic": "Exactly", "mode": "transactional"})
    journal = BatchJournal(str(tmp_path))
    prepare(rows(7), options, journal, 0)  # an attempt that is lost
    prepared = prepare(rows(0), options, journal, 0)
    assert numbers(options).total() == 0
    die_while_committing(prepared, options, journal, after=100, monkeypatch=monkeypatch)
    # Apache's brokers show and index messages a moment after they have stored them.
    wait_until(lambda: numbers(options).total() == 100, "the first messages")
    cluster = SparkCluster(options.access)
    try:
        last, ending = prepared.halves[99], Ending(cluster, options.group)
        wait_until(lambda: not ending.missing(last.queue, [last]), "their index")
    finally:
        cluster.close()
    again = prepare(rows(0), options, journal, 0)
    commit(again.halves, options, journal, 0)
    wait_until(lambda: numbers(options).total() >= ROWS, "all messages")
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


def test_apaches_broker_asks_about_half_messages_and_is_answered_from_the_journal(
    apache: Apache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    apache.create("Asked")
    given = {"namesrv": apache.names, "topic": "Asked", "mode": "transactional", "producerGroup": "asked"}
    options = write_options(given)
    journal = BatchJournal(str(tmp_path))
    lost = prepare(rows(7), options, journal, 0)
    prepared = prepare(rows(0), options, journal, 0)
    die_while_committing(prepared, options, journal, after=100, monkeypatch=monkeypatch)
    # Its driver never comes back.
    os.utime(tmp_path / DIRECTORY / "0", (1, 1))
    caplog.set_level(logging.INFO, "pyromq.spark.checks")
    checks = Checks(options.access, options.group)
    try:
        checks.serve(BatchJournal(tmp_path.as_uri()), {apache.broker.address})
        wait_until(lambda: numbers(options).total() >= ROWS, "all messages of the batch")
        rolled_back = re.compile(rf"message=(\S+) batch=0 state={int(SysFlag.TRANSACTION_ROLLBACK)}")
        wait_until(
            lambda: {half.unique_key for half in lost.halves} <= set(rolled_back.findall(caplog.text)),
            "an answer about each message of the attempt that was lost",
        )
    finally:
        checks.close()
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)
    # It does, and finds nothing to do.
    commit([], options, journal, 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)
