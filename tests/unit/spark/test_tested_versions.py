"""What the documentation says of tested versions is what the tests have; what could not be tried says so."""

import re
from pathlib import Path

import pytest
from tests.support.apache_releases import UNAVAILABLE, PeerUnavailable
from tests.support.places import ROOT
from tools import engines, lakehouse


def test_the_table_of_tested_versions_has_those_of_the_tests() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    read = {
        reader.form: f"{reader.form.title()} {reader.package.rpartition(':')[2]} on PySpark {reader.pyspark}"
        for reader in lakehouse.READERS
    }
    with_pyspark = f"written and read with PySpark {pinned['pyspark']}"
    ours = f"| {with_pyspark} | delta-rs {pinned['deltalake']} | pyiceberg {pinned['pyiceberg']} |\n"
    others = f"| read by Spark's own connectors | {read['delta']} | {read['iceberg']} |\n"
    others += f"| read by DuckDB {engines.DUCKDB} | extension `delta` | extension `iceberg` |\n"
    others += f"| read by Polars {engines.POLARS} | `read_delta` | `scan_iceberg` |\n"
    assert ours + others in (ROOT / "docs" / "howto" / "pipelines.md").read_text()


def test_make_lakehouse_says_that_it_did_not_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def nothing(version: str) -> Path:
        raise PeerUnavailable(f"could not install PySpark {version}: no network")

    monkeypatch.setattr(lakehouse, "_python", nothing)
    assert lakehouse.main() == UNAVAILABLE
    assert "NOT RUN: could not install PySpark 4.2.0: no network" in capfd.readouterr().err
