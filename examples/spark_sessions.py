"""Sessions of visitors, from their clicks, with `transformWithState`: `python examples/spark_sessions.py`.

1. A shop sends the clicks of a day to a topic. Those of one visitor go to one queue, so they stay in order.
2. A session ends with a purchase, or after half an hour without a click. Spark's `session_window` knows only
   the second end. Here a timer fires when the watermark has passed it.
3. The query ends at noon and is started again: sessions that were open then go on, from the checkpoint.
"""

import random
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from pyromq import Message, Producer
from pyromq.spark import session
from pyromq.testing import cluster

DAY = datetime(2026, 3, 2, tzinfo=UTC)
NOON = DAY + timedelta(hours=12)
SILENCE_MS = 30 * 60 * 1000
VISITORS, VISITS = 40, 3
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

Click = tuple[datetime, str, str]


def clicks() -> list[Click]:
    """When, who, which page. Visits begin hours apart, so each is one session."""
    chance = random.Random(2026)
    made: list[Click] = []
    for visitor in range(VISITORS):
        for visit in range(VISITS):
            at = DAY + timedelta(hours=5 + 5 * visit, minutes=chance.randrange(90))
            pages = ["goods"] * chance.randint(1, 8) + ["paid"] * (chance.random() < 0.3)
            for page in pages:
                made.append((at, f"visitor-{visitor}", page))
                at += timedelta(seconds=chance.randint(5, 1200))
    # The first click of the next day moves the watermark on; its own session stays open.
    return [*sorted(made), (DAY + timedelta(days=1), "early bird", "goods")]


def send(namesrv: str, part: list[Click]) -> None:
    with Producer("shop", namesrv=namesrv) as producer:
        for at, visitor, page in part:
            click = {"visitor": visitor, "page": page, "at": at}
            producer.send(Message.of("Clicks", click), sharding_key=visitor)


# ruff: noqa: N802, N803 - the names are Spark's
class Sessions(StatefulProcessor):
    """Of each visitor the open session is kept: its first and its last click, and how many there are."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", "first bigint, last bigint, clicks int")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        begun = self._open.get()
        for row in sorted(rows, key=lambda row: row.offset):
            if begun is not None and row.ms - begun[1] >= SILENCE_MS:
                yield ended(key, begun, paid=False)
                begun = None
            first, _, count = begun or (row.ms, row.ms, 0)
            begun = (first, row.ms, count + 1)
            if row.page == "paid":
                yield ended(key, begun, paid=True)
                begun = None
        if begun is None:
            self._open.clear()
        else:
            self._open.update(begun)
            self._handle.registerTimer(begun[1] + SILENCE_MS)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        begun = self._open.get()
        # There may have been another click since the timer was set; that one has its own.
        if begun is not None and begun[1] + SILENCE_MS <= expiredTimerInfo.getExpiryTimeInMs():
            yield ended(key, begun, paid=False)
            self._open.clear()


def ended(key: Any, begun: tuple[int, int, int], *, paid: bool) -> Row:
    first, last, count = begun
    return Row(visitor=key[0], first=first, seconds=(last - first) // 1000, clicks=count, paid=paid)


def find_sessions(spark: SparkSession, namesrv: str, directory: str) -> None:
    """Process the clicks that are there now."""
    stream = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", "Clicks")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "visitor string, page string, at timestamp")
        .load()
        .select("value.*", "offset")
        .withWatermark("at", "10 minutes")
        .selectExpr("visitor", "page", "at", "unix_millis(at) AS ms", "offset")
    )
    found = stream.groupBy("visitor").transformWithState(
        Sessions(),
        outputStructType="visitor string, first bigint, seconds bigint, clicks int, paid boolean",
        outputMode="Append",
        timeMode="EventTime",
    )
    writer = found.writeStream.format("parquet").option("path", directory)
    writer = writer.option("checkpointLocation", f"{directory}/_checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def main(spark: SparkSession, namesrv: str, directory: str) -> None:
    spark = spark.newSession()  # with settings of its own
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    day = clicks()
    morning = [click for click in day if click[0] < NOON]
    for half in (morning, day[len(morning) :]):
        send(namesrv, half)
        find_sessions(spark, namesrv, directory)
        sessions = spark.read.parquet(directory).selectExpr("count(*)", "sum(clicks)", "count_if(paid)")
        count, clicked, paid = sessions.collect()[0]
        print(f"{len(half)} clicks sent; {count} sessions have ended, with {clicked} clicks, {paid} paid")


if __name__ == "__main__":
    with (
        cluster() as running,
        tempfile.TemporaryDirectory() as directory,
        session("sessions", master="local[2]", spark__sql__shuffle__partitions="2") as spark,
    ):
        main(spark, running.namesrv, directory)
