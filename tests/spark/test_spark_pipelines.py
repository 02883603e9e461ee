"""The ready pipelines, from topic to lake and back."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.replay import replay

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def test_an_archive_goes_on_where_it_stopped_and_is_replayed(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    topics.create("Orders", queues=2)
    topics.create("Again", queues=2)
    topics.fill("Orders", 0, [b"%d" % n for n in range(300)], b"TAGS\x01a\x02")
    assert archive(spark, topics.options("Orders"), lake) == 300
    topics.fill("Orders", 1, [b"%d" % n for n in range(300, 400)], b"TAGS\x01b\x02")
    assert archive(spark, topics.options("Orders"), lake) == 100
    archived = spark.read.parquet(lake)
    assert sorted(int(row.value) for row in archived.select("value").collect()) == list(range(400))
    assert [row.topic for row in archived.select("topic").distinct().collect()] == ["Orders"]
    sent = replay(spark, lake, topics.options() | {"topic": "Again"}, where="tags = 'b'", rows_per_second=80)
    assert sent == 100
    again = spark.read.format("rocketmq").options(**topics.options("Again")).load()
    assert sorted(int(row.value) for row in again.collect()) == list(range(300, 400))
    assert {row.tags for row in again.collect()} == {"b"}
