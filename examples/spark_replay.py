"""Send what was archived to a topic again: chosen by a condition, so many a second.

python examples/spark_replay.py 127.0.0.1:9876 lake/ Again "tags = 'Paid' AND day >= '2026-03-01'" 1000
"""

import sys

from pyspark.sql import SparkSession

from pyromq.spark import session
from pyromq.spark.pipelines.display import reported
from pyromq.spark.pipelines.replay import replay


def main(
    spark: SparkSession, namesrv: str, lake: str, topic: str, where: str = "true", rate: str = "10000"
) -> None:
    options = {"namesrv": namesrv, "topic": topic}
    with reported() as show:
        # Run again with the same checkpoint it goes on where it was interrupted.
        checkpoint = f"{lake}/_replay-{topic}"
        replay(spark, lake, options, where=where, rows_per_s=int(rate), checkpoint=checkpoint, show=show)


if __name__ == "__main__":
    with session("replay", master="local[2]") as spark:
        main(spark, *sys.argv[1:6])
