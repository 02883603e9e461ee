"""A Spark home without Spark's own zip of PySpark.

Spark puts that zip before everything else on the path of its Python processes. It holds no compiled files, so
each process, and every query starts some, spends a second on compiling modules that are installed anyway.
"""

import os
import sys
from pathlib import Path

import pyspark

from pyromq.spark.made_files import made_directory


def provide_spark_home() -> None:
    """Set SPARK_HOME, unless the user has one or Spark's Python processes are not like this one."""
    installed = Path(pyspark.__file__).parent
    own_python = os.environ.get("PYSPARK_PYTHON") in (None, sys.executable)
    if "SPARK_HOME" not in os.environ and own_python and (installed / "python" / "lib").is_dir():
        os.environ["SPARK_HOME"] = str(home_without_zip(installed))


def home_without_zip(installed: Path) -> Path:
    def fill(directory: Path) -> None:
        for entry in ("bin", "jars", "sbin", "data", "licenses", "conf"):
            if (installed / entry).exists():
                (directory / entry).symlink_to(installed / entry)

    return made_directory("home", f"{installed} {pyspark.__version__}", fill)
