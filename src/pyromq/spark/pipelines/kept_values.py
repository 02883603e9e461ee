"""A column whose value an event leaves out keeps the value that it had: in the batch, else in the table.

PostgreSQL does not log large values that an update does not touch. Debezium writes a placeholder for them, in
a form that fits the type of the column.
"""

import base64
import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.pipelines.lake_files import DELETED

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's own placeholder, unless `unavailable.value.placeholder` sets another."""

KEPT, PLACE = "__kept", "__place"
"""The columns with the names of the columns that an event leaves out, and its place: 1 for the last event."""


class Placeholder:
    """Recognises a placeholder in all its forms; the empty text stands for none."""

    def __init__(self, text: str) -> None:
        if not text.isascii() or not text.isprintable() or set(text) & {'"', "\\"}:
            raise ConfigError("placeholder", text, "printable ASCII without quotes and backslashes")
        raw = text.encode()
        # java: UUID.nameUUIDFromBytes
        number = uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
        texts = [text, raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()]
        digits = [base64.b64encode(bytes([byte])).decode() for byte in raw]
        self._forms: list[Any] = [
            *texts,
            {text: text},
            json.dumps({text: text}, separators=(",", ":")),
            *([each] for each in (*texts, str(number))),
            [*raw],
            digits,
            [{"scale": 0, "value": digit} for digit in digits],
        ]
        # Only rows that have the beginning of a form somewhere are decoded.
        numbers = [separator.join(map(str, raw[:2])) for separator in (",", ", ", ".0,", ".0, ")]
        starts = {*texts, str(number), *(f'"{digit}"' for digit in digits[:1]), *numbers}
        self._starts = [start.encode() for start in sorted(starts)] if text else []

    def split(self, row: bytes) -> tuple[bytes, list[str]]:
        """The JSON of a row without the columns that are omitted, and their names."""
        if not any(start in row for start in self._starts):
            return row, []
        columns = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
        kept = [name for name, raw in columns.items() if msgspec.json.decode(raw) in self._forms]
        return msgspec.json.encode({name: columns[name] for name in columns if name not in kept}), kept


def with_kept_values(events: pa.Table, keys: Sequence[str], stored: pa.Table | None) -> pa.Table:
    """One row of each key, with all its values.

    `events` has the rows of a key since the last event that leaves nothing out; `stored` the rows of the
    table that have such keys, and perhaps others.
    """
    rows = events.sort_by([(PLACE, "descending")])
    if stored is not None:
        rows = pa.concat_tables([stored, rows], promote_options="default")
    numbers = [pc.index_in(rows[key], value_set=rows[key].unique()).to_pylist() for key in keys]
    left_out, is_deleted, places = (rows[name].to_pylist() for name in (KEPT, DELETED, PLACE))
    may_miss = sorted({name for names in left_out if names for name in names})
    last: dict[tuple[int, ...], int] = {}
    values: dict[tuple[int, ...], dict[str, int]] = {}
    for at, key in enumerate(zip(*numbers, strict=True)):
        missing = left_out[at] or ()
        has = {} if is_deleted[at] else {name: at for name in may_miss if name not in missing}
        values[key] = values.get(key, {}) | has if missing else has
        if unknown := [name for name in missing if name not in values[key] or name in keys]:
            which = ", ".join(f"{name}={rows[name][at].as_py()!r}" for name in keys)
            raise RemoteProtocolError(
                f"an event of the row with {which} leaves out {', '.join(unknown)}, and no earlier value is"
                " known. Expected REPLICA IDENTITY FULL for such tables, or an empty `placeholder`, which"
                " takes the placeholder for a value"
            )
        if places[at] is not None:
            last[key] = at
    whole = rows.take(pa.array(last.values())).drop_columns([KEPT, PLACE])
    for name in may_miss:
        column = rows[name].take(pa.array([values[key].get(name, at) for key, at in last.items()]))
        whole = whole.set_column(whole.column_names.index(name), name, column)
    return whole
