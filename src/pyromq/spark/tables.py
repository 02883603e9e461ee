"""Tables of a catalogue: Spark forgets the options of `CREATE TABLE`, so a column remembers them."""

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyromq.errors import ConfigError
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import ReadOptions
from pyromq.spark.schema import DEFAULT_COLUMNS, value_type

REMEMBERED = "rocketmq"
"""The metadata of a column that holds the options."""

_MAKES_TABLE = "provider"
_COPY_PREFIX = "option."
_SPARKS_OWN = frozenset({_MAKES_TABLE, "owner", "checkpointlocation", "queryname", "serialization.format"})


def is_creating(options: Mapping[str, str]) -> bool:
    """Whether these are the options of a table that is being created."""
    return _MAKES_TABLE in options


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """What is meant for us: Spark adds some of its own, and a second copy of ours."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _SPARKS_OWN
        and not (is_creating(options) and name.lower().startswith(_COPY_PREFIX))
    }


def table_schema(options: Mapping[str, str], parsed: ReadOptions) -> StructType:
    """The columns of a table, which remember its options."""
    columns = DEFAULT_COLUMNS | {"value": value_type(parsed)}
    try:
        return StructType(
            [
                StructField(
                    name,
                    parse_type(type_),
                    metadata={REMEMBERED: dict(options)} if name == "value" else None,
                )
                for name, type_ in columns.items()
                if name != "properties" or parsed.with_properties
            ]
        )
    except ValueError as problem:
        raise ConfigError("valueSchema", parsed.value_schema, f"DDL of Spark: {problem}") from None


def with_remembered(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The options given, over those that the table remembers."""
    remembered: dict[str, str] = {}
    for field in schema.fields:
        remembered |= (field.metadata or {}).get(REMEMBERED, {})
    if not remembered and not options:
        raise ConfigError(
            "namesrv",
            "",
            "the addresses of the name servers. Spark forgets the options of tables that were created with a"
            " list of columns, and of all tables that streams are written to: leave out the list, give a"
            " stream its own options",
        )
    return remembered | dict(options)
