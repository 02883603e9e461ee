"""Journals and Delta tables in Azurite, the emulator of Azure's store. `make azurite` starts one."""

import os

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")

import pyarrow as pa
from deltalake import DeltaTable
from tests.support.journal_races import race

from pyromq.spark.batch_journal import BatchHeld, BatchJournal, StoredHalf
from pyromq.spark.journal_files import journal_files
from pyromq.spark.object_stores import delta_options
from pyromq.spark.pipelines.lake import DELTA, table_at
from pyromq.spark.pipelines.lake_files import DELETED
from pyromq.spark.queues import Queue

EMULATED = "AZURE_STORAGE_USE_EMULATOR"
PLACE = "abfss://container@devstoreaccount1.dfs.core.windows.net"
ROUNDS, WAIT_S = 20, 60.0

pytestmark = pytest.mark.skipif(EMULATED not in os.environ, reason="there is no Azurite: see `make azurite`")


def test_one_of_several_writers_creates_a_file() -> None:
    journal = f"{PLACE}/one/journal"
    files = journal_files(journal)
    for round_ in range(ROUNDS):
        won = race(journal, str(round_), WAIT_S)
        assert len(won) == 1
        assert files.read(str(round_)) == won[0]
    assert sorted(files.names(), key=int) == [str(number) for number in range(ROUNDS)]
    files.replace("0", b"ended")
    assert files.read("0") == b"ended"
    files.remove("0")
    assert files.read("0") is None
    assert files.written_ms("0") is None


def test_one_driver_decides_a_batch() -> None:
    first, second = (BatchJournal(f"{PLACE}/two/checkpoint") for _ in range(2))
    first.decide(3, [StoredHalf(Queue("T", "b", 1), "first", 5, 6)], "Totals")
    with pytest.raises(BatchHeld):
        second.decide(3, [StoredHalf(Queue("T", "b", 1), "second", 7, 8)], "Totals")
    assert [half.unique_key for half in second.unended(3)] == ["first"]
    first.end(3)
    assert second.is_decided(3)


def test_a_delta_table_follows_its_changes() -> None:
    place = f"{PLACE}/three/table"
    table_at(place, DELTA).apply(_changes({1: "a", 2: "b"}), ["id"], 0, cleared=False)
    table_at(place, DELTA).apply(_changes({2: "new", 3: "c"}, gone=1), ["id"], 1, cleared=False)
    assert table_at(place, DELTA).batch == 1
    rows = DeltaTable(place, storage_options=delta_options(place)).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["note"] for row in rows} == {2: "new", 3: "c"}


def _changes(rows: dict[int, str], gone: int | None = None) -> pa.Table:
    deleted = [] if gone is None else [gone]
    return pa.table(
        {
            "id": pa.array([*rows, *deleted], pa.int64()),
            "note": pa.array([*rows.values(), *(None for _ in deleted)], pa.string()),
            DELETED: [False] * len(rows) + [True] * len(deleted),
        }
    )
