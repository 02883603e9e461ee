"""Iceberg tables in a catalog: Glue's, as moto serves it, or that of the environment, which speaks REST.

pyiceberg finds it by its own configuration.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")
pytest.importorskip("moto")

import pyiceberg.catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.utils.config import Config
from tests.support.object_store import FaultyStore, faulty_store, lead_to
from tests.unit.spark.test_iceberg_rows import changes, row

from pyromq.errors import ConfigError
from pyromq.spark.pipelines.catalogs import enter_catalog
from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
from pyromq.spark.pipelines.iceberg_lake import IcebergLake

REAL = "PYROMQ_REST_CATALOG"
JOIN = 1 << 40
BATCHES = 2


@pytest.fixture(scope="module")
def running() -> Iterator[FaultyStore]:
    with faulty_store() as store:
        yield store


@pytest.fixture
def store(running: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """It leads to the catalog as well, under the name `tests`."""
    lead_to(running.url(), monkeypatch)
    real = os.environ.get(REAL)
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__TYPE", "rest" if real else "glue")
    if real:
        monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__URI", real)
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__GLUE__REGION", "us-east-1")
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__S3__ENDPOINT", running.url())
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it reads them when it is imported
    running.fail_no_more()
    return running


def others_load(table: str) -> Table:
    return pyiceberg.catalog.load_catalog("tests").load_table(table)


def notes(table: str) -> dict[int, str]:
    return {each["id"]: each["note"] for each in others_load(table).scan().to_arrow().to_pylist()}


@pytest.mark.parametrize("is_local", [True, False])
def test_a_table_in_a_catalog_follows_its_changes_and_those_of_others(
    store: FaultyStore, tmp_path: Path, is_local: bool
) -> None:
    name = "shop.local" if is_local else "shop.far"
    place = str(tmp_path) if is_local else f"s3://{store.new_bucket()}/orders"
    enter_catalog(place, f"tests.{name}")
    for batch in range(BATCHES):
        if not is_local:
            store.fail_sometimes(batch, share=0.05)
        IcebergLake(place).apply(
            changes([row(batch), row(9, f"{batch}"), row(50 + batch)]), ["id"], batch, cleared=False
        )
        store.fail_no_more()
        others = others_load(name)
        others.append(changes([row(100 + batch, "others")]).drop_columns(["__deleted"]))
    expected = {base + batch: "x" for base in (0, 50) for batch in range(BATCHES)} | {9: str(BATCHES - 1)}
    expected |= {100 + batch: "others" for batch in range(BATCHES)}
    assert notes(name) == expected
    # Whatever comes later finds the table by its directory.
    assert IcebergLake(place).batch == BATCHES - 1
    one, other = IcebergLake(place), IcebergLake(place)
    one.apply(changes([row(7, "one")]), ["id"], BATCHES, cleared=False)
    with pytest.raises(CommitFailedException):
        other.apply(changes([row(7, "other")]), ["id"], BATCHES, cleared=False)
    assert IcebergLake(place).forget(ForgottenRows({"id": ["101", "1"]})) == 2
    IcebergLake(place).compact(None, JOIN)  # type: ignore[arg-type]
    before = len(others_load(name).snapshots())
    assert IcebergLake(place).expire(timedelta(0)) > 0
    assert before > len(others_load(name).snapshots()) == 1
    assert IcebergLake(place).remove_orphans(timedelta(0)) > 0, "the refused commit has left a file"
    assert notes(name) == {id_: note for id_, note in expected.items() if id_ not in (1, 101)} | {7: "one"}


def test_a_table_is_where_it_was_made_and_a_name_belongs_to_one_table(
    store: FaultyStore, tmp_path: Path
) -> None:
    one, other, plain = (str(tmp_path / name) for name in ("one", "other", "plain"))
    rows = changes([row(1)])
    enter_catalog(one, "tests.shop.taken")
    enter_catalog(one, "tests.shop.taken")  # a run that died before it made the table
    IcebergLake(one).apply(rows, ["id"], 0, cleared=False)
    enter_catalog(one, "tests.shop.taken")
    with pytest.raises(ConfigError, match="taken, where the table in"):
        enter_catalog(one, "tests.shop.another")
    with pytest.raises(ConfigError, match="a table that is not there yet"):
        enter_catalog(other, "tests.shop.taken")
    IcebergLake(plain).apply(rows, ["id"], 0, cleared=False)
    with pytest.raises(ConfigError, match="was made without one"):
        enter_catalog(plain, "tests.shop.plain")
    for name, told in {"tests.orders": "CATALOG.NAMESPACE.TABLE", "nobody.shop.orders": "pyiceberg"}.items():
        with pytest.raises(ConfigError, match=told):
            enter_catalog(other, name)
    pyiceberg.catalog.load_catalog("tests").drop_table("shop.taken")
    assert not IcebergLake(one).is_there
