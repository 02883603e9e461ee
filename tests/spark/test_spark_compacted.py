"""Compacted topics have gaps in their queues, which are no losses."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.support.apache import wait_until

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import DataLoss
from pyromq.spark.options import read_options
from pyromq.spark.queues import Queue, Span
from pyromq.spark.reading import read_span

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "compacted-topics.md"
A0 = Queue("Orders", "broker-a", 0)
KEYS, COUNT = 7, 100
VALUES = StructType().add("offset", "long").add("value", "binary")


def rows(topics: "Topics", span: Span) -> list[tuple[int, bytes]]:
    options = read_options(topics.options("Orders", pullMessages="10"), streaming=False)
    cluster = SparkCluster(options.access)
    try:
        batches = read_span(cluster, options, VALUES, span)
        return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]
    finally:
        cluster.close()


@pytest.fixture
def compacted(topics: "Topics") -> "Topics":
    topics.create("Orders", queues=1, attributes="+cleanup.policy=COMPACTION")
    for number in range(COUNT):
        topics.fill("Orders", 0, [b"%d" % number], b"KEYS\x01key %d\x02" % (number % KEYS))
    topics.change_settings("compactionScheduleInternal=50")
    wait_until(lambda: topics.earliest("Orders") == COUNT - KEYS, "the topic is compacted")
    return topics


def test_a_read_brings_the_newest_of_each_key_and_misses_nothing(compacted: "Topics") -> None:
    newest = [(offset, b"%d" % offset) for offset in range(COUNT - KEYS, COUNT)]
    assert rows(compacted, Span(A0, 0, COUNT)) == newest
    compacted.fill("Orders", 0, [b"more"], b"KEYS\x01key 0\x02")
    assert rows(compacted, Span(A0, 20, COUNT + 1)) == [*newest, (COUNT, b"more")]
    assert rows(compacted, Span(A0, 0, 20)) == []
    assert rows(compacted, Span(A0, 0, COUNT - KEYS + 2)) == newest[:2]


def test_the_documented_table_has_each_key_once_with_its_newest_value(
    spark: SparkSession, compacted: "Topics"
) -> None:
    (program,) = re.findall(r"```python\n(from pyspark.*?)```", PAGE.read_text(), re.DOTALL)
    for words, ours in (("127.0.0.1:9876", compacted.running.namesrv), ("prices", "Orders")):
        assert words in program
        program = program.replace(words, ours)
    # Not compacted yet: two newer values, and the removal of a key.
    for number, body in ((0, b"older"), (0, b"newer"), (1, b"")):
        compacted.fill("Orders", 0, [body], b"KEYS\x01key %d\x02" % number)
    names: dict[str, Any] = {"spark": spark}
    exec(program, names)
    newest = {f"key {number % KEYS}": b"%d" % number for number in range(COUNT - KEYS, COUNT)}
    del newest["key 1"]
    rows = [(row.key, bytes(row.value)) for row in names["table"].collect()]
    assert sorted(rows) == sorted({**newest, "key 0": b"newer"}.items())


def test_a_gap_of_another_topic_is_a_loss(compacted: "Topics", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyromq.spark.compacted._COMPACTION", "DELETE")
    with pytest.raises(DataLoss, match="messages 0 to 92 of Orders@broker-a:0 are gone"):
        rows(compacted, Span(A0, 0, COUNT))
