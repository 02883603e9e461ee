"""The lag of consumer groups, computed from offsets on request."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pyromq.broker.tables.clients import ConsumerTable
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.protocol import names
from pyromq.protocol.lite import lite_group
from pyromq.store.message_store import MessageStore

MAX_OFFLINE = 1000
"""Pairs of an offline group and a topic: the newest ones, because a broker keeps old offsets for long."""


@dataclass(slots=True)
class ConsumerLag:
    """One group in all queues of one topic; times are those of the oldest message, 0 if there is none."""

    group: str
    topic: str
    is_online: bool = True
    unconsumed: int = 0
    unconsumed_since_ms: int = 0
    in_flight: int = 0
    unpulled: int = 0
    unpulled_since_ms: int = 0


def lags(
    store: MessageStore,
    topics: TopicTable,
    offsets: OffsetTable,
    consumers: ConsumerTable,
    groups: GroupTable,
) -> Iterator[ConsumerLag]:
    """java: of groups with members, in their subscribed topics, without retry topics.

    Groups without members follow, in the topics they have offsets in: their lag matters most. Groups of lite
    topics are omitted, see `find_lite_lags`: they have no offsets in the queues of the parent.
    """
    for group, topic, is_online in [*_online(consumers), *_offline(offsets, consumers)]:
        config, its_group = topics.get(topic), groups.get(group)
        if config is None or names.is_retry_topic(topic):
            continue
        if its_group is not None and lite_group(its_group.attributes) is not None:
            continue
        lag = ConsumerLag(group, topic, is_online)
        for queue_id in range(config.write_queue_nums):
            _add_queue(lag, queue_id, store, offsets)
        yield lag


@dataclass(slots=True)
class LiteLag:
    """One group in all lite topics of one topic that it has offsets in."""

    group: str
    topic: str
    is_online: bool
    unread: int = 0
    first_place: int = sys.maxsize
    """The log offset of the oldest message that it has not read."""


def find_lite_lags(
    found: dict[tuple[str, str], LiteLag],
    store: MessageStore,
    offsets: OffsetTable,
    consumers: ConsumerTable,
    groups: GroupTable,
    *,
    has_places: bool,
) -> Iterator[None]:
    """Find them in steps. `has_places`: with the oldest messages."""
    bound = {name: lite.topic for name, each in groups.all().items() if (lite := lite_group(each.attributes))}
    for group, topic in bound.items():
        found[group, topic] = LiteLag(group, topic, consumers.group(group) is not None)
    for queue, group in offsets.light_pairs():
        parts = names.lite_parts(queue)
        if parts is not None and bound.get(group) == parts[0]:
            end, offset = store.queues.max_offset(queue, 0), offsets.query(group, queue, 0)
            if end and 0 <= offset != end:
                least = store.queues.min_offset(queue, 0)
                # The lite topic may have expired and started over.
                offset = max(offset, least) if offset <= end else least
                lag = found[group, parts[0]]
                lag.unread += end - offset
                place = store.queues.log_offset(queue, 0, offset) if has_places else None
                if place is not None and place < lag.first_place:
                    lag.first_place = place
        yield


def _online(consumers: ConsumerTable) -> Iterator[tuple[str, str, bool]]:
    for group in consumers:
        for topic in group.subscriptions:
            yield group.name, topic, True


def _offline(offsets: OffsetTable, consumers: ConsumerTable) -> Iterator[tuple[str, str, bool]]:
    members = {group.name for group in consumers}
    away = ((group, topic, False) for topic, group in offsets.ordinary_pairs()[::-1] if group not in members)
    yield from reversed(list(islice(away, MAX_OFFLINE)))


def _add_queue(lag: ConsumerLag, queue_id: int, store: MessageStore, offsets: OffsetTable) -> None:
    group, topic = lag.group, lag.topic
    end = store.queues.max_offset(topic, queue_id)
    consumed = offsets.query(group, topic, queue_id)
    pulled = offsets.query_pulled(group, topic, queue_id)
    # java: a group without an offset in a queue has no lag there
    consumed = end if consumed < 0 else consumed
    pulled = consumed if pulled < 0 else max(pulled, consumed)
    lag.unconsumed += max(end - consumed, 0)
    lag.in_flight += pulled - consumed
    lag.unpulled += max(end - pulled, 0)
    lag.unconsumed_since_ms = _earlier(
        lag.unconsumed_since_ms, store.queues.store_time(topic, queue_id, consumed)
    )
    lag.unpulled_since_ms = _earlier(lag.unpulled_since_ms, store.queues.store_time(topic, queue_id, pulled))


def _earlier(one_ms: int, other_ms: int) -> int:
    return min((each for each in (one_ms, other_ms) if each > 0), default=0)
