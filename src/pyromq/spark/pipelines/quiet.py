"""A session for programs that people watch: Spark says nothing unless something fails."""

import atexit
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
# Spark would say so if its own level for Python programs were another one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# Their failures reach the program as exceptions as well.
logger.queries.name = org.apache.spark.sql.execution.streaming
logger.queries.level = off
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = off
logger.executors.name = org.apache.spark.executor
logger.executors.level = off
logger.commands.name = org.apache.spark.sql.execution.datasources
logger.commands.level = off
"""


def quiet_session(
    app: str,
    master: str = "local[*]",
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
    metrics: str | None = None,
) -> "SparkSession":
    """As `session()`; names of settings are Spark's own."""
    chosen = {"spark.sql.shuffle.partitions": "4"} | dict(settings or {})
    flags = f"-Dlog4j2.configurationFile={_logging_file().as_uri()} {chosen.get(_JAVA_OPTIONS, '')}"
    named = {name.replace(".", "__"): value for name, value in (chosen | {_JAVA_OPTIONS: flags}).items()}
    spark = session(app, master=master, memory=memory, metrics=metrics, **named)
    # The last words of Python workers are not for people, and their errors are raised anyway.
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = jvm.java
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    return spark


@cache
def _logging_file() -> Path:
    """Written once for each process, under a name that nobody can foresee, and gone with the process."""
    descriptor, name = tempfile.mkstemp(prefix="pyromq-log4j2-", suffix=".properties")
    with os.fdopen(descriptor, "w") as file:
        file.write(_LOGGING)
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return path
