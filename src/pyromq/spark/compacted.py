"""Compacted topics: gaps in their queues are not losses, because newer messages of the same keys are
there."""

from collections.abc import Mapping

from pyromq.errors import PyroError
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.queues import Queue

_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"


def is_compacted(cluster: SparkCluster, queue: Queue) -> bool:
    """Asked when a gap was found. Brokers that do not know the question know no compacted topics."""
    try:
        with cluster.links.borrow(cluster.address_to_read(queue)) as link:
            config = link.call(GetTopicConfig(topic=queue.topic))
    except PyroError:
        return False
    return is_compacting(config.body.attributes)


def is_compacting(attributes: Mapping[str, str]) -> bool:
    return attributes.get(_CLEANUP_POLICY) == _COMPACTION
