"""Archives that are Delta and Iceberg tables: each message once, and one table with the live tail."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pyromq.errors import ConfigError
from pyromq.spark.pipelines import delta_lake, iceberg_lake
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.compact import compact
from pyromq.spark.pipelines.history import history
from pyromq.spark.pipelines.lake import DELTA, FORMATS, ICEBERG, PLAIN, read_lake
from pyromq.spark.pipelines.maintain import maintain
from pyromq.spark.pipelines.replay import replay

if TYPE_CHECKING:
    import pyarrow as pa
    from tests.conftest import ErrorLogs
    from tests.spark.conftest import Topics

TABLES = {DELTA: delta_lake.DeltaLake, ICEBERG: iceberg_lake.IcebergLake}


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def as_others_read_it(form: str, lake: Path) -> "pa.Table":
    """The table through its own library, which knows nothing of us."""
    if form == DELTA:
        from deltalake import DeltaTable

        return DeltaTable(str(lake)).to_pyarrow_table()
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(lake)).scan().to_arrow()


def values(rows: Iterable[Any]) -> list[int]:
    return sorted(int(bytes(row)) for row in rows)


def in_table(form: str, lake: Path) -> list[int]:
    return values(as_others_read_it(form, lake)["value"].to_pylist())


@pytest.mark.parametrize("form", TABLES)
def test_an_archive_is_a_table_with_each_message_once_whatever_died(
    form: str,
    spark: SparkSession,
    topics: "Topics",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error_logs: "ErrorLogs",
) -> None:
    lake = tmp_path / "lake"
    for topic in ("ns%Orders", "Payments", "Again"):
        topics.create(topic, queues=2)
    options = topics.options("ns%Orders,Payments")

    def die(*_: Any) -> None:
        raise RuntimeError("killed")

    # Killed before the table knew of the first batch; its files are there.
    topics.fill("ns%Orders", 0, numbers(0, 50))
    with monkeypatch.context() as patch:
        patch.setattr(TABLES[form], "enter", die)
        with pytest.raises(Exception, match="killed"):
            archive(spark, options, str(lake), form=form)
    error_logs.expect("exception while executing the Python Proxy")
    assert values(row.value for row in history(spark, options, str(lake)).collect()) == list(range(50))
    topics.fill("ns%Orders", 1, numbers(50, 70))
    archive(spark, options, str(lake), form=form)
    assert in_table(form, lake) == list(range(70))

    # Killed when the table knew of a batch, and Spark's journal did not.
    topics.fill("Payments", 0, numbers(70, 100))
    archive(spark, options, str(lake))
    newest = max((lake / "_checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    assert values(row.value for row in history(spark, options, str(lake)).collect()) == list(range(100))
    archive(spark, options, str(lake))
    assert in_table(form, lake) == list(range(100))

    # One table with what is not archived yet; the same after its files were joined.
    topics.fill("ns%Orders", 0, numbers(100, 120))
    whole = history(spark, topics.options(), str(lake))
    assert values(row.value for row in whole.collect()) == list(range(120))
    assert whole.where("topic = 'ns%Orders'").count() == 90
    done = compact(spark, str(lake))
    assert done.replaced >= 2 * done.made > 0
    assert compact(spark, str(lake)) == (0, 0)
    assert in_table(form, lake) == list(range(100))
    archive(spark, options, str(lake))
    assert in_table(form, lake) == list(range(120))
    rows = read_lake(spark, str(lake))
    assert {(row.topic, row["count"]) for row in rows.groupBy("topic").count().collect()} == {
        ("ns%Orders", 90),
        ("Payments", 30),
    }
    assert rows.where("day = to_date(timestamp)").count() == 120
    assert replay(spark, str(lake), topics.options() | {"topic": "Again"}).rows_out == 120
    with pytest.raises(ConfigError, match=f"{form}, the format that"):
        archive(spark, options, str(lake), form="parquet")


@pytest.mark.parametrize("form", ["parquet", *TABLES])
def test_a_schema_grows_and_older_batches_have_nulls(
    form: str, spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    """In a topic that looks like a number, with bodies that have more than their values."""
    lake = tmp_path / "lake"
    topics.create("007", queues=1)
    topics.create("Again", queues=1)

    def options(schema: str) -> dict[str, str]:
        return topics.options("007", valueFormat="json", valueSchema=schema)

    def read() -> list[tuple[int, str | None]]:
        rows = history(spark, options("id bigint, note string"), str(lake)).collect()
        return sorted((row.value.id, row.value.note) for row in rows)

    bodies = [b'{"id": 1}', b'{"id": 2, "note": "hello"}', b'{"id": 3, "note": "bye"}', b'{"id": 4, "x": 5 }']
    topics.fill("007", 0, bodies[:1])
    archive(spark, options("id bigint"), str(lake), form=form)
    topics.fill("007", 0, bodies[1:2])
    assert read() == [(1, None), (2, "hello")]
    archive(spark, options("id bigint, note string"), str(lake))
    topics.fill("007", 0, bodies[2:3])
    archive(spark, options("id bigint"), str(lake))
    topics.fill("007", 0, bodies[3:])
    assert read() == [(1, None), (2, "hello"), (3, None), (4, None)]
    for given, known in {"id string": "bigint", "id bigint, note int": "string"}.items():
        for job in history, archive:
            with pytest.raises(ConfigError, match=f"the type it has in the lake: {known}"):
                job(spark, options(given), str(lake))
    if form != "parquet":
        found = as_others_read_it(form, lake)["value"].to_pylist()
        assert sorted((each["id"], each["note"]) for each in found) == [(1, None), (2, "hello"), (3, None)]
    rows = read_lake(spark, str(lake))
    assert {row.topic for row in rows.select("topic").collect()} == {"007"}
    again = topics.options() | {"topic": "Again"}
    assert replay(spark, str(lake), again, where="topic = '007' AND value.note IS NULL").rows_out == 2
    assert replay(spark, str(lake), again, where="value.note = 'hello'").rows_out == 1
    sent = spark.read.format("rocketmq").options(**topics.options("Again")).load().collect()
    assert sorted(bytes(row.value) for row in sent) == bodies[:3]


@pytest.mark.parametrize("form", FORMATS)
def test_people_are_forgotten_in_archives_which_go_on_then(
    form: str, spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    topics.create("Orders", queues=2)
    options = topics.options("Orders", valueFormat="json", valueSchema="id bigint, who string")

    def read() -> list[int]:
        return sorted(row.value.id for row in read_lake(spark, lake).collect())

    def order(number: int) -> bytes:
        return b'{"id": %d, "who": "customer-%d"}' % (number, number % 4)

    for batch in range(2):
        topics.fill("Orders", batch, [order(number) for number in range(batch * 8, batch * 8 + 8)])
        archive(spark, options, lake, form=form)
    done = maintain(spark, lake, keep=timedelta(0), forget={"value.who": ["customer-1", "nobody"]})
    assert done.forgotten == 4
    assert done.expired > 0 or form == PLAIN
    assert done.made < done.replaced or form != ICEBERG  # delta-rs has joined them when it deleted rows
    remaining = [number for number in range(16) if number % 4 != 1]
    assert read() == remaining
    if form != DELTA:  # which has its own record of changes, as long as its log
        assert not [path for path in (tmp_path / "lake").rglob("*.parquet") if b"customer-1" in content(path)]
    topics.fill("Orders", 0, [order(20)])
    archive(spark, options, lake)
    assert read() == [*remaining, 20]
    assert maintain(spark, lake, forget={"value.who": ["customer-1"]}).forgotten == 0
    assert read() == [*remaining, 20]


def content(path: Path) -> bytes:
    """Its bodies, one after the other."""
    return b"".join(pq.read_table(path, partitioning=None)["body"].to_pylist())


@pytest.mark.parametrize("form", [PLAIN, DELTA])
def test_a_lake_may_begin_with_topics_that_have_no_messages(
    form: str, spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    topics.create("Orders", queues=1)
    options = topics.options("Orders")
    for _ in range(2):
        assert archive(spark, options, lake, form=form).rows_in == 0
    assert read_lake(spark, lake).where("topic = 'Orders'").count() == 0
    topics.fill("Orders", 0, numbers(0, 3))
    assert history(spark, options, lake).count() == 3
    assert archive(spark, options, lake, form=form).rows_in == 3
    assert values(row.value for row in read_lake(spark, lake).collect()) == [0, 1, 2]


def test_batches_without_rows_do_not_hide_where_a_table_ends(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    """Spark deletes the offsets of old batches, also if the table has got nothing since."""
    lake = str(tmp_path / "lake")
    topics.create("Orders", queues=1)
    topics.send("Orders", 0, b"0", "TAGS\x01a\x02")
    options = topics.options("Orders", tags="a", maxOffsetsPerTrigger="1")
    archive(spark, options, lake, form=DELTA)
    for _ in range(6):
        topics.send("Orders", 0, b"9", "TAGS\x01b\x02")
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        archive(spark, options, lake, form=DELTA)
        topics.send("Orders", 0, b"1", "TAGS\x01a\x02")
        assert values(row.value for row in history(spark, topics.options("Orders"), lake).collect()) == [0, 1]
        assert archive(spark, options, lake, form=DELTA).rows_in == 1
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    assert in_table(DELTA, Path(lake)) == [0, 1]
