"""A session for programs that people watch: Spark says nothing, its failures are raised."""

import atexit
import logging
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyromq.spark.session import session
from pyromq.spark.settling import HUNG_UP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_REAPED_S = 5.0
"""The connections of a killed process are closed before the process is gone."""
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
# What fails in Spark reaches the program as an exception. When it is stopped, every part of Spark fails.
logger.spark.name = org.apache.spark
logger.spark.level = off
logger.files.name = org.apache.hadoop
logger.files.level = off
logger.parquet.name = org.apache.parquet
logger.parquet.level = off
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
    _hide_lost_calls()
    hide_hang_ups()
    spark = session(app, master=master, memory=memory, metrics=metrics, **named)
    # Spark's own handler calls the JVM, in the middle of another call, which neither survives.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The last words of Python workers are not for people, and their errors are raised anyway.
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    java = jvm.java
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    return spark


def _hide_lost_calls() -> None:
    """Calls to a JVM that is interrupted or gone raise; a traceback in the log for each is too much."""
    root = logging.getLogger()
    if not root.handlers:
        ours = logging.StreamHandler()
        ours.setLevel(logging.WARNING)
        ours.addFilter(lambda record: record.name not in ("root", "py4j") and record.name[:5] != "py4j.")
        root.addHandler(ours)


def hide_hang_ups() -> None:
    """A JVM that ends hangs up on the server of accumulators, which would print a traceback."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    def handle_error(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), HUNG_UP):
            socketserver.BaseServer.handle_error(server, request, client_address)

    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = handle_error  # type: ignore[method-assign, assignment]


def java_has_ended() -> bool:
    """Whether Spark's JVM is gone that this process has started."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(_REAPED_S)
    except subprocess.TimeoutExpired:
        return False
    return True


@cache
def _logging_file() -> Path:
    """Written once for each process, under an unpredictable name, and removed with the process."""
    descriptor, name = tempfile.mkstemp(prefix="pyromq-log4j2-", suffix=".properties")
    with os.fdopen(descriptor, "w") as file:
        file.write(_LOGGING)
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return path
