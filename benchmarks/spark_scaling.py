"""How reading scales: one core that reads beside two, and the queues and partitions they share.

A core that reads is a task of Spark's with a Python worker of its own, as an executor with one core has.
"""

import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from pyromq.protocol.names import AUTO_CREATE_TOPIC
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.spark import session
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import Access

_VALUE_BYTES: Final = 100
_CORES: Final = (1, 2)


class Case(NamedTuple):
    queues: int
    min_partitions: int | None = None

    @property
    def topic(self) -> str:
        return f"Scaling{self.queues}"

    def __str__(self) -> str:
        split = "" if self.min_partitions is None else f", minPartitions={self.min_partitions}"
        return f"{self.queues} queue{'s' if self.queues > 1 else ''}{split}"


CASES: Final = (Case(1), Case(1, 2), Case(2), Case(8), Case(8, 16))


def scaling(namesrv: str, rows: int, rounds: int, say: Callable[[str], None]) -> str:
    """The table of million rows per second."""
    rates = {cores: _rates(namesrv, cores, rows, rounds, say) for cores in _CORES}
    lines = [
        f"{rows:,} rows of {_VALUE_BYTES} B with twelve columns, million rows per second, median of"
        f" {rounds} rounds, on {os.cpu_count()} cores that the tasks share with their Python workers and the"
        " broker.",
        "",
        "| read | `local[1]` | `local[2]` | ratio |",
        "|---|---|---|---|",
    ]
    for case in CASES:
        one, two = (rates[cores][case] for cores in _CORES)
        lines.append(f"| {case} | {one:.2f} | {two:.2f} | {two / one:.2f} |")
    return "\n".join(lines) + "\n"


def _rates(namesrv: str, cores: int, rows: int, rounds: int, say: Callable[[str], None]) -> dict[Case, float]:
    found: dict[Case, list[float]] = {case: [] for case in CASES}
    with session("scaling", master=f"local[{cores}]", memory="2g") as spark:
        spark.sparkContext.setLogLevel("ERROR")
        if cores == _CORES[0]:
            for case in CASES:
                if case.min_partitions is None:
                    _fill(spark, namesrv, case, rows)
        for number in range(rounds + 1):
            for case in CASES:
                rate = rows / _seconds(spark, namesrv, case) / 1e6
                if number:  # the first round is to warm up
                    found[case].append(rate)
                say(f"  {cores} cores, {case}: {rate:.2f}")
    return {case: statistics.median(each) for case, each in found.items()}


def _fill(spark: SparkSession, namesrv: str, case: Case, rows: int) -> None:
    with closing(SparkCluster(Access((namesrv,)))) as cluster:
        anywhere = cluster.writable_queues(AUTO_CREATE_TOPIC)[0]
        with cluster.links.borrow(cluster.address(anywhere)) as link:
            link.call(
                CreateOrUpdateTopic(
                    topic=case.topic,
                    default_topic=AUTO_CREATE_TOPIC,
                    read_queue_nums=case.queues,
                    write_queue_nums=case.queues,
                    perm=6,
                    topic_filter_type="SINGLE_TAG",
                )
            )
    frame = spark.range(rows).selectExpr(
        f"rpad(cast(id as string), {_VALUE_BYTES}, 'x') as value",
        f"cast(id % {case.queues} as int) as queueId",
        "concat('key', id) as key",
        "'bench' as tags",
    )
    frame.write.format("rocketmq").option("namesrv", namesrv).mode("append").save(case.topic)


def _seconds(spark: SparkSession, namesrv: str, case: Case) -> float:
    reader = spark.read.format("rocketmq").option("namesrv", namesrv).option("subscribe", case.topic)
    if case.min_partitions is not None:
        reader = reader.option("minPartitions", str(case.min_partitions))
    start = time.perf_counter()
    reader.load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start
