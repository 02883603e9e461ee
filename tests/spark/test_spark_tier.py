"""Old messages come from the tier, new ones from brokers: the same rows, each once. And without brokers."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import compress

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.spark.conftest import Topics
from tests.spark_kills.programs import Moment, Pipeline
from tests.support.loop import turn_until

from pyromq.admin.tier import TierStatus, status_of
from pyromq.protocol.record import SysFlag
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.lake import read_lake
from pyromq.spark.schema import ALL_COLUMNS
from pyromq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from tests.conftest import ErrorLogs

MESSAGES, NEWER = 150, 10
FILE_BYTES = 32 * 1024
COLUMNS = ", ".join(f"{name} {type_}" for name, type_ in ALL_COLUMNS.items())


class Lake(NamedTuple):
    topics: Topics
    place: Path

    @property
    def segments(self) -> list[Path]:
        return sorted(self.place.rglob("*.seg"))

    def send(self, topic: str, numbers: range) -> None:
        """By turns to two queues."""
        for number in numbers:
            tags = {"TAGS": "even" if number % 4 == 0 else "odd", "KEYS": f"k{number} all"}
            properties = "".join(f"{name}\x01{value}\x02" for name, value in tags.items())
            body, flag = b"%d " % number + b"x" * 700, 0
            if number % 10 == 0:
                body, flag = compress(body), SysFlag.COMPRESSED
            self.topics.send(topic, number % 2, body, properties, flag)

    def clean(self) -> None:
        """All closed files of the log are in the tier, and none on the disk."""

        def status() -> TierStatus:
            found = status_of(self.topics.figures())
            assert found is not None
            return found

        def is_uploaded() -> bool:
            return status().tier_end == status().log_end // FILE_BYTES * FILE_BYTES

        def is_cleaned() -> bool:
            self.topics.delete_expired()
            return status().log_start == closed

        asyncio.run(turn_until(is_uploaded))
        closed = status().tier_end
        self.topics.expire_data()
        asyncio.run(turn_until(is_cleaned))


@contextmanager
def tiered(root: Path) -> Iterator[Lake]:
    """A cluster with a tier."""
    place = root / "lake"
    settings: dict[str, Any] = {"tier_level": "NOT_IN_DISK", "tier_place": str(place)}
    settings |= {"log_segment_bytes": FILE_BYTES, "file_reserved_hours": 1, "tier_read_timeout_ms": 1000}
    with cluster(root / "store", **settings) as running:
        topics = Topics(running)
        for topic in ("Orders", "Others"):
            topics.create(topic, queues=2)
        yield Lake(topics, place)
        topics.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A cluster whose disk has only the last file of the log."""
    with tiered(tmp_path_factory.mktemp("tiered")) as lake:
        lake.send("Orders", range(MESSAGES))
        lake.topics.fill("Others", 0, [b"another %d" % number for number in range(20)])
        lake.clean()
        lake.send("Orders", range(MESSAGES, MESSAGES + NEWER))
        yield lake


def read(spark: "SparkSession", options: dict[str, str], columns: str = COLUMNS) -> "DataFrame":
    return spark.read.format("rocketmq").schema(columns).options(**options).load()


def rows(frame: "DataFrame") -> list["Row"]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.brokerName, row.queueId, row.offset))


