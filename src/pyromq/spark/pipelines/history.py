"""One frame over the lake and the messages that are not in it yet, without gaps and duplicates.

The lake ends where its last finished batch ends; from there on, queue by queue, the brokers are asked.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from pyromq.errors import ConfigError
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.option_kinds import EARLIEST
from pyromq.spark.options import ReadOptions, Selection, read_options
from pyromq.spark.pipelines.grown_schema import grown
from pyromq.spark.pipelines.lake import Archived, archived, finished, lake_schema
from pyromq.spark.queues import nest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_log = logging.getLogger(__name__)

_DECIDED_HERE = (
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "tags",
    "sqlfilter",
)


def history(spark: "SparkSession", options: Mapping[str, str], lake: str) -> "DataFrame":
    """All messages of the topics that `options` select; of all topics of the lake if they select none.

    It is a snapshot: of the lake as it is now, and of the topics as they are at the frame's first action.
    It has the columns that the options ask for, also where older batches do not have them.
    """
    for name, value in options.items():
        if name.lower() in _DECIDED_HERE:
            raise ConfigError(
                name, value, "no such option: a history has all messages; filter the frame instead"
            )
    reach = archived(spark, lake) or Archived(-1, {})
    given = dict(options)
    if not {name.lower() for name in given} & {"subscribe", "subscribepattern", "assign", "path"}:
        topics = sorted({queue.topic for queue in reach.positions})
        if not topics:
            raise ConfigError("subscribe", None, f"topics: {lake} is empty and names none")
        given["subscribe"] = ",".join(topics)
    chosen = read_options(given, streaming=None)
    tail = _tail(spark, given, chosen, reach)
    schema = (spark.read.format("rocketmq").options(**given).load() if tail is None else tail).schema
    if reach.batch < 0:
        return tail if tail is not None else spark.createDataFrame([], schema)
    grown(lake_schema(spark, lake, reach), schema)  # says so if their types contradict
    past = finished(spark, lake, reach, schema).where(_is_selected(chosen.selection, reach))
    past = past.select(*schema.names)
    return past if tail is None else past.unionByName(tail)


def _tail(
    spark: "SparkSession", given: Mapping[str, str], options: ReadOptions, reach: Archived
) -> "DataFrame | None":
    """From where the lake ends; queues it does not know are read whole. None if there is no queue."""
    selection = options.selection
    archived_topics = {queue.topic for queue in reach.positions}
    cluster = SparkCluster(options.access)
    try:
        # Topics may be deleted when they are archived.
        gone = {topic for topic in selection.topics if topic in archived_topics and not cluster.has(topic)}
        left = replace(selection, topics=tuple(topic for topic in selection.topics if topic not in gone))
        queues = cluster.queues(left)
    finally:
        cluster.close()
    if gone:
        _log.warning("no broker has %s: only what is archived is shown", ", ".join(sorted(gone)))
    if not queues:
        return None
    start = json.dumps(nest({queue: reach.positions.get(queue, EARLIEST) for queue in queues}))
    if gone:
        others = {name: value for name, value in given.items() if name.lower() not in ("subscribe", "path")}
        given = others | {"subscribe": ",".join(left.topics)}
    return spark.read.format("rocketmq").options(**given, startingOffsets=start).load()


def _is_selected(selection: Selection, reach: Archived) -> "Column":
    """Also topics and queues that the cluster does not have any more."""
    if selection.queues is not None:
        place = fn.format_string("%s@%s:%d", "topic", "brokerName", "queueId")
        return place.isin([str(queue) for queue in selection.queues])
    topics = list(selection.topics)
    if selection.pattern is not None:
        known = {queue.topic for queue in reach.positions}
        topics = [topic for topic in known if re.fullmatch(selection.pattern, topic)]
    return fn.col("topic").isin(topics)
