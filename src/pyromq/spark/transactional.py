"""Writes exactly once: tasks send half messages, which consumers cannot read, and Spark's commit shows them.

The batch journal decides. A batch that was decided is neither rolled back nor sent again when Spark repeats
it; one that was not decided is sent with new ids, and what its earlier attempts sent is never committed.
"""

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyromq.errors import BadMessage, ConfigError, PyroError
from pyromq.protocol import properties as props
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.spark.batch_journal import BatchJournal, StoredHalf
from pyromq.spark.checks import checks_of_this_process
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.destinations import Destinations
from pyromq.spark.encode import SPARK_BATCH, Ids, OutgoingMessages
from pyromq.spark.ending import Ending
from pyromq.spark.links import links_of_this_worker
from pyromq.spark.options import WriteOptions
from pyromq.spark.sending import SendUnit, TaskSender
from pyromq.spark.settling import settle_in, told_in_a_line
from pyromq.spark.writer import traced

_IN_FLIGHT: Final = 128


class Prepared(WriterCommitMessage):
    """The half messages of one task."""

    def __init__(self, halves: list[StoredHalf]) -> None:
        self.halves = halves


class TransactionalStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, checkpoint: str | None) -> None:
        journal = options.journal or checkpoint
        if journal is None:
            raise ConfigError("journal", None, "a directory, or the option checkpointLocation of the query")
        self._options = options
        self._journal = journal

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        batch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        return prepare(iterator, self._options, BatchJournal(self._journal), batch)

    @told_in_a_line()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit(_halves(messages), self._options, BatchJournal(self._journal), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort(messages, self._options)


class TransactionalBatchWriter(DataSourceArrowWriter):
    """All rows become visible when all tasks are done. A driver that dies in between leaves some uncommitted,
    unless the write is a numbered batch of a stream, whose journal remembers."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        if options.batch_id is not None and options.journal is not None:
            _refuse_shared(BatchJournal(options.journal), options.batch_id, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        if options.batch_id is None or options.journal is None:
            return Prepared(send_halves(iterator, options))
        return prepare(iterator, options, BatchJournal(options.journal), options.batch_id)

    @told_in_a_line()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options = self._options
        if options.batch_id is None or options.journal is None:
            settle_in()
            _ending(options).commit(_halves(messages))
            return
        commit(_halves(messages), options, BatchJournal(options.journal), options.batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort(messages, self._options)


def _refuse_shared(journal: BatchJournal, batch: int, options: WriteOptions) -> None:
    """The second of two writes of a batch would send nothing if they had one journal."""
    there = journal.topic(batch)
    if there is not None and options.topic not in (None, there):
        expected = f"a directory of its own for each write: batch {batch} of this one went to {there}"
        raise ConfigError("journal", options.journal, f"{expected}, not to {options.topic}")


def prepare(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, journal: BatchJournal, batch: int
) -> Prepared:
    """Send the rows of one task as half messages, unless the batch is decided already."""
    if journal.is_decided(batch):
        for _ in batches:  # what computes the rows must still see their end
            pass
        return Prepared([])
    return Prepared(send_halves(batches, options, f"{journal.short_name}:{batch}"))


def commit(halves: list[StoredHalf], options: WriteOptions, journal: BatchJournal, batch: int) -> None:
    """On return the batch is committed. After a crash it continues where the last attempt was."""
    settle_in()
    cluster = SparkCluster(options.access, links_of_this_worker(options.access))
    ending = Ending(cluster, options.group)
    with contextlib.suppress(PyroError):  # a broker that is away asks nothing
        queues = {half.queue.broker: half.queue for half in halves}
        brokers = {cluster.address(queue) for queue in queues.values()}
        checks_of_this_process(options.access, options.group).serve(journal, brokers)
    if journal.is_decided(batch):
        # The driver died behind the decision; tasks of this attempt that came before it lost.
        decided = journal.unended(batch)
        keys = {half.unique_key for half in decided}
        ending.roll_back([half for half in halves if half.unique_key not in keys])
        ending.commit(decided, in_doubt=True)
    else:
        journal.decide(batch, halves, options.topic)
        ending.commit(halves)
    journal.end(batch)


def abort(messages: list[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Roll back what a batch has sent if a task failed: then its message is missing, and no commit was tried.
    Otherwise a commit failed, or continues in a process that Spark does not wait for. Only the journal knows
    how the batch ends, so the next attempt, or the answer to a broker's question, follows it."""
    if None in messages:
        settle_in()
        _ending(options).roll_back(_halves(messages))


def send_halves(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, batch: str | None = None
) -> list[StoredHalf]:
    """On return a half message of each row is stored; an attempt that fails rolls its messages back. `batch`
    tells whoever answers for the batch which one it is."""
    settle_in()
    attempt = uuid.uuid4().hex
    halves: list[StoredHalf] = []

    def stored(sent: SendUnit, answer: SendMessageAnswer) -> None:
        assert sent.place is not None
        assert sent.properties is not None
        key = get_property(sent.properties, props.UNIQ_KEY) or ""
        log_offset = decode_offset_message_id(answer.msg_id).log_offset
        halves.append(StoredHalf(sent.place, key, answer.queue_offset, log_offset))

    cluster = SparkCluster(options.access, links_of_this_worker(options.access))
    sender = TaskSender(cluster, options, first=hash(attempt), in_flight=_IN_FLIGHT, on_stored=stored)
    try:
        with traced(options, sender) as traceparent:
            mark = f"{SPARK_BATCH}\x01{batch}\x02" if batch is not None else ""
            _send(batches, sender, options, Ids(attempt), traceparent, mark)
            sender.flush()
    except BaseException:
        Ending(cluster, options.group).roll_back(halves)
        raise
    finally:
        sender.close()
    # Answers come in any order; ids are in the order of the rows.
    return sorted(halves, key=lambda half: half.unique_key)


def _send(
    batches: Iterable[pa.RecordBatch],
    sender: TaskSender,
    options: WriteOptions,
    ids: Ids,
    traceparent: str | None,
    mark: str,
) -> None:
    destinations = Destinations(options.topic, sender.queues, keys_choose=options.queue_by == "key")
    is_half = f"{props.TRANSACTION_PREPARED}\x01true\x02{props.PRODUCER_GROUP}\x01{options.group}\x02{mark}"
    for batch in batches:
        if not batch.num_rows:
            continue
        messages = OutgoingMessages(
            batch, ids, with_properties=options.with_properties, traceparent=traceparent
        )
        if messages.delayed().any():
            raise BadMessage("a row is delayed: mode=transactional sends none that wait for their time")
        bodies, texts = messages.bodies.to_pylist(), messages.properties.to_pylist()
        for topic, queue, rows in destinations.of(messages):
            for row in rows.tolist():
                text = is_half + texts[row].decode()
                sender.send(
                    SendUnit(topic, bodies[row], 1, queue, text, sys_flag=SysFlag.TRANSACTION_PREPARED)
                )


def _ending(options: WriteOptions) -> Ending:
    return Ending(SparkCluster(options.access, links_of_this_worker(options.access)), options.group)


def _halves(messages: list[WriterCommitMessage | None]) -> list[StoredHalf]:
    return [half for each in messages if isinstance(each, Prepared) for half in each.halves]
