"""Topics as views: one for each topic of a cluster, with the columns that its messages have.

Bodies that are JSON objects are structures, other texts are text, and everything else is bytes.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.from_json.inferred import inferred_fields
from pyromq.spark.options import read_options
from pyromq.spark.sampled_schema import file_name, kept_once, newest_bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SELECTING = ("subscribe", "subscribepattern", "assign", "path")


def register_topics(
    spark: "SparkSession",
    options: Mapping[str, str],
    pattern: str = ".*",
    *,
    streaming: bool = False,
    schemas: str | None = None,
) -> dict[str, str]:
    """Make a temporary view of each topic whose name matches; the type of `value` by the name of the view.

    `options` of the connector hold for all of them. A `valueFormat` among them is that of all topics. Call it
    again to see new topics, fields and messages. The directory `schemas` keeps what was found: a stream that
    starts again has the columns that it had.
    """
    given = {name: value for name, value in options.items() if name.lower() not in _SELECTING}
    parsed = read_options(given | {"subscribePattern": pattern}, streaming=streaming)
    cluster = SparkCluster(parsed.access)
    try:
        topics = sorted({queue.topic for queue in cluster.queues(parsed.selection)})
    finally:
        cluster.close()
    found = {}
    for topic in topics:
        chosen = {**given, "subscribe": topic}
        if not any(name.lower() == "valueformat" for name in given):
            chosen |= _format(chosen, topic, schemas)
        reader = spark.readStream if streaming else spark.read
        view = reader.format("rocketmq").options(**chosen).load()
        view.createOrReplaceTempView(f"`{topic}`")
        found[topic] = view.schema["value"].dataType.simpleString()
    return found


def _format(options: Mapping[str, str], topic: str, schemas: str | None) -> dict[str, str]:
    """The options that say what bodies are."""
    bodies = list(newest_bodies(read_options(options, streaming=None)))

    def look() -> str:
        if (fields := inferred_fields(bodies)) is not None:
            return json.dumps({"valueFormat": "json", "valueSchema": fields})
        return json.dumps({"valueFormat": "string"} if bodies and all(map(_is_text, bodies)) else {})

    # An empty topic says nothing that should be kept.
    kept = look() if schemas is None or not bodies else kept_once(schemas, f"{file_name(topic)}.json", look)
    return dict(json.loads(kept))


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
