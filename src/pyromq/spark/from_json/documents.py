"""A column of bodies as a column of rows, each read by the quickest reader that surely does as Spark does."""

import re
from typing import Any

import numpy as np
import pyarrow as pa

from pyromq.errors import RemoteProtocolError
from pyromq.spark.from_json.exact import exact_reader
from pyromq.spark.from_json.plain import plain_reader
from pyromq.spark.from_json.quick import QuickReader
from pyromq.spark.from_json.times import Zone
from pyromq.spark.from_json.unfit import Partly, Unfit

CORRUPT = "_corrupt_record"
"""A field of this name gets the text of a document that does not fit."""


class Documents:
    def __init__(self, type_: pa.StructType, zone: Zone, *, fails: bool) -> None:
        self._type = type_
        self._fails = fails
        corrupt = type_.get_field_index(CORRUPT)
        self._keeps_corrupt = corrupt >= 0 and pa.types.is_string(type_.field(corrupt).type)
        read = [field for field in type_ if not self._keeps_corrupt or field.name != CORRUPT]
        self._plain = plain_reader(pa.struct(read), zone)
        self._exact = exact_reader(pa.struct(read), zone)
        self._quick = None if self._keeps_corrupt else QuickReader(type_, zone)

    def read(self, bodies: pa.BinaryArray) -> pa.StructArray:
        quick = self._quick.read(bodies) if self._quick is not None else None
        if quick is None:
            return self._one_by_one(bodies)
        if not quick.doubtful.any():
            return quick.rows
        slow = self._one_by_one(bodies.filter(pa.array(quick.doubtful)))
        places = np.arange(len(bodies))
        places[quick.doubtful] = len(bodies) + np.arange(len(slow))
        return pa.concat_arrays([quick.rows, slow]).take(pa.array(places))

    def _one_by_one(self, bodies: pa.BinaryArray) -> pa.StructArray:
        return pa.array([self._document(body) for body in bodies.to_pylist()], self._type)

    def _document(self, body: bytes) -> Any:
        text = text_of_bytes(body)
        try:
            return self._plain(text)
        except Unfit:
            pass
        try:
            return self._exact(text)
        except Unfit as problem:
            if self._fails:
                why = f"the body {body[:100]!r} cannot be read: {problem}"
                raise RemoteProtocolError(why) from None
            row = problem.value if isinstance(problem, Partly) else {}
            return {**row, CORRUPT: text} if self._keeps_corrupt else row


_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")


def text_of_bytes(body: bytes) -> str:
    """UTF-8, with a mark in place of what is not."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        # java: the three bytes of half a surrogate pair are one mistake
        return _SURROGATE.sub("\ufffd".encode(), body).decode("utf-8", "replace")
