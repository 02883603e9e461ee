"""Change events of several database tables in one job: a table for each topic."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.test_spark_changes import event, in_table
from tests.spark.test_spark_lakehouse import TABLES

from pyromq.apps.pyromq import COMMANDS
from pyromq.errors import ConfigError
from pyromq.spark.pipelines.changes import TableSettings, apply_changes
from pyromq.spark.pipelines.lake import DELTA

if TYPE_CHECKING:
    from tests.conftest import ErrorLogs
    from tests.spark.conftest import Topics

PEOPLE = TableSettings(keys=("name",), schema="name string, age int")
ORDERS = TableSettings(partition_by=("region",))


def order(topics: "Topics", number: int, region: str | None, kind: str = "int32", op: str = "c") -> None:
    value = event(op, {"id": number, "region": region}, kind, "string")
    topics.send("shop-orders", 0, value, f'KEYS\x01{{"id": {number}}}\x02')


def person(topics: "Topics", name: str, age: int) -> None:
    topics.send("shop-people", 0, event("u", {"name": name, "age": age}))


def partitions(form: str, place: Path) -> list[str]:
    if form == DELTA:
        from deltalake import DeltaTable

        return DeltaTable(str(place)).metadata().partition_columns
    from pyiceberg.table import StaticTable

    return [field.name for field in StaticTable.from_metadata(str(place)).spec().fields]


@pytest.mark.parametrize("form", TABLES)
def test_each_topic_has_a_table_of_its_own_whatever_died_between_two_of_them(
    form: str,
    spark: SparkSession,
    topics: "Topics",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error_logs: "ErrorLogs",
) -> None:
    place = tmp_path / "shop"
    for topic in ("shop-orders", "shop-people", "other"):
        topics.create(topic, queues=1)
    topics.send("other", 0, b"no event")
    order(topics, 1, "north")
    order(topics, 2, None)
    person(topics, "Ada", 36)
    options = topics.options(None, subscribePattern="shop-.*")
    settings: dict[str, Any] = {"tables": {"shop-orders": ORDERS, "shop-people": PEOPLE}}
    entered: Callable[..., None] = TABLES[form].apply  # type: ignore[attr-defined]
    applied: list[list[str]] = []

    def die_at_people(table: Any, changes: Any, *more: Any, **named: Any) -> None:
        if "name" in changes.column_names:
            raise OSError("killed between two tables")
        entered(table, changes, *more, **named)

    def count(table: Any, changes: Any, *more: Any, **named: Any) -> None:
        applied.append(changes.column_names[:2])
        entered(table, changes, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(TABLES[form], "apply", die_at_people)
        with pytest.raises(StreamingQueryException, match="killed between two tables"):
            apply_changes(spark, options, str(place), form=form, **settings)
    error_logs.expect_repeatedly("exception while executing the Python Proxy")
    with monkeypatch.context() as patch:
        patch.setattr(TABLES[form], "apply", count)
        apply_changes(spark, options, str(place), form=form, **settings)
    assert applied == [["name", "age"]]
    assert in_table(form, place / "shop-people") == [("Ada", 36)]

    # A topic that is new, a batch without some of the tables, and a column that gets wider.
    topics.create("shop-later", queues=1)
    topics.send("shop-later", 0, event("r", {"id": 7}, "int64"), 'KEYS\x01{"id": 7}\x02')
    order(topics, 2**40, "south", kind="int64")
    order(topics, 1, "west", kind="int64", op="u")
    command = ["pipeline", "changes", str(place), "--pattern", "shop-.*", "--table-per-topic", "--runs", ""]
    command += ["--key", "shop-people=name", "--schema", "shop-people=name string, age int"]
    command += ["--partition-by", "shop-orders=region", "--format", form, "-n", options["namesrv"]]
    result = CliRunner().invoke(COMMANDS, command)
    assert result.exit_code == 0, result.output
    rows = {row[0]: row[1] for row in in_table_with_nulls(form, place / "shop-orders")}
    assert rows == {1: "west", 2: None, 2**40: "south"}
    assert in_table(form, place / "shop-later") == [(7,)]
    assert partitions(form, place / "shop-orders") == ["region"]
    assert partitions(form, place / "shop-people") == []
    assert sorted(path.name for path in place.iterdir()) == [
        "_changes",
        "shop-later",
        "shop-orders",
        "shop-people",
    ]

    order(topics, 5, "east", kind="int64")
    wrong = settings | {"tables": {"shop-orders": TableSettings(partition_by=("id",))}}
    with pytest.raises(StreamingQueryException, match=r"topic shop-orders: .*which is partitioned by region"):
        apply_changes(spark, options, str(place), **wrong)

    # Without its earlier rows a table would be wrong for ever.
    shutil.rmtree(place / "shop-people")
    person(topics, "Bob", 5)
    with pytest.raises(StreamingQueryException, match="table of shop-people, which was deleted"):
        apply_changes(spark, options, str(place), **settings)
    error_logs.expect_repeatedly("exception while executing the Python Proxy")


def in_table_with_nulls(form: str, place: Path) -> list[tuple[Any, ...]]:
    from tests.spark.test_spark_lakehouse import as_others_read_it

    rows = as_others_read_it(form, place).select(["id", "region"]).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_tables_of_others_and_settings_without_a_table_are_refused(
    spark: SparkSession, topics: "Topics", tmp_path: Path, error_logs: "ErrorLogs"
) -> None:
    place = tmp_path / "shop"
    topics.create("shop-people", queues=1)
    person(topics, "Ada", 36)
    topics.create("shop-late", queues=1)
    alone, several = topics.options("shop-people"), topics.options("shop-people,shop-orders")
    apply_changes(spark, alone, str(place / "shop-people"), keys=["name"], schema="name string, age int")
    with pytest.raises(
        ConfigError, match="shop-people: expected an empty directory, or one with its _change"
    ):
        apply_changes(spark, alone, str(place), tables={})
    # A table that an earlier journal has made, of a topic that comes later.
    (place / "shop-people").rename(tmp_path / "kept")
    late = topics.options(None, subscribePattern="shop-.*")
    topics.send("shop-late", 0, event("c", {"id": 1}, "int64"), 'KEYS\x01{"id": 1}\x02')
    apply_changes(spark, late | {"subscribePattern": "shop-l.*"}, str(place), tables={})
    person(topics, "Bob", 5)
    apply_changes(spark, alone, str(tmp_path / "kept"), keys=["name"], schema="name string, age int")
    (tmp_path / "kept").rename(place / "shop-people")
    with pytest.raises(StreamingQueryException, match="an empty directory, or one with its _changes"):
        apply_changes(spark, late, str(place), tables={"shop-people": PEOPLE})
    error_logs.expect_repeatedly("exception while executing the Python Proxy")
    with pytest.raises(ConfigError, match="tables=people: expected topics that are read: shop-orders, shop"):
        apply_changes(spark, several, str(place), tables={"people": PEOPLE})
    with pytest.raises(ConfigError, match="either `merge_topics` or `tables`"):
        apply_changes(spark, several, str(place), tables={}, merge_topics=True)
    for given, problem in {
        ("--schema", "a int", "--schema", "b int"): "--schema b int: expected one for each table",
        ("--schema", "people=a int"): "tables=people: expected topics that are read: shop-people",
        ("--schema", "shop-people=a integral"): "DDL of Spark",
        ("--merge-topics",): "either `merge_topics` or `tables`",
    }.items():
        command = ["pipeline", "changes", str(place), "--table-per-topic", "-t", "shop-people", *given]
        result = CliRunner().invoke(COMMANDS, [*command, "-n", "127.0.0.1:1"])
        assert result.exit_code != 0
        assert problem in json.dumps(f"{result.output} {result.exception}", ensure_ascii=False)
