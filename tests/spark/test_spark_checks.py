"""Brokers that ask about half messages of a Spark batch are answered from the batch's journal."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.transactional_rows import ROWS, numbers, rows

from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.spark.batch_journal import DIRECTORY, BatchHeld, BatchJournal, StoredHalf
from pyromq.spark.checks import Checks, verdict
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import WriteOptions, write_options
from pyromq.spark.queues import Queue
from pyromq.spark.transactional import commit, prepare
from pyromq.testing import RunningCluster, cluster

MUCH_LATER_MS = 1 << 60


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    """Its broker asks soon, and often."""
    with cluster(
        default_topic_queues=4,
        transaction_timeout_ms=100,
        transaction_check_interval_ms=200,
        transaction_check_max=100_000,
    ) as running:
        yield running


@pytest.fixture
def options(running: RunningCluster, request: pytest.FixtureRequest) -> WriteOptions:
    name = request.node.name[:100]
    given = {"namesrv": running.namesrv, "topic": name, "mode": "transactional", "producerGroup": name}
    return write_options(given)


@pytest.fixture
def checks(options: WriteOptions) -> Iterator[Checks]:
    checks = Checks(options.access, options.group)
    yield checks
    checks.close()


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.05)


def open_transactions(running: RunningCluster, options: WriteOptions) -> int:
    asking = SparkCluster(options.access)
    try:
        with asking.links.borrow(running.broker_address) as link:
            figures = link.call(GetBrokerRuntimeInfo()).body
            assert figures is not None
            return int(figures.table["halfMessageCount"])
    finally:
        asking.close()


def test_a_decided_batch_whose_driver_died_is_committed_by_whoever_is_asked(
    running: RunningCluster, options: WriteOptions, checks: Checks, tmp_path: Path
) -> None:
    journal = BatchJournal(str(tmp_path))
    journal.decide(0, prepare(rows(0), options, journal, 0).halves)
    os.utime(tmp_path / DIRECTORY / "0", (1, 1))
    checks.serve(BatchJournal(tmp_path.as_uri()), {running.broker_address})
    until(lambda: numbers(options).total() >= ROWS)
    until(lambda: open_transactions(running, options) == 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)
    # The driver comes back: there is nothing left to do.
    commit([], options, journal, 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


def test_a_message_that_is_there_is_not_committed_again(
    running: RunningCluster,
    options: WriteOptions,
    checks: Checks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyromq.spark.checks.is_stored", lambda link, topic, key: topic == options.topic)
    journal = BatchJournal(str(tmp_path))
    journal.decide(0, prepare(rows(0), options, journal, 0).halves)
    os.utime(tmp_path / DIRECTORY / "0", (1, 1))
    checks.serve(journal, {running.broker_address})
    until(lambda: open_transactions(running, options) == 0)
    assert numbers(options).total() == 0


def test_rows_of_an_attempt_that_was_lost_are_rolled_back(
    running: RunningCluster, options: WriteOptions, checks: Checks, tmp_path: Path
) -> None:
    journal = BatchJournal(str(tmp_path))
    prepare(rows(0), options, journal, 0)
    again = prepare(rows(0), options, journal, 0)
    assert open_transactions(running, options) == 2 * ROWS
    checks.serve(journal, {running.broker_address})
    commit(again.halves, options, journal, 0)
    until(lambda: open_transactions(running, options) == 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


def test_a_batch_that_is_decided_while_its_journal_is_read_has_not_lost(tmp_path: Path) -> None:
    def decide() -> None:
        with contextlib.suppress(BatchHeld):
            BatchJournal(str(tmp_path)).decide(0, [StoredHalf(Queue("T", "b", 1), "won", 5, 6)])

    class Deciding(BatchJournal):
        def decided_ms(self, batch: int) -> int | None:
            found = super().decided_ms(batch)
            decide()
            return found

        def last_decided(self) -> int:
            found = super().last_decided()
            decide()
            return found

    assert verdict(Deciding(str(tmp_path)), 0, "won", 0) is None


def test_the_journal_decides(tmp_path: Path) -> None:
    journal = BatchJournal(str(tmp_path))
    assert verdict(journal, 3, "lost", MUCH_LATER_MS) is None
    journal.decide(3, [StoredHalf(Queue("T", "b", 1), "won", 5, 6)])
    assert verdict(journal, 3, "won", 0) is None, "its driver is about to tell"
    assert verdict(journal, 3, "won", MUCH_LATER_MS) == SysFlag.TRANSACTION_COMMIT
    assert verdict(journal, 3, "lost", 0) == SysFlag.TRANSACTION_ROLLBACK
    assert verdict(journal, 2, "lost", 0) == SysFlag.TRANSACTION_ROLLBACK, "Spark never returns to it"
    assert verdict(journal, 4, "open", MUCH_LATER_MS) is None
    journal.end(3)
    assert verdict(journal, 3, "lost", 0) == SysFlag.TRANSACTION_ROLLBACK
    assert verdict(journal, 4, "open", MUCH_LATER_MS) is None
