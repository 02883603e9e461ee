"""Rows for a transactional sink, what can be read of them, and a driver that dies while it commits them."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pyromq.errors import Refused
from pyromq.protocol.record import decode_records
from pyromq.spark.batch_journal import BatchJournal, StoredHalf
from pyromq.spark.cluster import SparkCluster, pull_of
from pyromq.spark.ending import Ending
from pyromq.spark.options import WriteOptions
from pyromq.spark.transactional import Prepared, commit

ROWS = 300


class Died(Exception):
    """The driver was killed here."""


def rows(batch: int) -> Iterator[pa.RecordBatch]:
    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    keys = [f"k{number % 7}" for number in numbers]
    for first in (0, ROWS // 2):
        part = slice(first, first + ROWS // 2)
        yield pa.RecordBatch.from_pydict({"value": [str(n) for n in numbers][part], "key": keys[part]})


def visible(options: WriteOptions) -> list[tuple[int, int]]:
    """The queues and numbers of all messages that can be read, in the order of their queues."""
    assert options.topic is not None
    running = SparkCluster(options.access)
    found: list[tuple[int, int]] = []
    try:
        for queue, end in running.latest(running.writable_queues(options.topic)).items():
            offset = 0
            while offset < end:
                answer = running.ask_brokers({queue: pull_of(queue, offset, 32)})[queue]
                assert not isinstance(answer, Refused)
                offset = answer.next_begin_offset
                found += [(queue.queue_id, int(each.body)) for each in decode_records(answer.body)]
    finally:
        running.close()
    return found


def numbers(options: WriteOptions) -> Counter[int]:
    return Counter(number for _, number in visible(options))


def die_while_committing(
    prepared: Prepared,
    options: WriteOptions,
    journal: BatchJournal,
    *,
    after: int,
    batch: int = 0,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch is decided, and so many of its messages are committed."""
    commit_all = Ending.commit

    def die(self: Ending, halves: list[StoredHalf]) -> None:
        commit_all(self, halves[:after])
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Ending, "commit", die)
        with pytest.raises(Died):
            commit(prepared.halves, options, journal, batch)
