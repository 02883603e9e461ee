"""Apicurio's schema registry, in memory, and the tests of our registry client against it.

    python -m tools.apicurio

Needs Java 17, Maven and Maven Central: the server has about 110 MB and is kept in the user's cache directory.
Exit status 3 says that these could not be had; everything else that is not 0 is our own fault.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.apache import free_ports
from tests.support.apache_releases import (
    FETCH_TIMEOUT_S,
    UNAVAILABLE,
    PeerUnavailable,
    cache_directory,
    check_java,
    maven,
    say,
    tool,
)
from tests.support.schema_registry import REAL
from tools.peers import running

VERSION: Final = "3.0.9"
"""The newest one for Java 17."""
ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
TESTS: Final = (
    "tests/unit/spark/test_registry.py::test_avro_schemas_take_types_from_other_subjects",
    "tests/unit/spark/test_registry.py::test_schemas_of_a_subject_change_and_old_bodies_stay_readable",
    "tests/unit/spark/test_protobuf.py::test_a_schema_imports_those_of_other_subjects_and_changes",
    "tests/spark/test_spark_batch.py::test_bodies_go_to_a_topic_and_come_back_with_the_ids_of_their_schemas",
    "tests/spark/test_spark_batch.py::test_protobuf_goes_to_a_topic_and_comes_back",
)
"""Those that take the registry of the environment, and a stand-in without one."""


def main() -> int:
    try:
        check_java()
        home = _fetched()
        with _started(home) as url:
            say(f"Apicurio {VERSION} answers at {url}")
            environment = os.environ | {REAL: url}
            return subprocess.run(
                [sys.executable, "-m", "pytest", "-v", *TESTS], env=environment, check=False
            ).returncode
    except PeerUnavailable as problem:
        say(f"NOT RUN: {problem}")
        return UNAVAILABLE


def _fetched() -> Path:
    home = cache_directory().parent / "apicurio" / VERSION
    if not (home / "complete").exists():
        say(f"fetching {ARTIFACT} with Maven ...")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=home) as scratch:
            where = (f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={scratch}")
            maven("dependency:copy", *where, timeout_s=FETCH_TIMEOUT_S)
            for archive in Path(scratch).iterdir():
                with tarfile.open(archive) as opened:
                    opened.extractall(home, filter="data")
        (home / "complete").touch()
    return home


@contextmanager
def _started(home: Path) -> Iterator[str]:
    """The server on a port that the system chooses; its URL, as clients of Confluent's API need it."""
    jar, port = next(home.glob("*-runner.jar")), free_ports()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    listening = {"QUARKUS_HTTP_PORT": str(port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
    with running([tool("java"), "-Xmx512m", "-jar", str(jar)], listening, f"{url}/subjects"):
        yield url


if __name__ == "__main__":
    sys.exit(main())
