"""Dead letters back to where they came from; the checkpoint remembers which.

To the topic they were sent to first, where every group gets them; or to their own group alone, by asking
its broker to deliver them once more.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as fn

from pyromq.errors import Refused
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import Access, for_readers, for_writers, read_options
from pyromq.spark.pipelines.dlq import COLUMNS, MAX_RETRIES, described, selected
from pyromq.spark.pipelines.tallies import OUT, Show, Tally, unseen, watch
from pyromq.spark.queues import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Target = Literal["origin", "group"]

_DELAY_LEVEL = 1
"""One second: the shortest time after which a broker delivers again."""


def redrive(
    spark: "SparkSession",
    options: Mapping[str, str],
    target: Target,
    checkpoint: str,
    *,
    groups: tuple[str, ...] = (),
    where: str = "true",
    max_retries: int = MAX_RETRIES,
    trigger: Mapping[str, Any] | None = None,
    show: Show = unseen,
) -> Tally:
    """Send the dead letters for which `where` holds; the next run with this checkpoint sends newer ones."""
    given = {"startingOffsets": "earliest"} | selected(groups) | for_readers(options)
    stream = spark.readStream.format("rocketmq").options(**given).schema(COLUMNS).load()
    chosen = described(stream, max_retries).where(where)
    if target == "origin":
        chosen = chosen.where("origin != 'unknown'")
    chosen = chosen.observe(OUT, fn.count(fn.lit(1)).alias("rows"))
    if target == "origin":
        again = chosen.selectExpr("value", "key", "tags", "properties", "origin AS topic")
        writer = again.writeStream.format("rocketmq").options(**for_writers(options))
    else:
        access = read_options(given, streaming=True).access
        writer = chosen.writeStream.foreachBatch(partial(_ask_brokers, access=access))
    writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(**(trigger or {"availableNow": True})).start()
    return watch("redrive", query, show)


def _ask_brokers(dead_letters: "DataFrame", batch: int, access: Access) -> None:
    places = dead_letters.select(
        "topic", "brokerName", "queueId", "logOffset", "group", "origin", "msgId", "attempts"
    )
    places.foreachPartition(partial(_send_back, access=access))


def _send_back(dead_letters: "Iterator[Row]", access: Access) -> None:
    cluster = SparkCluster(access)
    try:
        for dead_letter in dead_letters:
            _deliver_again(cluster, dead_letter)
    finally:
        cluster.close()


def _deliver_again(cluster: SparkCluster, dead_letter: "Row") -> None:
    queue = Queue(dead_letter.topic, dead_letter.brokerName, dead_letter.queueId)
    request = SendMessageBack(
        offset=dead_letter.logOffset,
        group=dead_letter.group,
        delay_level=_DELAY_LEVEL,
        origin_msg_id=dead_letter.msgId,
        origin_topic=dead_letter.origin,
        # It has been tried as often as it may, and is to be tried once more.
        max_reconsume_times=dead_letter.attempts + 1,
    )
    answer = cluster.ask_brokers({queue: request})[queue]
    if isinstance(answer, Refused):
        raise answer
