"""A transactional sink: rows are visible when their batch is decided, once, wherever the driver dies."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.transactional_rows import ROWS, die_while_committing, numbers, rows, visible

from pyromq.errors import BadMessage, ConfigError, Refused
from pyromq.protocol.java_hash import java_string_hash
from pyromq.protocol.properties import UNIQ_KEY
from pyromq.spark.batch_journal import DIRECTORY, BatchHeld, BatchJournal, StoredHalf
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.ending import Ending
from pyromq.spark.options import WriteOptions, write_options
from pyromq.spark.queues import Queue
from pyromq.spark.sending import SendUnit, TaskSender
from pyromq.spark.transactional import (
    Prepared,
    TransactionalBatchWriter,
    TransactionalStreamWriter,
    commit,
    prepare,
)
from pyromq.testing import cluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with cluster(default_topic_queues=4) as running:
        yield running.namesrv


@pytest.fixture
def options(namesrv: str, request: pytest.FixtureRequest) -> WriteOptions:
    topic = request.node.name.partition("[")[0]
    return write_options({"namesrv": namesrv, "topic": topic, "mode": "transactional"})


def test_a_batch_is_visible_when_it_is_committed_in_the_order_of_its_rows(
    options: WriteOptions, tmp_path: Path
) -> None:
    journal = BatchJournal(str(tmp_path))
    for batch in (0, 1):
        prepared = prepare(rows(batch), options, journal, batch)
        assert len(prepared.halves) == ROWS
        assert numbers(options).total() == batch * ROWS
        commit(prepared.halves, options, journal, batch)
    found = visible(options)
    assert sorted(number for _, number in found) == list(range(2 * ROWS))
    for queue in {queue for queue, _ in found}:
        own = [number for place, number in found if place == queue]
        assert own == sorted(own)
    files = sorted(path.name for path in (tmp_path / DIRECTORY).iterdir())
    assert files == ["0", "0.ended", "1", "1.ended"]


def test_a_driver_that_dies_before_the_decision_leaves_nothing_visible(
    options: WriteOptions, tmp_path: Path
) -> None:
    journal = BatchJournal(str(tmp_path))
    prepare(rows(0), options, journal, 0)
    again = prepare(rows(0), options, journal, 0)
    commit(again.halves, options, journal, 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


@pytest.mark.parametrize("ended", [0, 1, ROWS // 2, ROWS])
def test_a_driver_that_dies_behind_the_decision_neither_loses_nor_repeats(
    options: WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    journal = BatchJournal(str(tmp_path / "checkpoint"))
    prepared = prepare(rows(ended), options, journal, 0)
    die_while_committing(prepared, options, journal, after=ended, monkeypatch=monkeypatch)
    # Spark repeats the batch, with a new process.
    journal = BatchJournal((tmp_path / "checkpoint").as_uri())
    again = prepare(rows(ended), options, journal, 0)
    assert again.halves == []
    commit(again.halves, options, journal, 0)
    commit([], options, journal, 0)
    found = numbers(options)
    for number in range(ended * ROWS, (ended + 1) * ROWS):
        assert found[number] == 1


def test_a_batch_that_a_failed_task_ends_is_rolled_back(options: WriteOptions, tmp_path: Path) -> None:
    journal = BatchJournal(str(tmp_path))
    prepared = prepare(rows(0), options, journal, 0)
    TransactionalStreamWriter(options, str(tmp_path)).abort([prepared, None], 0)
    with pytest.raises(Refused, match="it was rolled back"):
        commit(prepared.halves, options, journal, 0)
    assert numbers(options).total() == 0


def test_a_batch_that_is_stopped_while_it_commits_is_not_rolled_back(
    options: WriteOptions, tmp_path: Path
) -> None:
    """Spark interrupts its own side only: the process that commits goes on."""
    journal = BatchJournal(str(tmp_path))
    prepared = prepare(rows(0), options, journal, 0)
    TransactionalStreamWriter(options, str(tmp_path)).abort([prepared], 0)
    commit(prepared.halves, options, journal, 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


def test_a_message_in_doubt_is_not_taken_for_another_with_the_same_hash(
    options: WriteOptions, tmp_path: Path
) -> None:
    journal = BatchJournal(str(tmp_path))
    prepared = prepare(rows(0), options, journal, 0)
    asked = SparkCluster(options.access)
    sender = TaskSender(asked, options, first=0)
    for half in prepared.halves:
        start, (high, low) = half.unique_key[:-2], map(ord, half.unique_key[-2:])
        same_hash = start + chr(high - 1) + chr(low + 31)
        assert java_string_hash(same_hash) == java_string_hash(half.unique_key)
        sender.send(SendUnit(half.queue.topic, b"-1", 1, half.queue, f"{UNIQ_KEY}\x01{same_hash}\x02"))
    sender.flush()
    sender.close()
    asked.close()
    journal.decide(0, prepared.halves)
    commit([], options, journal, 0)
    assert numbers(options) == {-1: ROWS} | dict.fromkeys(range(ROWS), 1)


def test_the_second_of_two_drivers_fails_and_says_who_holds_the_batch(
    options: WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are behind the look whether the batch is decided."""
    journal = BatchJournal(str(tmp_path))
    first, second = (prepare(rows(0), options, journal, 0) for _ in range(2))
    monkeypatch.setattr(BatchJournal, "is_decided", lambda self, batch: False)
    commit(first.halves, options, journal, 0)
    with pytest.raises(BatchHeld, match=rf"process {os.getpid()} on .* has decided batch 0 in {tmp_path}"):
        commit(second.halves, options, journal, 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


def test_a_task_that_fails_rolls_back_what_it_sent(
    options: WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[StoredHalf] = []
    monkeypatch.setattr(Ending, "roll_back", lambda _, halves: told.extend(halves))

    def some() -> Iterator[pa.RecordBatch]:
        yield next(rows(0))
        yield pa.RecordBatch.from_pydict({"value": ["x"], "delayLevel": pa.array([1], pa.int32())})

    with pytest.raises(BadMessage, match="a row is delayed"):
        prepare(some(), options, BatchJournal(str(tmp_path)), 0)
    assert told


def test_a_journal_has_a_place(options: WriteOptions) -> None:
    with pytest.raises(ConfigError, match="checkpointLocation"):
        TransactionalStreamWriter(options, None)


def test_a_journal_reads_what_it_wrote(tmp_path: Path) -> None:
    halves = [
        StoredHalf(Queue("T", "b", 1), "key", 5, 1 << 40),
        StoredHalf(Queue("U", "c", 2), "other", 6, 7),
    ]
    journal = BatchJournal(str(tmp_path))
    assert not journal.is_decided(3)
    journal.decide(3, halves)
    assert journal.is_decided(3)
    assert journal.unended(3) == halves
    journal.end(3)
    assert journal.is_decided(3)
    assert journal.unended(3) == []
    for batch in range(4, 110):
        journal.decide(batch, [])
        journal.end(batch)
    assert not journal.is_decided(3)
    assert journal.is_decided(109)


@pytest.mark.parametrize("ended", [False, True])
def test_two_writes_of_a_batch_do_not_share_a_journal(
    options: WriteOptions, tmp_path: Path, ended: bool
) -> None:
    """The second one would be taken for a repetition of the first."""
    journal = BatchJournal(str(tmp_path))
    journal.decide(3, [], "Totals")
    for _ in range(2 if ended else 0):
        journal.end(3)
    alerts = replace(options, topic="Alerts", journal=str(tmp_path), batch_id=3)
    with pytest.raises(ConfigError, match=r"journal=.*batch 3 of this one went to Totals, not to Alerts"):
        TransactionalBatchWriter(alerts)
    for fine in (replace(alerts, topic="Totals"), replace(alerts, topic=None), replace(alerts, batch_id=4)):
        TransactionalBatchWriter(fine)


def test_a_numbered_batch_write_is_written_once_however_often_it_is_repeated(
    options: WriteOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = replace(options, journal=str(tmp_path), batch_id=3)
    prepared = TransactionalBatchWriter(numbered).write(rows(0))
    assert isinstance(prepared, Prepared)
    journal = BatchJournal(str(tmp_path))
    die_while_committing(prepared, options, journal, after=ROWS // 3, batch=3, monkeypatch=monkeypatch)
    for _ in range(2):
        writer = TransactionalBatchWriter(numbered)
        writer.commit([writer.write(rows(0))])
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)
    following = TransactionalBatchWriter(replace(numbered, batch_id=4))
    following.commit([following.write(rows(1))])
    assert numbers(options) == dict.fromkeys(range(2 * ROWS), 1)
