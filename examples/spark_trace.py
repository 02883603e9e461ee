"""Which group takes how long to get its messages, from what clients with `trace=True` report.

python examples/spark_trace.py 127.0.0.1:9876 latencies.png
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyromq.spark import session
from pyromq.spark.pipelines.plots import plot_latencies
from pyromq.spark.pipelines.trace import latencies, read_messages, records


def main(spark: SparkSession, namesrv: str, plot: str) -> None:
    found = latencies(records(read_messages(spark, {"namesrv": namesrv}))).collect()
    for row in found:
        print(f"{row.topic} → {row.group}: {row.messages} messages, p50 {row.p50} ms, p99 {row.p99} ms")
    plot_latencies({f"{row.topic} → {row.group}": row.grid for row in found}, Path(plot))
    print(f"plot in {plot}")


if __name__ == "__main__":
    with session("trace", master="local[2]") as spark:
        main(spark, *sys.argv[1:3])
