"""Apache Iceberg's own REST catalog, and the tests of our tables in a catalog against it.

    python -m tools.rest_catalog

Needs Java 17, Maven and Maven Central: the server has about 90 MB and is kept in the user's cache directory.
It keeps names and versions in memory, and metadata on the disk. Exit status 3 says that it could not be had;
everything else that is not 0 is our own fault.
"""

import os
import shutil
import subprocess
import sys
import tempfile
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
from tests.support.places import ROOT
from tools.peers import running

VERSION: Final = "1.11.0"
REAL: Final = "PYROMQ_REST_CATALOG"
FILE: Final = "tests/integration/pipelines/test_catalogs.py"
TESTS: Final = (
    f"{FILE}::test_a_table_in_a_catalog_follows_its_changes_and_those_of_others[True]",
    f"{FILE}::test_a_table_is_where_it_was_made_and_a_name_belongs_to_one_table",
)
"""Those with tables on the disk: this server reaches no S3."""


def main() -> int:
    try:
        check_java()
        jars, port = _fetched(), free_ports()
        url = f"http://127.0.0.1:{port}"
        with tempfile.TemporaryDirectory(prefix="pyromq-catalog-") as warehouse:
            command = [
                *(tool("java"), "-Xmx256m", "-cp", f"{jars}/*"),
                "org.apache.iceberg.rest.RESTCatalogServer",
            ]
            settings = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": warehouse}
            with running(command, settings, f"{url}/v1/config"):
                say(f"Iceberg's REST catalog {VERSION} answers at {url}")
                environment = os.environ | {REAL: url}
                return subprocess.run(
                    [sys.executable, "-m", "pytest", "-v", *TESTS], env=environment, check=False
                ).returncode
    except PeerUnavailable as problem:
        say(f"NOT RUN: {problem}")
        return UNAVAILABLE


def _fetched() -> Path:
    home = cache_directory().parent / "rest-catalog" / VERSION
    if not (home / "complete").exists():
        say(f"fetching Iceberg's REST catalog {VERSION} with Maven ...")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        profile = (f"--file={ROOT / 'interop' / 'pom.xml'}", "--activate-profiles=rest-catalog")
        settings = (
            f"-Diceberg.version={VERSION}",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={home}/jars",
        )
        maven(*profile, *settings, "dependency:copy-dependencies", timeout_s=FETCH_TIMEOUT_S)
        (home / "complete").touch()
    return home / "jars"


if __name__ == "__main__":
    sys.exit(main())
