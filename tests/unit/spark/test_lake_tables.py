"""Tables without Spark: a batch is entered with its number, schemas grow, writers collide."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable
from pyspark.sql.types import StructType

from pyromq.errors import ConfigError
from pyromq.spark.ddl import parse_type
from pyromq.spark.pipelines.delta_lake import DeltaLake
from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.grown_schema import grown
from pyromq.spark.pipelines.iceberg_lake import IcebergLake
from pyromq.spark.pipelines.lake import LakeTable
from pyromq.spark.pipelines.lake_files import DELETED, DataFile

DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
TABLES = [DeltaLake, IcebergLake]


def ddl(text: str) -> StructType:
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


PLAIN = "topic: string, timestamp: timestamp, day: date, batch: int, value: struct<id: bigint>"
WIDER = f"{PLAIN[:-1]}, note: string>, tags: string"


def file(lake: Path, batch: int, **more: object) -> DataFile:
    """A file as an executor writes it."""
    path = f"data/batch-{batch}/part.parquet"
    value = {"id": batch} | ({"note": more["note"]} if "note" in more else {})
    row = {"topic": "ns%Orders", "timestamp": DAY, "day": date(2026, 3, 1), "batch": batch, "value": value}
    table = pa.Table.from_pylist([row])
    table = table.set_column(3, "batch", table["batch"].cast(pa.int32()))
    (lake / path).parent.mkdir(parents=True)
    pq.write_table(table, lake / path)
    return DataFile(
        path, (lake / path).stat().st_size, 1, "ns%Orders", date(2026, 3, 1), {"batch": batch}, {}
    )


def others_read(table: Callable[[str], LakeTable], lake: Path) -> list[dict[str, object]]:
    if table is DeltaLake:
        from deltalake import DeltaTable

        rows = DeltaTable(str(lake)).to_pyarrow_table()
    else:
        rows = StaticTable.from_metadata(str(lake)).scan().to_arrow()
    return sorted(rows.to_pylist(), key=lambda row: row["batch"])


@pytest.mark.parametrize("table", TABLES)
def test_a_table_knows_its_last_batch_and_grows(table: Callable[[str], LakeTable], tmp_path: Path) -> None:
    lake = str(tmp_path)
    assert table(lake).batch == -1
    table(lake).enter([file(tmp_path, 0)], ddl(PLAIN), 0)
    assert (table(lake).batch, table(lake).schema()) == (0, ddl(PLAIN))
    table(lake).enter([file(tmp_path, 3, note="hello")], ddl(WIDER), 3)
    table(lake).enter([file(tmp_path, 4)], ddl(PLAIN), 4)
    assert (table(lake).batch, table(lake).schema()) == (4, ddl(WIDER))
    rows = others_read(table, tmp_path)
    assert [row["value"] for row in rows] == [
        {"id": 0, "note": None},
        {"id": 3, "note": "hello"},
        {"id": 4, "note": None},
    ]
    assert {(row["topic"], row["day"], row["tags"]) for row in rows} == {
        ("ns%Orders", date(2026, 3, 1), None)
    }


def test_of_two_writers_of_a_directory_one_has_to_look_again(tmp_path: Path) -> None:
    IcebergLake(str(tmp_path)).enter([file(tmp_path, 0)], ddl(PLAIN), 0)
    one, other = IcebergLake(str(tmp_path)), IcebergLake(str(tmp_path))
    one.enter([file(tmp_path, 1)], ddl(PLAIN), 1)
    other.enter([file(tmp_path, 2)], ddl(PLAIN), 2)
    assert [row["batch"] for row in others_read(IcebergLake, tmp_path)] == [0, 1, 2]
    # A writer that saw the same version, and is a moment later.
    newest = max(
        (tmp_path / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0])
    )
    hint = tmp_path / "metadata" / "version-hint.text"
    assert newest.name == f"v{hint.read_text()}.metadata.json"
    catalog = DirectoryCatalog(str(tmp_path))
    with pytest.raises(CommitFailedException, match="already"):
        catalog._write(int(hint.read_text()), catalog.load_table(()).metadata)
    # The hint is written last: a writer may have died before.
    hint.write_text("0")
    assert IcebergLake(str(tmp_path)).batch == 2


def test_a_schema_grows_on_every_level_and_contradictions_are_named() -> None:
    old = ddl("a: int, b: struct<c: array<struct<d: int>>, m: map<string, struct<x: int>>>")
    new = ddl("b: struct<c: array<struct<d: int, e: string>>, m: map<string, struct<y: int>>>, f: date")
    inner = "c: array<struct<d: int, e: string>>, m: map<string, struct<x: int, y: int>>"
    assert grown(old, new) == ddl(f"a: int, b: struct<{inner}>, f: date")
    assert grown(old, old) == old
    with pytest.raises(ConfigError, match=r"b\.c\[\]\.d"):
        grown(old, ddl("b: struct<c: array<struct<d: string>>>"))


KEYS = {
    "text": pa.array(["a", "6f1c3a52-0000-4000-8000-000000000001", "long" * 500]),
    "bytes": pa.array([b"a", b"bc", b"\xff\x00"]),
    "number": pa.array([1, 2, 3], pa.int64()),
    "text or null": pa.array(["a", None, "c"]),
    "number or null": pa.array([1, None, 3], pa.int64()),
    "time": pa.array([DAY, DAY.replace(hour=13), DAY.replace(day=2)], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_found_and_replaced_by_keys_of_every_kind(
    table: Callable[[str], LakeTable], kind: str, tmp_path: Path
) -> None:
    rows = pa.table({"id": KEYS[kind], "note": ["x", "y", "z"], DELETED: [False] * 3})
    for batch in range(2):
        table(str(tmp_path)).apply(rows, ["id"], batch, cleared=False)
    for place in range(3):
        changed = rows.slice(place, 1)
        found = table(str(tmp_path)).stored(changed, ["id"], {"note"}).to_pylist()
        assert {"id": changed["id"][0].as_py(), "note": changed["note"][0].as_py()} in found
    assert table(str(tmp_path)).stored(rows, ["id"], {"note"}).num_rows == 3


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_not_partitioned_by_what_is_no_name_of_a_directory(
    table: Callable[[str], LakeTable], tmp_path: Path
) -> None:
    rows = pa.table({"id": KEYS["bytes"], "tags": [["a"], [], None], DELETED: [False] * 3})
    for name, problem in {"id": "it has binary", "tags": "it has list", "other": "columns id, tags"}.items():
        with pytest.raises(ConfigError, match=problem):
            table(str(tmp_path)).apply(rows, ["id"], 0, cleared=False, partition_by=[name])


def test_a_panic_of_delta_is_an_exception(tmp_path: Path) -> None:
    deleted = pa.array([False])
    twice = pa.table([pa.array([1]), deleted, deleted], ["id", DELETED, DELETED])
    DeltaLake(str(tmp_path)).apply(twice.select([0, 1]), ["id"], 0, cleared=False)
    with pytest.raises(DeltaError, match="__deleted"):
        DeltaLake(str(tmp_path)).apply(twice, ["id"], 1, cleared=False)
