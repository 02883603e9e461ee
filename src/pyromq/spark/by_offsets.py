"""Rows from offsets alone: a query that only asks where messages are, to count them, needs none of them.

A queue has one message at each of its offsets, from its first to its last. Compacted topics are an exception:
their messages are read. So are those of a span whose first or last message is not there; the reader then says
what is gone, or waits for it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pyromq.errors import PyroError, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.record import scan_record
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.spark.cluster import SparkCluster, pull_of
from pyromq.spark.queues import Span

COLUMNS = frozenset({"topic", "brokerName", "queueId", "offset"})

_CLEANUP_POLICY = "cleanup.policy"


def is_whole(cluster: SparkCluster, span: Span) -> bool:
    """Whether there surely is a message at each offset of the span."""
    queue, offsets = span.queue, (span.start, span.end - 1)
    try:
        with cluster.links.borrow(cluster.address_to_read(queue)) as link:
            (config,) = link.call_all([GetTopicConfig(topic=queue.topic)])
            answers = link.call_all([pull_of(queue, offset, 1) for offset in offsets])
    except PyroError:
        return False  # the reader asks again, and knows what to do if that fails
    if isinstance(config, Refused):
        # Brokers that do not know the question know no compacted topics either.
        if config.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return False
    elif config.body.attributes.get(_CLEANUP_POLICY) == "COMPACTION":
        return False
    for offset, answer in zip(offsets, answers, strict=True):
        if isinstance(answer, Refused) or not answer.body:
            return False
        first = scan_record(answer.body)
        if first is None or (first.topic, first.queue_offset) != (queue.topic, offset):
            return False
    return True


def batches(
    span: Span, schema: pa.Schema, constants: Mapping[str, pa.Scalar], most_rows: int
) -> Iterator[pa.RecordBatch]:
    for start in range(span.start, span.end, most_rows):
        offsets = np.arange(start, min(start + most_rows, span.end), dtype=np.int64)
        columns: dict[str, Any] = {"offset": pa.array(offsets)}
        columns |= {
            name: pa.repeat(constants[name], len(offsets)) for name in schema.names if name in constants
        }
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
