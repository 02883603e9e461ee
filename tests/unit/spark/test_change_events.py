"""Debezium's events in all their forms, and tables that follow them."""

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from tests.unit.spark.test_lake_tables import TABLES, ddl

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.pipelines.change_events import (
    Event,
    Rows,
    _civil,
    changes,
    key_names,
    read_event,
    row_ddl,
    schemas,
)
from pyromq.spark.pipelines.delta_lake import DeltaLake
from pyromq.spark.pipelines.grown_schema import grown, plain
from pyromq.spark.pipelines.kept_values import KEPT, PLACE, UNAVAILABLE, Placeholder, with_kept_values
from pyromq.spark.pipelines.lake import LakeTable
from pyromq.spark.pipelines.lake_files import DELETED

KEY = '{"id": 7}'
KEY_WITH_SCHEMA = json.dumps(
    {"schema": {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}, "payload": {"id": 7}}
)


def body(**envelope: Any) -> bytes:
    return json.dumps(envelope).encode()


@pytest.mark.parametrize("op", ["c", "r", "u"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_an_event_says(op: str, wrapped: bool) -> None:
    row = {"id": 7, "note": "hello"}
    event = {"before": None, "after": row, "source": {"lsn": 5}, "op": op, "ts_ms": 1}
    found = read_event(KEY, body(schema=None, payload=event) if wrapped else body(**event))
    assert found is not None
    assert (found.op, json.loads(found.row), found.schema) == ("u", row, b"")


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"lsn": 99, "ts_us": 7}, {"lsn": 100, "ts_us": 7}),
        ({"scn": "9"}, {"scn": "10"}),
        ({"file": "bin.000009", "pos": 500, "row": 0}, {"file": "bin.000010", "pos": 4, "row": 0}),
        ({"file": "bin.999999", "pos": 500}, {"file": "bin.1000000", "pos": 4}),
        ({"file": "bin.000009", "pos": 500, "row": 2}, {"file": "bin.000009", "pos": 500, "row": 10}),
        ({"ts_us": 999}, {"ts_us": 1000}),
    ],
)
def test_the_source_says_which_of_two_changes_came_first(
    earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    first, second, unknown = (
        read_event(KEY, body(op="c", after={"id": 7}, source=source))
        for source in (earlier, later, {"db": "x"})
    )
    assert first is not None
    assert second is not None
    assert (first.order or "") < (second.order or "")
    assert unknown is not None
    assert unknown.order is None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (KEY, body(op="d", before={"id": 7}, after=None), ("d", {"id": 7})),
        (KEY, body(op="d", before=None), ("d", {"id": 7})),
        (KEY_WITH_SCHEMA, body(op="d"), ("d", {"id": 7})),
        (KEY, b"", ("d", {"id": 7})),
        (KEY_WITH_SCHEMA, b"null", ("d", {"id": 7})),
        (KEY, body(schema={}, payload=None), ("d", {"id": 7})),
        ("plain", b"", None),
        (None, b"null", None),
        (None, body(op="t"), ("t", {})),
        (None, body(op="m", message={}), None),
    ],
)
def test_deletes_tombstones_and_truncates(
    key: str | None, value: bytes, expected: tuple[str, Any] | None
) -> None:
    found = read_event(key, value)
    assert (found and (found.op, json.loads(found.row))) == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"{", "truncated"),
        (b"[]", "array"),
        (body(id=7), "no op"),
        (body(op="x"), "'x', not one of c, r, u, d, t, m"),
        (body(op="u", before={"id": 7}), "no after"),
        (body(op="d"), "no before, and its message no key"),
    ],
)
def test_a_body_that_is_no_event_ends_the_job_with_its_place(value: bytes, problem: str) -> None:
    message = {
        "topic": "T",
        "brokerName": "b",
        "queueId": 1,
        "offset": 5,
        "at": 0,
        "key": None,
        "value": value,
    }
    with pytest.raises(RemoteProtocolError, match=f"T@b:1 offset 5 is not a change event.*{problem}"):
        list(schemas(iter([pa.RecordBatch.from_pylist([message])])))


def field(name: str, kind: str, called: str | None = None, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True} | ({"name": called} if called else {}) | more


