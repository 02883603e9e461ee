"""One look at all consumer groups: how far each is behind in each topic, and which members are in trouble."""

from collections import defaultdict

import msgspec

from pyromq.admin import connections, progress, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.groups import names_of_groups
from pyromq.admin.progress import QueueProgress
from pyromq.protocol.body import MessageQueue


class TopicLag(msgspec.Struct, frozen=True, rename="camel"):
    """A group in one topic. `delay_ms` is the longest time between the last message of a queue and the last
    one that the group has consumed there."""

    group: str
    topic: str
    undone: int
    undone_in_one_queue: int
    delay_ms: int


class Complaint(msgspec.Struct, frozen=True, rename="camel"):
    group: str
    text: str


async def look(cluster: Cluster) -> tuple[list[TopicLag], list[Complaint]]:
    names = await names_of_groups(cluster)
    found = await cluster.known(progress.of_group(cluster, group) for group in names)
    queues = [each for progressed in found if progressed is not None for each in progressed.queues]
    newest = await _newest_times(cluster, sorted({each.queue.topic for each in queues}))
    by_topic: defaultdict[tuple[str, str], list[QueueProgress]] = defaultdict(list)
    for each in queues:
        by_topic[each.group, each.queue.topic].append(each)
    lags = [_lag(group, topic, rows, newest) for (group, topic), rows in sorted(by_topic.items())]
    members = await cluster.known(connections.status(cluster, group) for group in names)
    now_ms = cluster.clock.now_ms()
    complaints = [
        complaint
        for group, of_group in zip(names, members, strict=True)
        for complaint in _complaints(group, of_group or [], now_ms)
    ]
    return lags, complaints


async def _newest_times(cluster: Cluster, names: list[str]) -> dict[MessageQueue, int]:
    """The store time of the last message of each queue."""
    tables = await cluster.known(topics.stats(cluster, topic) for topic in names)
    return {
        queue: ends.last_update_timestamp
        for table in tables
        if table is not None
        for queue, ends in table.offset_table.items()
    }


def _lag(group: str, topic: str, rows: list[QueueProgress], newest: dict[MessageQueue, int]) -> TopicLag:
    behind = [max(0, each.diff) for each in rows]
    delays = [
        newest.get(each.queue, 0) - each.last_timestamp
        for each in rows
        if each.last_timestamp and each.diff > 0
    ]
    return TopicLag(group, topic, sum(behind), max(behind), max([0, *delays]))


def _complaints(group: str, members: list[connections.ConnectedMember], now_ms: int) -> list[Complaint]:
    texts = [text for member in members for text in connections.complaints(member, now_ms)]
    if not connections.subscribe_alike(members, now_ms):
        texts.insert(0, "its members subscribe differently")
    return [Complaint(group, text) for text in texts]
