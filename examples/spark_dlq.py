"""Show the dead letters of a group, and give them back to the topic they came from; none goes twice.

python examples/spark_dlq.py 127.0.0.1:9876 payments checkpoint/
"""

import sys

from pyspark.sql import SparkSession

from pyromq.spark import session
from pyromq.spark.pipelines.display import reported
from pyromq.spark.pipelines.dlq import read_dead_letters, summarized
from pyromq.spark.pipelines.redrive import redrive


def main(spark: SparkSession, namesrv: str, group: str, checkpoint: str) -> None:
    options = {"namesrv": namesrv}
    for row in summarized(read_dead_letters(spark, options, (group,))).collect():
        print(f"{row.letters} from {row.origin}: {row.reason} after {row.attempts}")
    with reported() as show:
        redrive(spark, options, "origin", checkpoint, groups=(group,), show=show)


if __name__ == "__main__":
    with session("dlq", master="local[2]") as spark:
        main(spark, *sys.argv[1:4])