DECIMAL = {"scale": "2", "connect.decimal.precision": "10"}
ROW = [
    field("id", "int64"),
    field("day", "int32", "io.debezium.time.Date"),
    field("at", "int64", "io.debezium.time.MicroTimestamp"),
    field("seen", "int64", "io.debezium.time.Timestamp"),
    field("zoned", "string", "io.debezium.time.ZonedTimestamp"),
    field("price", "bytes", "org.apache.kafka.connect.data.Decimal", parameters=DECIMAL),
    field("days", "array", items={"type": "int32", "name": "io.debezium.time.Date"}),
    field("inner", "struct", fields=[field("day", "int32", "io.debezium.time.Date"), field("n", "int16")]),
    field("raw", "bytes"),
    field("ratio", "double"),
]
SCHEMA = {"type": "struct", "fields": [field("after", "struct", fields=ROW), field("op", "string")]}
SENT = {
    "id": 7,
    "day": 20513,
    "at": 1_772_366_400_000_001,
    "seen": 1_772_366_400_000,
    "zoned": "2026-03-01T13:00:00+01:00",
    "price": base64.b64encode((-1234).to_bytes(2, signed=True)).decode(),
    "days": [0, None],
    "inner": {"day": -1, "n": 3},
    "raw": "aGk=",
    "ratio": 0.5,
}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MEANT = {
    "id": 7,
    "day": date(2026, 3, 1),
    "at": NOON.replace(microsecond=1),
    "seen": NOON,
    "zoned": NOON,
    "price": Decimal("-12.34"),
    "days": [date(1970, 1, 1), None],
    "inner": {"day": date(1969, 12, 31), "n": 3},
    "raw": b"hi",
    "ratio": 0.5,
}


def test_rows_have_the_types_that_the_schema_tells() -> None:
    event = read_event(None, body(schema=SCHEMA, payload={"op": "c", "after": SENT}))
    assert event is not None
    columns = row_ddl(event.schema)
    assert columns == (
        "`id`: bigint, `day`: date, `at`: timestamp, `seen`: timestamp, `zoned`: timestamp, "
        "`price`: decimal(10, 2), `days`: array<date>, `inner`: struct<`day`: date, `n`: int>, "
        "`raw`: binary, `ratio`: double"
    )
    assert Rows(to_arrow_type(ddl(columns), timezone="UTC")).read([event]).to_pylist() == [MEANT]
    # Someone who wants the numbers declares them.
    numbers = Rows(to_arrow_type(ddl("id: bigint, day: int, at: bigint, price: string")))
    declared = {name: SENT[name] for name in ("id", "day", "at")} | {"price": "-12.34"}
    assert numbers.read([event]).to_pylist() == [declared]


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(17, signed=True)).decode()


LARGEST = 10**38 - 1
NUMBERS = [
    field("most", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "0"}),
    field("least", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "38"}),
    field("any", "struct", "io.debezium.data.VariableScaleDecimal", fields=[]),
]


def numbers_event(**row: Any) -> Event:
    schema = {"type": "struct", "fields": [field("after", "struct", fields=NUMBERS)]}
    event = read_event(None, body(schema=schema, payload={"op": "c", "after": row}))
    assert event is not None
    return event


def test_all_38_digits_of_a_decimal_are_kept() -> None:
    row = {"most": unscaled(-LARGEST), "least": unscaled(LARGEST)}
    event = numbers_event(**row, any={"scale": 18, "value": unscaled(-LARGEST)})
    columns = row_ddl(event.schema)
    assert columns == "`most`: decimal(38, 0), `least`: decimal(38, 38), `any`: decimal(38, 18)"
    rows = Rows(to_arrow_type(ddl(columns)))
    assert rows.read([event]).to_pylist() == [
        {
            "most": Decimal(-LARGEST),
            "least": Decimal(f"0.{LARGEST}"),
            "any": Decimal(f"-{str(LARGEST)[:20]}.{str(LARGEST)[:18]}"),
        }
    ]
    few = numbers_event(any={"scale": -2, "value": unscaled(7)})
    assert rows.read([few]).to_pylist() == [{"most": None, "least": None, "any": Decimal(700)}]
    for scale, number in (19, 1), (0, 10**20):
        with pytest.raises(ValueError, match="does not fit into decimal128"):
            rows.read([numbers_event(any={"scale": scale, "value": unscaled(number)})])


