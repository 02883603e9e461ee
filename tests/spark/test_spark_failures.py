"""Programs of several processes, some of which die: what lands in an idempotent sink is exact each time."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.spark_driver import Job, SparkDriver, found

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

# Many JVMs start one after the other: a minute on a quiet machine, many on a busy one.
pytestmark = pytest.mark.timeout(1800)


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def job(directory: Path, topics: "Topics", master: str, topic: str = "Orders", **options: str) -> Job:
    given = topics.options(topic, **options)
    return Job(master, given, str(directory / "checkpoint"), str(directory / "out"))


def test_a_driver_dies_twice_and_goes_on_as_a_cluster_that_loses_an_executor(
    topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=2)
    topics.create("Copy", queues=2)
    topics.fill("Orders", 0, numbers(0, 50))
    work = job(tmp_path, topics, "local[2]", startingOffsets="latest", maxOffsetsPerTrigger="40")
    work.held = True
    with SparkDriver(work, tmp_path / "log") as driver:
        driver.hear("batch 0 begins")
    # What comes after the first start is read, though batch 0 did not end and "latest" has moved on.
    topics.fill("Orders", 0, numbers(50, 60))
    topics.fill("Orders", 1, numbers(110, 40))
    with SparkDriver(work, tmp_path / "log") as driver:
        for batch in (0, 1):
            driver.hear(f"batch {batch} begins")
            driver.say()
            driver.hear(f"batch {batch} ends")
        driver.hear("batch 2 begins")
    # It goes on as a cluster of several processes, which repeats batch 2 and writes to a topic as well.
    work.held, work.master, work.deadly = False, "local-cluster[2,1,1024]", str(tmp_path / "killed")
    work.write = topics.options() | {"topic": "Copy"}
    topics.fill("Orders", 1, numbers(150, 50))
    with SparkDriver(work, tmp_path / "log") as driver:
        driver.hear("batch 2 begins")
        driver.finish()
    assert found(tmp_path / "out") == list(range(50, 200))
    assert (tmp_path / "killed").exists()
    assert topics.reach("Copy") >= 110
