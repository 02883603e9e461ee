"""Pipelines that die in the worst moments: the next run goes on, and each row is there once.

`make chaos` kills all of them hundreds of times, at any moment.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.spark_kills.commits import Query, Victims, run_round
from tests.spark_kills.jobs import Archive, State
from tests.spark_kills.programs import Moment, check_death
from tests.spark_kills.topics import Topics, topics_of

from pyromq.testing import RunningCluster, cluster

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="moments are found with inotify")


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def topics(running: RunningCluster) -> Iterator[Topics]:
    with topics_of(running.namesrv, running.broker_address) as topics:
        yield topics


def test_a_batch_that_is_decided_when_its_driver_is_killed_becomes_visible_once(
    running: RunningCluster, topics: Topics, tmp_path: Path
) -> None:
    job = State(topics, running.namesrv, tmp_path / "job", "decided")
    job.more()
    end = job.pipeline.run(Moment("*/rocketmq-commits/0"), "kill all")
    assert end.was_killed
    job.more()
    check_death(job.pipeline.run(), "kill all")
    job.check()


def test_an_archive_that_is_terminated_as_systemd_does_says_little_and_goes_on(
    running: RunningCluster, topics: Topics, tmp_path: Path
) -> None:
    job = Archive(topics, running.namesrv, tmp_path / "job", "terminated")
    job.more()
    end = job.pipeline.run(Moment("*.spark-staging*"), "terminate all")
    assert end.was_killed
    check_death(end, "terminate all")
    job.more()
    check_death(job.pipeline.run(), "terminate all")
    job.check()


def test_a_broker_that_dies_while_spark_commits_costs_no_row(spark: SparkSession, tmp_path: Path) -> None:
    with cluster(brokers=2) as two:
        victims = Victims(two, is_group=False)
        done = run_round(Query(spark, victims, tmp_path, "dies"), victims, Random(1), kills=1)
    assert done.total()