def test_a_tombstones_key_has_the_types_that_its_own_schema_tells() -> None:
    schema = {"type": "struct", "fields": [field("day", "int32", "io.debezium.time.Date")]}
    event = read_event(json.dumps({"schema": schema, "payload": {"day": 0}}), b"")
    assert event is not None
    assert Rows(to_arrow_type(ddl("day: date, note: string"))).read([event]).to_pylist() == [
        {"day": date(1970, 1, 1), "note": None}
    ]
    assert key_names(KEY_WITH_SCHEMA) == key_names(KEY) == ["id"]
    assert key_names("plain") is None


def test_rows_of_many_messages_keep_their_places() -> None:
    messages = [
        {"topic": "T", "brokerName": "b", "queueId": 0, "offset": n, "at": n, "key": KEY, "value": value}
        for n, value in enumerate(
            [body(op="c", after={"id": 1}), body(op="m"), body(op="d", before={"id": 2})]
        )
    ]
    batches = iter([pa.RecordBatch.from_pylist(messages)])
    [found] = changes(batches, pa.struct([("id", pa.int64())]), UNAVAILABLE)
    assert found.to_pylist() == [
        {"op": "u", "row": {"id": 1}, "queue": "T@b:0", "at": 0, "offset": 0, "order": None, "kept": []},
        {"op": "d", "row": {"id": 2}, "queue": "T@b:0", "at": 2, "offset": 2, "order": None, "kept": []},
    ]
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        Rows(pa.struct([("id", pa.int64())])).read([Event("u", b'{"id": "x"}', b"")])


@pytest.mark.parametrize(
    ("day", "problem"),
    [(-622_191_234, "day is infinity.*--as-text"), ("soon", "day is 'soon'. Expected a whole number")],
)
def test_a_row_that_cannot_be_read_ends_the_job_with_its_place(day: Any, problem: str) -> None:
    """A database may have dates without end."""
    row = [field("id", "int64"), field("day", "int32", "io.debezium.time.Date")]
    schema = {"type": "struct", "fields": [field("after", "struct", fields=row)]}
    messages = [
        {"topic": "T", "brokerName": "b", "queueId": 0, "offset": n, "at": n, "key": KEY, "value": value}
        for n, value in enumerate(
            [
                body(schema=schema, payload={"op": "c", "after": {"id": 1, "day": 3}}),
                body(schema=schema, payload={"op": "c", "after": {"id": 2, "day": day}}),
            ]
        )
    ]
    batches = iter([pa.RecordBatch.from_pylist(messages)])
    with pytest.raises(RemoteProtocolError, match=f"T@b:0 offset 1 is not a change event.*({problem})"):
        list(changes(batches, pa.struct([("id", pa.int64()), ("day", pa.date32())]), UNAVAILABLE))


def row_of(name: str, kind: str, value: Any, called: str | None = None, **more: Any) -> Event:
    row = [field("id", "int64"), field(name, kind, called, **more)]
    schema = {"type": "struct", "fields": [field("after", "struct", fields=row)]}
    event = read_event(KEY, body(schema=schema, payload={"op": "c", "after": {"id": 7, name: value}}))
    assert event is not None
    return event


# Those of dates and of times without an end were taken from Debezium 3.3.1 with PostgreSQL 15.
FAR = [
    ("int32", -622_191_234, "io.debezium.time.Date", "infinity"),
    ("int32", -625_821_272, "io.debezium.time.Date", "-infinity"),
    ("int32", -2_147_472_692, "io.debezium.time.Date", "infinity"),
    ("int32", -2_147_472_691, "io.debezium.time.Date", "-infinity"),
    ("int32", 2_145_042_905, "io.debezium.time.Date", "+5874897-12-31"),
    ("int32", 2_932_897, "io.debezium.time.Date", "+10000-01-01"),
    ("int32", -719_528, "io.debezium.time.Date", "0000-01-01"),
    ("int64", 9223372036825200000, "io.debezium.time.MicroTimestamp", "infinity"),
    ("int64", -9223372036832400000, "io.debezium.time.MicroTimestamp", "-infinity"),
    ("int64", 253_402_300_800_000_001, "io.debezium.time.MicroTimestamp", "+10000-01-01T00:00:00.000001"),
    ("string", "infinity", "io.debezium.time.ZonedTimestamp", "infinity"),
    ("string", "+12000-01-01T00:00:00Z", "io.debezium.time.ZonedTimestamp", "+12000-01-01T00:00:00Z"),
]


