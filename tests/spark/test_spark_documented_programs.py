"""What the pages about Spark show, in Python and in SQL, runs as it is written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from tests.support.apache import free_ports

from pyromq.spark.pipelines.sql import run_sql
from pyromq.spark.pipelines.sql_script import split

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    found: list[str] = fence.findall((DOCS / page).read_text())
    assert found
    return found


@pytest.fixture
def here(spark: SparkSession, topics: "Topics", tmp_path: Path) -> Callable[[str], str]:
    """Makes a block speak of a cluster that has the topics of the pages, and of a directory of the test."""
    topics.create("Orders")
    topics.create("Payments")
    topics.fill("Orders", 0, [b'{"region": "europe", "cents": 999, "at": "2026-03-01T12:00:00Z"}'])
    port = free_ports()
    addresses = {"127.0.0.1:9876": topics.running.namesrv, "127.0.0.1:9108": f"127.0.0.1:{port}"}
    places = addresses | {"lake/": f"{tmp_path}/lake/"}

    def moved(block: str) -> str:
        for place, here in places.items():
            block = block.replace(place, here)
        return block

    return moved


@pytest.mark.parametrize("page", ["howto/spark.md", "howto/pipelines.md"])
def test_python(page: str, here: Callable[[str], str]) -> None:
    for program in blocks(page, "python"):
        exec(compile(here(program), page, "exec"), {})


def test_sql(spark: SparkSession, here: Callable[[str], str]) -> None:
    (script,) = blocks("howto/spark.md", "sql")
    try:
        for statement in split(here(script)):
            spark.sql(statement).collect()
        assert spark.sql("SELECT count(*) FROM orders").collect() == [(2,)]
    finally:
        spark.sql("DROP VIEW IF EXISTS paid")
        spark.sql("DROP TABLE IF EXISTS orders")


def test_a_job_in_sql(
    spark: SparkSession, topics: "Topics", here: Callable[[str], str], tmp_path: Path
) -> None:
    (script,) = blocks("howto/pipelines.md", "sql")
    checkpoint = str(tmp_path / "progress")
    run_sql(spark, here(script), topics.options(), checkpoint=checkpoint, trigger={"availableNow": True})
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert lake.select("region", "cents").collect() == [("europe", 999)]
