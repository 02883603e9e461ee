"""Tables of a catalogue: Spark forgets the options of `CREATE TABLE`, so a column remembers them."""

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyromq.errors import ConfigError
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import ReadOptions, check_tellable
from pyromq.spark.schema import default_columns, may_be_null

REMEMBERED = "rocketmq"
"""The metadata of a column that holds the options."""

_AS_READ = "__CHAR_VARCHAR_TYPE_STRING"
"""Metadata that Spark removes from columns it casts to those of a target table, and keeps on columns that it
passes on as they were read. In the second case the remembered options are those of the source."""

_IS_WHOLE = "namesrv"
"""If this option is given, all of them are."""

_NEEDS_NO_SERVERS = "tier"

_MAKES_TABLE = "provider"
_COPY_PREFIX = "option."
_SPARKS_OWN = frozenset({_MAKES_TABLE, "owner", "checkpointlocation", "queryname", "serialization.format"})


def is_creating(options: Mapping[str, str]) -> bool:
    """Whether these are the options of a table that is being created."""
    return _MAKES_TABLE in options


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """The connector's options: Spark adds some, and a second copy of ours."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _SPARKS_OWN
        and not (is_creating(options) and name.lower().startswith(_COPY_PREFIX))
    }


def table_schema(options: Mapping[str, str], parsed: ReadOptions) -> StructType:
    """The columns of a table, which remember its options; secrets among them are refused."""
    check_tellable(options)
    return StructType(
        [
            StructField(
                name,
                parse_type(type_),
                nullable=may_be_null(name, parsed),
                metadata={REMEMBERED: dict(options), _AS_READ: type_} if name == "value" else None,
            )
            for name, type_ in default_columns(parsed).items()
        ]
    )


def with_remembered(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The given options on top of those that the source table remembers."""
    if _IS_WHOLE in options:
        return dict(options)
    remembered = _remembered(schema)
    if not remembered and _NEEDS_NO_SERVERS in options:
        return dict(options)
    if not remembered:
        raise _forgotten()
    return remembered | dict(options)


def with_remembered_of_target(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """The same for the target table; `schema` is that of the rows."""
    if _IS_WHOLE in options:
        return dict(options)
    if any(REMEMBERED in (field.metadata or {}) and _AS_READ in field.metadata for field in schema.fields):
        raise ConfigError(
            "value",
            "as it was read from another table",
            "INSERT INTO table (value, key) SELECT value, key FROM …: for whole rows Spark does not tell the"
            " target table, nor does it for CREATE TABLE … AS SELECT",
        )
    return with_remembered(options, schema)


def _remembered(schema: StructType) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in schema.fields:
        found |= (field.metadata or {}).get(REMEMBERED, {})
    return found


def _forgotten() -> ConfigError:
    return ConfigError(
        "namesrv",
        "",
        "the addresses of the name servers. Spark forgets the options of tables that were created with a"
        " list of columns or AS SELECT, and of all tables that streams are written to: leave out the list,"
        " INSERT INTO table (value, key) SELECT …, give a stream its own options",
    )
