"""Fields that bodies have and the column does not, because their schema is newer than the query.

The type of a column is fixed while a query runs. Such fields are omitted with a warning, or end the query
before any of its rows is without them; a query that starts again has them.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from pyromq.errors import ConfigError, StateError
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import ReadOptions
from pyromq.spark.registry import RegisteredSchema, Registry
from pyromq.spark.value_schemas import schema_ddl, subject_of

_log = logging.getLogger(__name__)

Reader = Callable[[RegisteredSchema], Callable[[bytes], Any]]


def watched(options: ReadOptions, known: Registry, type_: pa.DataType, reader: Reader) -> Reader:
    """The same reader, which looks at the fields of each schema first."""
    if options.value_schema is not None:
        return reader  # whoever gives the schema has chosen the fields

    def read(schema: RegisteredSchema) -> Callable[[bytes], Any]:
        missing = _fields(options, schema) - set(_names(type_))
        if missing and options.new_fields == "fail":
            latest = known.latest(subject_of(options))
            if back := missing & _fields(options, latest):  # otherwise it is an old field that is gone
                raise StateError(
                    f"schema {schema.id} of the registry has {_listed(back)}, which this query does not know"
                    " (newFields=fail). Start it again to read it"
                )
        elif missing:
            _warn(schema.id, _listed(missing))
        return reader(schema)

    return read


def _fields(options: ReadOptions, schema: RegisteredSchema) -> set[str]:
    try:
        return set(_names(to_arrow_type(parse_type(schema_ddl(options, schema.text, schema.references)))))
    except ConfigError:
        return set()  # it has types that no column has, and a column may do without them


def _names(type_: pa.DataType, prefix: str = "") -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield prefix + field.name
            yield from _names(field.type, f"{prefix}{field.name}.")
    elif pa.types.is_list(type_):
        yield from _names(type_.value_type, prefix)
    elif pa.types.is_map(type_):
        yield from _names(type_.item_type, prefix)


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


@cache
def _warn(schema_id: int, names: str) -> None:
    """Once in a process."""
    _log.warning(
        "schema %d of the registry has %s, which this query omits; start it again to read it",
        schema_id,
        names,
    )
