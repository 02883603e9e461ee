"""Change events into tables and out of them, each applied once whatever died."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.test_spark_lakehouse import TABLES, as_others_read_it

from pyromq.apps.pyromq import COMMANDS
from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.pipelines.change_feed import delta_changes, to_debezium
from pyromq.spark.pipelines.changes import apply_changes, behind_truncates, last_by_key
from pyromq.spark.pipelines.lake import DELTA, ICEBERG, table_at

if TYPE_CHECKING:
    from tests.conftest import ErrorLogs
    from tests.spark.conftest import Topics


def event(op: str, row: dict[str, Any] | None, *kinds: str) -> bytes:
    """With the schema around it if the kinds of the columns are given."""
    envelope = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
    if not kinds or row is None:
        return json.dumps(envelope).encode()
    fields = [{"field": name, "type": kind} for name, kind in zip(row, kinds, strict=True)]
    sides = [{"field": side, "type": "struct", "fields": fields} for side in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": sides}, "payload": envelope}).encode()


def send(topics: "Topics", *events: bytes, key: str = "") -> None:
    for each in events:
        found = json.loads(each)
        found = found.get("payload", found)
        row = found["after"] or found["before"]
        named = key or json.dumps({"id": row["id"]})
        topics.send("Orders", 0, each, f"KEYS\x01{named}\x02")


def in_table(form: str, place: Path) -> list[tuple[Any, ...]]:
    rows = as_others_read_it(form, place).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("form", TABLES)
def test_a_table_follows_a_database_whatever_died(
    form: str,
    spark: SparkSession,
    topics: "Topics",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error_logs: "ErrorLogs",
) -> None:
    place = tmp_path / "orders"
    topics.create("Orders", queues=1)
    send(
        topics,
        event("r", {"id": 1, "note": "old"}, "int64", "string"),
        event("c", {"id": 2, "note": "b"}, "int64", "string"),
        event("u", {"id": 1, "note": "new"}, "int64", "string"),
        event("c", {"id": 3, "note": "gone"}, "int64", "string"),
        event("d", {"id": 3, "note": "gone"}, "int64", "string"),
    )
    topics.send("Orders", 0, b"null", 'KEYS\x01{"id": 3}\x02')
    options = topics.options("Orders")
    entered: Callable[..., None] = TABLES[form].apply  # type: ignore[attr-defined]

    def die(*arguments: Any, **named: Any) -> None:
        entered(*arguments, **named)
        raise OSError("killed behind the commit")

    with monkeypatch.context() as patch:
        patch.setattr(TABLES[form], "apply", die)
        with pytest.raises(StreamingQueryException, match="killed behind the commit"):
            apply_changes(spark, options, str(place), form=form)
    error_logs.expect("exception while executing the Python Proxy")
    monkeypatch.setattr(TABLES[form], "apply", None)  # the repeated batch is not applied again
    apply_changes(spark, options, str(place))
    monkeypatch.undo()
    assert in_table(form, place) == [(1, "new"), (2, "b")]
    send(
        topics,
        event("d", {"id": 1}, "int64"),
        event("u", {"id": 2, "note": "b", "cents": 5}, "int64", "string", "int32"),
    )
    apply_changes(spark, options, str(place))
    assert in_table(form, place) == [(2, "b", 5)]
    table = table_at(str(place), form)
    assert [tuple(row) for row in table.read(spark, table.schema()).collect()] == [(2, "b", 5)]
    if form == ICEBERG:
        assert table.compact(spark, 1 << 40)[1] == 1
        assert in_table(form, place) == [(2, "b", 5)]
    topics.send("Orders", 0, b'{"op": "t"}')
    send(topics, event("c", {"id": 4, "note": "after"}))
    apply_changes(spark, options, str(place))
    assert in_table(form, place) == [(4, "after", None)]


@pytest.mark.parametrize("form", TABLES)
def test_flattened_rows_of_a_database_whose_schema_changes(
    form: str, spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    place = tmp_path / "orders"
    topics.create("Orders", queues=1)

    def send_row(row: dict[str, Any], *kinds: str) -> None:
        fields = [{"field": name, "type": kind} for name, kind in zip(row, kinds, strict=True)]
        whole = {"schema": {"type": "struct", "fields": fields}, "payload": row}
        topics.send("Orders", 0, json.dumps(whole).encode(), f'KEYS\x01{{"id": {row["id"]}}}\x02')

    def apply() -> list[tuple[Any, ...]]:
        result = CliRunner().invoke(COMMANDS, [*command, "-n", topics.options()["namesrv"]])
        assert result.exit_code == 0, result.output
        return in_table(form, place)

    command = ["pipeline", "changes", str(place), "-t", "Orders", "--format", form, "--flattened"]
    command += ["--as-text", "until", "--runs", ""]
    until = {"field": "until", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    first = {"id": 1, "a.b": 7, "until": 9223372036825200000, "__deleted": "false"}
    fields = [{"field": "id", "type": "int32"}, {"field": "a.b", "type": "int32"}, until]
    fields.append({"field": "__deleted", "type": "string"})
    whole = {"schema": {"type": "struct", "fields": fields}, "payload": first}
    topics.send("Orders", 0, json.dumps(whole).encode(), 'KEYS\x01{"id": 1}\x02')
    send_row({"id": 2, "a.b": 8, "__deleted": "true"}, "int32", "int32", "string")
    assert apply() == [(1, 7, "infinity")]
    send_row({"id": 2**40, "a.b": 2**41, "new": "x"}, "int64", "int64", "string")
    assert apply() == [(1, 7, "infinity", None), (2**40, 2**41, None, "x")]
    send_row({"id": 1, "a.b": 9}, "int32", "int32")
    topics.send("Orders", 0, b"null", f'KEYS\x01{{"id": {2**40}}}\x02')
    assert apply() == [(1, 9, None, None)]


def test_messages_that_are_no_events_are_set_aside_with_their_reasons_if_that_is_asked_for(
    spark: SparkSession, topics: "Topics", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "orders"
    topics.create("Orders", queues=1)
    options = topics.options("Orders")
    far = {"field": "day", "type": "int32", "name": "io.debezium.time.Date"}
    fields = [{"field": "id", "type": "int64"}, far]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}

    def send_day(number: int, day: int) -> None:
        payload = {"op": "c", "after": {"id": number, "day": day}}
        value = json.dumps({"schema": schema, "payload": payload}).encode()
        topics.send("Orders", 0, value, f'KEYS\x01{{"id": {number}}}\x02')

    topics.send("Orders", 0, b"no event")
    apply_changes(spark, options, str(place), on_error="dead-letter")
    send_day(1, 0)
    send_day(2, 2**31 - 1)
    topics.send("Orders", 0, b"{}")
    send_day(3, 1)
    apply_changes(spark, options, str(place), on_error="dead-letter")
    assert [row[0] for row in in_table(DELTA, place)] == [1, 3]
    letters = spark.read.parquet(str(place / "_dead_letters")).orderBy("offset").collect()
    assert [(row.topic, row.queueId, row.offset, row.batch) for row in letters] == [
        ("Orders", 0, 0, 0),
        ("Orders", 0, 2, 1),
        ("Orders", 0, 3, 1),
    ]
    assert [bytes(row.value)[:8] for row in letters] == [b"no event", b'{"schema', b"{}"]
    assert "day is day 2147483647, which no database has" in letters[1].reason
    assert "no op in it" in letters[2].reason
    assert "2 messages of batch 1 are no change events" in caplog.text
    topics.send("Orders", 0, b"again")
    send_day(4, 2)
    apply_changes(spark, options, str(place), on_error="skip")
    assert [row[0] for row in in_table(DELTA, place)] == [1, 3, 4]
    assert spark.read.parquet(str(place / "_dead_letters")).count() == 3
    with pytest.raises(ConfigError, match="on_error=never"):
        apply_changes(spark, options, str(place), on_error="never")


@pytest.mark.parametrize("form", TABLES)
def test_large_values_that_an_update_did_not_touch_stay_as_they_were(
    form: str, spark: SparkSession, topics: "Topics", tmp_path: Path, error_logs: "ErrorLogs"
) -> None:
    """In the table, and in the same batch; a value that a truncate took away is not made up."""
    place, gone = tmp_path / "orders", "__debezium_unavailable_value"
    schema = "id bigint, n int, note string, tags array<string>, raw binary"
    options = topics.options("Orders")
    topics.create("Orders", queues=1)

    def apply(*events: bytes) -> list[tuple[Any, ...]]:
        send(topics, *events)
        apply_changes(spark, options, str(place), form=form, schema=schema)
        return in_table(form, place)

    def row(number: int, n: int, *large: Any) -> bytes:
        return event("u", dict(zip(("id", "n", "note", "tags", "raw"), (number, n, *large), strict=True)))

    absent = (gone, [gone], base64.b64encode(gone.encode()).decode())
    apply(row(1, 1, "long", ["a"], "aGk="), row(2, 1, None, None, None))
    assert apply(
        row(1, 2, *absent), row(1, 3, *absent), row(2, 2, "longer", [], ""), row(2, 3, gone, ["x"], absent[2])
    ) == [(1, 3, "long", ["a"], b"hi"), (2, 3, "longer", ["x"], b"")]
    topics.send("Orders", 0, b'{"op": "t"}')
    with pytest.raises(StreamingQueryException, match="row with id=1 leaves out note, tags, raw"):
        apply(row(1, 5, *absent))
    error_logs.expect_repeatedly("exception while executing the Python Proxy")


def test_the_last_event_of_a_key_is_that_of_its_queue_also_if_a_clock_was_set_back(
    spark: SparkSession,
) -> None:
    rows = [(1, "a:0", 50, 7), (1, "a:0", 20, 8), (2, "a:0", 30, 9), (2, "a:1", 40, 0), (2, "a:1", 60, 1)]
    events = spark.createDataFrame(rows, "id int, queue string, at long, offset long")
    events = events.selectExpr("struct(id) AS row", "queue", "at", "offset", "array() AS kept")
    found = last_by_key(events, ["id"]).select("row.id", "queue", "offset").collect()
    assert sorted(map(tuple, found)) == [(1, "a:0", 8), (2, "a:1", 1)]


def test_several_topics_are_one_table_only_if_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    for given in ({"subscribe": "Orders,Payments"}, {"subscribePattern": "Shop.*"}):
        with pytest.raises(ConfigError, match=r"one topic, .* `merge_topics` if all"):
            apply_changes(spark, {"namesrv": "127.0.0.1:1"} | given, str(tmp_path / "orders"))


EVENTS = "op string, id int, queue string, offset long, order string"


def behind(
    spark: SparkSession, *rows: tuple[str, int, str, int, str | None], is_ordered: bool = False
) -> set[int] | None:
    """The ids behind the last truncate, of events that are all of one moment."""
    events = spark.createDataFrame([*rows], EVENTS).selectExpr("*", "struct(id) AS row", "7L AS at")
    found, is_cleared = behind_truncates(events, is_ordered=is_ordered)
    return {row.id for row in found.collect()} if is_cleared else None


def test_the_database_says_what_came_behind_a_truncate(spark: SparkSession) -> None:
    """All of them are of the same millisecond, and offsets of different queues say nothing."""
    assert behind(spark, ("u", 1, "a:0", 0, None)) is None
    truncate = ("t", 0, "a:0", 50, "0100")
    others = [("u", n, "a:1", n, f"{98 + n:04d}") for n in (0, 1, 3, 4)]
    assert behind(spark, ("u", 8, "a:0", 49, "0099"), truncate, ("u", 9, "a:0", 51, None), *others) == {
        3,
        4,
        9,
    }
    assert behind(spark, truncate, ("d", 5, "a:1", 0, None), others[2]) == {3, 5}
    alone = ("t", 0, "a:0", 50, None), ("u", 9, "a:0", 51, None)
    assert behind(spark, *alone, is_ordered=True) == {9}
    assert behind(spark, others[2], truncate, ("t", 0, "a:1", 9, "0102"), ("u", 6, "a:1", 10, "0103")) == {6}
    for unknown in (("u", 1, "a:1", 0, None), ("u", 1, "a:1", 0, "0100")):
        with pytest.raises(
            RemoteProtocolError, match=r"truncate in a:0 at offset 50 .* a topic with one queue"
        ):
            behind(spark, truncate, unknown)
    with pytest.raises(RemoteProtocolError, match="a topic with one queue"):
        behind(spark, *alone)


def test_events_without_schemas_need_columns_and_keys(
    spark: SparkSession, topics: "Topics", tmp_path: Path, error_logs: "ErrorLogs"
) -> None:
    topics.create("Orders", queues=1)
    send(topics, event("c", {"id": 1, "note": "x"}), key="plain")

    def run(*more: str) -> Any:
        place = str(tmp_path / "orders")
        command = ["pipeline", "changes", place, "-n", topics.running.namesrv, "-t", "Orders", *more]
        return CliRunner().invoke(COMMANDS, command)

    assert "the events have no schemas" in run().output
    columns = ("--schema", "id bigint, note string")
    assert "the keys of the messages do not tell" in run(*columns).output
    assert "DDL of Spark" in run("--schema", "id biggint").output
    error_logs.expect_repeatedly("exception while executing the Python Proxy")
    result = run(*columns, "--key", "id")
    assert result.exit_code == 0, result.output
    assert in_table(DELTA, tmp_path / "orders") == [(1, "x")]
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    (tmp_path / "lake" / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(ConfigError, match="with its _changes"):
        apply_changes(spark, topics.options("Orders"), str(tmp_path / "lake"))


def test_the_changes_of_a_delta_table_go_to_a_topic_and_into_another_table(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=1)
    topics.create("Copies", queues=2)
    place, copy = tmp_path / "orders", tmp_path / "copy"
    options = topics.options("Orders")
    kinds = ("int64", "string")
    for batch in (
        [event("c", {"id": number, "note": "first"}, *kinds) for number in range(4)],
        [event("u", {"id": 1, "note": None}, *kinds), event("d", {"id": 2, "note": "first"}, *kinds)],
    ):
        send(topics, *batch)
        apply_changes(spark, options, str(place))
    changes = delta_changes(spark, str(place), ["id"])
    found = sorted(
        (row.version, row.op, row.before and row.before.id, row.after and row.after.id)
        for row in changes.collect()
    )
    assert found == [*((1, "c", None, n) for n in range(4)), (2, "d", 2, None), (2, "u", 1, 1)]
    messages = to_debezium(changes, ["id"], source={"table": "orders"})
    messages.write.format("rocketmq").options(**topics.options() | {"topic": "Copies"}).mode("append").save()
    [last] = [row for row in messages.collect() if b'"op":"d"' in bytes(row.value)]
    body = json.loads(bytes(last.value))
    assert last.key == '{"id":2}'
    assert (body["before"], body["after"]) == ({"id": 2, "note": "first"}, None)
    assert (body["source"]["connector"], body["source"]["table"]) == ("pyromq", "orders")
    assert body["ts_ms"] > 1_700_000_000_000
    apply_changes(spark, topics.options("Copies"), str(copy), schema="id bigint, note string")
    assert in_table(DELTA, copy) == in_table(DELTA, place) == [(0, "first"), (1, None), (3, "first")]
    with pytest.raises(ConfigError, match="op, and before or after"):
        to_debezium(spark.range(1), ["id"])
