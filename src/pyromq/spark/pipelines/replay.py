"""A lake back into a topic: what was archived is sent again, chosen by a condition, no faster than asked."""

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN = ("value", "key", "tags", "properties")


def replay(
    spark: "SparkSession",
    lake: str,
    options: Mapping[str, str],
    *,
    where: str = "true",
    rows_per_second: int | None = None,
) -> int:
    """Send the archived messages for which `where` holds, oldest first; how many there were.

    With a rate, a second's worth of messages is sent at a time.
    """
    chosen = spark.read.parquet(lake).where(where)
    total = chosen.count()
    ordered = chosen.orderBy("timestamp", "topic", "brokerName", "queueId", "offset")
    if rows_per_second is None:
        _send(ordered.select(*WRITTEN), options)
        return total
    pause = threading.Event()
    for first in range(0, total, rows_per_second):
        started = time.monotonic()
        _send(ordered.offset(first).limit(rows_per_second).select(*WRITTEN), options)
        pause.wait(max(0.0, 1.0 - (time.monotonic() - started)))
    return total


def _send(frame: "DataFrame", options: Mapping[str, str]) -> None:
    frame.write.format("rocketmq").options(**options).mode("append").save()
