"""Taking messages for a group: from where on, under a checkpoint or in order, and what the answer says.

A group's offset moves when its messages are popped. So the checkpoint is in the log before the offset moves,
and the answer leaves when the checkpoint is as safe as a message would be.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

import msgspec
from msgspec.structs import replace

from pyromq.broker.flow.message_properties import with_property
from pyromq.broker.flow.popping.revive_log import ReviveLog
from pyromq.broker.flow.reading import Reading, WantedMessages, is_young
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.config.live import LiveSettings
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.pop_receipt import (
    ORDER_REVIVE_QUEUE,
    OrderKey,
    PopReceipt,
    QueueKey,
    encode_pop_receipt,
    retry_mark_of,
)
from pyromq.protocol.pop_records import PopCheckPoint
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import decode_record, encode_record
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, ReadResult, ReadStatus

START_AT_MIN = 0
"""The init mode of a group that begins with the oldest message; any other begins with the newest."""

_MISPLACED = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL)

_SIZE_AND_QUEUE_OFFSET = Struct(">i16xq")


class Pop(msgspec.Struct, eq=False):
    """One request to pop, and what was found for it."""

    topic: str
    group: str
    limit: int
    wanted: WantedMessages
    invisible_ms: int = 0
    init_mode: int = START_AT_MIN
    revive_queue_id: int = 0
    time_ms: int = 0
    attempt_id: str | None = None
    views: list[bytes | memoryview] = []
    count: int = 0
    rest: int = 0
    """How many messages the group has still ahead of it, in the examined queues."""
    starts: dict[QueueKey, int] = {}
    offsets: dict[QueueKey, Sequence[int]] = {}
    order_counts: dict[OrderKey, int] = {}
    written: list[AppendResult] = []
    """The checkpoints."""
    free_at_ms: int = 0
    """When the first of the queues is free that are held in order; 0 if none is held."""
    is_unfinished: bool = False
    """Whether a filter's time was over before it had examined all messages."""

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDER_REVIVE_QUEUE


