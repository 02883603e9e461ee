"""Writes are at least once: each task sends its rows in batches, and Spark's commit has nothing left to do.

Transactional writes would fit here: `write` would send half messages, `commit` and `abort` would end them.
They are not supported yet, and the option says so.
"""

import os
import uuid
from collections.abc import Iterator

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
from pyromq.spark.cluster import Cluster
from pyromq.spark.encode import Ids, OutgoingMessages, shard
from pyromq.spark.links import links_of_this_worker
from pyromq.spark.options import WriteOptions
from pyromq.spark.queues import Queue
from pyromq.spark.sending import SendBatch, Sender
from pyromq.spark.settling import settle_in


class Written(WriterCommitMessage):
    """What one task has stored."""

    def __init__(self, messages: int) -> None:
        self.messages = messages


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Made once on the driver: a task that is repeated writes the same ids.
        self._job = options.id_prefix or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, f"{self._job}:0:{_partition()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle_in()  # Spark commits in a process of its own, which comes back for the next job


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        query = self._options.id_prefix or task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        return write_rows(iterator, self._options, f"{query}:{batch}:{task.partitionId()}")


def _partition() -> int:
    task = TaskContext.get()
    return task.partitionId() if task is not None else os.getpid()


def write_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, task: str) -> Written:
    """Send the rows of one task; on return they are all stored."""
    settle_in()
    cluster = Cluster(options.access, links_of_this_worker(options.access))
    sender = Sender(cluster, options, first=hash(task))
    try:
        if not options.otel:
            _send_rows(batches, sender, options, task, options.traceparent)
        else:
            from pyromq.spark.spans import sending

            with sending(options.topic, options.traceparent) as (span, traceparent):
                _send_rows(batches, sender, options, task, traceparent)
                span.set_attribute("messaging.batch.message_count", sender.messages)
    finally:
        sender.close()
    return Written(sender.messages)


def _send_rows(
    batches: Iterator[pa.RecordBatch],
    sender: Sender,
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

    def __init__(self, sender: Sender, options: WriteOptions) -> None:
        self._sender = sender
        self._options = options

    def send(self, messages: OutgoingMessages) -> None:
        delayed = messages.delayed()
        queues = self._destinations(messages)
        rows = np.arange(messages.count)
        for index in rows[delayed].tolist():
            topic, queue = queues[1][queues[0][index]]
            self._sender.send(
                SendBatch(
                    topic,
                    messages.bodies[index].as_py(),
                    1,
                    queue,
                    messages.properties[index].as_py().decode(),
                )
            )
        entries = messages.entries()
        for code, (topic, queue) in enumerate(queues[1]):
            chosen = (queues[0] == code) & ~delayed
            if chosen.any():
                together = entries if chosen.all() else entries.take(pa.array(rows[chosen]))
                self._send_together(topic, queue, together)

    def _send_together(self, topic: str, queue: Queue | None, entries: pa.BinaryArray) -> None:
        _, edge_buffer, data = entries.buffers()
        edges = np.frombuffer(edge_buffer, np.int32)[entries.offset : entries.offset + len(entries) + 1]
        whole = memoryview(data)
        first = 0
        while first < len(entries):
            # As many as fit, but at least one: the broker decides whether that one is too large.
            last = int(np.searchsorted(edges, edges[first] + self._options.batch_bytes, side="right")) - 1
            last = max(last, first + 1)
            self._sender.send(SendBatch(topic, whole[edges[first] : edges[last]], last - first, queue))
            first = last

    def _destinations(
        self, messages: OutgoingMessages
    ) -> tuple[NDArray[np.int64], list[tuple[str, Queue | None]]]:
        """For each row the number of its destination, and the destinations."""
        topics = messages.column("topic")
        sharding, numbers = messages.column("shardingKey"), messages.column("queueId")
        if topics is None and sharding is None and numbers is None:
            assert self._options.topic is not None
            return np.zeros(messages.count, np.int64), [(self._options.topic, None)]
        columns = [topics, sharding, numbers, messages.column("brokerName")]
        codes = np.zeros(messages.count, np.int64)
        for column in columns:
            if column is not None:
                encoded = column.dictionary_encode(null_encoding="encode")
                codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, first_rows, destination_codes = np.unique(codes, return_index=True, return_inverse=True)
        places: dict[tuple[str, Queue | None], int] = {}
        codes = np.empty(len(first_rows), np.int64)
        for number, row in enumerate(first_rows.tolist()):
            wish = [None if column is None else column[row].as_py() for column in columns]
            codes[number] = places.setdefault(self._destination(*wish), len(places))
        return codes[destination_codes], list(places)

    def _destination(
        self, topic: str | None, sharding: str | None, queue_id: int | None, broker: str | None
    ) -> tuple[str, Queue | None]:
        # The option goes before a row's own topic: it holds for all rows.
        topic = self._options.topic or topic
        if not topic:
            raise BadMessage("a row has no topic, and the option topic is not set")
        if sharding is None and queue_id is None:
            return topic, None
        queues = self._sender.queues(topic)
        if sharding is not None:
            return topic, queues[shard(sharding, len(queues))]
        fitting = [q for q in queues if q.queue_id == queue_id and broker in (None, q.broker)]
        if len(fitting) != 1:
            where = f"{broker}:{queue_id}" if broker is not None else f"queue {queue_id}"
            why = "several brokers have it: add a column brokerName" if fitting else "no such queue"
            raise BadMessage(f"{where} of topic {topic}: {why}")
        return topic, fitting[0]