@pytest.mark.parametrize(("kind", "value", "called", "text"), FAR)
def test_a_time_that_no_column_has_is_refused_or_kept_as_text(
    kind: str, value: Any, called: str, text: str
) -> None:
    event = row_of("until", kind, value, called)
    typed = row_ddl(event.schema)
    assert typed is not None
    with pytest.raises(ValueError, match=r"until is .*--as-text"):
        Rows(to_arrow_type(ddl(typed), timezone="UTC")).read([event])
    columns = row_ddl(event.schema, ["until"])
    assert columns == "`id`: bigint, `until`: string"
    assert Rows(to_arrow_type(ddl(columns))).read([event]).to_pylist() == [{"id": 7, "until": text}]


@given(st.integers(-(2**40), 2**40))
def test_days_of_all_years_are_those_of_the_calendar(days: int) -> None:
    year, month, day = _civil(days)
    cycles = (year - 2000) // 400
    same = date(year - 400 * cycles, month, day)  # in a year that Python knows
    assert (same - date(1970, 1, 1)).days + cycles * 146_097 == days


def test_more_than_38_digits_are_refused_or_kept_as_text() -> None:
    number = 10**60 + 1
    long = base64.b64encode(number.to_bytes(30, signed=True)).decode()
    event = row_of(
        "n",
        "bytes",
        long,
        "org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "61"},
    )
    with pytest.raises(ValueError, match=r"n is a decimal\(61, 2\).*--as-text"):
        row_ddl(event.schema)
    columns = row_ddl(event.schema, ["n"])
    assert columns is not None
    text = str(number)
    assert Rows(to_arrow_type(ddl(columns))).read([event]).to_pylist() == [
        {"id": 7, "n": f"{text[:-2]}.{text[-2:]}"}
    ]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_floating_point_numbers_without_an_end_are_values(value: float) -> None:
    text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    for kind in ("float", "double"):
        event = row_of("x", kind, text)
        [row] = Rows(to_arrow_type(ddl(row_ddl(event.schema) or ""))).read([event]).to_pylist()
        assert repr(row["x"]) == repr(value)


def test_maps_are_maps_or_pairs_of_keys_that_are_no_texts() -> None:
    day = field("", "int32", "io.debezium.time.Date")
    event = row_of("m", "map", {"a": 0, "b": None}, keys=field("", "string"), values=day)
    assert row_ddl(event.schema) == "`id`: bigint, `m`: map<string, date>"
    [row] = Rows(to_arrow_type(ddl(row_ddl(event.schema) or ""))).read([event]).to_pylist()
    assert row["m"] == [("a", date(1970, 1, 1)), ("b", None)]
    event = row_of("m", "map", [[1, 0], [2, None]], keys=field("", "int32"), values=day)
    [row] = Rows(to_arrow_type(ddl(row_ddl(event.schema) or ""))).read([event]).to_pylist()
    assert row["m"] == [{"key": 1, "value": date(1970, 1, 1)}, {"key": 2, "value": None}]


def test_a_document_of_mongodb_is_a_text_beside_its_key() -> None:
    document = '{"_id": {"$oid": "5f"}, "n": 1}'
    key = {"schema": {"type": "struct", "fields": [field("id", "string")]}, "payload": {"id": "5f"}}
    event = read_event(json.dumps(key), body(op="u", after=document, source={"ts_us": 5}))
    assert event is not None
    assert row_ddl(event.schema) == "`id`: string, `document`: string"
    assert json.loads(event.row) == {"id": "5f", "document": document}
    gone = read_event('{"id": "5f"}', body(op="d", before=None, after=None))
    assert gone is not None
    assert (gone.op, json.loads(gone.row)) == ("d", {"id": "5f"})
    with pytest.raises(ValueError, match="its message no key"):
        read_event(None, body(op="c", after=document))


