"""Dispatch: add the records of the log to the queues and the index, in log order, in bounded steps.

Compiled code reads the records from the log; this code dispatches those that it declines. Without the
compiled core, new messages are remembered in memory, and read from the log if there are too many. Every way
writes the same files.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.record import RecordOutline, SysFlag
from pyromq.store.index.index_file import Entry
from pyromq.store.index.key_hash import index_key_hashes
from pyromq.store.index.key_index import Index
from pyromq.store.light.light_queues import MARK, LightQueues, LightRecord, enters_light_queues
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.damage import is_filler
from pyromq.store.log.segment import Segment
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.queues.all_queues import Queues
from pyromq.store.queues.consume_queue import ConsumeQueue
from pyromq.store.queues.tags_codes import TagsCodes
from pyromq.store.results import QueueAdvance

if TYPE_CHECKING:
    from pyromq_native.store.fast_dispatch import Carrier

_native = twin("store.fast_dispatch")

Pending = tuple[ConsumeQueue, int, int, int, int, int, bytes]
"""Queue, log offset, size, queue offset, system flag, store time, properties."""


class Dispatcher:
    def __init__(
        self,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        tags_codes: TagsCodes,
        max_pending: int,
        light: LightQueues | None = None,
    ) -> None:
        """`light`: queues that records enter besides their own; None if there are none."""
        self._log = log
        self._queues = queues
        self._index = index
        self._tags_codes = tags_codes
        self.max_pending = max_pending
        self.light = light
        self._light_records: list[LightRecord] = []
        self._light_touched: dict[str, int] = {}
        """The ends of the light queues that have more since they were taken."""
        self._carrier: Carrier | None = None
        if _native is not None:
            told = () if light is None else (light, self._light_records, self._add_light, enters_light_queues)
            self._carrier = _native.Carrier(queues.by_topic, queues.queue_files.mark_dirty, *told)
        self._forgotten: dict[str, int] = {}
        self.is_following = self._carrier is None
        """Whether `pending` has everything between `offset` and the end of the log."""
        self._keys: list[bytes] = []
        self._key_places: list[int] = []
        self._key_times: list[int] = []
        self._entries: list[Entry] = []
        self._touched: dict[ConsumeQueue, None] = {}
        self.pending: deque[Pending] = deque()
        self.offset = 0
        """Everything before this log offset has been dispatched."""
        self.last_timestamp = 0
        self.dispatched_messages = 0
        self.index_from = 0
        """Messages before this log offset are in the index already."""
        self.starts_over = False
        """Whether a queue starts over with a later message of queue offset 0: its topic was deleted and made
        again by another broker, whose log this is."""

    def __repr__(self) -> str:
        return f"<Dispatcher at {self.offset}, {self.behind_bytes} bytes behind>"

    @property
    def behind_bytes(self) -> int:
        return max(self._log.end_offset - self.offset, 0)

    @property
    def safe_offset(self) -> int:
        """Everything before this log offset is in the queues and in the index."""
        safe = self.offset
        if self._entries:
            safe = self._entries[0][1]
        elif self._key_places:
            safe = self._key_places[0]
        return min(safe, self._light_records[0].log_offset) if self._light_records else safe

    def remember(self, pending: Pending) -> None:
        """Remember an append. Beyond the limit, forget all of them: they will be read from the log."""
        if self.is_following:
            self.pending.append(pending)
            if len(self.pending) > self.max_pending:
                self.stop_following()

    def stop_following(self) -> None:
        self.is_following = False
        self.pending.clear()

    @property
    def is_compiled(self) -> bool:
        """Whether compiled code dispatches; it reads the log, so nothing is remembered for it."""
        return self._carrier is not None

    def forget_topic(self, topic: str, before: int | None = None) -> None:
        """Drop the messages of a deleted topic that are not dispatched yet; `before`: those before this log
        offset, which the log may not have reached."""
        self._forgotten[topic] = self._log.end_offset if before is None else before
        self.pending = deque(each for each in self.pending if each[0].topic != topic)

    def fit_to_log(self, end: int) -> None:
        """Marks the next append as newer than all deletions."""
        self._forgotten = {topic: min(before, end) for topic, before in self._forgotten.items()}

    def cut(self, end: int) -> None:
        """The log was cut: what was derived from behind its end is gone."""
        self._keys.clear()
        self._key_places.clear()
        self._key_times.clear()
        self._entries = [each for each in self._entries if each[1] < end]
        self._touched.clear()
        self._light_records[:] = [each for each in self._light_records if each.log_offset < end]
        self._light_touched.clear()
        if self.light is not None:
            self.light.cut(end)
        self.last_timestamp = min(self.last_timestamp, self._log.last_store_timestamp)
        self.fit_to_log(end)
        self.index_from = min(self.index_from, end)
        self.start_at(min(self.offset, end))

    def take_light_advances(self) -> dict[str, int]:
        """The light queues that have new messages since the last call, each with its end."""
        if not self._light_touched:
            return {}
        touched, self._light_touched = self._light_touched, {}
        return touched

    def start_at(self, offset: int) -> None:
        self.offset = offset
        self._light_touched.clear()
        self.pending.clear()
        self.is_following = offset >= self._log.end_offset and self._carrier is None

    def step(self, limit: int, max_messages: int) -> list[QueueAdvance]:
        """Dispatch up to `max_messages` that end at or before the log offset `limit`.

        Raises OSError if a file cannot be created or extended. The next call continues there, and returns
        the queues that this one had advanced.
        """
        if self._entries or self._light_records:
            self.write_index()
        if self.is_following:
            self._step_in_memory(limit, max_messages)
        else:
            self._step_in_log(limit, max_messages)
        if self._keys or self._light_records:
            self.write_index()
        if self._forgotten:
            self._forgotten = {topic: end for topic, end in self._forgotten.items() if end > self.offset}
        touched, self._touched = self._touched, {}
        return [QueueAdvance(queue.topic, queue.queue_id, queue.end_offset) for queue in touched]

    def _step_in_memory(self, limit: int, max_messages: int) -> None:
        pending = self.pending
        before = self.dispatched_messages
        try:
            self._dispatch(islice(pending, max_messages), limit)
        finally:
            done = self.dispatched_messages - before
            if done == len(pending):
                pending.clear()
            else:
                for _ in range(done):
                    pending.popleft()
        following = pending[0][1] if pending else self._log.end_offset
        if following <= limit:
            self.offset = following  # behind a blank at the end of a file

    def _step_in_log(self, limit: int, max_messages: int) -> None:
        log, carrier = self._log, self._carrier
        end = log.end_offset
        if limit > end:
            limit = end
        while max_messages > 0:
            if self.offset >= limit:
                self.is_following = self.offset >= end and carrier is None
                return
            segment = log.segments.find(self.offset)
            if segment is None:
                if self.offset >= log.start_offset:
                    return
                self.offset = log.start_offset  # what was before has been cleaned
                continue
            if carrier is not None:
                max_messages -= self._carry(carrier, segment, limit, max_messages)
                if self.offset >= limit:
                    return
            if max_messages > 0:
                if self.offset < segment.end and not self._step_once(segment, limit):
                    return
                max_messages -= 1

    def _carry(self, carrier: "Carrier", segment: Segment, limit: int, max_messages: int) -> int:
        """Have compiled code carry what it can from here on; how many messages that were."""
        if self._keys:
            self.write_index()  # entries are in log order
        index = self._index
        file = index.open_file if index is not None else None
        first_unit = file.next_unit if file is not None else 0
        if self.light is not None:
            self.light.look_at_deletions()
        try:
            carrier.carry(
                segment.buffer,
                segment.start,
                self.offset,
                limit,
                max_messages,
                self._touched,
                self._light_touched,
                self._forgotten,
                index is not None,
                self.index_from,
                file,
            )
        finally:
            self.offset = carrier.offset
            if index is not None and file is not None and file.next_unit != first_unit:
                index.mark_dirty(file)
            count = carrier.count
            if count:
                self.last_timestamp = carrier.last_timestamp
                self.dispatched_messages += count
        return count

    def _step_once(self, segment: ReadableSegment, limit: int) -> bool:
        """Dispatch one record, or pass over what is none; False if it ends behind `limit`."""
        log = self._log
        try:
            found = log.outline(self.offset)
        except RemoteProtocolError:
            # java: the rest of a file that cannot be read is passed over
            found = None
        outline = found[1] if found else None
        if outline is None:
            self.offset = min(segment.end, log.end_offset)
        elif self.offset + outline.size > limit:
            return False
        elif outline.log_offset < self._forgotten.get(outline.topic, 0) or is_filler(outline):
            self.offset += outline.size
        else:
            if self.starts_over and not outline.queue_offset:
                self._start_over(outline)
            self.dispatch_record(segment, outline)
        return True

    def _start_over(self, outline: RecordOutline) -> None:
        queue = self._queues.find(outline.topic, outline.queue_id)
        is_unit = not outline.sys_flag & SysFlag.TRANSACTION_PREPARED
        if queue is not None and is_unit and -1 < queue.last_place < outline.log_offset:
            self._queues.drop_files(queue)
            queue.forget_min_offset()

    def dispatch_record(
        self, segment: ReadableSegment, outline: RecordOutline, *, has_unit: bool = True
    ) -> None:
        """Dispatch a record of the log and move behind it; without a unit only its keys."""
        message = (
            self._queues.get(outline.topic, outline.queue_id),
            outline.log_offset,
            outline.size,
            outline.queue_offset,
            outline.sys_flag if has_unit else SysFlag.TRANSACTION_PREPARED,
            outline.store_timestamp,
            segment.buffer[outline.properties_start : outline.properties_end],
        )
        self._dispatch((message,), outline.log_offset + outline.size)
        if not has_unit and self.light is not None:
            self.put_light(segment, outline)

    def put_unit(self, segment: ReadableSegment, outline: RecordOutline) -> bool:
        """Only the queue's part of a dispatch, for a queue that is built again; False if it has the unit."""
        if outline.sys_flag & SysFlag.TRANSACTION_PREPARED:
            return False
        queue = self._queues.get(outline.topic, outline.queue_id)
        if outline.queue_offset < queue.end_offset or outline.log_offset <= queue.last_place:
            return False  # it has the unit, or the units of a newer generation of its topic
        tags_code = self._tags_codes.of_record(queue, segment, outline)
        queue.put(outline.queue_offset, outline.log_offset, outline.size, tags_code)
        return True

    def _dispatch(self, messages: Iterable[Pending], limit: int) -> None:
        """Put each message that ends at or before `limit` in its queue, and its keys in the lists."""
        tag_codes, tags_code_of, touched = self._tags_codes.by_tag, self._tags_codes.of, self._touched
        is_indexing, index_from = self._index is not None, self.index_from
        is_light = self.light is not None
        add_key, add_place, add_time = self._keys.append, self._key_places.append, self._key_times.append
        timestamp, offset, count = self.last_timestamp, self.offset, 0
        try:
            for queue, log_offset, size, queue_offset, sys_flag, store_timestamp, properties in messages:
                end = log_offset + size
                if end > limit:
                    break
                unique = keys = b""
                tags_code = 0
                if properties:
                    tags, unique, keys = queue.probe.read(properties)
                    if queue.is_schedule:
                        tags_code = tags_code_of(queue, store_timestamp, properties, tags)
                    elif tags:
                        found = tag_codes.get(tags)
                        tags_code = (
                            tags_code_of(queue, store_timestamp, properties, tags) if found is None else found
                        )
                # java: prepared (0x4) and rolled-back (0xC) records have no place in a queue
                if not sys_flag & 0x4:
                    queue.put(queue_offset, log_offset, size, tags_code)
                    touched[queue] = None
                    if is_light and MARK in properties:
                        self._add_light(queue.topic, log_offset, size, tags_code, properties)
                # java: and rolled-back ones none in the index
                if is_indexing and log_offset >= index_from and sys_flag & 0xC != 0xC:
                    if unique:
                        add_key(queue.index_prefix + unique)
                        add_place(log_offset)
                        add_time(store_timestamp)
                    if keys:
                        for key in keys.split(b" ") if b" " in keys else (keys,):
                            if key:
                                add_key(queue.index_prefix + key)
                                add_place(log_offset)
                                add_time(store_timestamp)
                timestamp, offset = store_timestamp, end
                count += 1
        finally:
            self.last_timestamp, self.offset = timestamp, offset
            self.dispatched_messages += count

    def _add_light(self, topic: str, log_offset: int, size: int, tags_code: int, properties: bytes) -> None:
        """Remember a record that names light queues."""
        names = props.get_property_bytes(properties, props.INNER_MULTI_DISPATCH)
        offsets = props.get_property_bytes(properties, props.INNER_MULTI_QUEUE_OFFSET)
        if names is not None and offsets is not None:
            self._light_records.append(LightRecord(topic, log_offset, size, tags_code, names, offsets))

    def put_light(self, segment: ReadableSegment, outline: RecordOutline) -> None:
        """Only the light queues' part of a dispatch, when they are built again. Raises OSError."""
        properties = segment.buffer[outline.properties_start : outline.properties_end]
        if MARK in properties and not outline.sys_flag & SysFlag.TRANSACTION_PREPARED:
            tags = props.get_property(properties, props.TAGS)
            code = tag_code(tags) if tags else 0
            self._add_light(outline.topic, outline.log_offset, outline.size, code, properties)
            self._write_light()

    def _write_light(self) -> None:
        records, light, done = self._light_records, self.light, 0
        if light is None:
            return
        try:
            for record in records:
                self._light_touched.update(light.put(record))
                done += 1
        finally:
            del records[:done]

    def write_index(self) -> None:
        """Index the keys gathered so far; many at a time is much cheaper than one by one. Records that name
        light queues enter them."""
        if self._light_records:
            self._write_light()
        if self._index is None:
            return
        if self._keys:
            hashes = index_key_hashes(self._keys)
            self._entries.extend(zip(hashes, self._key_places, self._key_times, strict=True))
            self._keys.clear()
            self._key_places.clear()
            self._key_times.clear()
        if self._entries:
            self._index.put(self._entries)
