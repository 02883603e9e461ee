"""A driver that dies at any moment leaves a checkpoint that the next one can use, and totals that are right.

A query runs once, undisturbed. From the files that it left, in the order in which they were written, follow
the states that a kill would have left: some files whole, the next missing, or begun under a temporary name.
Each of them is put back in its place, and the query runs again to its end.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.chance import examples

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

ROWS = 40
POINTS = 3
"""How many of the states are tried, spread over all of them; `make fuzz` tries more."""


class Left(NamedTuple):
    """What a kill leaves: the whole files, and one that was being written."""

    whole: list[Path]
    begun: Path | None

    def __str__(self) -> str:
        return f"{len(self.whole)} files" + (f", {self.begun} begun" if self.begun else "")


class Run:
    """A query of two batches with all its files in one directory."""

    def __init__(self, directory: Path, start: Callable[[Path], None]) -> None:
        self.directory = directory
        self._done = directory.with_name("done")
        self._start = start

    def once(self) -> list[Left]:
        """Run it; the states it could have been killed in."""
        self._start(self.directory)
        self.directory.rename(self._done)
        found = [path for path in self._done.rglob("*") if path.is_file() and path.suffix != ".crc"]
        files = [
            path.relative_to(self._done) for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)
        ]
        return [
            Left(files[:count], begun)
            for count in range(len(files))
            for begun in (None, files[count])
            if begun is None or begun.parent.name in ("offsets", "commits", "checkpoint", "_spark_metadata")
        ]

    def again(self, left: Left) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        for name in left.whole:
            self._put(name, name)
        if left.begun is not None:
            temporary = left.begun.with_name(f".{left.begun.name}.0b1c2d3e-aaaa-bbbb-cccc-0123456789ab.tmp")
            self._put(left.begun, temporary)
            with (self.directory / temporary).open("r+b") as file:
                file.truncate(os.fstat(file.fileno()).st_size // 2)
        self._start(self.directory)

    def _put(self, source: Path, target: Path) -> None:
        (self.directory / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self._done / source, self.directory / target)
        sums = source.with_name(f".{source.name}.crc")
        if (self._done / sums).exists():
            shutil.copy2(self._done / sums, self.directory / target.with_name(f".{target.name}.crc"))


@pytest.fixture
def stream(spark: SparkSession, topics: "Topics") -> Callable[[], DataFrame]:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"%d" % number for number in range(ROWS)])
    options = topics.options("Orders", startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS // 2))

    def load() -> DataFrame:
        source = spark.readStream.format("rocketmq").options(**options).load()
        return source.selectExpr("cast(cast(value as string) as int) as number")

    return load


def tried(points: list[Left]) -> list[Left]:
    """Some of them, from the first to the last; those of the first batch were the worst."""
    first = [point for point in points if point.begun is not None and point.begun.name == "0"]
    wanted = examples(POINTS)
    step = max(1, len(points) // wanted)
    return [*first, *points[::step]]


def test_files_have_each_row_once(
    spark: SparkSession, stream: Callable[[], DataFrame], tmp_path: Path
) -> None:
    def start(directory: Path) -> None:
        writer = stream().writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        assert writer.start(str(directory / "out")).awaitTermination(300)

    run = Run(tmp_path / "run", start)
    for left in tried(run.once()):
        run.again(left)
        rows = spark.read.schema("number int").parquet(str(run.directory / "out")).collect()
        assert sorted(row.number for row in rows) == list(range(ROWS)), left


def test_totals_of_a_query_with_state_are_right(
    spark: SparkSession, stream: Callable[[], DataFrame], tmp_path: Path
) -> None:
    def start(directory: Path) -> None:
        def land(frame: DataFrame, number: int) -> None:
            frame.coalesce(1).write.mode("overwrite").parquet(str(directory / "out"))

        totals = stream().selectExpr("number % 5 as group", "number").groupBy("group").sum("number")
        writer = totals.writeStream.outputMode("complete").foreachBatch(land).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        assert writer.start().awaitTermination(300)

    expected = {group: sum(range(group, ROWS, 5)) for group in range(5)}
    run = Run(tmp_path / "run", start)
    for left in tried(run.once()):
        run.again(left)
        rows = spark.read.parquet(str(run.directory / "out")).collect()
        assert {row.group: row["sum(number)"] for row in rows} == expected, left
