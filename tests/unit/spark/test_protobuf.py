"""Protobuf bodies: every kind of field there and back, in Confluent's form, and refusals that say why."""

import base64
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from tests.support.chance import examples
from tests.support.schema_registry import some_registry

from pyromq.errors import BadMessage, ConfigError, RemoteProtocolError
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import read_options
from pyromq.spark.protobuf import (
    packed_path,
    protobuf_reader,
    protobuf_writer,
    registered_protobuf_reader,
    unpacked_path,
)
from pyromq.spark.protobuf_schema import protobuf_to_ddl, schema_file
from pyromq.spark.registry import RegisteredSchema, Registry, Texts, registered_reader
from pyromq.spark.schema import value_type
from pyromq.spark.values import read_one_by_one

EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

message Empty {}

message Order {
  enum State { NEW = 0; PAID = 7; }
  message Line {
    message Detail { bool gift = 1; }
    string sku = 1;
    optional uint32 count = 2;
    Detail detail = 3;
  }
  double a_double = 1;
  float a_float = 2;
  int32 an_int32 = 3;
  sint64 a_sint64 = 4;
  uint32 a_uint32 = 5;
  uint64 a_uint64 = 6;
  fixed64 a_fixed64 = 7;
  sfixed32 a_sfixed32 = 8;
  bool paid = 9;
  string note = 10;
  bytes raw = 11;
  State state = 12;
  repeated State states = 13;
  repeated Line lines = 14;
  map<string, Line> by_name = 15;
  map<int64, bytes> by_number = 16;
  google.protobuf.Timestamp at = 17;
  google.protobuf.Duration took = 18;
  google.protobuf.Int64Value wrapped = 19;
  oneof payment { string card = 20; Line voucher = 21; }
  optional int64 maybe = 22;
  Empty nothing = 23;
  repeated google.protobuf.Timestamp times = 24;
}
"""
LINE = "struct<`sku`: string, `count`: bigint, `detail`: struct<`gift`: boolean>>"
EVERYTHING_DDL = (
    "struct<`a_double`: double, `a_float`: float, `an_int32`: int, `a_sint64`: bigint, `a_uint32`: bigint, "
    "`a_uint64`: decimal(20, 0), `a_fixed64`: decimal(20, 0), `a_sfixed32`: int, "
    "`paid`: boolean, `note`: string, `raw`: binary, `state`: string, `states`: array<string>, "
    f"`lines`: array<{LINE}>, `by_name`: map<string, {LINE}>, "
    "`by_number`: map<bigint, binary>, `at`: timestamp, `took`: interval day to second, "
    f"`wrapped`: struct<`value`: bigint>, `card`: string, `voucher`: {LINE}, `maybe`: bigint, "
    "`times`: array<timestamp>>"
)


def whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)


def decimals() -> st.SearchStrategy[Decimal]:
    return whole(64, signed=False).map(Decimal)


def pairs(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(keys, values, max_size=3).map(lambda found: sorted(found.items()))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
LINES = st.fixed_dictionaries(
    {
        "sku": TEXT,
        "count": st.none() | whole(32, signed=False),
        "detail": st.none() | st.fixed_dictionaries({"gift": st.booleans()}),
    }
)
STATES = st.sampled_from(["NEW", "PAID", "3"])
_MOST = st.fixed_dictionaries(
    {
        "a_double": st.floats(allow_nan=False),
        "a_float": st.floats(width=32, allow_nan=False),
        "an_int32": whole(32),
        "a_sint64": whole(64),
        "a_uint32": whole(32, signed=False),
        "a_uint64": decimals(),
        "a_fixed64": decimals(),
        "a_sfixed32": whole(32),
        "paid": st.booleans(),
        "note": TEXT,
        "raw": st.binary(max_size=5),
        "state": STATES,
        "states": st.lists(STATES, max_size=3),
        "lines": st.lists(LINES, max_size=2),
        "by_name": pairs(TEXT, LINES),
        "by_number": pairs(whole(64), st.binary(max_size=3)),
        "at": st.none() | MOMENTS,
        "took": st.none() | st.timedeltas(timedelta(-100000), timedelta(100000)),
        "wrapped": st.none() | st.fixed_dictionaries({"value": whole(64)}),
        "maybe": st.none() | whole(64),
        "times": st.lists(MOMENTS, max_size=2),
    }
)
PAYMENTS = st.sampled_from([{"card": None, "voucher": None}, {"card": "x", "voucher": None}]) | LINES.map(
    lambda line: {"card": None, "voucher": line}
)
ORDERS = st.tuples(_MOST, PAYMENTS).map(lambda parts: parts[0] | parts[1])


@settings(max_examples=examples(30))
@given(st.lists(ORDERS, max_size=2))
def test_rows_come_back_as_they_were_written(orders: list[dict[str, Any]]) -> None:
    schema = RegisteredSchema(258, EVERYTHING, "PROTOBUF")
    write, read = protobuf_writer(schema, "Order"), registered_protobuf_reader(schema, "shop.Order")
    type_ = to_arrow_type(parse_type(EVERYTHING_DDL), timezone="UTC")
    rows = pa.array(orders, type_)
    bodies = pa.array([write(row) for row in rows.to_pylist()], pa.binary())
    assert all(body.as_py().startswith(b"\x00\x00\x00\x01\x02\x02\x02") for body in bodies)
    found = read_one_by_one(bodies, lambda body: read(body[5:]), type_, True)

    def in_order(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: sorted(row[name]) for name in ("by_name", "by_number")}

    assert [in_order(row) for row in found.to_pylist()] == rows.to_pylist()


def test_types_are_those_of_spark_with_room_for_every_number() -> None:
    assert protobuf_to_ddl(EVERYTHING, name="Order") == EVERYTHING_DDL
    assert protobuf_to_ddl(EVERYTHING, name="shop.Order.Line.Detail") == "struct<`gift`: boolean>"
    with pytest.raises(ConfigError, match="a message with fields"):
        protobuf_to_ddl(EVERYTHING)
    with pytest.raises(
        ConfigError, match=r"one of the messages shop.Empty, shop.Order, shop.Order.Line, shop"
    ):
        protobuf_to_ddl(EVERYTHING, name="Nothing")


def test_what_is_not_set_is_null_where_the_schema_tells_it_from_a_default() -> None:
    order = protobuf_reader(EVERYTHING, name="Order")(b"")
    assert (order["an_int32"], order["note"], order["state"], order["lines"]) == (0, "", "NEW", [])
    assert [order[name] for name in ("maybe", "card", "voucher", "at", "wrapped")] == [None] * 5
    fields = "optional int32 a = 1; optional int32 b = 2 [default = 5]; required int32 c = 3;"
    old = f'syntax = "proto2"; message A {{ {fields} }}'
    assert protobuf_reader(old)(b"\x18\x01") == {"a": None, "b": 5, "c": 1}
    with pytest.raises(BadMessage, match="required fields: c"):
        protobuf_writer(RegisteredSchema(1, old, "PROTOBUF"))({"a": 1})


@pytest.mark.parametrize(
    ("path", "packed"),
    [
        ((0,), b"\x00"),
        ((1,), b"\x02\x02"),
        ((2, 0), b"\x04\x04\x00"),
        ((64, 300), b"\x04\x80\x01\xd8\x04"),
    ],
)
def test_the_place_of_a_message_type_is_written_as_confluent_does(
    path: tuple[int, ...], packed: bytes
) -> None:
    assert packed_path(path) == packed
    assert unpacked_path(packed + b"rest") == (path, len(packed))


@settings(max_examples=examples(50))
@given(st.binary(max_size=12))
def test_bodies_of_others_are_refused_and_do_nothing_else(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        registered_protobuf_reader(RegisteredSchema(1, EVERYTHING, "PROTOBUF"))(body)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"an_int32": "x"}, "an_int32|int"),
        ({"an_int32": 2**40}, "range"),
        ({"a_uint64": Decimal("1.5")}, "whole number"),
        ({"state": "OLD"}, "OLD"),
        ({"unknown": 1}, "no field unknown"),
        ({"card": "x", "voucher": {"sku": "y"}}, "only one of card and voucher"),
        ({"states": [None]}, "None"),
    ],
)
def test_rows_that_do_not_fit_are_not_written(row: dict[str, Any], named: str) -> None:
    with pytest.raises(BadMessage, match=named):
        protobuf_writer(RegisteredSchema(1, EVERYTHING, "PROTOBUF"), "Order")(row)


def test_what_is_wrong_with_a_schema_is_said() -> None:
    with pytest.raises(ConfigError, match=r"1:32: \"Nothing\" is not defined"):
        protobuf_to_ddl('syntax = "proto3"; message A { Nothing x = 1; }')
    with pytest.raises(ConfigError, match="no A inside itself"):
        protobuf_to_ddl('syntax = "proto3"; message A { repeated A x = 1; }')
    with pytest.raises(ConfigError, match="a schema with messages"):
        protobuf_to_ddl('syntax = "proto3";')
    with pytest.raises(RemoteProtocolError, match=r"not the name of a \.proto file"):
        protobuf_to_ddl('syntax = "proto3"; message A {}', (("../evil.proto", ""),))


def descriptor(text: str, references: Texts = ()) -> str:
    """A schema as Confluent's Python client registers it."""
    file = FileDescriptorProto()
    schema_file(text, references).CopyToProto(file)
    return base64.b64encode(file.SerializeToString()).decode()


