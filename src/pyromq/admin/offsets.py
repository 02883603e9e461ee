"""The offsets and lag of groups, and resetting them."""

from collections.abc import Iterable

import msgspec

from pyromq.admin.cluster import Cluster
from pyromq.admin.connections import brokers_of_group, consumers
from pyromq.admin.failures import NotFound
from pyromq.cluster import routes
from pyromq.cluster.routes import route_addresses
from pyromq.errors import Refused
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.inspection import (
    ConsumeStats,
    GetConsumeStats,
    GetConsumeTimeSpans,
    GetTopicStats,
    OffsetWrapper,
    QueueTimeSpan,
)
from pyromq.protocol.requests.membership import MessageModel
from pyromq.protocol.requests.offsets import (
    GetAllConsumerOffsets,
    GetMaxOffset,
    GetMinOffset,
    ResetOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.routes import TopicRouteData

TO_THE_END = -1
"""A timestamp that means the end of every queue."""

_STATS_TIMEOUT_FACTOR = 3
_NO_QUEUE = MessageQueue("", "", 0)


class Moved(msgspec.Struct, frozen=True, rename="camel"):
    """The new offset of a group in one queue; the other offsets are known if no member was online."""

    queue: MessageQueue
    offset: int
    broker_offset: int | None = None
    consumer_offset: int | None = None
    timestamp_offset: int | None = None


async def lag(cluster: Cluster, group: str, topic: str | None = None) -> ConsumeStats:
    """The offsets and lag of a group in each queue; `NotFound` if it has none."""
    whole = ConsumeStats()
    request = GetConsumeStats(consumer_group=group, topic=topic)
    for address in await brokers_of_group(cluster, group):
        answer = await cluster.ask(address, request, cluster.timeout_s * _STATS_TIMEOUT_FACTOR)
        whole.offset_table |= answer.body.offset_table
        whole.consume_tps += answer.body.consume_tps
    if not whole.offset_table:
        raise NotFound(await _why_no_offsets(cluster, group, topic))
    return whole


async def time_spans(cluster: Cluster, group: str, topic: str) -> list[QueueTimeSpan]:
    """Lag as time: of each queue of a topic the times of its messages, and the one that a group reached."""
    addresses = route_addresses(await cluster.route(topic)).values()
    answers = await cluster.ask_each(addresses, GetConsumeTimeSpans(topic=topic, group=group))
    spans = [span for answer in answers.values() for span in answer.body.consume_time_span_set]
    return sorted(spans, key=lambda span: (span.message_queue is None, span.message_queue or _NO_QUEUE))


async def totals(cluster: Cluster, address: str) -> dict[tuple[str, str], int]:
    """The offsets of all groups of a broker, by topic and group, summed up over the queues."""
    table = (await cluster.ask(address, GetAllConsumerOffsets())).body.offset_table
    found: dict[tuple[str, str], int] = {}
    for key, queues in table.items():
        topic, _, group = key.partition("@")
        found[topic, group] = sum(queues.values())
    return found


async def _why_no_offsets(cluster: Cluster, group: str, topic: str | None) -> str:
    nothing = f"group {group} has no offsets" + ("" if topic is None else f" in topic {topic}")
    try:
        members = await consumers(cluster, group)
    except NotFound:
        return f"{nothing} and no member is online; `mqadmin consumerProgress` lists the groups that have"
    if members.message_model is MessageModel.BROADCASTING:
        return (
            f"{nothing}: it broadcasts, so each member keeps its own; try `mqadmin consumerStatus -g {group}`"
        )
    return f"{nothing} yet, but its members are online: try again in a few seconds"


def total_diff(stats: ConsumeStats) -> int:
    """The total lag of a group, in messages."""
    return sum(each.broker_offset - each.consumer_offset for each in stats.offset_table.values())


def total_inflight(stats: ConsumeStats) -> int:
    """The number of messages that a group has pulled and not committed."""
    return sum(map(inflight, stats.offset_table.values()))


def inflight(place: OffsetWrapper) -> int:
    """The number of messages of a queue that a group has pulled and not committed."""
    # java: brokers before 5.0 do not send the pull offset
    return max(0, place.pull_offset - place.consumer_offset)


# Queues


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues that consumers read, sorted."""
    return sorted(routes.readable_queues(topic, route))


async def chosen_queues(
    cluster: Cluster, topic: str, broker_name: str | None = None, queue_id: int | None = None
) -> dict[MessageQueue, str]:
    """The readable queues of a topic, or those of a broker or an id, with the addresses of their masters.

    Raises NotFound if there is none.
    """
    route = await cluster.route(topic)
    addresses = route_addresses(route)
    chosen = {
        queue: addresses[queue.broker_name]
        for queue in readable_queues(topic, route)
        if queue.broker_name in addresses
        and broker_name in (None, queue.broker_name)
        and queue_id in (None, queue.queue_id)
    }
    if not chosen:
        raise NotFound(
            f"topic {topic} has no such readable queue; `mqadmin topicRoute -l -t {topic}` shows its queues"
        )
    return chosen


async def search(cluster: Cluster, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """The first offset of a queue at or after a point in time."""
    request = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms)
    return (await cluster.ask(address, request)).offset


async def limits(cluster: Cluster, address: str, queue: MessageQueue) -> tuple[int, int]:
    """The first offset of a queue, and the offset of its next message."""
    first = await cluster.ask(address, GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
    end = await cluster.ask(address, GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
    return first.offset, end.offset


# Resets


async def reset(
    cluster: Cluster, group: str, topic: str, timestamp_ms: int, *, force: bool = True
) -> list[Moved]:
    """Reset a group to a point in time in all queues of a topic, whether its members are online or not."""
    moved: list[Moved] = []
    route = await cluster.route(topic)
    request = ResetOffset(group=group, topic=topic, timestamp=timestamp_ms, is_force=force)
    for broker_name, address in route_addresses(route).items():
        try:
            body = (await cluster.ask(address, request)).body
        except Refused as refusal:
            if not await _is_about_absence(cluster, group, refusal):
                raise
            queues = [queue for queue in readable_queues(topic, route) if queue.broker_name == broker_name]
            moved += await _move_offline(cluster, address, group, queues, timestamp_ms, force)
        else:
            table = {} if body is None else body.offset_table
            moved += [Moved(queue, offset) for queue, offset in sorted(table.items())]
    return moved


async def _is_about_absence(cluster: Cluster, group: str, refusal: Refused) -> bool:
    """Whether a reset was refused because no member of the group is, or ever was, online."""
    if refusal.code == ResponseCode.SYSTEM_ERROR:
        # java: the answer for a group that never read the topic
        try:
            await consumers(cluster, group)
        except NotFound:
            return True
        return False
    return refusal.code == ResponseCode.CONSUMER_NOT_ONLINE


async def _move_offline(
    cluster: Cluster,
    address: str,
    group: str,
    queues: Iterable[MessageQueue],
    timestamp_ms: int,
    force: bool,
) -> list[Moved]:
    """java: brokers leave the reset to the members; if none is online, we commit the offsets ourselves."""
    moved: list[Moved] = []
    places = await _places(cluster, address, group, queues)
    for queue, place in sorted(places.items()):
        if timestamp_ms == TO_THE_END:
            target = (await limits(cluster, address, queue))[1]
        else:
            target = await search(cluster, address, queue, timestamp_ms)
        offset = place.consumer_offset
        if force or target <= offset:
            offset = target
            await commit(cluster, address, group, queue, offset)
        moved.append(Moved(queue, offset, place.broker_offset, place.consumer_offset, target))
    return moved


async def _places(
    cluster: Cluster, address: str, group: str, queues: Iterable[MessageQueue]
) -> dict[MessageQueue, OffsetWrapper]:
    """The offsets of a group in queues; the first offset where it never read."""
    wanted = list(queues)
    if not wanted:
        return {}
    topic = wanted[0].topic
    stats = (await cluster.ask(address, GetConsumeStats(consumer_group=group, topic=topic))).body.offset_table
    known = {queue: place for queue, place in stats.items() if queue.topic == topic}
    if known:
        return known
    ends = (await cluster.ask(address, GetTopicStats(topic=topic))).body.offset_table
    return {
        queue: OffsetWrapper(broker_offset=ends[queue].max_offset, consumer_offset=ends[queue].min_offset)
        for queue in wanted
        if queue in ends
    }


async def reset_queue(cluster: Cluster, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    await commit(cluster, address, group, queue, offset)
    request = ResetOffset(
        group=group, topic=queue.topic, queue_id=queue.queue_id, offset=offset, timestamp=0, is_force=True
    )
    # java: refused if no member is online; the commit above is enough
    await cluster.ask_unless(ResponseCode.CONSUMER_NOT_ONLINE, address, request)


async def commit(cluster: Cluster, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    await cluster.ask(
        address,
        UpdateConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        ),
    )


async def clone(cluster: Cluster, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
    """Copy the offsets of a group in a topic to another group."""
    # Without the topic: a broker that is asked for a topic answers offset 0 even if the group never read it.
    stats = await lag(cluster, source)
    addresses = route_addresses(await cluster.route(topic))
    cloned: dict[MessageQueue, int] = {}
    for queue, place in sorted(stats.offset_table.items()):
        if queue.topic == topic and queue.broker_name in addresses and place.consumer_offset >= 0:
            await commit(cluster, addresses[queue.broker_name], target, queue, place.consumer_offset)
            cloned[queue] = place.consumer_offset
    if not cloned:
        raise NotFound(f"group {source} has no offsets in topic {topic}; try consumerProgress -g {source}")
    return cloned


def divide_evenly(queues: list[MessageQueue], members: list[str]) -> dict[str, list[MessageQueue]]:
    """Allocate queues to members as the average strategy does, in the order given."""
    share, spare = divmod(len(queues), len(members))
    division: dict[str, list[MessageQueue]] = {}
    start = 0
    for index, member in enumerate(members):
        end = start + share + (index < spare)
        division[member] = queues[start:end]
        start = end
    return division
