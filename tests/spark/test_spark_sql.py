"""Topics from SQL: temporary views, and tables whose options are not lost."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from pyromq.spark.ddl import parse_type

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def test_temporary_views_are_read_and_written(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=2)
    listed = ", ".join(f"`{key}` '{value}'" for key, value in topics.options("Orders").items())
    schema = "value binary, key string"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders ({schema}) USING rocketmq OPTIONS ({listed})")
    topics.fill("Orders", 0, [b"1", b"2", b"3"])
    spark.sql("INSERT INTO orders VALUES (cast('4' AS binary), 'k4')")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders ({schema}) USING rocketmq OPTIONS ({listed})")
    total = spark.sql("SELECT sum(cast(cast(value AS string) AS int)) AS total, max(key) AS k FROM orders")
    assert total.collect() == [(10, "k4")]


@pytest.fixture
def table(spark: SparkSession, topics: "Topics") -> Iterator[str]:
    """A table over the topic Orders."""
    topics.create("Orders", queues=2)
    listed = ", ".join(f"`{key}` '{value}'" for key, value in topics.options("Orders").items())
    name = f"orders_{time.time_ns()}"
    spark.sql(f"CREATE TABLE {name} USING rocketmq OPTIONS ({listed}, valueFormat 'string')")
    yield name
    spark.sql(f"DROP TABLE {name}")


def test_trap_tables_keep_their_options(spark: SparkSession, topics: "Topics", table: str) -> None:
    """Spark forgets the options of CREATE TABLE when a table is read or written."""
    topics.fill("Orders", 0, [b"1", b"2", b"3"])
    spark.sql(f"INSERT INTO {table} (value, tags) VALUES ('4', 'sql')")
    found = spark.sql(f"SELECT sum(cast(value AS int)) AS total, max(tags) AS tag FROM {table}").collect()
    assert found == [(10, "sql")]
    late = spark.sql(f"SELECT * FROM {table} WITH (tags 'sql')").collect()
    assert [row.value for row in late] == ["4"]


def test_trap_tables_and_views_of_them_show_what_came_since(
    spark: SparkSession, topics: "Topics", table: str
) -> None:
    """Unlike a temporary view of the source itself, whose plan Spark keeps."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW live AS SELECT value FROM {table} WHERE value <> 'x'")
    listed = ", ".join(f"`{key}` '{value}'" for key, value in topics.options("Orders").items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kept USING rocketmq OPTIONS ({listed})")
    for count in range(3):
        for name in (table, "live"):
            assert spark.table(name).count() == count, name
        assert spark.table("kept").count() == 0, (
            "a release that asks again deserves another sentence in the docs"
        )
        spark.sql(f"INSERT INTO {table} (value) VALUES ('{count}')")
        spark.sql("REFRESH TABLE kept")


def test_tables_are_streamed_from_and_to(
    spark: SparkSession, topics: "Topics", table: str, tmp_path: Path
) -> None:
    spark.sql("SELECT 'a' AS value, 'k' AS key").writeTo(table).append()
    topics.create("In", queues=1)
    topics.fill("In", 0, [b"b", b"c"])
    source = spark.readStream.format("rocketmq").options(
        **topics.options("In", startingOffsets="earliest", valueFormat="string")
    )
    checkpoint = str(tmp_path / "checkpoint")
    copy = source.load().select("value").writeStream.option("checkpointLocation", checkpoint)
    # Spark does not tell a stream's writer about the table, so the options are given again.
    copy = copy.options(**topics.options("Orders"))
    assert copy.trigger(availableNow=True).toTable(table).awaitTermination(300)
    stream = spark.readStream.option("startingOffsets", "earliest").table(table).select("value")
    sink = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
    assert sink.start().awaitTermination(300)
    assert sorted(row.value for row in spark.sql("SELECT value FROM seen").collect()) == ["a", "b", "c"]


def bodies(spark: SparkSession, topics: "Topics", topic: str) -> list[bytes]:
    rows = spark.read.format("rocketmq").options(**topics.options(topic)).load().collect()
    return sorted(bytes(row.value) for row in rows)


def test_trap_rows_of_a_table_go_to_the_table_they_are_inserted_into(
    spark: SparkSession, topics: "Topics", table: str, tmp_path: Path
) -> None:
    """Columns remember the table they were read from; taken for the target's they would go back there."""
    topics.fill("Orders", 0, [b"1", b"2"])
    topics.create("Copies", queues=1)
    listed = ", ".join(f"`{key}` '{value}'" for key, value in topics.options("Copies").items())
    copies = f"copies_{time.time_ns()}"
    spark.sql(f"CREATE TABLE {copies} USING rocketmq OPTIONS ({listed}, valueFormat 'string')")
    try:
        spark.sql(f"INSERT INTO {copies} (value, key) SELECT value, key FROM {table}")
        spark.sql(f"INSERT INTO {copies} BY NAME SELECT value FROM {table} WHERE value = '1'")
        rows = spark.table(table).select("value")
        rows.write.format("rocketmq").options(**topics.options() | {"topic": "Copies"}).mode("append").save()
        stream = spark.readStream.option("startingOffsets", "earliest").table(table).select("value")
        writer = stream.writeStream.format("rocketmq").options(**topics.options() | {"topic": "Copies"})
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        for ambiguous in (
            f"INSERT INTO {copies} SELECT * FROM {table}",
            f"CREATE TABLE {copies}_too USING rocketmq OPTIONS ({listed}) AS SELECT value FROM {table}",
        ):
            with pytest.raises(PySparkException, match="Spark does not tell the target table"):
                spark.sql(ambiguous)
        assert bodies(spark, topics, "Orders") == [b"1", b"2"]
        assert bodies(spark, topics, "Copies") == sorted([b"1", b"2"] * 3 + [b"1"])
    finally:
        spark.sql(f"DROP TABLE {copies}")


def test_a_table_with_a_list_of_columns_says_what_is_wrong(spark: SparkSession, topics: "Topics") -> None:
    listed = ", ".join(f"`{key}` '{value}'" for key, value in topics.options("Orders").items())
    name = f"orders_{time.time_ns()}"
    spark.sql(f"CREATE TABLE {name} (value binary) USING rocketmq OPTIONS ({listed})")
    try:
        with pytest.raises(PySparkException, match="leave out the list"):
            spark.sql(f"SELECT * FROM {name}").collect()
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_tables_of_documents_have_typed_values(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b'{"id": 1, "tags": ["a", "b"]}', b'{"id": 2}'])
    given = topics.options("Orders", valueFormat="json", valueSchema="id bigint, tags array<string>")
    listed = ", ".join(f"`{key}` '{value}'" for key, value in given.items())
    name = f"orders_{time.time_ns()}"
    spark.sql(f"CREATE TABLE {name} USING rocketmq OPTIONS ({listed})")
    try:
        found = spark.sql(f"SELECT sum(value.id) AS total, max(size(value.tags)) AS most FROM {name}")
        assert found.collect() == [(3, 2)]
    finally:
        spark.sql(f"DROP TABLE {name}")


DDL = [
    "int",
    "decimal(12,2)",
    "struct<a:bigint,b:array<map<string,double>>,c:struct<d:timestamp,e:binary>>",
    "map<string,array<timestamp_ntz>>",
]


@pytest.mark.parametrize("text", DDL)
def test_types_are_read_as_spark_reads_them(spark: SparkSession, text: str) -> None:
    assert parse_type(text) == DataType.fromDDL(text)
    assert parse_type(text).simpleString() == text


def test_fields_may_be_quoted_and_required(spark: SparkSession) -> None:
    text = "struct<`a b` int NOT NULL, C: STRING COMMENT 'it''s'>"
    assert (
        parse_type(text).simpleString() == DataType.fromDDL(text).simpleString() == "struct<a b:int,C:string>"
    )


@pytest.mark.parametrize(
    "text", ["", "integr", "array<int", "struct<a>", "int int", "map<int>", "decimal(x)", "ä!"]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_type(text)
