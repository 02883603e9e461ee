"""Pipelines that are killed while they write Delta and Iceberg tables: each batch is one commit, once."""

import json
from abc import abstractmethod
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final

from tests.spark_kills.jobs import BATCH, CHECKPOINT, ROWS, Job
from tests.spark_kills.programs import Pipeline

from pyromq.protocol.properties import LITE_TOPIC
from pyromq.spark.object_stores import arrow_files, delta_options, iceberg_properties
from pyromq.spark.pipelines.delta_lake import APPLICATION
from pyromq.spark.pipelines.iceberg_lake import LAST_BATCH
from pyromq.spark.pipelines.lake import DELTA, ICEBERG

_LOG: Final = ("*/_delta_log/*.tmp", "*/_delta_log/*.json")
_METADATA: Final = ("*/metadata/*.avro", "*/metadata/*.tmp", "*/metadata/v*.json", "*/version-hint.text")
_SESSIONS: Final = 4
_KEYS: Final = 20
"""An even number: all events of a key are in one queue."""


class TableJob(Job):
    form: ClassVar[str]

    @property
    def table(self) -> str:
        return self.place("table")

    def check(self) -> None:
        batches = list(self._in_log() if self.form == DELTA else self._in_metadata())
        assert batches == sorted(set(batches)), f"batches were not committed in turn: {batches}"
        self.check_rows(_rows(self.form, self.table))

    def _in_log(self) -> Iterator[int]:
        """The batches that the commits of a Delta table name."""
        for _, text in sorted(self._texts("_delta_log/[0-9]*.json")):
            for action in map(json.loads, text.splitlines()):
                if "txn" in action and action["txn"]["appId"] == APPLICATION:
                    yield action["txn"]["version"]

    def _in_metadata(self) -> Iterator[int]:
        """The batches of an Iceberg table; a version that is made for the table itself has none."""
        versions = self._texts("metadata/v*.metadata.json")
        for _, text in sorted(versions, key=lambda each: int(each[0].split("/v")[1].partition(".")[0])):
            properties = json.loads(text)["properties"]
            if LAST_BATCH in properties:
                yield int(properties[LAST_BATCH])

    def _texts(self, pattern: str) -> Iterator[tuple[str, str]]:
        system, _ = arrow_files(self.table)
        for name, path in self.files("table").items():
            if fnmatchcase(name, pattern):
                with system.open_input_stream(path) as stream:
                    yield name, stream.read().decode()

    @abstractmethod
    def check_rows(self, rows: list[dict[str, Any]]) -> None: ...


class TableArchive(TableJob):
    def command(self) -> Pipeline:
        rows = ("--rows-per-batch", str(BATCH))
        return self.run("archive", self.table, "--format", self.form, "-t", self.source, *rows)

    def check_rows(self, rows: list[dict[str, Any]]) -> None:
        self.check_once([row["value"].decode() for row in rows])


class DeltaArchive(TableArchive):
    form = DELTA
    places = ("*/data/batch-*", *_LOG, *CHECKPOINT)


class IcebergArchive(TableArchive):
    form = ICEBERG
    places = ("*/data/batch-*", *_METADATA, *CHECKPOINT)


class TableChanges(TableJob):
    """Rows that are put, put again and taken away."""

    def command(self) -> Pipeline:
        columns = ("--schema", "id bigint, n bigint", "--key", "id")
        limit = ("-O", f"maxOffsetsPerTrigger={BATCH}")
        return self.run("changes", self.table, "--format", self.form, "-t", self.source, *columns, *limit)

    def more(self) -> None:
        self.topics.fill(self.source, map(_event, range(self.total, self.total + ROWS)))
        self.total += ROWS

    def check_rows(self, rows: list[dict[str, Any]]) -> None:
        expected = {number % _KEYS: number for number in range(self.total)}
        expected = {key: number for key, number in expected.items() if not _is_delete(number)}
        found = sorted((row["id"], row["n"]) for row in rows)
        assert found == sorted(expected.items()), f"{found} instead of {sorted(expected.items())}"


class DeltaChanges(TableChanges):
    form = DELTA
    places = ("*.parquet", *_LOG, *CHECKPOINT)


class IcebergChanges(TableChanges):
    form = ICEBERG
    places = ("*.parquet", *_METADATA, *CHECKPOINT)


class DeltaChangesInStore(DeltaChanges):
    is_in_store = True


class IcebergChangesInStore(IcebergChanges):
    is_in_store = True


class TableSessions(TableJob):
    """Lite topics that grow."""

    def command(self) -> Pipeline:
        limit = ("-O", f"maxOffsetsPerTrigger={BATCH}")
        return self.run("sessions", self.table, "--format", self.form, "-t", self.source, *limit)

    def more(self) -> None:
        for session in range(_SESSIONS):
            numbers = range(self.total + session, self.total + ROWS, _SESSIONS)
            named = f"{LITE_TOPIC}\x01s{session}\x02"
            self.topics.fill(self.source, (f"{each} " for each in numbers), named)
        self.total += ROWS

    def check_rows(self, rows: list[dict[str, Any]]) -> None:
        """A session may be in several queues, each with a row; in a queue its messages are in order."""
        found = [(row, list(map(int, row["text"].split()))) for row in rows]
        assert all(row["messages"] == len(numbers) for row, numbers in found), found
        assert all(numbers == sorted(numbers) for _, numbers in found), found
        assert all({f"s{each % _SESSIONS}" for each in numbers} == {row["session"]} for row, numbers in found)
        self.check_once([str(each) for _, numbers in found for each in numbers])


class DeltaSessions(TableSessions):
    form = DELTA
    places = ("*.parquet", *_LOG, *CHECKPOINT)


class IcebergSessions(TableSessions):
    form = ICEBERG
    places = ("*.parquet", *_METADATA, *CHECKPOINT)


def _event(number: int) -> str:
    row = {"id": number % _KEYS, "n": number}
    if _is_delete(number):
        return json.dumps({"op": "d", "before": row, "after": None})
    return json.dumps({"op": "u", "before": None, "after": row})


def _is_delete(number: int) -> bool:
    return number % 7 == 3


def _rows(form: str, table: str) -> list[dict[str, Any]]:
    """As the table's own library reads it, which knows nothing of us."""
    if form == DELTA:
        from deltalake import DeltaTable

        found = DeltaTable(table, storage_options=delta_options(table)).to_pyarrow_table()
    else:
        from pyiceberg.table import StaticTable

        found = StaticTable.from_metadata(table, iceberg_properties(table)).scan().to_arrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows
