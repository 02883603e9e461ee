"""A small, quick Spark session for tests: one for each process. It is a server for Spark Connect as well."""

import os
from typing import TYPE_CHECKING

from tests.support.quick_jvm import QUICK_JVM

from pyromq.spark import session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def small_session(warehouse: "Path") -> "SparkSession":
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = session(
        "pyromq-tests",
        master="local[2,4]",
        memory="700m",
        spark__sql__shuffle__partitions="2",
        spark__driver__extraJavaOptions=QUICK_JVM,
        spark__sql__streaming__stopTimeout="300s",
        spark__sql__warehouse__dir=str(warehouse),
        spark__plugins="org.apache.spark.sql.connect.SparkConnectPlugin",
        spark__connect__grpc__binding__address="127.0.0.1",
        spark__connect__grpc__binding__port="0",
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def connect_url(spark: "SparkSession") -> str:
    """Where clients of Spark Connect find this session's server."""
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"
