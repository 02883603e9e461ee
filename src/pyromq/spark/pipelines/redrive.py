"""Dead letters back to where they came from; the checkpoint remembers which, so that none goes twice.

To the topic they were sent to first, where every group gets them; or to their own group alone, by asking
its broker to deliver them once more.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as fn

from pyromq.errors import Refused
from pyromq.protocol.requests.sending import SendMessageBack
from pyromq.spark.cluster import Cluster
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
    """Send the letters for which `where` holds; the next run with this checkpoint sends only newer ones."""
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


def _ask_brokers(letters: "DataFrame", batch: int, access: Access) -> None:
    places = letters.select(
        "topic", "brokerName", "queueId", "logOffset", "group", "origin", "msgId", "attempts"
    )
    places.foreachPartition(partial(_send_back, access=access))


def _send_back(letters: "Iterator[Row]", access: Access) -> None:
    cluster = Cluster(access)
    try:
        for letter in letters:
            _deliver_again(cluster, letter)
    finally:
        cluster.close()


def _deliver_again(cluster: Cluster, letter: "Row") -> None:
    queue = Queue(letter.topic, letter.brokerName, letter.queueId)
    request = SendMessageBack(
        offset=letter.logOffset,
        group=letter.group,
        delay_level=_DELAY_LEVEL,
        origin_msg_id=letter.msgId,
        origin_topic=letter.origin,
        # It has been tried as often as it may, and is to be tried once more.
        max_reconsume_times=letter.attempts + 1,
    )
    answer = cluster.ask_brokers({queue: request})[queue]
    if isinstance(answer, Refused):
        raise answer
