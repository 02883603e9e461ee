"""A schema registry over HTTP: schemas by id and by subject, and refusals that say why."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.support.schema_registry import StandInRegistry, some_registry, stand_in_registry

from pyromq.errors import BadMessage, ConfigError, RemoteProtocolError, StateError, TransportError
from pyromq.spark.avro import avro_to_ddl, avro_writer, registered_avro_reader
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import read_options
from pyromq.spark.registry import RegisteredSchema, Registry, framed, registered_reader, unframed
from pyromq.spark.registry import registry as registry_of_process
from pyromq.spark.schema import check_schema, value_type
from pyromq.spark.values import conversion


@pytest.fixture
def server() -> Iterator[StandInRegistry]:
    with stand_in_registry() as server:
        yield server


def schema(*fields: tuple[str, object]) -> str:
    named = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": named})


OLD, NEW = schema(("id", "long")), schema(("id", "long"), ("note", ["null", "string"]))


def test_a_body_names_the_schema_it_was_written_with(server: StandInRegistry) -> None:
    registry = Registry(server.url + "/")
    old = registry.register("a/b-value", OLD)
    new = registry.register("a/b-value", NEW)
    assert registry.register("a/b-value", OLD) == old
    assert registry.latest("a/b-value") == new == RegisteredSchema(new.id, NEW, "AVRO")
    read = registered_reader(registry, "AVRO", registered_avro_reader)
    assert read(avro_writer(old)({"id": 1})) == {"id": 1}
    assert read(avro_writer(new)({"id": 2, "note": "hello"})) == {"id": 2, "note": "hello"}
    asked = len(server.requests)
    assert registered_reader(registry, "AVRO", registered_avro_reader)(framed(old.id, b"\x06")) == {"id": 3}
    assert len(server.requests) == asked, "a schema is asked for once"


@pytest.mark.parametrize("body", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01\x02", b"plain"])
def test_bodies_without_the_id_of_a_schema_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="the id of a schema"):
        unframed(body)


def test_refusals_of_a_registry_are_told(server: StandInRegistry) -> None:
    registry = Registry(server.url)
    with pytest.raises(RemoteProtocolError, match="404: Schema not found"):
        registry.schema(7)
    with pytest.raises(RemoteProtocolError, match="Subject not found"):
        registry.latest("nothing-value")
    number = registry.register("p-value", 'syntax = "proto3"; message P {}', "PROTOBUF").id
    with pytest.raises(RemoteProtocolError, match="PROTOBUF, not AVRO"):
        registered_reader(registry, "AVRO", registered_avro_reader)(framed(number, b"\x00"))
    server.auth = "reader:secret"
    with pytest.raises(TransportError, match="401"):
        registry.latest("p-value")
    assert Registry(server.url, "reader:secret").latest("p-value").id == number


def test_a_registry_that_is_away_for_a_moment_is_asked_again(server: StandInRegistry) -> None:
    registry = Registry(server.url)
    registry.register("a-value", OLD)
    server.failures = 2
    assert registry.latest("a-value").text == OLD
    server.failures = 3
    with pytest.raises(TransportError, match="503: not now"):
        registry.latest("a-value")


def test_only_bodies_that_are_wrong_are_null_not_those_whose_schema_was_not_given(
    server: StandInRegistry,
) -> None:
    good = avro_writer(Registry(server.url).register("T-value", OLD))({"id": 1})
    bodies = pa.array([good, b"plain", framed(7, b"\x02"), good[:-1]])
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "avro", "schemaRegistry": server.url}
    type_ = pa.struct([("id", pa.int64())])

    def read(**more: str) -> list[object]:
        registry_of_process.cache_clear()
        convert = conversion(read_options(given | more, streaming=False), type_)
        return list(convert(bodies).to_pylist())

    assert read() == [{"id": 1}, None, None, None]
    with pytest.raises(TransportError, match="/schemas/ids/1 with 404"):
        read(schemaRegistry=f"{server.url}/wrong/path")
    server.failures = 3
    with pytest.raises(TransportError, match="503: not now"):
        read()
    server.auth = "reader:secret"
    with pytest.raises(TransportError, match="401: Unauthorized"):
        read()
    assert read(schemaRegistryAuth="reader:secret") == [{"id": 1}, None, None, None]


GROWN = schema(("id", "long"), ("note", ["null", "string"]), ("paid", "boolean"))


def test_fields_that_are_newer_than_the_query_are_left_out_with_a_warning(
    server: StandInRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(server.url)
    old, grown = registry.register("T-value", OLD), registry.register("T-value", GROWN)
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "avro", "schemaRegistry": server.url}
    bodies = pa.array(
        [avro_writer(old)({"id": 1}), avro_writer(grown)({"id": 2, "note": None, "paid": True})]
    )
    for _ in range(2):
        convert = conversion(read_options(given, streaming=False), pa.struct([("id", pa.int64())]))
        assert convert(bodies).to_pylist() == [{"id": 1}, {"id": 2}]
    warnings = [record.getMessage() for record in caplog.records if "omits" in record.getMessage()]
    assert warnings == [
        f"schema {grown.id} of the registry has note, paid, which this query omits; start it again to read it"
    ]


def test_fields_that_are_newer_than_the_query_end_it_if_asked(server: StandInRegistry) -> None:
    registry = Registry(server.url)
    old, new = registry.register("T-value", OLD), registry.register("T-value", NEW)
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "avro", "schemaRegistry": server.url}
    options = read_options(given | {"newFields": "fail"}, streaming=True)
    bodies = pa.array([avro_writer(old)({"id": 1}), avro_writer(new)({"id": 2, "note": "hello"})])
    before = conversion(options, pa.struct([("id", pa.int64())]))
    assert before(bodies[:1]).to_pylist() == [{"id": 1}]
    with pytest.raises(StateError, match=f"schema {new.id} .* has note, which this query does not know"):
        before(bodies)
    after = conversion(options, pa.struct([("id", pa.int64()), ("note", pa.string())]))
    assert after(bodies).to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": "hello"}]


def test_a_field_that_the_latest_schema_has_no_more_does_not_end_a_query(server: StandInRegistry) -> None:
    registry = Registry(server.url)
    once, now = registry.register("T-value", GROWN), registry.register("T-value", NEW)
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "avro", "schemaRegistry": server.url}
    options = read_options(given | {"newFields": "fail"}, streaming=True)
    convert = conversion(options, pa.struct([("id", pa.int64()), ("note", pa.string())]))
    bodies = pa.array(
        [
            avro_writer(once)({"id": 1, "note": None, "paid": True}),
            avro_writer(now)({"id": 2, "note": None}),
        ]
    )
    assert [row["id"] for row in convert(bodies).to_pylist()] == [1, 2]


def test_a_registry_that_is_not_there_is_named() -> None:
    with stand_in_registry() as gone:
        url = gone.url
    with pytest.raises(TransportError, match=f"{url} does not answer"):
        Registry(url).latest("a-value")
    for wrong in ("registry:8081", "http://", "http://user:secret@host"):
        with pytest.raises(ConfigError, match="a URL like"):
            Registry(wrong)


def test_a_value_that_does_not_fit_is_not_written() -> None:
    for value in ({"id": "x"}, {}, None, {"id": 2**70}):
        with pytest.raises(BadMessage, match="does not fit the Avro schema"):
            avro_writer(RegisteredSchema(1, OLD, "AVRO"))(value)


def test_a_schema_that_contradicts_the_subjects_latest_is_refused(server: StandInRegistry) -> None:
    given = {"namesrv": "a:1", "subscribe": "T", "valueFormat": "avro", "schemaRegistry": server.url}
    options = read_options(given, streaming=False)

    def check(ddl: str) -> None:
        schema = parse_type(f"struct<value: struct<{ddl}>>")
        assert isinstance(schema, StructType)
        check_schema(schema, options)

    check("id: string")  # there is no subject, and each body has its own schema
    Registry(server.url).register("T-value", OLD)
    with pytest.raises(ConfigError, match=r"schema=value.id string: expected value.id bigint"):
        check("id: string")
    check("id: bigint, note: string")


def test_the_type_of_the_column_is_that_of_the_subjects_latest_schema(server: StandInRegistry) -> None:
    Registry(server.url).register("Orders-value", NEW)
    Registry(server.url).register("mine", OLD)
    base = {
        "namesrv": "127.0.0.1:1",
        "subscribe": "Orders",
        "valueFormat": "avro",
        "schemaRegistry": server.url,
    }

    def kind(**more: str) -> str:
        return value_type(read_options(base | more, streaming=False))

    assert kind() == "struct<`id`: bigint, `note`: string>"
    assert kind(valueSubject="mine") == "struct<`id`: bigint>"
    assert kind(valueSchema=OLD) == "struct<`id`: bigint>"
    with pytest.raises(ConfigError, match="valueSubject"):
        kind(subscribe="Orders,Others")
    with pytest.raises(ConfigError, match="valueFormat=avro or valueFormat=protobuf with it"):
        kind(valueFormat="string")


@pytest.fixture
def url() -> Iterator[str]:
    with some_registry() as url:
        yield url


def test_schemas_of_a_subject_change_and_old_bodies_stay_readable(url: str) -> None:
    registry = Registry(url)
    # A registry may write a schema anew: only its meaning stays.
    old, new = registry.register("changing/a value", OLD), registry.register("changing/a value", NEW)
    assert old.id != new.id
    assert registry.register("changing/a value", OLD).id == old.id
    assert registry.latest("changing/a value").id == new.id
    bodies = [avro_writer(old)({"id": 1}), avro_writer(new)({"id": 2, "note": "hello"})]
    read = registered_reader(Registry(url), "AVRO", registered_avro_reader)
    assert [read(body) for body in bodies] == [{"id": 1}, {"id": 2, "note": "hello"}]
    with pytest.raises(RemoteProtocolError, match="404"):
        registry.schema(987_654)
    with pytest.raises(RemoteProtocolError, match="404"):
        registry.latest("nothing")
    with pytest.raises(RemoteProtocolError, match=r"with 4[02]\d"):
        registry.register("broken", "{")


def test_avro_schemas_take_types_from_other_subjects(url: str) -> None:
    registry = Registry(url)
    state = json.dumps({"type": "enum", "name": "shop.State", "symbols": ["NEW", "PAID"]})
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "was", "type": "shop.State"}]}
    registry.register("state", state)
    registry.register("line", json.dumps(line), references={"shop.State": "state"})
    order = schema(("now", "shop.State"), ("lines", {"type": "array", "items": "shop.Line"}))
    made = registry.register("referring", order, references={"shop.Line": "line", "shop.State": "state"})
    registry.register("state", json.dumps({"type": "enum", "name": "shop.State", "symbols": ["OTHER"]}))
    found = Registry(url).latest("referring")
    assert found == Registry(url).schema(made.id)
    assert (found.id, [name for name, _ in found.references]) == (made.id, ["shop.State", "shop.Line"])
    assert (
        avro_to_ddl(found.text, found.references)
        == "struct<`now`: string, `lines`: array<struct<`was`: string>>>"
    )
    row = {"now": "PAID", "lines": [{"was": "NEW"}]}
    assert registered_reader(Registry(url), "AVRO", registered_avro_reader)(avro_writer(made)(row)) == row