class Popper:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        reading: Reading,
        revive_log: ReviveLog,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._orders = tables.pop_orders
        self._counts = tables.pop_counts
        self._statistics = tables.statistics
        self._reading = reading
        self._revive_log = revive_log

    # Which queues

    def queues(self, pop: Pop, queue_id: int, dice: int) -> Iterator[tuple[str, int]]:
        """The queues to examine: those with retries first, now and then; `dice` is between 0 and 99."""
        settings = self._live.now
        retries = [] if pop.is_ordered else list(self._retry_queues(pop.topic, pop.group))
        config = self._topics.get(pop.topic)
        by_priority = config is not None and self._goes_by_priority(pop, config, dice)
        retries_first = dice < (
            settings.pop_retries_first_percent_by_priority
            if by_priority
            else settings.pop_retries_first_percent
        )
        if retries_first:
            yield from retries
        if queue_id >= 0:
            yield pop.topic, queue_id
        elif config is not None:
            count = config.read_queue_nums
            numbers = range(dice, dice + count)
            if by_priority:
                numbers = range(count - 1, -1, -1) if settings.highest_priority_first else range(count)
            yield from ((pop.topic, number % count) for number in numbers)
        if not retries_first:
            yield from retries

    def _goes_by_priority(self, pop: Pop, config: TopicConfig, dice: int) -> bool:
        """Whether a pop looks at the queues of a topic in the order of their priority. A group may set the
        percentage of pops that do, so that messages of low priority are not always last."""
        if pop.is_ordered or config.attributes.get("message.type") != "PRIORITY":
            return False
        group = self._groups.get(pop.group)
        factor = "" if group is None else group.attributes.get("priority.factor", "")
        return dice < (int(factor) if factor.isdecimal() else 100)

    def _retry_queues(self, topic: str, group: str) -> Iterator[tuple[str, int]]:
        v1, v2 = names.pop_retry_topics(topic, group)
        settings = self._live.now
        wanted = [v1]
        if settings.retry_topic_v2:
            wanted = [v2, v1] if settings.pop_old_retries else [v2]
        for name in wanted:
            if (config := self._topics.get(name)) is not None:
                yield from ((name, number) for number in range(config.read_queue_nums))

    # Taking

    def take(self, pop: Pop, topic: str, queue_id: int) -> None:
        """Take messages of a queue for the group, up to the limit of the pop."""
        group, store, offsets = pop.group, self._store, self._offsets
        begin = offsets.query(group, topic, queue_id)
        if begin < 0 or (offsets.resets and (topic, group) in offsets.resets):
            begin = self._begin(pop, topic, queue_id, is_taking=True)
        end = store.queues.max_offset(topic, queue_id)
        if begin == end or pop.count >= pop.limit or self._is_too_much_in_flight(topic, group, queue_id):
            pop.rest += max(end - begin, 0)
            return
        if pop.is_ordered and self._is_held(pop, topic, queue_id):
            return
        result = self._read(pop, topic, queue_id, begin)
        if result.status in _MISPLACED:
            begin = result.next_offset
            offsets.commit(group, topic, queue_id, begin)
            result = self._read(pop, topic, queue_id, begin)
        if result.message_count:
            if not self._keep(pop, topic, queue_id, begin, result):
                pop.rest += result.max_offset - begin
                return
        elif result.next_offset > begin:
            offsets.commit(group, topic, queue_id, result.next_offset)
            pop.is_unfinished |= result.next_offset < result.max_offset
        pop.rest += max(result.max_offset - result.next_offset, 0)

    def _read(self, pop: Pop, topic: str, queue_id: int, offset: int) -> ReadResult:
        return self._reading.read(topic, queue_id, offset, pop.limit - pop.count, pop.wanted)

    def _is_too_much_in_flight(self, topic: str, group: str, queue_id: int) -> bool:
        settings = self._live.now
        return (
            settings.pop_threshold_enabled
            and self._counts.in_flight[topic, group, queue_id] > settings.pop_threshold
        )

    def _is_held(self, pop: Pop, topic: str, queue_id: int) -> bool:
        free_at = self._orders.free_at(topic, pop.group, queue_id, pop.attempt_id)
        if free_at <= pop.time_ms:
            return False
        pop.free_at_ms = min(free_at, pop.free_at_ms or free_at)
        return True

    def _keep(self, pop: Pop, topic: str, queue_id: int, begin: int, result: ReadResult) -> bool:
        """Whether the messages that were read are the group's now."""
        group = pop.group
        found: Sequence[int] = range(begin, result.next_offset)
        if len(found) != result.message_count:  # a filter, or the log, left some out
            found = [offset for view in result.views for offset, _, _ in _records(view)]
        mark = retry_mark_of(topic)
        if pop.is_ordered:
            counts = self._orders.popped(
                topic, group, queue_id, found, pop.time_ms, pop.invisible_ms, pop.attempt_id
            )
            for offset, count in counts.items():
                pop.order_counts[mark, queue_id, offset] = count
            self._offsets.commit(group, topic, queue_id, begin)
        else:
            written = self._revive_log.write_checkpoint(
                PopCheckPoint(
                    broker_name=self._live.now.broker_name,
                    consumer_group=group,
                    queue_offset_diff=[offset - begin for offset in found],
                    invisible_time=pop.invisible_ms,
                    num=len(found),
                    pop_time=pop.time_ms,
                    queue_id=queue_id,
                    start_offset=begin,
                    topic=topic,
                ),
                pop.revive_queue_id,
            )
            if not written.is_ok:
                return False
            pop.written.append(written)
            self._offsets.commit(group, topic, queue_id, result.next_offset)
            self._counts.in_flight[topic, group, queue_id] += len(found)
        self._add(pop, topic, queue_id, begin, found, result)
        return True

    def _add(
        self, pop: Pop, topic: str, queue_id: int, begin: int, found: Sequence[int], result: ReadResult
    ) -> None:
        key = retry_mark_of(topic), queue_id
        pop.starts[key] = begin
        pop.offsets[key] = found
        pop.count += len(found)
        self._statistics.got(pop.group, topic, queue_id, result.message_count, result.size_bytes)
        if topic == pop.topic or self._live.now.pop_shows_retry_topics:
            pop.views += result.views
            return
        for view in result.views:
            for offset, start, stop in _records(view):
                pop.views.append(self._as_original(pop, view[start:stop], topic, queue_id, begin, offset))

    def _as_original(
        self, pop: Pop, record: memoryview, topic: str, queue_id: int, begin: int, offset: int
    ) -> bytes:
        """A retry as a message of its original topic; its receipt says where it is stored."""
        message = decode_record(record, check_crc=False)
        properties = message.properties
        if get_property(properties, props.POP_CK) is None:
            receipt = PopReceipt(
                begin,
                pop.time_ms,
                pop.invisible_ms,
                pop.revive_queue_id,
                retry_mark_of(topic),
                self._live.now.broker_name,
                queue_id,
                offset,
            )
            properties = with_property(properties, props.POP_CK, encode_pop_receipt(receipt))
        return encode_record(replace(message, topic=pop.topic, properties=properties))

    # Looking only

    def peek(self, pop: Pop, topic: str, queue_id: int) -> None:
        """Read messages for a group and leave them."""
        begin = self._begin(pop, topic, queue_id, is_taking=False)
        pop.rest += max(self._store.queues.max_offset(topic, queue_id) - begin, 0)
        if pop.count >= pop.limit:
            return
        result = self._read(pop, topic, queue_id, begin)
        if result.status in _MISPLACED:
            result = self._read(pop, topic, queue_id, result.next_offset)
        if result.message_count:
            pop.count += result.message_count
            pop.views += result.views
            self._statistics.got(pop.group, topic, queue_id, result.message_count, result.size_bytes)

    def has_message(self, pop: Pop, topic: str, queue_id: int) -> bool:
        """Whether a pop of this queue might find something."""
        if pop.is_ordered and self._is_held(pop, topic, queue_id):
            return False
        begin = self._begin(pop, topic, queue_id, is_taking=False)
        return self._store.queues.max_offset(topic, queue_id) > begin

    # Where a group is

    def _begin(self, pop: Pop, topic: str, queue_id: int, *, is_taking: bool) -> int:
        """Where the group continues."""
        offsets, group = self._offsets, pop.group
        if is_taking and offsets.resets and (reset := offsets.take_reset(group, topic, queue_id)) is not None:
            self._orders.clear(topic, group, queue_id)
            offsets.commit(group, topic, queue_id, reset)
            return reset
        offset = offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first(pop, topic, queue_id)
            if is_taking:
                offsets.commit(group, topic, queue_id, offset)
        return offset

    def _first(self, pop: Pop, topic: str, queue_id: int) -> int:
        store = self._store
        if pop.init_mode == START_AT_MIN or topic != pop.topic:
            return store.queues.min_offset(topic, queue_id)
        # java: a young queue is read from its begin
        if self._live.now.pop_young_queues_from_begin and is_young(store, topic, queue_id):
            return 0
        return max(store.queues.max_offset(topic, queue_id) - 1, 0)


def _records(view: memoryview) -> Iterator[tuple[int, int, int]]:
    """The queue offset, begin and end of each record."""
    position, end = 0, len(view)
    while position < end:
        size, queue_offset = _SIZE_AND_QUEUE_OFFSET.unpack_from(view, position)
        yield queue_offset, position, position + size
        position += size
