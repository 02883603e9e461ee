"""Every option: what it means, and what is said when it is wrong."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pyromq.errors import ConfigError
from pyromq.security.signature import Credentials
from pyromq.spark.ddl import parse_type
from pyromq.spark.links import link_options
from pyromq.spark.option_kinds import Position
from pyromq.spark.options import (
    ALIASES,
    KNOWN,
    ReadOptions,
    Selection,
    WriteOptions,
    check_names,
    for_readers,
    for_writers,
    read_options,
    write_options,
)
from pyromq.spark.queues import Queue
from pyromq.spark.schema import check_schema, default_ddl
from pyromq.spark.tables import table_schema

BASE = {"namesrv": "127.0.0.1:9876", "subscribe": "Orders"}
A0 = Queue("Orders", "broker-a", 0)


def read(streaming: bool = False, **more: str) -> ReadOptions:
    given = {name.replace("__", "."): value for name, value in more.items()}
    return read_options(BASE | given, streaming=streaming)


AVRO = {"valueFormat": "avro", "schemaRegistry": "http://a:1"}
READ: list[tuple[bool, dict[str, str], str, Any]] = [
    (False, {}, "start", Position("earliest")),
    (True, {}, "start", Position("latest")),
    (False, {}, "end", Position("latest")),
    (False, {"startingOffsets": "EARLIEST"}, "start", Position("earliest")),
    (False, {"startingOffsets": '{"Orders": {"broker-a:0": -2}}'}, "start", Position("offsets", {A0: -2})),
    (False, {"endingOffsets": '{"Orders": {"broker-a:0": 7}}'}, "end", Position("offsets", {A0: 7})),
    (False, {"startingTimestamp": "5", "startingOffsets": "latest"}, "start", Position("timestamp", None, 5)),
    (
        False,
        {"startingOffsetsByTimestamp": '{"Orders": {"broker-a:0": 9}}', "startingOffsets": "latest"},
        "start",
        Position("timestamps", {A0: 9}),
    ),
    (
        False,
        {"endingOffsetsByTimestamp": '{"Orders": {"broker-a:0": 9}}'},
        "end",
        Position("timestamps", {A0: 9}),
    ),
    (False, {"endingTimestamp": "6"}, "end", Position("timestamp", None, 6)),
    (False, {"startingOffsetsByTimestampStrategy": "latest"}, "fail_without_match", False),
    (False, {"startingOffsets": "group", "consumerGroup": "lake"}, "start", Position("group")),
    (False, {"consumerGroup": "lake"}, "pull_group", "lake"),
    (False, {}, "pull_group", "TOOLS_CONSUMER"),
    (False, {"failOnDataLoss": "false"}, "fail_on_data_loss", False),
    (True, {"maxOffsetsPerTrigger": "100_000"}, "max_per_trigger", 100_000),
    (True, {"minOffsetsPerTrigger": "7"}, "min_per_trigger", 7),
    (True, {"maxBytesPerTrigger": "2m"}, "max_bytes_per_trigger", 2 * 1024 * 1024),
    (True, {}, "max_trigger_delay_ms", 900_000),
    (True, {"maxTriggerDelay": "30s"}, "max_trigger_delay_ms", 30_000),
    (True, {"maxTriggerDelay": "2 minutes"}, "max_trigger_delay_ms", 120_000),
    (True, {"maxTriggerDelay": "500"}, "max_trigger_delay_ms", 500),
    (True, {"commitOffsets": "true", "consumerGroup": "lake"}, "commit_offsets", True),
    (False, {"minPartitions": "8"}, "min_partitions", 8),
    (False, {"maxPartitions": "3"}, "max_partitions", 3),
    (False, {"tier": "/lake"}, "tier", "/lake"),
    (True, {"tier": "/lake"}, "tier", "/lake"),
    (False, {"tier": "/lake", "endingOffsets": "tier", "tierCluster": "C"}, "tier_cluster", "C"),
    (False, {"maxRecordsPerPartition": "9"}, "max_records_per_partition", 9),
    (True, {"maxBytesPerPartition": "4m"}, "max_bytes_per_partition", 4 * 1024 * 1024),
    (True, {"driverReadsUpTo": "9"}, "driver_reads_up_to", 9),
    (False, {"tags": "a || b"}, "tags", "a || b"),
    (False, {"sqlFilter": "amount > 3"}, "sql", "amount > 3"),
    (False, {"includeHeaders": "false"}, "with_properties", False),
    (False, {"valueFormat": "string"}, "value_format", "string"),
    (False, {"valueFormat": "json", "valueSchema": "id bigint"}, "value_schema", "id bigint"),
    (True, {"valueFormat": "json", "valueSchema": "infer", "schemaLocation": "d"}, "schema_location", "d"),
    (False, {"nullability": "strict"}, "nullability", "strict"),
    (False, {"valueMode": "failfast", "valueFormat": "string"}, "value_mode", "failfast"),
    (False, {"timeZone": "Europe/Berlin", "valueFormat": "json"}, "time_zone", "Europe/Berlin"),
    (False, AVRO | {"valueSubject": "orders"}, "value_subject", "orders"),
    (False, {"valueFormat": "protobuf", "valueMessage": "shop.Order"}, "value_message", "shop.Order"),
    (False, AVRO, "schema_registry", "http://a:1"),
    (False, AVRO | {"schemaRegistryAuth": "me:secret"}, "schema_registry_auth", "me:secret"),
    (False, AVRO | {"newFields": "fail"}, "new_fields", "fail"),
    (False, {"kafka.group.id": "lake"}, "pull_group", "lake"),
    (False, {"kafka.group.id": "lake", "consumerGroup": "lake"}, "pull_group", "lake"),
    (False, {"dropDuplicatesWithin": "1000"}, "drop_duplicates_within", 1000),
    (False, {"pullMessages": "32"}, "pull_messages", 32),
    (False, {"pullsInFlight": "2"}, "pulls_in_flight", 2),
]


@pytest.mark.parametrize(("streaming", "given", "attribute", "expected"), READ)
def test_read_options(streaming: bool, given: dict[str, str], attribute: str, expected: Any) -> None:
    assert getattr(read(streaming, **given), attribute) == expected


ACCESS: list[tuple[dict[str, str], str, Any]] = [
    ({"namesrv": "a:1;b:2, c:3"}, "namesrv", ("a:1", "b:2", "c:3")),
    ({"tls": "true", "tlsCaFile": "ca.pem"}, "tls_ca_file", "ca.pem"),
    ({"pollTimeoutMs": "100"}, "timeout_ms", 100),
    ({"kafkaConsumer__pollTimeoutMs": "100"}, "timeout_ms", 100),
    ({"fetchOffset__numRetries": "0"}, "retries", 0),
    ({"fetchOffset__retryIntervalMs": "10"}, "retry_interval_ms", 10),
]


@pytest.mark.parametrize(("given", "attribute", "expected"), ACCESS)
def test_access_options(given: dict[str, str], attribute: str, expected: Any) -> None:
    assert getattr(read(False, **given).access, attribute) == expected


def test_credentials_are_one_thing_and_are_not_shown() -> None:
    access = read(accessKey="me", secretKey="hidden", securityToken="token").access
    assert access.credentials is not None
    assert access.credentials.security_token == "token"
    assert "hidden" not in repr(access)


def test_keys_come_from_a_file_which_only_the_driver_reads(tmp_path: Path) -> None:
    file = tmp_path / "keys.properties"
    file.write_text("AccessKey=me\nSecretKey=hidden\n")
    access = read(keyFile=str(file)).access
    file.unlink()
    assert pickle.loads(pickle.dumps(access)).credentials == Credentials("me", "hidden")
    assert "hidden" not in repr(access)
    with pytest.raises(ConfigError, match="keyFile"):
        read(keyFile=str(file))
    with pytest.raises(ConfigError, match="either keyFile or accessKey"):
        read(keyFile=str(file), accessKey="me", secretKey="hidden")


def test_a_table_remembers_no_secrets() -> None:
    options = BASE | {"accessKey": "me", "secretKey": "hidden"}
    with pytest.raises(ConfigError, match="secretKey") as caught:
        table_schema(options, read_options(options, streaming=None))
    assert "hidden" not in str(caught.value)
    assert "keyFile" in str(caught.value)


SELECTIONS: list[tuple[dict[str, str], Selection]] = [
    ({"subscribe": "B, A,B"}, Selection(topics=("A", "B"))),
    ({"subscribePattern": "Ord.*"}, Selection(pattern="Ord.*")),
    ({"assign": '{"Orders": ["broker-a:0"]}'}, Selection(queues=frozenset({A0}))),
    ({"path": "Orders"}, Selection(topics=("Orders",))),
]


@pytest.mark.parametrize(("given", "expected"), SELECTIONS)
def test_selections(given: dict[str, str], expected: Selection) -> None:
    assert read_options({"namesrv": "a:1"} | given, streaming=False).selection == expected


TRACEPARENT = f"00-{'ab' * 16}-{'12' * 8}-01"

WRITE: list[tuple[dict[str, str], str, Any]] = [
    ({}, "topic", None),
    ({"topic": "Orders"}, "topic", "Orders"),
    ({"path": "Orders"}, "topic", "Orders"),
    ({"batchBytes": "64k"}, "batch_bytes", 65_536),
    ({"sendsInFlight": "9"}, "sends_in_flight", 9),
    ({"producerGroup": "me"}, "group", "me"),
    ({}, "queue_by", "key"),
    ({"queueBy": "none"}, "queue_by", "none"),
    ({"mode": "transactional", "journal": "/data/journal"}, "journal", "/data/journal"),
    ({"mode": "transactional", "journal": "/data/journal", "batchId": "7"}, "batch_id", 7),
    ({"idPrefix": "run-1"}, "id_prefix", "run-1"),
    ({"otel": "true"}, "otel", True),
    ({"traceparent": TRACEPARENT}, "traceparent", TRACEPARENT),
    ({"includeHeaders": "false"}, "with_properties", False),
]


@pytest.mark.parametrize(("given", "attribute", "expected"), WRITE)
def test_write_options(given: dict[str, str], attribute: str, expected: Any) -> None:
    options: WriteOptions = write_options({"namesrv": "a:1"} | given)
    assert getattr(options, attribute) == expected


@pytest.mark.parametrize("missing", ["mode", "journal"])
def test_the_number_of_a_batch_needs_a_journal(missing: str) -> None:
    given = {"namesrv": "a:1", "mode": "transactional", "journal": "/data/journal", "batchId": "7"}
    del given[missing]
    with pytest.raises(ConfigError, match="batchId=7: expected mode=transactional and journal with it"):
        write_options(given)


def test_a_prefix_makes_a_group_of_its_own_for_each_query() -> None:
    one, other = read(groupIdPrefix="lake").pull_group, read(groupIdPrefix="lake").pull_group
    assert one != other
    assert one.startswith("lake-")


KAFKA_READS = """
    assign subscribe subscribePattern startingTimestamp startingOffsetsByTimestamp startingOffsets
    endingTimestamp endingOffsetsByTimestamp endingOffsets startingOffsetsByTimestampStrategy
    failOnDataLoss maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions
    maxRecordsPerPartition includeHeaders groupIdPrefix kafka.group.id kafkaConsumer.pollTimeoutMs
    fetchOffset.numRetries fetchOffset.retryIntervalMs
