"""Old messages come from the tier, new ones from brokers: the same rows, each once. And without brokers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import compress

import pytest
from pyspark.errors import PySparkException
from tests.spark.conftest import Topics
from tests.support.loop import turn_until

from pyromq.admin.tier import TierStatus, status_of
from pyromq.protocol.record import SysFlag
from pyromq.spark.schema import ALL_COLUMNS
from pyromq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MESSAGES, NEWER = 150, 10
FILE_BYTES = 32 * 1024
COLUMNS = ", ".join(f"{name} {type_}" for name, type_ in ALL_COLUMNS.items())


class Lake(NamedTuple):
    topics: Topics
    place: Path

    @property
    def segments(self) -> list[Path]:
        return sorted(self.place.rglob("*.seg"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A cluster whose disk has only the last file of the log."""
    root = tmp_path_factory.mktemp("tiered")
    place = root / "lake"
    settings: dict[str, Any] = {"tier_level": "NOT_IN_DISK", "tier_place": str(place)}
    settings |= {"log_segment_bytes": FILE_BYTES, "file_reserved_hours": 1}
    with cluster(root / "store", **settings) as running:
        topics = Topics(running)
        for topic in ("Orders", "Others"):
            topics.create(topic, queues=2)

        def send(number: int) -> None:
            tags = {"TAGS": "even" if number % 4 == 0 else "odd", "KEYS": f"k{number} all"}
            properties = "".join(f"{name}\x01{value}\x02" for name, value in tags.items())
            body, flag = b"%d " % number + b"x" * 700, 0
            if number % 10 == 0:
                body, flag = compress(body), SysFlag.COMPRESSED
            topics.send("Orders", number % 2, body, properties, flag)

        for number in range(MESSAGES):
            send(number)
        topics.fill("Others", 0, [b"another %d" % number for number in range(20)])

        def status() -> TierStatus:
            found = status_of(topics.figures())
            assert found is not None
            return found

        def is_uploaded() -> bool:
            return status().tier_end == status().log_end // FILE_BYTES * FILE_BYTES

        def is_cleaned() -> bool:
            topics.delete_expired()
            return status().log_start == closed

        asyncio.run(turn_until(is_uploaded))
        closed = status().tier_end
        topics.expire_data()
        asyncio.run(turn_until(is_cleaned))
        for number in range(MESSAGES, MESSAGES + NEWER):
            send(number)
        yield Lake(topics, place)
        topics.close()


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
