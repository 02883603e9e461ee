"""The progress of consumer groups, queue by queue: offsets, lag, rates, and the clients that read.

The functions join what brokers and clients report; a command or a web page only formats the result.
"""

import msgspec

from pyromq.admin import brokers, connections, offsets
from pyromq.admin.cluster import Cluster
from pyromq.admin.rates import Rates
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.requests.inspection import ConsumeStatsList, OffsetWrapper


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """A group in one queue. `last_timestamp` is the store time of the last consumed message, 0 if unknown;
    `client_host` is the machine that reads the queue, None if unknown or not asked for."""

    group: str
    queue: MessageQueue
    broker_offset: Int64
    consumer_offset: Int64
    inflight: Int64
    last_timestamp: Int64
    client_host: str | None = None

    @property
    def diff(self) -> int:
        """The lag in messages."""
        return self.broker_offset - self.consumer_offset


class ConsumeProgress(msgspec.Struct, frozen=True, rename="camel"):
    queues: list[QueueProgress]
    consume_tps: float
    diff_total: int
    inflight_total: int


async def of_group(
    cluster: Cluster, group: str, topic: str | None = None, *, with_clients: bool = False
) -> ConsumeProgress:
    """A group in all its queues, or in those of one topic; `NotFound` if it has no offsets."""
    stats = await offsets.lag(cluster, group, topic)
    hosts = await client_hosts(cluster, group) if with_clients else {}
    return ConsumeProgress(
        [
            _in_queue(group, queue, place, hosts.get(queue))
            for queue, place in sorted(stats.offset_table.items())
        ],
        stats.consume_tps,
        offsets.total_diff(stats),
        offsets.total_inflight(stats),
    )


async def of_broker(
    cluster: Cluster,
    address: str,
    *,
    min_diff: int = 0,
    ordered_only: bool = False,
    timeout_s: float | None = None,
) -> ConsumeProgress:
    """All groups of a broker, in the queues that have messages and a lag of at least `min_diff`; the totals
    are those of all queues."""
    stats = await brokers.consume_stats(cluster, address, ordered_only=ordered_only, timeout_s=timeout_s)
    everywhere = all_queues(stats)
    return ConsumeProgress(
        [
            each
            for each in everywhere
            # java: leaves out queues from which nothing was read; we only those with nothing to read
            if (each.last_timestamp > 0 or each.diff > 0) and each.diff >= min_diff
        ],
        sum(
            each.consume_tps
            for table in stats.consume_stats_list
            for of_group in table.values()
            for each in of_group
        ),
        stats.total_diff,
        sum(each.inflight for each in everywhere),
    )


def all_queues(stats: ConsumeStatsList) -> list[QueueProgress]:
    """All groups of a broker in all their queues."""
    return [
        _in_queue(group, queue, place)
        for table in stats.consume_stats_list
        for group, of_group in sorted(table.items())
        for each in of_group
        for queue, place in sorted(each.offset_table.items())
    ]


def groups_in(stats: ConsumeStatsList) -> list[str]:
    """All groups of a broker, also those that have read nothing."""
    return [group for table in stats.consume_stats_list for group in table]


async def client_hosts(cluster: Cluster, group: str) -> dict[MessageQueue, str]:
    """The machine that reads each queue of a group, as far as its members report it."""
    (members,) = await cluster.known([connections.status(cluster, group)])
    return {
        queue: member.client_id.partition("@")[0]
        for member in members or []
        if member.running is not None
        for queue in member.running.mq_table
    }


def _in_queue(
    group: str, queue: MessageQueue, place: OffsetWrapper, client_host: str | None = None
) -> QueueProgress:
    return QueueProgress(
        group,
        queue,
        place.broker_offset,
        place.consumer_offset,
        offsets.inflight(place),
        place.last_timestamp,
        client_host,
    )


class ProgressRates:
    """Messages per second into each queue and out of it, between readings of a group's progress."""

    def __init__(self) -> None:
        self._arriving: Rates[MessageQueue] = Rates()
        self._leaving: Rates[MessageQueue] = Rates()

    def __repr__(self) -> str:
        return f"<ProgressRates in={self._arriving!r} out={self._leaving!r}>"

    def read(self, progress: ConsumeProgress, now_s: float) -> None:
        self._arriving.read({each.queue: float(each.broker_offset) for each in progress.queues}, now_s)
        self._leaving.read({each.queue: float(each.consumer_offset) for each in progress.queues}, now_s)

    def arriving(self, queue: MessageQueue) -> float | None:
        """The rate of stored messages; None after only one reading."""
        return self._arriving.rate(queue)

    def leaving(self, queue: MessageQueue) -> float | None:
        """The rate of consumed messages; None after only one reading."""
        return self._leaving.rate(queue)

    def leaving_history(self, queue: MessageQueue) -> list[float]:
        """The latest rates of consumed messages, oldest first."""
        return self._leaving.history(queue)