@pytest.mark.parametrize(
    "value",
    [
        {"ts_ms": 1},
        {"ts_ms": 1, "ts_us": 1, "ts_ns": 1},
        {"status": "BEGIN", "id": "5:6", "event_count": None, "data_collections": None, "ts_ms": 1},
        {"source": {}, "databaseName": "shop", "ddl": "ALTER TABLE t", "tableChanges": [], "ts_ms": 1},
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_what_debezium_sends_beside_rows_changes_none(value: dict[str, Any], wrapped: bool) -> None:
    schema = {"type": "struct", "fields": []}
    assert read_event(KEY, body(schema=schema, payload=value) if wrapped else body(**value)) is None


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("added", "op"),
    [
        ({}, "u"),
        ({"__deleted": "false"}, "u"),
        ({"__deleted": "true"}, "d"),
        ({"__op": "d"}, "d"),
        ({"__op": "r", "__deleted": "false"}, "u"),
    ],
)
def test_rows_without_an_envelope(added: dict[str, str], op: str, wrapped: bool) -> None:
    row = {"id": 7, "note": "hello", "__lsn": 5}
    fields = [field("id", "int64"), field("note", "string"), field("__lsn", "int64")]
    fields += [field(name, "string") for name in added]
    whole = body(schema={"type": "struct", "fields": fields}, payload=row | added)
    event = read_event(KEY, whole if wrapped else body(**row, **added), flattened=True)
    assert event is not None
    assert (event.op, json.loads(event.row)) == (op, row)
    assert row_ddl(event.schema) == ("`id`: bigint, `note`: string, `__lsn`: bigint" if wrapped else None)


def test_tombstones_and_messages_without_an_envelope() -> None:
    for value in (b"", b"null", body(schema={"type": "struct", "fields": []}, payload=None)):
        event = read_event(KEY, value, flattened=True)
        assert event is not None
        assert (event.op, json.loads(event.row)) == ("d", {"id": 7})
    assert read_event(KEY, body(id=7, __op="m"), flattened=True) is None
    with pytest.raises(ValueError, match="__op is 'x'"):
        read_event(KEY, body(id=7, __op="x"), flattened=True)
    for value in (body(id=7), body(), body(payload={})):
        with pytest.raises(ValueError, match=r"no op in it.*`flattened`|op is None"):
            read_event(KEY, value)


def change(columns: str, *rows: tuple[Any, ...]) -> pa.Table:
    names = [column.partition(":")[0] for column in columns.split(", ")]
    schema = pa.schema([*to_arrow_type(ddl(columns), timezone="UTC"), pa.field(DELETED, pa.bool_())])
    return pa.Table.from_pylist([dict(zip([*names, DELETED], row, strict=True)) for row in rows], schema)


def rows(place: Path, table: Callable[[str], LakeTable]) -> list[tuple[Any, ...]]:
    return sorted(unsorted_rows(place, table))


def unsorted_rows(place: Path, table: Callable[[str], LakeTable]) -> list[tuple[Any, ...]]:
    if table is DeltaLake:
        from deltalake import DeltaTable

        found = DeltaTable(str(place)).to_pyarrow_table()
    else:
        from pyiceberg.table import StaticTable

        found = StaticTable.from_metadata(str(place)).scan().to_arrow()
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_follows_changes_by_key_and_grows(table: Callable[[str], LakeTable], tmp_path: Path) -> None:
    place, columns, keys = str(tmp_path), "tenant: string, id: bigint, tags: array<string>", ["tenant", "id"]

    def apply(batch: int, found: pa.Table, *, cleared: bool = False) -> list[tuple[Any, ...]]:
        table(place).apply(found, keys, batch, cleared=cleared)
        return rows(tmp_path, table)

    first = change(
        columns, ("a", 1, ["x"], False), ("a", 2, [], False), ("b", 1, None, False), ("c", 9, None, True)
    )
    assert apply(0, first) == [("a", 1, ["x"]), ("a", 2, []), ("b", 1, None)]
    assert (table(place).batch, table(place).is_there) == (0, True)
    second = change(columns, ("a", 1, ["y"], False), ("b", 1, None, True), ("b", 2, ["z"], False))
    after = [("a", 1, ["y"]), ("a", 2, []), ("b", 2, ["z"])]
    assert apply(1, second) == after
    assert apply(1, second) == after, "changes may come twice"
    wider = change(f"{columns}, Größe: timestamp", ("a", 2, ["w"], NOON, False))
    assert apply(2, wider) == [("a", 1, ["y"], None), ("a", 2, ["w"], NOON), ("b", 2, ["z"], None)]
    assert table(place).schema() == ddl(f"{columns}, `Größe`: timestamp")
    last = change(f"{columns}, Größe: timestamp", ("n", 1, None, NOON, False))
    assert apply(3, last, cleared=True) == [("n", 1, None, NOON)]
    assert apply(4, last.slice(0, 0), cleared=True) == []
    apply(5, last.slice(0, 0).cast(last.schema), cleared=True)


@pytest.mark.parametrize("table", TABLES)
def test_columns_get_wider_and_dropped_ones_are_null(
    table: Callable[[str], LakeTable], tmp_path: Path
) -> None:
    place = str(tmp_path)
    first = change("id: int, n: int, x: float, price: decimal(5,2)", (1, 7, 0.5, Decimal("1.25"), False))
    table(place).apply(first, ["id"], 0, cleared=False)
    wide = "id: bigint, n: bigint, x: double, price: decimal(12,2)"
    later = change(wide, (2**40, 2**50, 0.1, Decimal("1234567.25"), False))
    table(place).apply(later, ["id"], 1, cleared=False)
    assert table(place).batch == 1
    assert plain(table(place).schema()) == plain(ddl(wide))
    expected = [(1, 7, 0.5, Decimal("1.25")), (2**40, 2**50, 0.1, Decimal("1234567.25"))]
    assert rows(tmp_path, table) == expected
    # The source has dropped n: its events do not have it any more.
    table(place).apply(change(wide, (1, None, 2.5, None, False)), ["id"], 2, cleared=False)
    assert rows(tmp_path, table) == [(1, None, 2.5, None), expected[1]]


@pytest.mark.parametrize("name", ["a.b", "a b", "a`b", 'say "a"', "größe", "a,b;(c)=d", "UPPER", "it's"])
@pytest.mark.parametrize("table", TABLES)
def test_columns_may_have_any_name(table: Callable[[str], LakeTable], name: str, tmp_path: Path) -> None:
    event = row_of(name, "string", "hello")
    columns = ddl(row_ddl(event.schema) or "")
    assert columns.names == ["id", name]
    assert Rows(to_arrow_type(columns)).read([event]).to_pylist() == [{"id": 7, name: "hello"}]

    def changed(number: int, text: str, *, gone: bool = False) -> pa.Table:
        return pa.table({"id": [number], name: [text], DELETED: [gone]})

    if table is DeltaLake and "`" in name:
        with pytest.raises(ConfigError, match="a name without `"):
            table(str(tmp_path)).apply(changed(7, "hello"), [name], 0, cleared=False)
        return
    for batch, each in enumerate((changed(7, "hello"), changed(8, "hello"), changed(9, "bye"))):
        table(str(tmp_path)).apply(each, [name], batch, cleared=False)
    assert unsorted_rows(tmp_path, table) in ([(8, "hello"), (9, "bye")], [(9, "bye"), (8, "hello")])
    table(str(tmp_path)).apply(changed(0, "bye", gone=True), [name], 3, cleared=False)
    assert unsorted_rows(tmp_path, table) == [(8, "hello")]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("both", [False, True])
def test_keys_that_are_null_or_not_a_number_are_keys(
    table: Callable[[str], LakeTable], both: bool, tmp_path: Path
) -> None:
    columns, keys = "id: double, place: string, n: bigint", ["id", "place"] if both else ["id"]

    def apply(batch: int, *found: tuple[Any, ...]) -> list[str]:
        table(str(tmp_path)).apply(change(columns, *found), keys, batch, cleared=False)
        return sorted(str(row) for row in unsorted_rows(tmp_path, table))

    odd = [(None, "a"), (math.nan, "a"), (1.0, None), (2.0, "b")]
    apply(0, *((*key, 1, False) for key in odd))
    assert apply(1, *((*key, 2, False) for key in odd)) == sorted(str((*key, 2)) for key in odd)
    assert apply(2, *((*key, 2, True) for key in odd[:3])) == ["(2.0, 'b', 2)"]


@pytest.mark.parametrize("table", TABLES)
def test_rows_that_a_batch_does_not_name_stay_as_they_were_when_structures_grow(
    table: Callable[[str], LakeTable], tmp_path: Path
) -> None:
    narrow = "id: bigint, at: struct<x:int>, all: array<struct<x:int>>"
    first = change(
        narrow, (1, {"x": 1}, [{"x": 1}], False), (2, {"x": 2}, [], False), (3, None, [{"x": 3}], False)
    )
    table(str(tmp_path)).apply(first, ["id"], 0, cleared=False)
    wide = "id: bigint, at: struct<x:int,y:int>, all: array<struct<x:int,y:int>>"
    second = change(wide, (1, {"x": 1, "y": 5}, [{"x": 1, "y": 6}], False))
    for _ in range(2):
        table(str(tmp_path)).apply(second, ["id"], 1, cleared=False)
        assert rows(tmp_path, table) == [
            (1, {"x": 1, "y": 5}, [{"x": 1, "y": 6}]),
            (2, {"x": 2, "y": None}, []),
            (3, None, [{"x": 3, "y": None}]),
        ]


def test_structures_in_a_map_of_a_delta_table_cannot_grow(tmp_path: Path) -> None:
    first = change("id: bigint, by: map<string,struct<x:int>>", (1, {"a": {"x": 1}}, False))
    DeltaLake(str(tmp_path)).apply(first, ["id"], 0, cleared=False)
    more = change("id: bigint, by: map<string,struct<x:int,y:int>>", (1, {"a": {"x": 1, "y": 2}}, False))
    with pytest.raises(ConfigError, match=r"by=map.*: expected map.*inside of a map cannot grow"):
        DeltaLake(str(tmp_path)).apply(more, ["id"], 1, cleared=False)
    assert rows(tmp_path, DeltaLake) == [(1, [("a", {"x": 1})])]


@pytest.mark.parametrize("text", [UNAVAILABLE, "?"])
def test_a_placeholder_is_known_in_the_form_of_every_type(text: str) -> None:
    """As Debezium writes it for text, bytes, maps, and arrays by the type of their elements."""
    raw = text.encode()
    encoded = base64.b64encode(raw).decode()
    by_byte = [base64.b64encode(bytes([byte])).decode() for byte in raw]
    # What Java's UUID.nameUUIDFromBytes makes of them.
    uuid = {UNAVAILABLE: "b68a35a7-17ad-35b3-af2a-ae46edb4545a", "?": "d1457b72-c3fb-323a-a671-125aef3eab5d"}
    forms = {
        "text": text,
        "bytes": encoded,
        "hex": raw.hex(),
        "hstore": {text: text},
        "hstore_json": json.dumps({text: text}, separators=(",", ":")),
        "texts": [text],
        "blobs": [encoded],
        "uuids": [uuid[text]],
        "ints": [*raw],
        "floats": [float(byte) for byte in raw],
        "decimals": by_byte,
        "numerics": [{"scale": 0, "value": each} for each in by_byte],
    }
    others = {
        "id": 1,
        "note": f"not {text}",
        "tags": [text, "b"],
        "m": {text: "x"},
        "n": [*raw, 1],
        "z": None,
    }
    placeholder = Placeholder(text)
    for row in (forms | others, others | forms):
        left, kept = placeholder.split(json.dumps(row).encode())
        assert (json.loads(left), sorted(kept)) == (others, sorted(forms))
    for name, value in forms.items():
        for separators in (",", ":"), (", ", ": "):
            text_of_row = json.dumps({"id": 1, name: value}, separators=separators)
            assert placeholder.split(text_of_row.encode()) == (b'{"id":1}', [name])
    assert Placeholder("").split(b'{"a":""}') == (b'{"a":""}', [])
    with pytest.raises(ConfigError, match="printable ASCII"):
        Placeholder("n\u00f6")


def tail(columns: str, *rows: tuple[Any, ...]) -> pa.Table:
    """Events of keys, from the oldest to the last."""
    found = change(columns, *[row[:-1] for row in rows])
    kept = pa.array([row[-1] for row in rows], pa.list_(pa.string()))
    return found.append_column(KEPT, kept).append_column(PLACE, pa.array(range(len(rows), 0, -1)))


COLUMNS = "id: bigint, a: string, tags: array<string>, by: map<string,int>, raw: binary"


@pytest.mark.parametrize("table", TABLES)
def test_a_value_that_an_event_leaves_out_stays_as_it_was(
    table: Callable[[str], LakeTable], tmp_path: Path
) -> None:
    first = change(
        COLUMNS,
        (1, "a", ["x", None], [("k", 1)], b"\0", False),
        (2, "b", None, None, None, False),
        (3, "c", [], [], b"", False),
    )
    lake = table(str(tmp_path))
    lake.apply(first, ["id"], 0, cleared=False)
    all_ = ["tags", "by", "raw"]
    events = tail(
        COLUMNS,
        (1, "new", None, None, None, False, all_),
        (2, "gone", None, None, None, False, all_),
        (4, "d", ["early"], [("k", 4)], b"4", False, []),
        (4, "e", None, None, b"5", False, ["tags", "by"]),
        (4, "f", ["late"], None, None, False, ["by", "raw"]),
        (2, None, None, None, None, True, []),
    )
    # The values are those of the first event of a key that is not complete, so the rest is not asked for.
    stored = lake.stored(events.filter([True, True, False, True, True, False]), ["id"], all_)
    lake.apply(with_kept_values(events, ["id"], stored), ["id"], 1, cleared=False)
    assert rows(tmp_path, table) == [
        (1, "new", ["x", None], [("k", 1)], b"\0"),
        (3, "c", [], [], b""),
        (4, "f", ["late"], [("k", 4)], b"5"),
    ]


@pytest.mark.parametrize("table", TABLES)
def test_values_are_kept_for_keys_that_are_null_or_not_a_number_too(
    table: Callable[[str], LakeTable], tmp_path: Path
) -> None:
    columns, keys = "id: double, at: bigint, note: string", ["id", "at"]
    ids = [1.5, None, math.nan]
    lake = table(str(tmp_path))
    lake.apply(change(columns, *[(each, 1, f"n{each}", False) for each in ids]), keys, 0, cleared=False)
    events = tail(columns, *[(each, 1, None, False, ["note"]) for each in ids])
    whole = with_kept_values(events, keys, lake.stored(events, keys, ["note"]))
    assert sorted(whole["note"].to_pylist()) == ["n1.5", "nNone", "nnan"]


def test_a_value_that_was_never_seen_ends_the_job() -> None:
    events = tail("id: bigint, note: string", (7, None, False, ["note"]))
    for stored in (None, pa.table({"id": [8], "note": ["other"]})):
        with pytest.raises(
            RemoteProtocolError, match=r"row with id=7 leaves out note.*REPLICA IDENTITY FULL"
        ):
            with_kept_values(events, ["id"], stored)
    deleted = tail("id: bigint, note: string", (7, "x", True, []), (7, None, False, ["note"]))
    with pytest.raises(RemoteProtocolError, match="leaves out note"):
        with_kept_values(deleted, ["id"], pa.table({"id": [7], "note": ["other"]}))


def test_of_two_types_the_wider_one_is_kept() -> None:
    table, batch = (
        ddl("id int, n bigint, x double, d decimal(5, 2)"),
        ddl("id bigint, n int, x float, d decimal(9, 2)"),
    )
    for one, other in ((table, batch), (batch, table)):
        assert grown(one, other, widens=True) == ddl("id bigint, n bigint, x double, d decimal(9, 2)")
        with pytest.raises(ConfigError, match="the type it has in the lake"):
            grown(one, other)
    for wrong in ("id string", "d decimal(9, 3)", "x bigint"):
        with pytest.raises(ConfigError, match="the type it has in the lake"):
            grown(table, ddl(wrong), widens=True)


@pytest.mark.parametrize("day", [2**31 - 1, -(2**31), -622_191_233])
@pytest.mark.parametrize("type_", [pa.date32(), pa.string()])
def test_a_day_that_no_database_has_is_refused_also_as_text(day: int, type_: pa.DataType) -> None:
    rows = Rows(pa.struct([("id", pa.int64()), ("day", type_)]))
    with pytest.raises(ValueError, match=f"day is day {day}, which no database has"):
        rows.read([row_of("day", "int32", day, "io.debezium.time.Date")])
