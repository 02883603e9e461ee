"""Programs of several processes, some of which die: what lands in an idempotent sink is exact each time."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.spark_cluster import SparkCluster
from tests.support.spark_driver import Job, SparkDriver, found

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def job(directory: Path, topics: "Topics", master: str, topic: str = "Orders", **options: str) -> Job:
    given = topics.options(topic, **options)
    return Job(master, given, str(directory / "checkpoint"), str(directory / "out"))


def test_a_driver_killed_in_the_middle_of_batch_0_and_of_a_later_one(
    topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=2)
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
    work.held = False
    topics.fill("Orders", 1, numbers(150, 50))
    with SparkDriver(work, tmp_path / "log") as driver:
        driver.hear("batch 2 begins")
        driver.finish()
    assert found(tmp_path / "out") == list(range(50, 200))


def test_an_executor_and_a_worker_of_a_standalone_cluster_die(topics: "Topics", tmp_path: Path) -> None:
    topics.create("Orders", queues=2)
    topics.create("Copy", queues=2)
    topics.fill("Orders", 0, numbers(0, 300))
    topics.fill("Orders", 1, numbers(300, 300))
    with SparkCluster(tmp_path, workers=2) as cluster:
        work = job(tmp_path, topics, cluster.master, startingOffsets="earliest", maxOffsetsPerTrigger="200")
        work.deadly, work.held = str(tmp_path / "killed"), True
        work.write = topics.options() | {"topic": "Copy"}
        with SparkDriver(work, tmp_path / "log") as driver:
            driver.hear("batch 0 begins")
            driver.say()
            driver.hear("batch 0 ends")
            assert (tmp_path / "killed").exists()
            cluster.workers[0].kill()
            for _ in range(2):
                driver.say()
            driver.finish()
    assert found(tmp_path / "out") == list(range(600))
    assert topics.reach("Copy") >= 600


def test_a_local_cluster_reads_and_writes(topics: "Topics", tmp_path: Path) -> None:
    topics.create("Orders", queues=2)
    topics.create("Copy", queues=2)
    for queue_id in (0, 1):
        topics.fill("Orders", queue_id, numbers(queue_id * 200, 200))
    work = job(tmp_path, topics, "local-cluster[2,1,1024]", startingOffsets="earliest")
    work.write = topics.options() | {"topic": "Copy"}
    with SparkDriver(work, tmp_path / "log") as driver:
        driver.finish()
    assert found(tmp_path / "out") == list(range(400))
    assert topics.reach("Copy") == 400
