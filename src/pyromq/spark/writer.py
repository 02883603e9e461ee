"""Writes at least once: each task sends its rows in batches, and Spark's commit has nothing left to do."""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyromq.errors import BadMessage
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.destinations import Destination, Destinations
from pyromq.spark.encode import Ids, OutgoingMessages
from pyromq.spark.links import links_of_this_worker
from pyromq.spark.options import WriteOptions
from pyromq.spark.sending import SendUnit, TaskSender
from pyromq.spark.settling import settle_in, told_in_a_line


class Written(WriterCommitMessage):
    """One task's stored messages, and why it stopped at a row that cannot be sent, if there was one.

    Spark would repeat a task that fails, in vain. A commit that fails ends the job at once.
    """

    def __init__(self, messages: int, refusal: str | None = None) -> None:
        self.messages = messages
        self.refusal = refusal


def raise_refusal(messages: Iterable[WriterCommitMessage | None]) -> None:
    for message in messages:
        if isinstance(message, Written) and message.refusal is not None:
            raise BadMessage(message.refusal)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Made once on the driver: a task that is repeated writes the same ids.
        self._job = options.id_prefix or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, f"{self._job}:0:{_partition()}")

    @told_in_a_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle_in()  # Spark commits in its own process, which comes back for the next job
        raise_refusal(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        query = self._options.id_prefix or task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        return write_rows(iterator, self._options, f"{query}:{batch}:{task.partitionId()}")

    @told_in_a_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        settle_in()
        raise_refusal(messages)


def _partition() -> int:
    task = TaskContext.get()
    return task.partitionId() if task is not None else os.getpid()


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, task: str) -> Written:
    """Send the rows of one task; on return they are all stored."""
    settle_in()
    cluster = SparkCluster(options.access, links_of_this_worker(options.access))
    sender = TaskSender(cluster, options, first=hash(task))
    try:
        with traced(options, sender) as traceparent:
            _send_rows(batches, sender, options, task, traceparent)
    except BadMessage as refusal:
        return Written(sender.messages, str(refusal))
    finally:
        sender.close()
    return Written(sender.messages)


@contextmanager
def traced(options: WriteOptions, sender: TaskSender) -> Iterator[str | None]:
    """The trace that messages belong to; with `otel`, a span of what is sent in this block."""
    if not options.otel:
        yield options.traceparent
        return
    from pyromq.spark.spans import sending

    with sending(options.topic, options.traceparent) as (span, traceparent):
        yield traceparent
        span.set_attribute("messaging.batch.message_count", sender.messages)


def _send_rows(
    batches: Iterator[pa.RecordBatch],
    sender: TaskSender,
    options: WriteOptions,
    task: str,
    traceparent: str | None,
) -> None:
    ids = Ids(task)
    batcher = _Batcher(sender, options)
    for batch in batches:
        if batch.num_rows:
            batcher.send(
                OutgoingMessages(batch, ids, with_properties=options.with_properties, traceparent=traceparent)
            )
    sender.flush()


class _Batcher:
    """Groups messages into requests: those for one queue together, delayed ones alone."""

    def __init__(self, sender: TaskSender, options: WriteOptions) -> None:
        self._sender = sender
        self._batch_bytes = options.batch_bytes
        self._destinations = Destinations(options.topic, sender.queues, keys_choose=options.queue_by == "key")

    def send(self, messages: OutgoingMessages) -> None:
        delayed = messages.delayed()
        some_wait = delayed.any()
        entries = messages.entries()
        for topic, queue, rows in self._destinations.of(messages):
            for row in rows[delayed[rows]].tolist() if some_wait else ():
                self._send_alone(Destination(topic, queue, rows), messages, row)
            together = rows[~delayed[rows]] if some_wait else rows
            if len(together):
                chosen = entries if len(together) == len(entries) else entries.take(pa.array(together))
                self._send_together(Destination(topic, queue, together), messages, chosen)

    def _send_alone(self, destination: Destination, messages: OutgoingMessages, row: int) -> None:
        text = messages.properties[row].as_py().decode()
        body = messages.bodies[row].as_py()
        self._sender.send(SendUnit(destination.topic, body, 1, destination.queue, text))

    def _send_together(
        self, destination: Destination, messages: OutgoingMessages, entries: pa.BinaryArray
    ) -> None:
        topic, queue, places = destination
        _, edge_buffer, data = entries.buffers()
        edges = np.frombuffer(edge_buffer, np.int32)[entries.offset : entries.offset + len(entries) + 1]
        whole = memoryview(data)
        rows = len(entries) if queue is not None else self._rows_a_queue(topic, edges)
        first = 0
        while first < len(entries):
            last = int(np.searchsorted(edges, edges[first] + self._batch_bytes, side="right")) - 1
            last = min(last, first + rows)
            if last > first:
                self._sender.send(SendUnit(topic, whole[edges[first] : edges[last]], last - first, queue))
            else:
                # As a batch, a body of the greatest size that brokers take would be larger than that.
                last = first + 1
                self._send_alone(destination, messages, int(places[first]))
            first = last

    def _rows_a_queue(self, topic: str, edges: NDArray[np.int32]) -> int:
        """How many rows each request gets so that all queues get as many."""
        queues, rows = len(self._sender.queues(topic)), len(edges) - 1
        size = int(edges[-1] - edges[0])
        rounds = -(-size // (self._batch_bytes * queues))
        return -(-rows // (rounds * queues))
