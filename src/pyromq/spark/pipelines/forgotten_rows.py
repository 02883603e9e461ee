"""Rows of people who ask to be forgotten: those that have one of some values in a column.

A column may be a field of a structure, like `value.customer`. Values are text, in the form that Arrow reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyromq.errors import ConfigError

FORGET: Final = "forget"


class ForgottenRows:
    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        """A row is forgotten if any of these columns has one of its values."""
        if not values:
            raise ConfigError(FORGET, None, "at least one column with a value")
        self._values = values

    def __repr__(self) -> str:
        return f"<ForgottenRows by {', '.join(self._values)}>"  # who they are is private

    def columns(self, schema: pa.Schema) -> list[str]:
        """The columns that decide; raises ConfigError if one of them, or a value, cannot be there."""
        found = []
        for column, values in self._values.items():
            name, fields = _path(schema, column)
            type_ = schema.field(name).type
            for field in fields:
                type_ = type_.field(field).type
            _of_type(column, values, type_)
            found.append(name)
        return found

    def among(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which of the rows are forgotten."""
        found: pa.ChunkedArray | None = None
        for column, values in self._values.items():
            name, fields = _path(rows.schema, column)
            here = rows[name]
            for field in fields:
                here = pc.struct_field(here, field)
            is_here = pc.is_in(here, value_set=_of_type(column, values, here.type))
            found = is_here if found is None else pc.or_(found, is_here)
        assert found is not None
        return found

    def condition(self, schema: pa.Schema) -> str:
        """The same in the SQL of DataFusion."""
        parts = []
        for column, values in self._values.items():
            name, fields = _path(schema, column)
            type_, sql = schema.field(name).type, '"{}"'.format(name.replace('"', '""'))
            for field in fields:
                type_, sql = type_.field(field).type, f"{sql}[{_quoted(field)}]"
            parts.append(f"{sql} IN ({', '.join(_literals(_of_type(column, values, type_), values))})")
        return " OR ".join(parts)


def _path(schema: pa.Schema, column: str) -> tuple[str, list[str]]:
    """The name of a column and of the fields inside; names of columns may have dots themselves."""
    name, *fields = [column] if column in schema.names else column.split(".")
    type_: pa.DataType | None = schema.field(name).type if name in schema.names else None
    for field in fields:
        is_structure = type_ is not None and pa.types.is_struct(type_)
        is_there = is_structure and type_.get_field_index(field) >= 0  # type: ignore[union-attr]
        type_ = type_.field(field).type if is_there else None  # type: ignore[union-attr]
    if type_ is None or pa.types.is_nested(type_):
        raise ConfigError(FORGET, column, f"a column of texts, numbers or bytes: {', '.join(schema.names)}")
    return name, fields


def _of_type(column: str, values: Sequence[str], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, pa.string()).cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise ConfigError(FORGET, column, f"values of its type, {type_} ({problem})") from None


def _literals(known: pa.Array, values: Sequence[str]) -> Iterable[str]:
    type_ = known.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return [f"X'{value.encode().hex()}'" for value in values]
    return map(_quoted, values)


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
