"""Bodies as typed values: what JSON and Avro say, and what becomes of bodies that say something else."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.avro import avro_reader, avro_to_ddl
from pyromq.spark.from_json.documents import Documents
from pyromq.spark.from_json.quick import QuickReader
from pyromq.spark.options import read_options
from pyromq.spark.values import Conversion, conversion


def json_values(type_: pa.StructType, mode: str = "permissive") -> Conversion:
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "json", "valueSchema": "x", "valueMode": mode}
    return conversion(read_options(given, streaming=False), type_)


@pytest.mark.parametrize("mode", ["permissive", "failfast"])
def test_json_bodies_become_structs(mode: str) -> None:
    convert = json_values(pa.struct([("id", pa.int64()), ("name", pa.string())]), mode)
    good = pa.array([b'{"id": 1, "name": "a", "more": []}', b'{"id": 2}'])
    assert convert(good).to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    pretty = pa.array([b'{\n"id": 1}', b'{"id": 2}\n'])
    assert [row["id"] for row in convert(pretty).to_pylist()] == [1, 2]
    bad = pa.array([b'{"id": 1}', b"{", b"", b'{"id": "text"}', b'{"id": 5}'])
    if mode == "failfast":
        with pytest.raises(RemoteProtocolError):
            convert(bad)
    else:
        assert [row and row["id"] for row in convert(bad).to_pylist()] == [1, None, None, None, 5]
        # As `from_json` has it, there is a row without values for what is no document, and none for nothing.
        assert convert(bad).is_null().to_pylist() == [False, False, True, False, False]


def test_two_documents_in_a_body_do_not_move_its_neighbours() -> None:
    convert = json_values(pa.struct([("id", pa.int64())]))
    bodies = pa.array([b'{"id": 1}\n{"id": 2}', b" ", b'{"id": 3}'])
    assert [row and row["id"] for row in convert(bodies).to_pylist()] == [1, None, 3]


NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
FIELDS: list[tuple[pa.DataType, bytes, Any]] = [
    (pa.timestamp("us", "UTC"), b'"2026-01-02T12:00:00Z"', NOON),
    (pa.timestamp("us", "UTC"), b'"2026-01-02T14:00:00.000+02:00"', NOON),
    (pa.timestamp("us", "UTC"), b'"2026-01-02 12:00:00"', NOON),
    (pa.timestamp("us", "UTC"), b"1767355200", NOON),
    (pa.timestamp("us"), b'"2026-01-02T12:00:00"', NOON.replace(tzinfo=None)),
    (pa.timestamp("us"), b'"2026-01-02T12:00:00Z"', None),
    (pa.date32(), b'"2026-01-02"', NOON.date()),
    (pa.date32(), b'"2026-01-02T12:00:00Z"', NOON.date()),
    (pa.date32(), b"20000", None),
    (pa.decimal128(10, 2), b"12.34", Decimal("12.34")),
    (pa.decimal128(10, 2), b'"12.345"', Decimal("12.35")),
    (pa.decimal128(10, 2), b"7", Decimal("7.00")),
    (pa.decimal128(4, 2), b"123.4", None),
    (pa.decimal128(4, 2), b'"many"', None),
    (pa.decimal128(4, 2), b'"NaN"', None),
    (pa.binary(), b'"aGk="', b"hi"),
    (pa.binary(), b'"*"', None),
    (pa.map_(pa.string(), pa.int64()), b'{"a": 1}', [("a", 1)]),
    (pa.list_(pa.date32()), b'["2026-01-02"]', [NOON.date()]),
    (pa.struct([("x", pa.int8())]), b'{"x": 1000}', {"x": None}),
    (pa.struct([("x", pa.int8())]), b"[]", None),
    (pa.int64(), b"99999999999999999999", None),
    (pa.int64(), b"true", None),
    (pa.float64(), b"3", 3.0),
    (pa.float64(), b"1.5", 1.5),
    (pa.float64(), b'"Infinity"', float("inf")),
    (pa.float64(), b'"1.5"', None),
    (pa.float64(), b"true", None),
    (pa.bool_(), b"true", True),
    (pa.string(), b'{"a": [1.5, "\xc3\xa9"]}', '{"a":[1.5,"é"]}'),
    (pa.string(), b'"\xff"', "\ufffd"),
    (pa.float64(), b'"INF"', None),
    (pa.int8(), b"200", -56),
]


@pytest.mark.parametrize(("type_", "text", "expected"), FIELDS)
def test_json_fields_are_read_alike_alone_and_beside_what_cannot_be_read(
    type_: pa.DataType, text: bytes, expected: Any
) -> None:
    convert = json_values(pa.struct([("field", type_)]))
    body = b'{"field": ' + text + b"}"
    [alone] = convert(pa.array([body])).to_pylist()
    assert (alone and alone["field"]) == expected
    nothing = {"field": None}
    assert convert(pa.array([body, b"?"])).to_pylist() == [alone, nothing]


def test_times_without_a_zone_are_in_the_zone_of_the_option() -> None:
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "json", "valueSchema": "x"}
    options = read_options(given | {"timeZone": "Asia/Tokyo"}, streaming=False)
    convert = conversion(options, pa.struct([("at", pa.timestamp("us", "UTC"))]))
    bodies = pa.array(
        [b'{"at": "2026-01-02 21:00:00"}', b'{"at": "2026-1-2 21:00"}', b'{"at": "2026-01-02T12:00:00Z"}']
    )
    assert [row["at"] for row in convert(bodies).to_pylist()] == [NOON] * 3
    with pytest.raises(ConfigError, match="Mars/Base"):
        read_options(given | {"timeZone": "Mars/Base"}, streaming=False)


def test_the_quick_reader_reads_what_it_is_sure_of_and_names_the_rest() -> None:
    type_ = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(4, 2))])
    good = b'{"id": 1, "at": "2026-01-02 12:00:00", "price": 1.005}'
    odd = [
        b'{"id": "x"}',
        b'{"at": "2026"}',
        b'{"price": 1000}',
        b"{'id': 1}",
        b'{"id": 1',
        b'{"id": 1, "id": 2}',
    ]
    found = QuickReader(type_, 0).read(pa.array([good, odd[0], good, odd[1], odd[2], odd[4], good]))
    assert found is not None
    assert found.doubtful.tolist() == [False, True, False, True, True, True, False]
    assert found.rows[0].as_py() == {"id": 1, "at": NOON, "price": Decimal("1.01")}
    documents = Documents(type_, 0, fails=False)
    bodies = pa.array([good, *odd] * 40)
    one_by_one = [documents.read(pa.array([body, b""]))[0].as_py() for body in [good, *odd]]
    assert documents.read(bodies).to_pylist() == one_by_one * 40


def order_schema(*fields: tuple[str, Any]) -> str:
    named = [{"name": name, "type": type_} for name, type_ in fields]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": named})


STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}


def test_avro_bodies_are_read() -> None:
    schema = order_schema(
        ("id", "long"),
        ("note", ["null", "string"]),
        ("paid", "boolean"),
        ("amount", "double"),
        ("lines", {"type": "array", "items": "int"}),
        ("extra", {"type": "map", "values": "string"}),
        ("state", STATE),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    )
    assert avro_to_ddl(schema).startswith("struct<`id`: bigint, `note`: string, `paid`: boolean")
    body = (
        b"\x03" + b"\x02\x04hi" + b"\x01" + b"\0\0\0\0\0\0\xf8?" + b"\x04\x02\x04\x00" + b"\x02\x02a\x02b\x00"
    )
    order = avro_reader(schema)(body + b"\x02" + b"\x00")
    assert order["id"] == -2
    assert (order["note"], order["paid"], order["amount"]) == ("hi", True, 1.5)
    assert (order["lines"], order["extra"], order["state"]) == ([1, 2], {"a": "b"}, "OLD")
    assert order["at"].year == 1970
    for broken in (body, body + b"\x02\x00\x00", body + b"\x04\x00", b""):
        with pytest.raises(RemoteProtocolError):
            avro_reader(schema)(broken)


def test_names_in_avro_schemas_stand_for_what_was_declared_before() -> None:
    schema = order_schema(("was", STATE), ("is", "State"), ("will", ["null", "shop.State"]))
    assert avro_to_ddl(schema) == "struct<`was`: string, `is`: string, `will`: string>"
    assert avro_reader(schema)(b"\x00\x02\x02\x02") == {"was": "NEW", "is": "OLD", "will": "OLD"}


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("{", "in JSON"),
        ('"string"', "type record"),
        ('{"type": "record", "name": "A"}', "fields"),
        (order_schema(("a", "text")), "text is not a type"),
        (order_schema(("a", ["null", "Order"])), "contains itself"),
        (order_schema(("a", ["int", "string"])), "one other type"),
        (order_schema(("a", "null")), "null"),
    ],
)
def test_what_is_wrong_with_an_avro_schema_is_said(schema: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        avro_to_ddl(schema)
