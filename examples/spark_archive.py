"""Copy topics into a Parquet lake, by topic and day, exactly once; run it again to go on.

python examples/spark_archive.py 127.0.0.1:9876 Orders,Payments lake/
"""

import sys

from pyromq.spark.pipelines.archive import archive
from pyromq.spark.session import session


def main(namesrv: str, topics: str, lake: str) -> None:
    spark = session("archive", master="local[2]")
    rows = archive(spark, {"namesrv": namesrv, "subscribe": topics}, lake)
    print(f"{rows} messages archived in {lake}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
