"""An Iceberg table that follows changes by delete files: whoever reads it finds the rows of a dictionary."""

import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable
from tests.support.chance import examples

from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.iceberg_lake import IcebergLake
from pyromq.spark.pipelines.iceberg_rows import find, tasks_near
from pyromq.spark.pipelines.lake_files import DELETED

KINDS = {"id": pa.int64(), "part": pa.string(), "weight": pa.float64(), "note": pa.string()}
JOIN = 1 << 40
"""No file is larger."""


def changes(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {**KINDS, DELETED: pa.bool_()}
    return pa.Table.from_pylist([{DELETED: False} | row for row in rows], pa.schema(list(kinds.items())))


def row(id_: int | None, note: str = "x", part: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": id_, "part": part, "weight": None, "note": note, **more}


def others_read(place: Path) -> list[tuple[Any, ...]]:
    """Through pyiceberg, which knows nothing of us."""
    rows = StaticTable.from_metadata(str(place)).scan().to_arrow().to_pylist()
    return sorted((plain(each) for each in rows), key=repr)


def plain(each: dict[str, Any]) -> tuple[Any, ...]:
    weight = each["weight"]
    return (
        each["id"],
        each["part"],
        "nan" if weight is not None and math.isnan(weight) else weight,
        each["note"],
    )


def data_files(place: Path) -> set[str]:
    return {path.name for path in (place / "data").rglob("*.parquet") if not path.name.startswith("deletes-")}


numbers = st.one_of(st.none(), st.integers(-3, 12))
weights = st.sampled_from([None, math.nan, -0.5, 0.0, 1.5])
edits = st.tuples(numbers, weights, st.booleans(), st.text("xyz", max_size=2), st.sampled_from("abc"))
steps = st.lists(st.one_of(st.just("join"), st.just("clear"), st.lists(edits, max_size=8)), max_size=5)


@given(steps=steps, keys=st.sampled_from([["id"], ["id", "weight"]]), is_parted=st.booleans())
@settings(max_examples=examples(12), deadline=None)
def test_a_table_has_the_rows_that_its_changes_leave(
    steps: list[Any], keys: list[str], is_parted: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        known: dict[tuple[Any, ...], dict[str, Any]] = {}
        for batch, step in enumerate(steps):
            table = IcebergLake(directory)
            if step == "join":
                if table.is_there:
                    table.compact(None, JOIN)  # type: ignore[arg-type]  # only archives need Spark
            elif step == "clear" or step:
                last = {}
                for id_, weight, is_deleted, note, part in () if step == "clear" else step:
                    each = row(id_, note, part, weight=weight) | {DELETED: is_deleted}
                    last[tuple(plain(each)[("id", "part", "weight").index(key)] for key in keys)] = each
                by = ["part"] if is_parted else []
                table.apply(
                    changes(list(last.values())), keys, batch, cleared=step == "clear", partition_by=by
                )
                known = {} if step == "clear" else known | last
                known = {key: each for key, each in known.items() if not each[DELETED]}
                assert IcebergLake(directory).batch == batch
            if table.is_there:
                assert others_read(place) == sorted((plain(each) for each in known.values()), key=repr)


def test_changes_write_no_old_rows_anew_and_joining_files_takes_delete_files_away(tmp_path: Path) -> None:
    for start in (0, 100):
        IcebergLake(str(tmp_path)).apply(
            changes([row(number) for number in range(start, start + 100)]), ["id"], start, cleared=False
        )
    before = data_files(tmp_path)
    gone = row(150) | {DELETED: True}
    IcebergLake(str(tmp_path)).apply(changes([row(7, "new"), gone, row(500)]), ["id"], 201, cleared=False)
    (new,) = data_files(tmp_path) - before
    assert before < data_files(tmp_path)
    table = DirectoryCatalog(str(tmp_path)).load_table(())
    sizes = {
        task.file.file_path.rpartition("/")[2]: task.file.record_count for task in table.scan().plan_files()
    }
    assert sizes[new] == 2
    assert sorted(sizes.values()) == [2, 100, 100]
    rows = others_read(tmp_path)
    assert len(rows) == 200
    assert {each[0]: each[3] for each in rows}[7] == "new"
    assert 150 not in {each[0] for each in rows}
    # What is gone already is not taken away again.
    IcebergLake(str(tmp_path)).apply(changes([row(7, "newer")]), ["id"], 202, cleared=False)
    summary = DirectoryCatalog(str(tmp_path)).load_table(()).current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary["added-position-deletes"] == "1"

    joined = IcebergLake(str(tmp_path)).compact(None, JOIN)  # type: ignore[arg-type]
    assert joined == (4, 1)
    assert len(others_read(tmp_path)) == 200
    table = DirectoryCatalog(str(tmp_path)).load_table(())
    assert not [task for task in table.scan().plan_files() if task.delete_files]
    assert not table.inspect.delete_files().num_rows
    assert IcebergLake(str(tmp_path)).batch == 202


def test_files_without_the_keys_are_not_opened(tmp_path: Path) -> None:
    for start in (0, 100, 200):
        rows = [row(number, part=f"p{number:03d}") for number in range(start, start + 100)]
        IcebergLake(str(tmp_path)).apply(changes(rows), ["id"], start, cleared=False)
    table = DirectoryCatalog(str(tmp_path)).load_table(())

    def near(*rows: dict[str, Any], keys: str = "id") -> int:
        return len(list(tasks_near(table, changes(list(rows)), keys.split())))

    assert near(row(5), row(205)) == 2
    assert near(row(1_000)) == near(row(-1), row(300)) == 0
    assert near(row(None)) == 3  # null is not between two values
    assert near(row(5, part="p150"), keys="id part") == 0
    assert near(row(99, part="p099"), keys="id part") == 1


def test_a_batch_is_worked_out_again_if_others_have_committed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    IcebergLake(str(tmp_path)).apply(changes([row(1), row(2)]), ["id"], 0, cleared=False)
    left = [3]

    def overtaken(*arguments: Any) -> Any:
        found = list(find(*arguments))
        if left[0]:
            left[0] -= 1
            others = DirectoryCatalog(str(tmp_path)).load_table(())
            others.append(changes([row(1, f"of others {left[0]}")]).drop_columns([DELETED]))
        return found

    monkeypatch.setattr("pyromq.spark.pipelines.iceberg_lake.find", overtaken)
    IcebergLake(str(tmp_path)).apply(changes([row(1, "ours")]), ["id"], 1, cleared=False)
    assert [(each[0], each[3]) for each in others_read(tmp_path)] == [(1, "ours"), (2, "x")]
    left[0] = 100
    with pytest.raises(CommitFailedException):
        IcebergLake(str(tmp_path)).apply(changes([row(2, "ours")]), ["id"], 2, cleared=False)


def test_a_batch_that_another_has_entered_meanwhile_is_refused(tmp_path: Path) -> None:
    IcebergLake(str(tmp_path)).apply(changes([row(1)]), ["id"], 0, cleared=False)
    one, other = IcebergLake(str(tmp_path)), IcebergLake(str(tmp_path))
    one.apply(changes([row(2, "one")]), ["id"], 1, cleared=False)
    with pytest.raises(CommitFailedException):
        other.apply(changes([row(2, "other")]), ["id"], 1, cleared=False)
    assert [each[0] for each in others_read(tmp_path)] == [1, 2]
    snapshots = DirectoryCatalog(str(tmp_path)).load_table(()).snapshots()
    assert len(snapshots) == 2
