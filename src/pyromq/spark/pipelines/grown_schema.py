"""How the schema of a table grows: by fields that it did not have, on every level.

Columns of a table that follows a database may get wider, too, if no value is lost. Nothing else changes a
type.
"""

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from pyromq.errors import ConfigError


def plain(schema: StructType) -> StructType:
    """The same names and types without notes on them, and nothing that must not be missing."""
    return _plain(schema)  # type: ignore[return-value]


def _plain(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _plain(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType), _plain(kind.valueType))
    return kind


def grown(table: StructType, batch: StructType, *, widens: bool = False) -> StructType:
    """The table's schema with the fields that only the batch has; `ConfigError` if types contradict.

    `widens`: of two types of a column the wider one, like bigint for int and bigint.
    """
    old, new = plain(table), plain(batch)
    if widens:
        kinds = {field.name: field.dataType for field in old.fields}
        for field in new.fields:
            if (wider := _wider(kinds.get(field.name), field.dataType)) is not None:
                kinds[field.name] = field.dataType = wider
        old = StructType([StructField(name, kind) for name, kind in kinds.items() if name in old.names])
    return _grown(old, new, "")  # type: ignore[return-value]


_INTEGERS = (ByteType, ShortType, IntegerType, LongType)


def _wider(old: DataType | None, new: DataType) -> DataType | None:
    """The one of two types that has all values of both; None if there is none, or they are equal."""
    if old == new:
        return None
    for kinds in (_INTEGERS, (FloatType, DoubleType)):
        if isinstance(old, kinds) and isinstance(new, kinds):
            return max(old, new, key=lambda kind: kinds.index(type(kind)))
    if isinstance(old, DecimalType) and isinstance(new, DecimalType) and old.scale == new.scale:
        return max(old, new, key=lambda kind: kind.precision)
    return None


def _grown(old: DataType, new: DataType, name: str) -> DataType:
    if isinstance(old, StructType) and isinstance(new, StructType):
        fresh = {field.name: field for field in new.fields}
        fields = []
        for field in old.fields:
            other = fresh.pop(field.name, field)
            kind = _grown(field.dataType, other.dataType, f"{name}.{field.name}")
            fields.append(StructField(field.name, kind))
        return StructType([*fields, *fresh.values()])
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_grown(old.elementType, new.elementType, f"{name}[]"))
    if isinstance(old, MapType) and isinstance(new, MapType):
        return MapType(old.keyType, _grown(old.valueType, new.valueType, f"{name}[]"))
    if old != new:
        raise ConfigError(
            name.lstrip("."), new.simpleString(), f"the type it has in the lake: {old.simpleString()}"
        )
    return old


def grows_in_map(old: DataType, new: DataType) -> bool:
    """Whether some of the fields that a type got are in the values of a map."""
    if isinstance(old, MapType) and isinstance(new, MapType):
        return old.valueType != new.valueType
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return grows_in_map(old.elementType, new.elementType)
    if isinstance(old, StructType) and isinstance(new, StructType):
        return any(
            grows_in_map(field.dataType, new[field.name].dataType)
            for field in old.fields
            if field.name in new.names
        )
    return False
