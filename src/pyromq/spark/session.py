"""A Spark session that suits this connector: the right Python, a Java that works, short triggers.

`format("rocketmq")` works without it; it makes the settings that users would otherwise have to find.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyromq.remoting.addresses import parse_address
from pyromq.spark.java import provide_java
from pyromq.spark.object_stores import hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
TUNED: Mapping[str, str] = {
    # Local checkpoint files without a shell forked for each of them.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    # A driver that dies while it writes its first offsets leaves a temporary file. Spark would refuse every
    # later start from that checkpoint.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_ARROW_IN_JAVA = "-Darrow.enable_unsafe_memory_access=true"
"""Spark never reads outside a batch: Arrow need not look at its bounds, several times for each value. Rows
are made of batches in half the time. Iceberg's readers set the same."""
FOR_JAVA: Mapping[str, str] = {
    "spark.driver.defaultJavaOptions": _ARROW_IN_JAVA,
    "spark.executor.defaultJavaOptions": _ARROW_IN_JAVA,
}
"""Options of the user come behind them, and win."""

_LONGEST_PLACE_OF_SOCKETS = 60
"""Of 104 bytes on some systems; Spark adds a name of 42."""


def session(
    app: str = "pyromq",
    *,
    master: str = "local[*]",
    memory: str = "1g",
    metrics: str | None = None,
    **settings: str,
) -> "SparkSession":
    """A session, or the running one with these settings; dots in names of settings are written as `__`.

    `session(master="local[2]", spark__sql__shuffle__partitions="2")`; with `metrics="127.0.0.1:9108"` it
    shows Prometheus there how far its queries are behind.
    """
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(master).config("spark.driver.memory", memory)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    named = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in {**TUNED, **FOR_JAVA, **_sockets(), **hadoop_settings(), **named}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if metrics is not None:
        from pyromq.spark.lag_metrics import serve_lag

        serve_lag(spark, *parse_address(metrics))
    return spark


def _sockets() -> dict[str, str]:
    """Unix sockets to the workers, unless their names would be too long for the system."""
    has_room = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_PLACE_OF_SOCKETS
    return {"spark.python.unix.domain.socket.enabled": str(has_room).lower()}


def prepare_environment() -> None:
    """Make Spark use this Python and a Java it can run on; settings of the user stay."""
    # Spark looks for data sources with this Python; another one would find none, without an error.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    provide_java()
    from pyromq.spark.spark_home import provide_spark_home

    provide_spark_home()
