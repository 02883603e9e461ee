"""Run a job written in SQL, until what is there now is done: see spark_sql.sql.

python examples/spark_sql.py 127.0.0.1:9876 examples/spark_sql.sql checkpoints/
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyromq.spark import session
from pyromq.spark.pipelines.display import reported
from pyromq.spark.pipelines.sql import run_sql


def main(spark: SparkSession, namesrv: str, script: str, checkpoint: str) -> None:
    text = Path(script).read_text(encoding="utf-8")
    with reported() as show:
        run_sql(
            spark,
            text,
            {"namesrv": namesrv},
            checkpoint=checkpoint,
            trigger={"availableNow": True},
            show=show,
        )


if __name__ == "__main__":
    with session("sql", master="local[2]") as spark:
        main(spark, *sys.argv[1:4])
