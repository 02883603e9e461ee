"""The columns of a topic: what each is called, its type, and which of them a reader is asked for."""

from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import INFER, ReadOptions
from pyromq.spark.registry import registry
from pyromq.spark.value_schemas import schema_ddl, subject_of

DEFAULT_COLUMNS: Final = {
    "key": "string",
    "value": "binary",
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "bornTimestamp": "timestamp",
    "tags": "string",
    "properties": "map<string,string>",
    "msgId": "string",
    "reconsumeTimes": "int",
}
"""The columns that are read unless `.schema(...)` chooses others."""

FURTHER_COLUMNS: Final = {
    "body": "binary",
    "keys": "array<string>",
    "shardingKey": "string",
    "bornHost": "string",
    "storeHost": "string",
    "flag": "int",
    "sysFlag": "int",
    "logOffset": "bigint",
    "bodyCrc": "int",
    "transactionId": "string",
    "liteTopic": "string",
}
"""Columns that `.schema(...)` can ask for as well."""

_NEVER_NULL: Final = frozenset(DEFAULT_COLUMNS) - {"key", "tags", "value"}
"""Columns that every message has. Its value is there as well, but does not always fit another type."""

_SCHEMAS: Final = {
    "json": 'DDL like "id bigint, amount double"',
    "avro": "an Avro schema",
    "protobuf": "the text of a .proto file",
}
"""The schemas that give structures their types."""

_WIDER: Final = {"int": ("bigint", "double"), "float": ("double",), "timestamp": ("timestamp_ntz",)}
"""Types in which all values of another one have a place."""

ALL_COLUMNS: Final = DEFAULT_COLUMNS | FURTHER_COLUMNS


def value_type(options: ReadOptions) -> str:
    """The type of the value column, as DDL."""
    if options.value_format in ("binary", "string"):
        return options.value_format
    if options.value_schema is None and options.schema_registry is not None:
        latest = registry(options.schema_registry, options.schema_registry_auth).latest(subject_of(options))
        return schema_ddl(options, latest.text, latest.references)
    if options.value_schema is None:
        what = _SCHEMAS[options.value_format]
        raise ConfigError("valueFormat", options.value_format, f"the option valueSchema with it, {what}")
    if options.value_format != "json":
        return schema_ddl(options, options.value_schema)
    fields = options.value_schema
    if fields == INFER:
        from pyromq.spark.sampled_schema import sampled_schema  # looking for sources stays quick without it

        fields = sampled_schema(options)
    ddl = f"struct<{fields}>"
    try:
        parse_type(ddl)
    except ValueError as problem:
        raise ConfigError("valueSchema", options.value_schema, f"DDL of Spark: {problem}") from None
    return ddl


def default_columns(options: ReadOptions) -> dict[str, str]:
    """The types of the columns that are read unless `.schema(...)` chooses others."""
    columns = dict(DEFAULT_COLUMNS)
    columns["value"] = value_type(options)
    if not options.with_properties:
        del columns["properties"]
    return columns


def default_ddl(options: ReadOptions) -> str:
    columns = default_columns(options)
    return ", ".join(
        f"{name} {type_}{'' if may_be_null(name, options) else ' NOT NULL'}"
        for name, type_ in columns.items()
    )


def may_be_null(name: str, options: ReadOptions) -> bool:
    """Whether the schema that Spark gets says that a column may be null."""
    is_there = name in _NEVER_NULL or (name == "value" and options.value_format == "binary")
    return options.nullability == "loose" or not is_there


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Raise ConfigError unless a reader can give these columns."""
    if doubled := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        raise ConfigError("schema", ", ".join(doubled), "each column once")
    for field in schema.fields:
        expected = ALL_COLUMNS.get(field.name)
        if expected is None:
            raise ConfigError("schema", field.name, f"one of the columns {', '.join(ALL_COLUMNS)}")
        if field.name == "value":
            if options.value_format == "json" and not isinstance(field.dataType, StructType):
                given = f"value {field.dataType.simpleString()}"
                raise ConfigError("schema", given, "value struct<…> with valueFormat=json")
            if options.value_format != "json" and options.value_format in _SCHEMAS:
                _check_value(field.dataType, options)
            if options.value_format in _SCHEMAS:
                continue
            expected = options.value_format
        if field.dataType.simpleString() != expected:
            given = f"{field.name} {field.dataType.simpleString()}"
            raise ConfigError("schema", given, f"{field.name} {expected}")


def _check_value(given: DataType, options: ReadOptions) -> None:
    """Bodies that do not fit are null, and with a type that none of them fits all would be."""
    if options.schema_registry is not None:
        registry(options.schema_registry, options.schema_registry_auth)
    try:
        known = parse_type(value_type(options))
    except (ConfigError, RemoteProtocolError):
        if options.value_schema is not None or options.schema_registry is None:
            raise
        return  # bodies name their schemas, so there need not be a subject
    _check_type("value", given, known, all_known=options.schema_registry is None)


def _check_type(name: str, given: DataType, known: DataType, *, all_known: bool) -> None:
    """`all_known`: no body has fields that are not among the known ones."""
    if isinstance(given, StructType) and isinstance(known, StructType):
        for field in given.fields:
            inner = f"{name}.{field.name}"
            if field.name in known.names:
                _check_type(inner, field.dataType, known[field.name].dataType, all_known=all_known)
            elif all_known:
                raise ConfigError("schema", inner, f"one of the fields {', '.join(known.names)}")
    elif isinstance(given, ArrayType) and isinstance(known, ArrayType):
        _check_type(f"{name}[]", given.elementType, known.elementType, all_known=all_known)
    elif isinstance(given, MapType) and isinstance(known, MapType) and given.keyType == known.keyType:
        _check_type(f"{name}[]", given.valueType, known.valueType, all_known=all_known)
    elif given.simpleString() not in (known.simpleString(), *_WIDER.get(known.simpleString(), ())):
        raise ConfigError("schema", f"{name} {given.simpleString()}", f"{name} {known.simpleString()}")
