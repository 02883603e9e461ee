"""Maintenance: those who ask are forgotten, on the disk as well; nothing that anybody needs is removed."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from tests.unit.spark.test_iceberg_rows import changes, row

from pyromq.errors import ConfigError
from pyromq.spark.pipelines import plain_files
from pyromq.spark.pipelines.delta_lake import DeltaLake
from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
from pyromq.spark.pipelines.iceberg_lake import IcebergLake

NOW, DAY = timedelta(0), timedelta(days=1)
TABLES: dict[str, Callable[[str], Any]] = {"delta": DeltaLake, "iceberg": IcebergLake}
everywhere = pytest.mark.parametrize("form", TABLES)


def fill(form: str, place: Path, batches: int = 3) -> None:
    """Ten rows a batch; the rows of earlier batches change as well."""
    for batch in range(batches):
        new = [row(number, f"secret of {number}") for number in range(batch * 10, batch * 10 + 10)]
        old = [row(batch * 10 - 1, "changed")] if batch else []
        TABLES[form](str(place)).apply(changes(new + old), ["id"], batch, cleared=False)


def ids(form: str, place: Path) -> list[int]:
    """As others read the table."""
    if form == "delta":
        rows = DeltaTable(str(place)).to_pyarrow_table()
    else:
        rows = StaticTable.from_metadata(str(place)).scan().to_arrow()
    found: list[int] = sorted(rows["id"].to_pylist())
    return found


def files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts}


def on_disk(place: Path, text: str) -> bool:
    """Whether any file with rows still has it."""
    return any(
        text in pq.ParquetFile(path).read(["note"])["note"].to_pylist()
        for path in files(place)
        if "note" in pq.ParquetFile(path).schema_arrow.names
    )


@everywhere
def test_a_row_is_forgotten_on_the_disk_as_well_once_old_versions_are_given_up(
    form: str, tmp_path: Path
) -> None:
    fill(form, tmp_path)
    assert TABLES[form](str(tmp_path)).forget(ForgottenRows({"id": ["5", "25", "999"]})) == 2
    assert ids(form, tmp_path) == [number for number in range(30) if number not in (5, 25)]
    assert on_disk(tmp_path, "secret of 5"), "readers of the old version have lost a file"
    assert TABLES[form](str(tmp_path)).expire(DAY) == 0
    assert on_disk(tmp_path, "secret of 5")
    before = len(files(tmp_path))
    removed = TABLES[form](str(tmp_path)).expire(NOW)
    assert 0 < before - len(files(tmp_path)) <= removed
    assert not [n for n in (5, 25) if on_disk(tmp_path, f"secret of {n}") and form == "iceberg"]
    assert ids(form, tmp_path) == [number for number in range(30) if number not in (5, 25)]
    # The table goes on, with the batches that it has.
    assert TABLES[form](str(tmp_path)).batch == 2
    TABLES[form](str(tmp_path)).apply(changes([row(5, "again")]), ["id"], 3, cleared=False)
    assert 5 in ids(form, tmp_path)


def test_a_row_that_a_delete_file_hides_is_in_no_file_either_when_it_is_forgotten(tmp_path: Path) -> None:
    fill("iceberg", tmp_path)
    gone = row(7) | {"__deleted": True}
    IcebergLake(str(tmp_path)).apply(changes([gone]), ["id"], 3, cleared=False)
    assert IcebergLake(str(tmp_path)).forget(ForgottenRows({"id": ["7"]})) == 0
    IcebergLake(str(tmp_path)).expire(NOW)
    assert not on_disk(tmp_path, "secret of 7")
    assert ids("iceberg", tmp_path) == [number for number in range(30) if number != 7]


@everywhere
def test_only_old_files_that_no_version_knows_are_orphans(form: str, tmp_path: Path) -> None:
    fill(form, tmp_path)
    # What a Delta table says of its changes is as old as the versions that it keeps.
    needed = {path for path in tmp_path.rglob("*") if path.is_file() and "_change_data" not in path.parts}
    old, young, beside = (
        tmp_path / "data" / "x" / "old.parquet",
        tmp_path / "data" / "young.parquet",
        tmp_path / "_dead_letters" / "batch=1" / "kept.parquet",
    )
    for path in (old, young, beside):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": [1]}), path)
    ago = (datetime.now(UTC) - 3 * DAY).timestamp()
    for path in needed | {old, beside}:
        os.utime(path, (ago, ago))
    assert TABLES[form](str(tmp_path)).remove_orphans(2 * DAY) == 1
    assert not old.exists()
    assert young.exists()
    assert beside.exists()
    assert {path for path in needed if not path.exists()} == set()
    assert ids(form, tmp_path) == list(range(30))


def test_nothing_is_removed_beside_a_table_that_has_lost_a_file(tmp_path: Path) -> None:
    fill("iceberg", tmp_path)
    for path in files(tmp_path):
        path.rename(path.with_name(f"{path.name}.moved"))
    with pytest.raises(ConfigError, match="a table with all of its files"):
        IcebergLake(str(tmp_path)).remove_orphans(NOW)
    assert list(tmp_path.rglob("*.moved"))


@everywhere
def test_others_may_commit_while_rows_are_forgotten_and_files_joined(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(form, tmp_path)
    table = TABLES[form](str(tmp_path))
    number = 100
    kind = ForgottenRows

    def overtaken(self: ForgottenRows, schema: pa.Schema) -> Any:
        nonlocal number
        if number < 102:
            number += 1
            # It comes, and puts a row that is about to be rewritten in another place.
            TABLES[form](str(tmp_path)).apply(
                changes([row(number), row(6, f"later {number}"), row(5, "later")]),
                ["id"],
                number,
                cleared=False,
            )
        return original(self, schema)

    name = "condition" if form == "delta" else "columns"
    original = getattr(kind, name)
    monkeypatch.setattr(kind, name, overtaken)
    assert table.forget(ForgottenRows({"id": ["5"]})) == 1
    assert ids(form, tmp_path) == [n for n in [*range(30), 101, 102] if n != 5]
    assert TABLES[form](str(tmp_path)).batch == 102


def test_a_table_whose_files_are_joined_keeps_the_deletions_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("iceberg", tmp_path)
    original = IcebergLake._is_archive
    left = [2]

    def overtaken(self: IcebergLake) -> bool:
        if left[0]:
            left[0] -= 1
            gone = row(11 + left[0]) | {"__deleted": True}
            IcebergLake(str(tmp_path)).apply(changes([gone]), ["id"], 10 - left[0], cleared=False)
        return original(self)

    monkeypatch.setattr(IcebergLake, "_is_archive", overtaken)
    IcebergLake(str(tmp_path)).compact(None, 1 << 40)  # type: ignore[arg-type]
    assert ids("iceberg", tmp_path) == [n for n in range(30) if n not in (11, 12)]
    assert len(list(DirectoryCatalog(str(tmp_path)).load_table(()).scan().plan_files())) == 1


def test_rows_are_forgotten_by_texts_bytes_numbers_and_fields() -> None:
    rows = pa.table(
        {
            "key": ["a", "b", None, "d"],
            "raw": [b"1", b"2", b"3", None],
            "value": [{"id": 1, "name": "x"}, None, {"id": 3, "name": None}, {"id": 4, "name": "it's"}],
            "dotted.name": [1.5, None, 2.5, 4.0],
        }
    )

    def found(**values: str) -> list[int]:
        wanted = {name.replace("__", "."): [value] for name, value in values.items()}
        among = ForgottenRows(wanted).among(rows).to_pylist()
        return [place for place, is_among in enumerate(among) if is_among]

    assert found(key="a") == [0]
    assert found(raw="2", key="d") == [1, 3]
    assert found(value__id="3") == [2]
    assert found(value__name="it's") == [3]
    assert found(dotted__name="2.5") == [2]
    assert found(key="z") == []
    assert ForgottenRows({"value.name": ["it's"], "raw": ["2"]}).condition(rows.schema) == (
        "\"value\"['name'] IN ('it''s') OR \"raw\" IN (X'32')"
    )


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"nobody": ["1"]}, "a column of texts, numbers or bytes: id, value"),
        ({"value": ["1"]}, "a column of texts, numbers or bytes"),
        ({"value.nobody": ["1"]}, "a column of texts, numbers or bytes"),
        ({"id": ["one"]}, "values of its type, int64"),
        ({}, "at least one column with a value"),
    ],
)
def test_what_cannot_be_forgotten_is_refused_in_words(values: dict[str, list[str]], told: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("value", pa.struct([("x", pa.int64())]))])
    with pytest.raises(ConfigError, match=told):
        ForgottenRows(values).columns(schema)


def test_files_of_a_plain_lake_are_replaced_without_the_rows_and_others_stay_as_they_are(
    tmp_path: Path,
) -> None:
    places = [tmp_path / f"topic=T/day=2026-01-0{day}/batch=0/part-0.parquet" for day in (1, 2)]
    for number, place in enumerate(places):
        place.parent.mkdir(parents=True)
        pq.write_table(pa.table({"key": [f"a{number}", "b"]}), place, compression="zstd")
        place.with_name(f".{place.name}.crc").write_bytes(b"of the file")
    notes = tmp_path / "_dead_letters" / "x.parquet"
    notes.parent.mkdir()
    pq.write_table(pa.table({"other": [1]}), notes)
    other = places[1].read_bytes()
    assert plain_files.forget(str(tmp_path), ForgottenRows({"key": ["a0"]})) == 1
    assert pq.read_table(places[0], partitioning=None)["key"].to_pylist() == ["b"]
    assert pq.ParquetFile(places[0]).metadata.row_group(0).column(0).compression == "ZSTD"
    assert not places[0].with_name(f".{places[0].name}.crc").exists()
    assert places[1].read_bytes() == other
    assert places[1].with_name(f".{places[1].name}.crc").exists()

    left = tmp_path / ".spark-staging-1" / "x.parquet"
    left.parent.mkdir()
    left.write_bytes(b"")
    assert plain_files.remove_orphans(str(tmp_path), DAY) == 0
    ago = (datetime.now(UTC) - 3 * DAY).timestamp()
    for path in (left, *places):
        os.utime(path, (ago, ago))
    assert plain_files.remove_orphans(str(tmp_path), DAY) == 1
    assert all(place.exists() for place in places)
