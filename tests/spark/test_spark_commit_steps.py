"""Brokers and drivers die between the steps of a commit; the repeated batch shows each row once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commit_steps import STEPS, run_batch, strike_at
from tests.support.transactional_rows import ROWS, numbers

from pyromq.errors import PyroError, SendFailed
from pyromq.protocol.codes import ResponseCode
from pyromq.spark.batch_journal import BatchJournal
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import WriteOptions, write_options
from pyromq.testing import RunningCluster, cluster


class Died(BaseException):
    """The driver was killed."""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def group() -> Iterator[RunningCluster]:
    """A master and a replica that takes over."""
    with cluster(replicas=2) as running:
        running.wait_in_sync()
        yield running


def options_of(running: RunningCluster, topic: str, **more: str) -> WriteOptions:
    given = {"namesrv": running.namesrv, "topic": topic, "mode": "transactional"}
    return write_options(given | {name.replace("__", "."): value for name, value in more.items()})


def impatient(running: RunningCluster, topic: str) -> WriteOptions:
    return options_of(running, topic, fetchOffset__numRetries="2", fetchOffset__retryIntervalMs="20")


@pytest.mark.parametrize("step", STEPS)
def test_a_broker_that_is_away_for_longer_than_the_driver_waits(
    running: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    options = impatient(running, f"away-{step.replace(' ', '-')}")
    with monkeypatch.context() as patched:
        strike_at(step, running.kill_broker, patched)
        try:
            run_batch(options, str(tmp_path), 0, before_abort=running.start_broker)
        except PyroError:
            pass
        else:
            running.start_broker()
    run_batch(options, str(tmp_path), 0)
    run_batch(options, str(tmp_path), 1)
    assert numbers(options) == dict.fromkeys(range(2 * ROWS), 1)


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies(
    running: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def die() -> None:
        raise Died

    options = impatient(running, f"died-{step.replace(' ', '-')}")
    with monkeypatch.context() as patched:
        strike_at(step, die, patched)
        with pytest.raises(Died):
            run_batch(options, str(tmp_path), 0)
    run_batch(options, str(tmp_path), 0)
    assert numbers(options) == dict.fromkeys(range(ROWS), 1)


@pytest.mark.parametrize("step", STEPS)
def test_a_master_whose_replica_takes_over(
    group: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    options = options_of(
        group,
        f"taken-over-{step.replace(' ', '-')}",
        fetchOffset__numRetries="600",
        fetchOffset__retryIntervalMs="50",
    )
    killed: list[int] = []
    with monkeypatch.context() as patched:
        strike_at(step, lambda: killed.append(group.kill_master()), patched)
        run_batch(options, str(tmp_path), 0)
    group.start_broker(killed[0])
    group.wait_in_sync()
    run_batch(options, str(tmp_path), 1)
    assert numbers(options) == dict.fromkeys(range(2 * ROWS), 1)


def test_a_replica_that_is_asked_to_commit_is_no_reason_to_give_up(
    group: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says SLAVE_NOT_AVAILABLE, until its master is back or it is the master."""
    options = impatient(group, "not-the-master")
    run_batch(options, str(tmp_path), 0)
    (replica,) = (each for each in group.broker_addresses if each != group.broker_addresses[group.master])
    addresses = [replica, replica]
    address = SparkCluster.address

    def misdirect() -> None:
        monkeypatch.setattr(
            SparkCluster,
            "address",
            lambda self, queue: addresses.pop() if addresses else address(self, queue),
        )

    strike_at("ask 1", misdirect, monkeypatch)
    run_batch(options, str(tmp_path), 1)
    assert not addresses
    assert numbers(options) == dict.fromkeys(range(2 * ROWS), 1)


def test_a_half_message_that_a_fail_over_could_lose_is_not_decided(tmp_path: Path) -> None:
    with (
        cluster(broker_role="SYNC_MASTER", in_sync_replicas=2) as alone,
        pytest.raises(SendFailed, match=f"code {int(ResponseCode.SLAVE_NOT_AVAILABLE)}"),
    ):
        run_batch(impatient(alone, "unsafe"), str(tmp_path), 0)
    assert not BatchJournal(str(tmp_path)).is_decided(0)
