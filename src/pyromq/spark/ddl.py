"""Types written as Spark's DDL, read without a JVM: `id bigint, tags array<string>, at struct<day: date>`.

Processes in which Spark plans have no session that could read them.
"""

import re
from collections.abc import Iterator, Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PLAIN: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*')|(\w+)|([<>(),:]))")


def parse_type(ddl: str) -> DataType:
    """One type; ValueError says what cannot be read."""
    return _Parser(ddl).whole_type()


class _Parser:
    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = [*_tokens(ddl), ""]
        self._at = 0

    def whole_type(self) -> DataType:
        type_ = self._type()
        self._expect("")
        return type_

    def _peek(self) -> str:
        return self._tokens[self._at].lower()

    def _take(self) -> str:
        token = self._tokens[self._at]
        self._at += bool(token)
        return token

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise ValueError(f"{self._tokens[self._at] or 'an end'!r} in {self._ddl!r}, expected {token!r}")
        self._take()

    def _passes(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._take()
        return True

    def _type(self) -> DataType:
        name = self._take().lower()
        if name == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return ArrayType(element)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return MapType(key, value)
        if name == "struct":
            return self._struct()
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name == "interval":
            for word in ("day", "to", "second"):
                self._expect(word)
            return DayTimeIntervalType()
        if name not in _PLAIN:
            raise ValueError(f"{name!r} in {self._ddl!r} is not a type")
        return _PLAIN[name]

    def _struct(self) -> StructType:
        fields: list[StructField] = []
        self._expect("<")
        while self._peek() != ">":
            if fields:
                self._expect(",")
            name = self._take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            self._passes(":")
            type_ = self._type()
            nullable = not self._passes("not")
            if not nullable:
                self._expect("null")
            if self._passes("comment"):
                self._take()
            fields.append(StructField(name, type_, nullable))
        self._expect(">")
        return StructType(fields)

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self._passes("("):
            precision = int(self._take())
            if self._passes(","):
                scale = int(self._take())
            self._expect(")")
        return DecimalType(precision, scale)


def _tokens(ddl: str) -> Iterator[str]:
    position = 0
    while ddl[position:].strip():
        match = _TOKEN.match(ddl, position)
        if match is None:
            raise ValueError(f"{ddl[position:]!r} cannot be read as a type")
        position = match.end()
        yield match[match.lastindex or 0]
