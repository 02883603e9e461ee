"""`nullability=strict`: columns that every message has are NOT NULL, and the rows are the same."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyromq.protocol.compression import Compression, compress

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def nullable(frame: DataFrame) -> set[str]:
    return {field.name for field in frame.schema.fields if field.nullable}


def test_rows_are_the_same_and_say_which_columns_are_never_null(
    spark: SparkSession, topics: "Topics"
) -> None:
    topics.create("Orders", queues=2)
    topics.send("Orders", 0, b"bare")  # no properties, and so no id
    topics.send("Orders", 0, b'{"id": 1}', "KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01ID1\x02region\x01eu\x02")
    packed = compress(b"hello" * 100, Compression.ZLIB)
    topics.send("Orders", 1, packed, "KEYS\x01k\x02", Compression.ZLIB.sys_flag)

    def rows(frame: DataFrame) -> list[Any]:
        assert set(frame.columns) >= {"key", "tags", "msgId", "properties"}
        return sorted(frame.collect(), key=lambda row: (row.queueId, row.offset))

    def load(**more: str) -> DataFrame:
        return spark.read.format("rocketmq").options(**topics.options("Orders", **more)).load()

    loose, strict = load(), load(nullability="strict")
    assert nullable(loose) == set(loose.columns)
    assert nullable(strict) == {"key", "tags"}
    assert rows(strict) == rows(loose)
    assert strict.where("key IS NULL").count() == 1
    assert strict.where("msgId IS NULL OR properties IS NULL").count() == 0
    json = {"valueFormat": "json", "valueSchema": "id bigint"}
    assert nullable(load(nullability="strict", **json)) == {"key", "tags", "value"}
    assert rows(load(nullability="strict", **json)) == rows(load(**json))
    assert "properties" not in load(nullability="strict", includeHeaders="false").columns

    stream = spark.readStream.format("rocketmq").options(
        **topics.options("Orders", nullability="strict", startingOffsets="earliest", driverReadsUpTo="0")
    )
    assert nullable(stream.load()) == {"key", "tags"}
    query = stream.load().writeStream.format("memory").queryName("strict_rows").trigger(availableNow=True)
    assert query.start().awaitTermination(300)
    assert rows(spark.table("strict_rows")) == rows(loose)


def test_an_insert_that_leaves_such_columns_out_is_refused(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    for nullability, is_refused in (("loose", False), ("strict", True)):
        given = topics.options("Orders", nullability=nullability)
        listed = ", ".join(f"`{key}` '{value}'" for key, value in given.items())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {nullability}_orders USING rocketmq OPTIONS ({listed})")
        insert = f"INSERT INTO {nullability}_orders (value, key) VALUES (cast('x' AS binary), 'k')"
        if is_refused:
            with pytest.raises(AnalysisException, match="topic"):
                spark.sql(insert)
        else:
            spark.sql(insert)
    assert topics.reach("Orders") == 1
