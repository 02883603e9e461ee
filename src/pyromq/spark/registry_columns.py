"""Columns of structures as Avro bodies with a schema of a registry, which `valueFormat=avro` reads."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf

from pyromq.spark.avro import avro_writer
from pyromq.spark.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import Column


def to_avro(
    column: "Column | str", registry: str, subject: str, *, schema: str | None = None, auth: str | None = None
) -> "Column":
    """Bodies for a topic; `schema` is registered, or the latest one of the subject is used.

    `frame.select(to_avro(struct("id", "note"), "http://127.0.0.1:8081", "Orders-value").alias("value"))`
    """
    known = Registry(registry, auth)
    if schema is None:
        latest = known.latest(subject)
        schema, number = latest.text, latest.id
    else:
        number = known.register(subject, schema)

    def bodies(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        write = avro_writer(schema, number)
        for rows in batches:
            yield pa.array([None if row is None else write(row) for row in rows.to_pylist()], pa.binary())

    # Its stubs know only the call that makes it warn.
    made: Column = arrow_udf(bodies, "binary")(column)  # type: ignore[call-overload]
    return made
