"""Rows per second between a broker and Spark, beside the same rows in uncompressed Parquet.

    python -m benchmarks.spark [--rows 500000] [--sizes 100,1024]

The broker runs in its own process with large answers (maxTransferCountOnMessageInMemory); the sink is `noop`.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pyromq.spark import session
from pyromq.standalone import Standalone, StandaloneSettings

ROUNDS = 3
QUEUES = 4


async def serve(store: Path) -> None:
    settings = StandaloneSettings(
        store=store,
        namesrv_port=0,
        broker_port=0,
        store_settings={
            "max_batch_in_memory": 4096,
            "max_batch_bytes_in_memory": 4 * 1024 * 1024,
            "log_segment_bytes": 256 * 1024 * 1024,
        },
    )
    async with Standalone(settings) as cluster:
        print(cluster.namesrv, flush=True)
        await cluster.run_until_stopped()


@contextmanager
def broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pyromq-bench-") as store:
        command = [sys.executable, "-m", "benchmarks.spark", "--serve", store]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip()
            finally:
                process.terminate()


def rate(rows: int, work: Callable[[], object]) -> float:
    """The best of a few rounds, in million rows per second."""
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        best = max(best, rows / (time.perf_counter() - start) / 1e6)
    return best


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def drain(spark: SparkSession, options: dict[str, str], directory: Path) -> None:
    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    with tempfile.TemporaryDirectory(dir=directory) as checkpoint:
        writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def measure(spark: SparkSession, namesrv: str, rows: int, size: int, directory: Path) -> None:
    topic = f"Bench{size}"
    source = (
        spark.range(rows)
        .repartition(2)
        .selectExpr(
            f"cast(rpad(cast(id as string), {size}, 'x') as binary) as value",
            "concat('key', id) as key",
            "'bench' as tags",
        )
    )
    source = source.cache()
    source.count()
    start = time.perf_counter()
    source.write.format("rocketmq").option("namesrv", namesrv).mode("append").save(topic)
    written = rows / (time.perf_counter() - start) / 1e6
    source.unpersist()
    options = {"namesrv": namesrv, "subscribe": topic}
    everything = spark.read.format("rocketmq").options(**options).load()
    lake = str(directory / topic)
    everything.write.option("compression", "uncompressed").parquet(lake)
    total = spark.read.parquet(lake).count()
    assert total == rows, f"{total} rows of {rows}"
    parquet = rate(rows, lambda: noop(spark.read.parquet(lake)))
    batch = rate(rows, lambda: noop(spark.read.format("rocketmq").options(**options).load()))
    pruned = spark.read.format("rocketmq").options(**options).schema("value binary, offset bigint")
    two = rate(rows, lambda: noop(pruned.load()))
    stream = rate(rows, lambda: drain(spark, options, directory))
    print(
        f"{size:>6} B  write {written:.2f}  parquet {parquet:.2f}  batch {batch:.2f} ({batch / parquet:.0%})"
        f"  value+offset {two:.2f}  stream {stream:.2f} ({stream / parquet:.0%})  Mrow/s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        asyncio.run(serve(arguments.serve))
        return
    spark = session("benchmark", master="local[2]", memory="1500m")
    spark.sparkContext.setLogLevel("ERROR")
    with broker() as namesrv, tempfile.TemporaryDirectory(prefix="pyromq-lake-") as directory:
        for size in map(int, arguments.sizes.split(",")):
            measure(spark, namesrv, arguments.rows, size, Path(directory))
    spark.stop()


if __name__ == "__main__":
    main()
