"""A stream's progress as offsets of a consumer group, for tools that show how far groups are behind.

It is a copy for people to look at: Spark's own journal decides. A copy that fails is logged and repeated the
next time; nothing waits for it.
"""

import logging
import os
import socket
from collections.abc import Mapping

from pyromq.clock import Clock
from pyromq.errors import Refused
from pyromq.protocol.requests.membership import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SendHeartbeat,
    SubscriptionData,
)
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Queue

_log = logging.getLogger(__name__)

HEARTBEAT_S = 30.0


class GroupProgress:
    def __init__(self, options: ReadOptions, cluster: SparkCluster, clock: Clock) -> None:
        self._options = options
        self._group = options.group or ""
        self._cluster = cluster
        self._clock = clock
        self._published: dict[Queue, int] = {}
        self._brokers: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<GroupProgress {self._group} queues={len(self._published)}>"

    def publish(self, positions: Mapping[Queue, int]) -> None:
        self._appear(positions)
        changed = {
            queue: offset
            for queue, offset in positions.items()
            if queue.broker in self._brokers and self._published.get(queue) != offset
        }
        answers, problem = self._cluster.ask_reachable(
            {
                queue: UpdateConsumerOffset(
                    consumer_group=self._group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    commit_offset=offset,
                    is_logical_queue=False,
                )
                for queue, offset in changed.items()
            }
        )
        if problem is not None:
            _log.warning("progress not published group=%s: %s", self._group, problem)
        for queue, answer in answers.items():
            if isinstance(answer, Refused):
                _log.warning("progress refused group=%s queue=%s: %s", self._group, queue, answer)
            else:
                self._published[queue] = changed[queue]

    def _appear(self, queues: Mapping[Queue, int]) -> None:
        """Send heartbeats as a member of the group; the first one creates the group if need be."""
        now = self._clock.monotonic()
        due: dict[str, Queue] = {}
        for queue in queues:
            if now - self._brokers.get(queue.broker, float("-inf")) >= HEARTBEAT_S:
                due.setdefault(queue.broker, queue)
        if not due:
            return
        heartbeat = SendHeartbeat(body=self._heartbeat(sorted({queue.topic for queue in queues})))
        answers, problem = self._cluster.ask_reachable(dict.fromkeys(due.values(), heartbeat))
        if problem is not None:
            _log.warning("group not joined group=%s: %s", self._group, problem)
        for queue, answer in answers.items():
            if isinstance(answer, Refused):
                _log.warning("group refused group=%s broker=%s: %s", self._group, queue.broker, answer)
            else:
                self._brokers[queue.broker] = now

    def _heartbeat(self, topics: list[str]) -> HeartbeatData:
        options = self._options
        return HeartbeatData(
            client_id=f"{socket.gethostname()}@spark-{os.getpid()}",
            consumer_data_set=[
                ConsumerData(
                    group_name=self._group,
                    consume_type=ConsumeType.CONSUME_ACTIVELY,
                    message_model=MessageModel.CLUSTERING,
                    consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                    subscription_data_set=[
                        SubscriptionData(
                            topic=topic,
                            sub_string=options.sql or options.tags or "*",
                            expression_type="TAG" if options.sql is None else "SQL92",
                            sub_version=self._clock.now_ms(),
                        )
                        for topic in topics
                    ],
                )
            ],
        )