def test_a_schema_may_be_a_descriptor() -> None:
    other = 'syntax = "proto3"; message Money { int64 cents = 1; }'
    text = """
        syntax = "proto3"; import "money.proto"; import "google/protobuf/timestamp.proto";
        message Order { Money price = 1; google.protobuf.Timestamp at = 2; }
    """
    expected = "struct<`price`: struct<`cents`: bigint>, `at`: timestamp>"
    plain = (("money.proto", other),)
    assert protobuf_to_ddl(descriptor(text, plain), plain) == expected
    assert protobuf_to_ddl(text, (("money.proto", descriptor(other)),)) == expected
    assert protobuf_to_ddl(descriptor(text, plain), (("money.proto", descriptor(other)),)) == expected


@pytest.fixture
def url() -> Iterator[str]:
    with some_registry() as url:
        yield url


def test_a_schema_imports_those_of_other_subjects_and_changes(url: str) -> None:
    registry = Registry(url)
    head = 'syntax = "proto3"; package shop;'
    registry.register("money", f"{head} message Money {{ int64 cents = 1; }}", "PROTOBUF")
    text = f'{head} import "shop/money.proto"; message Order {{ int64 id = 1; Money price = 2; }}'
    references = {"shop/money.proto": "money"}
    old = registry.register("Imports-value", text, "PROTOBUF", references)
    new = registry.register(
        "Imports-value",
        text[:-1] + "string note = 3; } message Other { int64 id = 1; }",
        "PROTOBUF",
        references,
    )
    options = {
        "namesrv": "127.0.0.1:1",
        "subscribe": "Imports",
        "valueFormat": "protobuf",
        "schemaRegistry": url,
    }
    type_ = value_type(read_options(options, streaming=False))
    assert type_ == "struct<`id`: bigint, `price`: struct<`cents`: bigint>, `note`: string>"
    assert (
        value_type(read_options(options | {"valueMessage": "Other"}, streaming=False))
        == "struct<`id`: bigint>"
    )
    bodies = [
        protobuf_writer(old)({"id": 1, "price": {"cents": 5}}),
        protobuf_writer(new)({"id": 2, "note": "hello"}),
        protobuf_writer(new, "Other")({"id": 3}),
        b"\x00" + struct.pack(">i", new.id) + b"\x02\x04",
    ]
    arrow = to_arrow_type(parse_type(type_), timezone="UTC")
    read = registered_reader(Registry(url), "PROTOBUF", registered_protobuf_reader)
    assert read_one_by_one(pa.array(bodies), read, arrow, False).to_pylist() == [
        {"id": 1, "price": {"cents": 5}, "note": None},
        {"id": 2, "price": None, "note": "hello"},
        {"id": 3, "price": None, "note": None},
        None,
    ]
    only = registered_reader(
        registry, "PROTOBUF", lambda schema: registered_protobuf_reader(schema, "shop.Order")
    )
    assert only(bodies[0])["id"] == 1
    with pytest.raises(RemoteProtocolError, match=r"is a shop.Other, not a shop.Order"):
        only(bodies[2])