def test_the_rows_are_those_that_brokers_give(spark: "SparkSession", lake: Lake) -> None:
    options = lake.topics.options("Orders")
    expected = rows(read(spark, options))
    assert [row.offset for row in expected] == [*range((MESSAGES + NEWER) // 2)] * 2
    tier = {"tier": str(lake.place)}
    assert rows(read(spark, options | tier)) == expected
    alone = rows(read(spark, {"subscribe": "Orders", "endingOffsets": "tier"} | tier))
    ends = {row.queueId: row.offset for row in alone}
    assert alone == [row for row in expected if row.offset <= ends[row.queueId]]
    assert len(expected) - 2 * NEWER < len(alone) < len(expected)


def test_a_damaged_object_is_named_with_the_messages_that_it_has(
    spark: "SparkSession", lake: Lake, tmp_path: Path
) -> None:
    copy = Lake(lake.topics, tmp_path / "copy")
    copytree(lake.place, copy.place)
    segment = copy.segments[1]
    content = bytearray(segment.read_bytes())
    content[40:50] = bytes(10)
    segment.write_bytes(content)
    options = lake.topics.options("Orders", tier=str(copy.place))
    with pytest.raises(PySparkException, match=rf"offsets \d+ to \d+ of Orders@.*{segment.name}") as failed:
        read(spark, options).collect()
    assert "failOnDataLoss=false" in str(failed.value)
    left = read(spark, options | {"failOnDataLoss": "false"}, "offset bigint, value binary").collect()
    assert 0 < MESSAGES + NEWER - len(left) < MESSAGES // 2


class Died(Exception):
    """Before Spark knows that a batch is done."""


class Stream:
    """A query that dies in each batch, and repeats it."""

    def __init__(self, spark: "SparkSession", checkpoint: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._options = options
        self.batches: dict[int, list[tuple[int, int, int]]] = {}

    def _keep(self, frame: "DataFrame", batch: int) -> None:
        rows = sorted((row.queueId, row.offset, row.number) for row in frame.collect())
        if batch not in self.batches:
            self.batches[batch] = rows
            raise Died
        assert self.batches[batch] == rows

    def go_on(self) -> bool:
        """Run until it dies; whether it came to its end."""
        stream = self._spark.readStream.format("rocketmq").options(**self._options).load()
        numbers = stream.selectExpr("queueId", "offset", "int(split(cast(value as string), ' ')[0]) number")
        writer = numbers.writeStream.foreachBatch(self._keep)
        query = writer.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True).start()
        with suppress(StreamingQueryException):
            assert query.awaitTermination(300)
        problem = query.exception()
        assert problem is None or "Died" in str(problem)
        return problem is None

    def rows(self) -> list[tuple[int, int, int]]:
        return sorted(row for rows in self.batches.values() for row in rows)


def test_a_stream_that_dies_again_and_again_goes_from_the_tier_to_brokers_while_the_seam_moves(
    spark: "SparkSession", tmp_path: Path, error_logs: "ErrorLogs"
) -> None:
    with tiered(tmp_path) as lake:
        lake.send("Orders", range(MESSAGES))
        lake.clean()
        lake.send("Orders", range(MESSAGES, MESSAGES + NEWER))
        options = lake.topics.options(
            "Orders", tier=str(lake.place), startingOffsets="earliest", maxOffsetsPerTrigger="90"
        )
        stream = Stream(spark, tmp_path / "checkpoint", options)
        assert not stream.go_on()
        assert not stream.go_on()
        # The batch that is repeated now was read from the disk of the broker in part, and is in the tier.
        lake.send("Orders", range(MESSAGES + NEWER, 2 * MESSAGES))
        lake.clean()
        lake.send("Orders", range(2 * MESSAGES, 2 * MESSAGES + NEWER))
        while not stream.go_on():
            pass
        everything = [(number % 2, number // 2, number) for number in range(2 * MESSAGES + NEWER)]
        assert stream.rows() == sorted(everything)
        assert len(stream.batches) > 3
        # If the broker has lost the old ones, the stream finds them even so.
        elsewhere = lake.place.rename(tmp_path / "elsewhere")
        lake.topics.running.restart()
        more = {"tier": str(elsewhere), "startingOffsets": '{"Orders": {"broker-a:0": 0, "broker-a:1": 0}}'}
        other = Stream(spark, tmp_path / "other", options | more | {"maxOffsetsPerTrigger": "1000"})
        while not other.go_on():
            pass
        assert other.rows() == sorted(everything)
    error_logs.allow("nothing is uploaded to the tier")
    error_logs.expect_repeatedly("executing the Python Proxy")


@pytest.mark.skipif(sys.platform != "linux", reason="moments are found with inotify")
def test_an_archive_that_is_killed_between_two_batches_goes_on_where_it_was(
    spark: "SparkSession", lake: Lake, tmp_path: Path
) -> None:
    place = str(tmp_path / "job" / "archive")
    options = lake.topics.options("Orders", tier=str(lake.place), maxOffsetsPerTrigger="50")
    given = [text for name in ("tier", "maxOffsetsPerTrigger") for text in ("-O", f"{name}={options[name]}")]
    pipeline = Pipeline(options["namesrv"], tmp_path / "job", "archive", place, "-t", "Orders", *given)
    assert pipeline.run(Moment("*/commits/0")).was_killed
    archive(spark, options, place)
    found = read_lake(spark, place).select("queueId", "offset").collect()
    everything = [(queue, offset) for queue in (0, 1) for offset in range((MESSAGES + NEWER) // 2)]
    assert sorted(map(tuple, found)) == everything
