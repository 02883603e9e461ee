"""The work of a task: fetch spans, hand them to Spark as Arrow batches."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyromq.errors import RemoteProtocolError
from pyromq.filtering.tags import parse_tags
from pyromq.spark import by_offsets
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.columns import read_columns
from pyromq.spark.compacted import is_compacted
from pyromq.spark.fetch import Chunk, Fetch, report_loss
from pyromq.spark.links import links_of_this_worker
from pyromq.spark.options import ReadOptions
from pyromq.spark.partitions import SpansPartition
from pyromq.spark.queues import Span
from pyromq.spark.repeats import COLUMNS, Repeats, repeats_before
from pyromq.spark.settling import settle_in
from pyromq.spark.tier_parts import TierPart
from pyromq.spark.values import conversion

if TYPE_CHECKING:
    from pyromq.spark.tier_reading import TierReader

MAX_ROWS = 16_384


def read_partition(
    options: ReadOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    # Spark turns an empty plan into one partition that means nothing.
    if isinstance(partition, SpansPartition):
        settle_in()
        cluster = SparkCluster(options.access, links_of_this_worker(options.access))
        yield from read_spans(cluster, options, schema, partition.spans)


def read_spans(
    cluster: SparkCluster, options: ReadOptions, schema: StructType, spans: Iterable[Span | TierPart]
) -> Iterator[pa.RecordBatch]:
    reader: TierReader | None = None
    for span in spans:
        if isinstance(span, TierPart):
            if reader is None:
                from pyromq.spark import tier_reading  # most reads do not need it

                reader = tier_reading.TierReader(cluster, options)
            batches = read_part(cluster, options, schema, span, reader)
        else:
            batches = read_span(cluster, options, schema, span)
        yield from _traced(options, span, batches) if options.otel else batches


def _traced(
    options: ReadOptions, span: Span | TierPart, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyromq.spark.spans import receiving

    with receiving(span.queue.topic, options.pull_group, options.traceparent) as trace:
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            yield batch
        trace.set_attribute("messaging.batch.message_count", rows)


def read_span(
    cluster: SparkCluster, options: ReadOptions, schema: StructType, span: Span
) -> Iterator[pa.RecordBatch]:
    repeats = None
    if options.drop_duplicates_within is not None:
        repeats = repeats_before(cluster, options, span, options.drop_duplicates_within)
    rows = _Rows(cluster, options, schema, span, repeats)
    if rows.are_offsets and by_offsets.is_whole(cluster, span):
        yield from by_offsets.batches(span, rows.schema, rows.constants, MAX_ROWS)
        return
    yield from rows.batches(Fetch(cluster, span, options))


def read_part(
    cluster: SparkCluster, options: ReadOptions, schema: StructType, part: TierPart, reader: "TierReader"
) -> Iterator[pa.RecordBatch]:
    rows = _Rows(cluster, options, schema, Span(part.queue, part.start, part.end))
    if rows.are_offsets:
        for span in reader.spans(part):
            yield from by_offsets.batches(span, rows.schema, rows.constants, MAX_ROWS)
        return
    yield from rows.batches(reader.chunks(part))


class _Rows:
    """Turns chunks of one span into batches of one schema."""

    def __init__(
        self,
        cluster: SparkCluster,
        options: ReadOptions,
        schema: StructType,
        span: Span,
        repeats: Repeats | None = None,
    ) -> None:
        self._cluster = cluster
        self._is_compacted: bool | None = None
        self._options = options
        self._repeats = repeats
        self._span = span
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self.constants = {
            "topic": pa.scalar(span.queue.topic),
            "brokerName": pa.scalar(span.queue.broker),
            "queueId": pa.scalar(span.queue.queue_id, pa.int32()),
        }
        self._tags = parse_tags(options.tags)
        self._names = self.schema.names
        if not self._tags.wants_all and "tags" not in self._names:
            self._names = [*self._names, "tags"]
        if repeats is not None:
            self._names = [*self._names, *(name for name in COLUMNS if name not in self._names)]
        self.are_offsets = by_offsets.COLUMNS.issuperset(self._names) and not options.is_filtered
        self._convert = None
        if "value" in self.schema.names:
            self._convert = conversion(options, self.schema.field("value").type)

    def batches(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            batch = self.batch(chunk)
            for first in range(0, batch.num_rows, MAX_ROWS):
                yield batch.slice(first, MAX_ROWS)

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        end = min(chunk.end, self._span.end)
        count, columns = read_columns(chunk.bodies, self._names, self.constants, chunk.start, end)
        if count < end - chunk.start and not (self._options.is_filtered or self._may_have_gaps()):
            self._report_gaps(chunk, end)
        try:
            arrays = [self._fitted(columns[field.name], field) for field in self.schema]
        except RemoteProtocolError as problem:
            raise self._unreadable(chunk, end, problem) from None
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        is_wanted = None
        if not self._tags.wants_all:
            # Brokers compare hashes of tags, which may collide.
            is_wanted = pc.is_in(columns["tags"], value_set=pa.array(sorted(self._tags.tags), pa.string()))
        if self._repeats is not None:
            is_first = pa.array(self._repeats.first_ones(columns["msgId"], columns["offset"]), pa.bool_())
            is_wanted = is_first if is_wanted is None else pc.and_(is_first, is_wanted)
        return batch if is_wanted is None else batch.filter(is_wanted)

    def _may_have_gaps(self) -> bool:
        """Asked once, and only where there are some."""
        if self._is_compacted is None:
            self._is_compacted = is_compacted(self._cluster, self._span.queue)
        return self._is_compacted

    def _report_gaps(self, chunk: Chunk, end: int) -> None:
        """Name the messages that an answer should have and has not."""
        offsets = read_columns(chunk.bodies, ["offset"], {}, chunk.start, end).arrays["offset"].to_pylist()
        for before, after in pairwise([chunk.start - 1, *offsets, end]):
            if after > before + 1:
                why = "the broker leaves them out"
                fails = self._options.fail_on_data_loss
                report_loss(self._span.queue, before + 1, after, why, fails=fails)

    def _unreadable(self, chunk: Chunk, end: int, problem: RemoteProtocolError) -> RemoteProtocolError:
        """The error with the place of the message that it is about."""
        columns = read_columns(chunk.bodies, ["value", "offset"], self.constants, chunk.start, end).arrays
        value = self.schema.field("value")
        for index, offset in enumerate(columns["offset"].to_pylist()):
            try:
                self._fitted(columns["value"].slice(index, 1), value)
            except RemoteProtocolError as found:
                return RemoteProtocolError(f"{self._span.queue} offset {offset}: {found}")
        return problem

    def _fitted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if field.name == "value" and self._convert is not None:
            column = self._convert(column)
        return column if column.type == field.type else column.cast(field.type)
