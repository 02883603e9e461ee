"""`valueSchema=infer`: the schema of JSON bodies from the newest messages, kept where `schemaLocation` says.

What is kept is never inferred again: a stream that starts again has the columns that it had.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote

from pyspark.sql.types import BinaryType, StructType

from pyromq.errors import ConfigError
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.from_json.inferred import inferred_fields
from pyromq.spark.options import INFER, ReadOptions, Selection
from pyromq.spark.queues import Span

SAMPLED = 1000
"""The number of messages in a sample, of all queues together."""

_MAX_NAME = 200


def sampled_schema(options: ReadOptions) -> str:
    """DDL of the fields."""
    if options.schema_location is None:
        return _inferred(options)
    name = f"{file_name(named(options.selection))}.ddl"
    return kept_once(options.schema_location, name, lambda: _inferred(options))


def kept_once(location: str, name: str, make: Callable[[], str]) -> str:
    """A file's text; if there is no file, the text is made now and kept there."""
    from pyromq.spark.journal_files import journal_files  # Spark imports this file when it looks for sources

    files = journal_files(location, "schemaLocation")
    if files.read(name) is None:
        with suppress(FileExistsError):  # another driver was quicker
            files.create(name, make().encode())
    kept = files.read(name)
    assert kept is not None
    return kept.decode()


def _inferred(options: ReadOptions) -> str:
    fields = inferred_fields(newest_bodies(options))
    if fields is None:
        expected = f"JSON objects among the newest {SAMPLED} messages of {named(options.selection)}, or DDL"
        raise ConfigError("valueSchema", INFER, expected)
    return fields


def newest_bodies(options: ReadOptions) -> Iterator[bytes]:
    """Bodies of the newest messages, of each queue as many."""
    from pyromq.spark.reading import read_spans

    bodies = {"value_format": "binary", "value_schema": None, "schema_location": None, "time_zone": None}
    plain = replace(options, **bodies, fail_on_data_loss=False)  # type: ignore[arg-type]
    cluster = SparkCluster(options.access)
    try:
        queues = cluster.queues(options.selection)
        first, last = cluster.earliest(queues), cluster.latest(queues)
        filled = [queue for queue in queues if last[queue] > first[queue]][:SAMPLED]
        share = SAMPLED // max(len(filled), 1)
        spans = [Span(queue, max(first[queue], last[queue] - share), last[queue]) for queue in filled]
        for batch in read_spans(cluster, plain, StructType().add("value", BinaryType()), spans):
            yield from batch.column(0).to_pylist()
    finally:
        cluster.close()


def named(selection: Selection) -> str:
    queues = sorted(map(str, selection.queues or ()))
    return ",".join(sorted(selection.topics) or queues) or selection.pattern or ""


def file_name(text: str) -> str:
    name = quote(text, safe="").replace("%", ".")
    return name if len(name) <= _MAX_NAME else hashlib.sha256(name.encode()).hexdigest()
