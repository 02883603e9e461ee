"""Journals and tables in an S3 store that fails: what was said to be there is there, once."""

import logging
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("obstore")
pytest.importorskip("moto")

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyspark.sql.types import StructType
from tests.support.chance import examples
from tests.support.journal_races import race
from tests.support.object_store import (
    BUSY,
    CONFLICT,
    FAULTS,
    RESET_AFTER,
    SECRET_KEY,
    WAIT_S,
    FaultyStore,
    faulty_store,
    lead_to,
)

from pyromq.errors import TransportError
from pyromq.spark.batch_journal import BatchHeld, BatchJournal, StoredHalf
from pyromq.spark.ddl import parse_type
from pyromq.spark.journal_files import journal_files
from pyromq.spark.object_stores import arrow_files
from pyromq.spark.pipelines.lake import DELTA, ICEBERG, table_at
from pyromq.spark.pipelines.lake_files import DELETED, files_in
from pyromq.spark.queues import Queue


@pytest.fixture(scope="module")
def running() -> Iterator[FaultyStore]:
    with faulty_store() as store:
        yield store


@pytest.fixture
def store(running: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    lead_to(running.url(), monkeypatch)
    running.fail_no_more()
    return running


@pytest.fixture
def bucket(store: FaultyStore) -> str:
    return store.new_bucket()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_file_is_created_once_whatever_happens_to_its_request(
    store: FaultyStore, bucket: str, scheme: str, fault: str
) -> None:
    files = journal_files(f"{scheme}://{bucket}/a/journal")
    store.fail_once("PUT", "/7", fault)
    files.create("7", b"decided")
    assert store.failed() == 1
    assert files.read("7") == b"decided"
    assert files.names() == ["7"]
    with pytest.raises(FileExistsError):
        files.create("7", b"by another one")
    if fault != CONFLICT:  # an answer to conditional writes only
        store.fail_once("GET", "/7", fault)
        assert files.read("7") == b"decided"
        assert store.failed() == 1
    files.replace("7", b"")
    assert files.read("7") == b""
    for _ in range(2):
        files.remove("7")
    assert files.read("7") is None
    assert files.written_ms("7") is None
    assert files.names() == []


def test_one_of_several_writers_creates_a_file_while_the_store_fails(store: FaultyStore, bucket: str) -> None:
    journal = f"s3://{bucket}/journal"
    for round_ in range(examples(4)):
        store.fail_sometimes(round_)
        won = race(journal, str(round_), 4 * WAIT_S, copies=100)
        store.fail_no_more()
        assert len(won) == 1
        assert journal_files(journal).read(str(round_)) == won[0]


def test_a_write_that_arrives_late_does_not_replace_that_of_another_driver(
    store: FaultyStore, bucket: str
) -> None:
    first, second = (BatchJournal(f"s3a://{bucket}/checkpoint") for _ in range(2))
    refused = list[BatchHeld]()
    store.hold_once("PUT", "/3")

    def decide() -> None:
        try:
            first.decide(3, [StoredHalf(Queue("T", "b", 1), "slow", 5, 6)], "Totals")
        except BatchHeld as problem:
            refused.append(problem)

    slow = threading.Thread(target=decide)
    slow.start()
    assert store.wait_held()
    second.decide(3, [StoredHalf(Queue("T", "b", 1), "quick", 7, 8)], "Totals")
    store.release()
    slow.join(WAIT_S)
    assert "has decided batch 3" in str(refused[0])
    assert [half.unique_key for half in first.unended(3)] == ["quick"]
    second.end(3)
    assert first.is_decided(3)
    assert first.unended(3) == []
    assert first.topic(3) == "Totals"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_a_batch_of_changes_is_one_version_whatever_happens_to_its_commit(
    store: FaultyStore, bucket: str, form: str, fault: str
) -> None:
    place = f"s3://{bucket}/{form}/table"
    table_at(place, form).apply(_changes({1: "a", 2: "b"}), ["id"], 0, cleared=False)
    # Versions 0 and 1 make the table and its first rows.
    version = "00000000000000000002.json" if form == DELTA else "v2.metadata.json"
    store.fail_once("PUT", version, fault)
    table_at(place, form).apply(_changes({2: "new", 3: "c"}, deleted={1}), ["id"], 1, cleared=False)
    assert store.failed() == 1
    table = table_at(place, form)
    assert table.batch == 1
    assert _rows(table) == {2: "new", 3: "c"}


def test_of_two_writers_of_a_version_one_fails(store: FaultyStore, bucket: str) -> None:
    place = f"s3a://{bucket}/table"
    table_at(place, ICEBERG).apply(_changes({1: "a"}), ["id"], 0, cleared=False)
    slow, quick = table_at(place, ICEBERG), table_at(place, ICEBERG)
    store.hold_once("PUT", "/v2.metadata.json")
    failures = list[Exception]()

    def commit() -> None:
        try:
            slow.apply(_changes({1: "slow"}), ["id"], 1, cleared=False)
        except Exception as problem:
            failures.append(problem)

    thread = threading.Thread(target=commit)
    thread.start()
    assert store.wait_held()
    quick.apply(_changes({1: "quick"}), ["id"], 1, cleared=False)
    store.release()
    thread.join(WAIT_S)
    assert isinstance(failures[0], CommitFailedException | ValidationException)
    assert _rows(table_at(place, ICEBERG)) == {1: "quick"}


@pytest.mark.parametrize("fault", [BUSY, RESET_AFTER])
@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_files_that_executors_have_written_become_a_table(
    store: FaultyStore, bucket: str, form: str, fault: str
) -> None:
    """As an archive does it, without Spark's own way to S3."""
    place = f"s3a://{bucket}/lake"
    system, root = arrow_files(place)
    day = pa.scalar("2026-11-18").cast(pa.date32())
    for batch in range(2):
        values = [batch * 10 + number for number in range(10)]
        rows = pa.table(
            {
                "value": pa.array(values, pa.int64()),
                "topic": pa.array(["Orders"] * 10),
                "timestamp": pa.array([1_795_000_000_000_000] * 10, pa.timestamp("us", "UTC")),
                "day": pa.array([day] * 10),
                "batch": pa.array([batch] * 10, pa.int32()),
            }
        )
        name = f"data/batch-{batch}/part={b'Orders'.hex()}-2026-11-18/part-0.parquet"
        pq.write_table(rows, f"{root}/{name}", filesystem=system)
        files = files_in(place, f"data/batch-{batch}")
        assert [(file.path, file.rows, file.topic) for file in files] == [(name, 10, "Orders")]
        columns = parse_type("struct<value bigint, topic string, timestamp timestamp, day date, batch int>")
        assert isinstance(columns, StructType)
        store.fail_once("PUT", ".json", fault)
        table_at(place, form).enter(files, columns, batch)
        assert store.failed() == 1
    table = table_at(place, form)
    assert table.batch == 1
    assert table.schema().names == ["value", "topic", "timestamp", "day", "batch"]
    assert sorted(_whole(table)["value"].to_pylist()) == list(range(20))


def test_a_store_that_refuses_is_named_and_no_text_has_the_secret(
    store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    missing = journal_files("s3://no-such-bucket/journal")
    with pytest.raises(TransportError, match=r"^no-such-bucket/journal/7: ") as refused:
        missing.create("7", b"decided")
    for text in (str(refused.value), repr(missing), caplog.text):
        assert SECRET_KEY not in text


def _changes(rows: dict[int, str], deleted: set[int] | None = None) -> pa.Table:
    gone = sorted(deleted or ())
    return pa.table(
        {
            "id": pa.array([*rows, *gone], pa.int64()),
            "note": pa.array([*rows.values(), *(None for _ in gone)], pa.string()),
            DELETED: pa.array([False] * len(rows) + [True] * len(gone)),
        }
    )


def _whole(table: object) -> pa.Table:
    inside = table._table  # type: ignore[attr-defined]
    return inside.scan().to_arrow() if isinstance(inside, Table) else inside.to_pyarrow_table()


def _rows(table: object) -> dict[int, str]:
    rows = _whole(table)
    return dict(zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True))