"""
KAFKA_WRITES = "topic includeHeaders"


@pytest.mark.parametrize("name", [*KAFKA_READS.split(), *KAFKA_WRITES.split()])
def test_options_of_the_kafka_source_have_the_same_names(name: str) -> None:
    check_names({name: ""})


def test_every_known_option_is_tested_here() -> None:
    tables = [given for _, given, _, _ in READ] + [given for given, _, _ in ACCESS + WRITE]
    tables += [given for given, _ in SELECTIONS] + [
        {"mode": "", "accessKey": "", "secretKey": "", "keyFile": "", "groupIdPrefix": ""}
    ]
    tested = {name.replace("__", ".").lower() for given in tables for name in given} | {"securitytoken"}
    assert tested == set(KNOWN) | set(ALIASES)


WRONG_READS: list[tuple[bool, dict[str, str], str]] = [
    (True, {"valueFormat": "json", "valueSchema": "infer"}, "schemaLocation with it"),
    (False, {"valueFormat": "json", "schemaLocation": "d"}, "valueSchema=infer with it"),
    (False, {"nullability": "some"}, "strict"),
    (False, {"subscrib": "x"}, "subscribe"),
    (False, {"kafka.bootstrap.servers": "x"}, "namesrv"),
    (False, {"groupIdPrefix": "x", "consumerGroup": "y"}, "consumerGroup or groupIdPrefix"),
    (False, {"groupIdPrefix": "a b"}, "illegal characters"),
    (False, {"kafka.group.id": "x", "consumerGroup": "y"}, "kafka.group.id=x: .* another name"),
    (False, {"valueMode": "failfast"}, "valueFormat with it"),
    (False, {"valueMessage": "Order"}, "valueFormat=protobuf with it"),
    (False, {"timeZone": "UTC"}, "valueFormat=json with it"),
    (False, {"namesrv": ""}, "namesrv"),
    (False, {"namesrv": "nowhere"}, "nowhere"),
    (False, {"namesrv": "http://127.0.0.1:9876"}, "namesrv=.*is not an address"),
    (False, {"namesrv": "127.0.0.1:99999"}, "namesrv=.*is not an address"),
    (False, {"valueSubject": "orders-value"}, "valueSubject=.*schemaRegistry with it"),
    (False, {"newFields": "fail"}, "newFields=.*schemaRegistry with it"),
    (False, {"schemaRegistryAuth": "me:secret"}, "schemaRegistryAuth=.*schemaRegistry with it"),
    (False, {"subscribePattern": "x"}, "exactly one"),
    (False, {"subscribe": " , "}, "topics separated"),
    (False, {"subscribe": "Or ders"}, "illegal characters"),
    (False, {"startingOffsets": "first"}, "earliest, latest, group or JSON"),
    (False, {"startingOffsets": "latest"}, "always empty"),
    (False, {"startingOffsets": "group"}, "consumerGroup"),
    (False, {"startingOffsets": '{"Orders": {"0": 1}}'}, "broker:number"),
    (False, {"startingOffsets": '{"Orders": {"broker-a:0": "1"}}'}, "whole number"),
    (False, {"startingOffsets": '{"Orders": {"broker-a:0": -3}}'}, "startingOffsets"),
    (False, {"startingOffsets": "{"}, "startingOffsets"),
    (False, {"startingOffsets": '{"Orders": 5}'}, "each topic needs its queues"),
    (False, {"startingOffsets": '{"Orders": {"broker-a:0": 9223372036854775808}}'}, "is more than"),
    (False, {"startingTimestamp": "9223372036854775808"}, "startingTimestamp=.*is more than"),
    (False, {"endingOffsets": "earliest"}, "latest, tier or JSON"),
    (True, {"tier": "/lake", "namesrv": ""}, "addresses of the name servers"),
    (True, {"tier": "/lake", "tierCluster": "C"}, "batch reads only"),
    (True, {"tier": "/lake", "sqlFilter": "a > 1"}, "brokers evaluate it"),
    (False, {"endingOffsets": '{"Orders": {"broker-a:0": -2}}'}, "endingOffsets"),
    (False, {"startingTimestamp": "yesterday"}, "startingTimestamp"),
    (False, {"startingOffsetsByTimestampStrategy": "guess"}, "error, latest"),
    (False, {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger"),
    (False, {"commitOffsets": "true", "consumerGroup": "g"}, "commitOffsets"),
    (True, {"endingOffsets": "latest"}, "endingOffsets"),
    (True, {"endingTimestamp": "1"}, "endingTimestamp"),
    (True, {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
    (True, {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "minOffsetsPerTrigger"),
    (True, {"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
    (True, {"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger"),
    (True, {"commitOffsets": "true"}, "consumerGroup"),
    (False, {"consumerGroup": "a b"}, "illegal characters"),
    (False, {"tags": "a", "sqlFilter": "a = 1"}, "tags or sqlFilter"),
    (False, {"sqlFilter": "a = = 1"}, "SQL92"),
    (False, {"failOnDataLoss": "maybe"}, "failOnDataLoss"),
    (False, {"minPartitions": "-1"}, "minPartitions"),
    (False, {"minPartitions": "4", "maxPartitions": "3"}, "no more than maxPartitions=3"),
    (False, {"accessKey": "a"}, "secretKey"),
    (False, {"securityToken": "a"}, "accessKey and secretKey"),
    (False, {"tlsCaFile": "a"}, "tls=true"),
    (False, {"valueFormat": "xml"}, "valueFormat"),
    (False, {"valueSchema": "id int"}, "valueFormat=json"),
    (False, {"assign": "{}", "subscribe": ""}, "assign"),
    (False, {"assign": '{"Orders": [0, 1]}', "subscribe": ""}, "0 is not a queue"),
    (False, {"assign": '{"Orders": 0}', "subscribe": ""}, "each topic needs its queues"),
    (False, {"topic": "Orders"}, "for writing"),
    (False, {"subscribe": "", "subscribePattern": "("}, "regular expression"),
]


@pytest.mark.parametrize(("streaming", "given", "named"), WRONG_READS)
def test_wrong_options_for_reading_are_named(streaming: bool, given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_options(BASE | given, streaming=streaming)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"valueFormat": "json"}, "valueSchema with it"),
        ({"valueFormat": "json", "valueSchema": "id biggint"}, "valueSchema=.*biggint"),
        ({"valueFormat": "avro", "valueSchema": "{}"}, "valueSchema="),
        ({"valueFormat": "protobuf"}, "the text of a .proto file"),
        ({"valueFormat": "protobuf", "valueSchema": "message"}, "valueSchema=message: expected the text"),
        ({"valueFormat": "protobuf", "valueSchema": "message1"}, "valueSchema=message1: expected the text"),
    ],
)
def test_wrong_schemas_of_values_are_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        default_ddl(read(False, **given))


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "sizes", "type": {"type": "array", "items": "float"}},
    ],
}
ORDERS_IN_AVRO = {"valueFormat": "avro", "valueSchema": json.dumps(ORDER)}
ORDERS_IN_PROTOBUF = {
    "valueFormat": "protobuf",
    "valueSchema": 'syntax = "proto3"; message Order { int64 id = 1; }',
}


def test_a_schema_chooses_among_the_fields_of_values_and_may_widen_them() -> None:
    schema = parse_type("struct<value: struct<sizes: array<double>>>")
    assert isinstance(schema, StructType)
    check_schema(schema, read(False, **ORDERS_IN_AVRO))


@pytest.mark.parametrize(
    ("columns", "given", "named"),
    [
        ("value string", {"valueFormat": "json", "valueSchema": "id int"}, "schema=value string: expected"),
        ("value map<string,int>", {"valueFormat": "json", "valueSchema": "id int"}, "value struct"),
        ("offset bigint, offset bigint", {}, "schema=offset: expected each column once"),
        ("value struct<id: string>", ORDERS_IN_AVRO, "schema=value.id string: expected value.id bigint"),
        ("value struct<id: int>", ORDERS_IN_AVRO, "schema=value.id int: expected value.id bigint"),
        (
            "value struct<idd: bigint>",
            ORDERS_IN_AVRO,
            "schema=value.idd: expected one of the fields id, sizes",
        ),
        (
            "value struct<sizes: array<int>>",
            ORDERS_IN_AVRO,
            r"value.sizes\[\] int: expected value.sizes\[\] flo",
        ),
        (
            "value string",
            ORDERS_IN_AVRO,
            "schema=value string: expected value struct<id:bigint,sizes:array<float>>",
        ),
        (
            "value struct<id: int>",
            {"valueFormat": "avro", "schemaRegistry": "x"},
            "schemaRegistry=x: expected a",
        ),
        ("value struct<id: string>", ORDERS_IN_PROTOBUF, "schema=value.id string: expected value.id bigint"),
    ],
)
def test_columns_that_no_reader_can_give_are_named(columns: str, given: dict[str, str], named: str) -> None:
    schema = parse_type(f"struct<{columns}>")
    assert isinstance(schema, StructType)
    with pytest.raises(ConfigError, match=named):
        check_schema(schema, read(False, **given))


def test_options_for_a_whole_job_are_split_between_its_readers_and_its_writers() -> None:
    job = BASE | {"MaxOffsetsPerTrigger": "5", "kafka.group.id": "lake", "batchBytes": "1m", "tls": "true"}
    assert set(for_readers(job)) == set(job) - {"batchBytes"}
    assert set(for_writers(job)) == {"namesrv", "batchBytes", "tls"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"mode": "exactlyOnce"}, "atLeastOnce"),
        ({"tags": "a"}, "for reading"),
        ({"topic": "A", "path": "B"}, "one topic"),
        ({"subscribe": "A,B"}, "illegal characters"),
        ({"topic": "A B"}, "illegal characters"),
        ({"batchBytes": "0"}, "batchBytes"),
        ({"sendsInFlight": "no"}, "sendsInFlight"),
        ({"producerGroup": "a b"}, "illegal characters"),
    ],
)
def test_wrong_options_for_writing_are_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        write_options({"namesrv": "a:1"} | given)


def test_a_file_of_certificates_that_cannot_be_read_is_named_as_the_option(tmp_path: Path) -> None:
    access = read(tls="true", tlsCaFile=str(tmp_path / "none.pem")).access
    with pytest.raises(ConfigError, match=r"tlsCaFile=.*none.pem: expected PEM certificates"):
        link_options(access)


def test_an_empty_option_counts_as_not_given() -> None:
    assert read(consumerGroup="", tags=" ", minPartitions="") == read()


def test_a_misspelt_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="secretKey") as caught:
        check_names({"secretKeyy": "hidden"})
    assert "hidden" not in str(caught.value)
