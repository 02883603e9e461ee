"""Compacting: of the messages of a queue with the same key, only the newest stays.

A round makes the next snapshot of one queue from the last one and from what the log has behind it. Only
messages that are on disk and confirmed go into a snapshot, and a file of the log is deleted only when
snapshots have what it has of compacted queues: whatever is interrupted, the newest message of a key is in one
of the two. The owner's thread reads the log in slices; writing is left to any thread.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import blake2b
from typing import Final

from pyromq.clock import Clock
from pyromq.disk_steps import Steps
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol import properties as props
from pyromq.protocol.record import ReadBuffer, RecordOutline, scan_record
from pyromq.store.compacted.snapshot import ENTRY, QueueSnapshot, SnapshotEnd, SnapshotEntry, SnapshotWriter
from pyromq.store.compacted.snapshots import Key
from pyromq.store.copying import Copying
from pyromq.store.cutting import Cutting
from pyromq.store.log.record_checks import first_damaged
from pyromq.store.parts import StoreParts
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, ConsumeQueue
from pyromq.store.reading import StoreReader
from pyromq.store.settings import StoreSettings

_DIGEST_BYTES: Final = 16
_KEY_BYTES: Final = 300
"""Memory for one key during a round."""
_UNITS_AT_ONCE: Final = 128
_BYTES_AT_ONCE: Final = 1 << 20
_ENTRIES_AT_ONCE: Final = 1024
_LEAST_SHARE: Final = 0.5
"""A round waits until there are as many new messages as this share of the snapshot, which it writes anew."""
_HOUR_MS: Final = 3_600_000


class Compacting:
    def __init__(
        self,
        parts: StoreParts,
        reader: StoreReader,
        cutting: Cutting,
        copying: Copying,
        settings: StoreSettings,
        clock: Clock,
        flushed: Callable[[], int],
    ) -> None:
        """`flushed`: up to which log offset the log is on disk."""
        self._parts = parts
        self._log, self._queues, self._time = parts.log, parts.queues, parts.time
        self.snapshots = parts.snapshots
        self._reader = reader
        self._cutting, self._copying = cutting, copying
        self._clock = clock
        self._flushed = flushed
        self._settings = settings
        self._next_round = clock.monotonic() + settings.compaction_interval_ms / 1000
        self._wanted_to = 0
        """Files of the log up to here wait for compaction to be deleted."""
        self.topics: frozenset[str] = frozenset()
        """The compacted topics; `compact` sets them."""
        self.rounds = 0
        """Snapshots that were made."""
        self.remarks: list[str] = []
        """For the operator; whoever reads them empties the list."""

    def __repr__(self) -> str:
        return f"<Compacting {len(self.topics)} topics, {self.rounds} rounds>"

    def apply_settings(self, settings: StoreSettings) -> None:
        self._settings = settings
        latest = self._clock.monotonic() + settings.compaction_interval_ms / 1000
        self._next_round = min(self._next_round, latest)

    def compact(self, topics: Iterable[str]) -> None:
        """From now on these topics are compacted. What others have in snapshots stays there for readers."""
        self.topics = frozenset(topics)

    # Which queues

    def due(self) -> list[Key]:
        """The queues that need a round now."""
        is_round = self._clock.monotonic() >= self._next_round
        if is_round:
            self._next_round = self._clock.monotonic() + self._settings.compaction_interval_ms / 1000
        wanted_to, self._wanted_to = self._wanted_to, 0
        if not is_round and not wanted_to:
            return []
        return [
            (queue.topic, queue.queue_id)
            for queue in self._compacted_queues()
            if not (self._copying.is_on and self.lacks(queue.topic, queue.queue_id))
            and ((is_round and self._is_worth_it(queue)) or self._first_place(queue) < wanted_to)
        ]

    def held_from(self) -> int | None:
        """From this log offset on the log has messages that no snapshot has; None if it has none."""
        places = [place for queue in self._compacted_queues() if (place := self._first_place(queue)) >= 0]
        return min(places, default=None)

    def want(self, log_offset: int) -> None:
        """Files of the log up to here should be deleted."""
        self._wanted_to = max(self._wanted_to, log_offset)

    def _compacted_queues(self) -> Iterator[ConsumeQueue]:
        for topic in self.topics:
            yield from self._queues.of_topic(topic).values()

    def _begin(self, queue: ConsumeQueue) -> int:
        """The first message that the snapshot does not cover, and that the log has."""
        snapshot = self.snapshots.find(queue.topic, queue.queue_id)
        covered = 0 if snapshot is None else snapshot.end.queue_offset
        return max(covered, queue.min_offset(self._log.start_offset))

    def _first_place(self, queue: ConsumeQueue) -> int:
        """Where in the log that is; no limit if there is none."""
        begin = self._begin(queue)
        return queue.unit(begin)[0] if begin < queue.end_offset else 1 << 63

    def _is_worth_it(self, queue: ConsumeQueue) -> bool:
        snapshot = self.snapshots.find(queue.topic, queue.queue_id)
        new = queue.end_offset - self._begin(queue)
        return new > 0 and (snapshot is None or new >= snapshot.count * _LEAST_SHARE)

    # Replicas

    def lacks(self, topic: str, queue_id: int) -> bool:
        """Whether there may be messages that neither the snapshot nor the log has."""
        snapshot, queue = self.snapshots.find(topic, queue_id), self._queues.find(topic, queue_id)
        if not self._log.end_offset:
            return snapshot is None  # its log is still to come
        if not self._log.start_offset and (snapshot is None or snapshot.end.is_complete):
            return False
        if snapshot is None:
            return True
        has_units = queue is not None and queue.end_offset > queue.first_unit
        first = queue.min_offset(self._log.start_offset) if queue is not None and has_units else 0
        return not snapshot.end.is_complete or first > snapshot.end.queue_offset

    # Rounds

    def round(self, topic: str, queue_id: int) -> Steps[bool]:
        """Make the next snapshot of a queue; False if there is nothing to do, or if the queue has changed
        meanwhile. Raises OSError or StoreError; then the former snapshot stays."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or self._cutting.is_unfinished:
            return False
        is_wanted = self.unless_changed(topic, queue_id)
        former = self.snapshots.find(topic, queue_id)
        begin = self._begin(queue)
        limit = queue.units_before(self._flushed()) if begin < queue.end_offset else begin
        newest: dict[bytes, bytes] = {}
        end = begin
        most = max(self._settings.max_offset_map_bytes // _KEY_BYTES, _UNITS_AT_ONCE)
        while end < limit and len(newest) < most:
            examined = self._examine(queue, end, min(limit - end, _UNITS_AT_ONCE), newest)
            if not examined:
                break  # its unit is mended first
            end += examined
            yield _pause
            if not is_wanted():
                return False
        if end == begin:
            return False
        place, size, _ = queue.unit(end - 1)
        log_end = self._flushed() if size == PRE_BLANK_SIZE else place + size
        covered = SnapshotEnd(end, log_end, former is None or former.end.is_complete)
        writer = self.writer_of((topic, queue_id))
        try:
            yield writer.begin
            if former is not None:
                yield from self._write_former(former, newest, writer, is_wanted)
            yield from self._write_new(newest, writer, is_wanted)
            return (yield from self.finish((topic, queue_id), covered, writer, is_wanted))
        except OSError:
            writer.discard()
            raise
        finally:
            writer.close()

    def writer_of(self, key: Key) -> SnapshotWriter:
        return SnapshotWriter(self._parts.files, self.snapshots.path_beside(key))

    def unless_changed(self, topic: str, queue_id: int) -> Callable[[], bool]:
        """Says no from when the topic is deleted or the log is cut; any thread may ask."""
        queue, cuts = self._queues.find(topic, queue_id), self._cutting.cuts
        deleted_before = self._parts.deletions.offset_of(topic)

        def is_unchanged() -> bool:
            return (
                self._queues.find(topic, queue_id) is queue
                and self._cutting.cuts == cuts
                and self._parts.deletions.offset_of(topic) == deleted_before
            )

        return is_unchanged

    def finish(
        self, key: Key, end: SnapshotEnd, writer: SnapshotWriter, is_wanted: Callable[[], bool]
    ) -> Steps[bool]:
        """Complete a snapshot that was written, and use it."""
        placed: list[QueueSnapshot] = []

        def place() -> None:
            if is_wanted():
                writer.finish(end)
                if self.snapshots.put_in_place(key, is_wanted):
                    placed.append(self.snapshots.open(key))
                    return
            writer.discard()

        yield place
        if not placed or not is_wanted():
            return False
        self.snapshots.use(key, placed[0])
        self._queues.begin_at(*key, end.queue_offset)
        self.rounds += 1
        return True

    def _examine(self, queue: ConsumeQueue, begin: int, count: int, newest: dict[bytes, bytes]) -> int:
        """Note the newest message of each key among some messages; how many these were."""
        log, size_bytes, examined = self._log, 0, 0
        for offset, (place, code) in enumerate(self._reader.sound_units(queue, begin, count), begin):
            view = None if place is None else log.record(place)
            if view is not None and size_bytes and size_bytes + len(view) > _BYTES_AT_ONCE:
                break
            if place is None or view is None or first_damaged(view) >= 0:
                if place is not None and self._reader.is_awaited(place):
                    break  # another broker may have it
                self.remarks.append(
                    f"message {offset} of queue {queue.queue_id} of {queue.topic} is damaged:"
                    " an older message of its key stays"
                )
            else:
                size_bytes += len(view)
                outline = scan_record(view)
                assert outline is not None
                key = key_of(view, outline)
                newest.pop(key, None)  # so that the keys are in the order of their newest messages
                newest[key] = _entry(outline, offset, place, code, key)
            examined += 1
        return examined

    def _write_former(
        self,
        former: QueueSnapshot,
        newest: dict[bytes, bytes],
        writer: SnapshotWriter,
        is_wanted: Callable[[], bool],
    ) -> Steps[None]:
        oldest_ms = self._oldest_removal_ms()
        for start in range(0, former.count, _ENTRIES_AT_ONCE):
            kept = [
                each
                for each in former.entries(start, start + _ENTRIES_AT_ONCE)
                if each.key not in newest and (each.body_size or each.stored_ms >= oldest_ms)
            ]
            if kept:
                records = [former.bytes_at(*run) for run in _runs(kept)]
                yield partial(writer.add, kept, records)
            else:
                yield _pause
            if not is_wanted():
                return

    def _write_new(
        self, newest: dict[bytes, bytes], writer: SnapshotWriter, is_wanted: Callable[[], bool]
    ) -> Steps[None]:
        oldest_ms = self._oldest_removal_ms()
        packed = list(newest.values())
        for start in range(0, len(packed), _ENTRIES_AT_ONCE):
            if not is_wanted():
                return
            entries, records = list[SnapshotEntry](), list[memoryview]()
            for each in packed[start : start + _ENTRIES_AT_ONCE]:
                entry = SnapshotEntry._make(ENTRY.unpack(each))
                if entry.body_size or entry.stored_ms >= oldest_ms:
                    record = self._log.view(entry.log_offset, entry.size)
                    if record is None:
                        raise StoreError(f"the log has lost the record at {entry.log_offset} meanwhile")
                    entries.append(entry)
                    records.append(record)
            yield partial(writer.add, entries, records)

    def _oldest_removal_ms(self) -> int:
        return self._time.cautious_ms() - self._settings.compaction_removals_kept_hours * _HOUR_MS


def key_of(record: ReadBuffer, outline: RecordOutline) -> bytes:
    """A digest of the keys of a message. One without keys has a key that no other message has."""
    raw = bytes(record[outline.properties_start : outline.properties_end])
    keys = (props.get_property_bytes(raw, props.KEYS) or b"").strip()
    if keys:
        return blake2b(keys, digest_size=_DIGEST_BYTES).digest()
    return outline.log_offset.to_bytes(_DIGEST_BYTES, "big")


def entry_of(record: ReadBuffer, tags_code: int) -> SnapshotEntry:
    """The entry of a record. Raises RemoteProtocolError if it is none."""
    outline = scan_record(record)
    if outline is None:
        raise RemoteProtocolError("a blank is not a record of a queue")
    key = key_of(record, outline)
    return SnapshotEntry._make(
        ENTRY.unpack(_entry(outline, outline.queue_offset, outline.log_offset, tags_code, key))
    )


def _entry(outline: RecordOutline, offset: int, place: int, code: int, key: bytes) -> bytes:
    body_size = outline.body_end - outline.body_start
    return ENTRY.pack(offset, place, 0, outline.size, body_size, code, outline.store_timestamp, key)


def _runs(entries: list[SnapshotEntry]) -> Iterator[tuple[int, int]]:
    """Where records that follow each other begin, and how long they are together."""
    begin, end = entries[0].position, entries[0].position
    for each in entries:
        if each.position != end:
            yield begin, end - begin
            begin = each.position
        end = each.position + each.size
    yield begin, end - begin


def _pause() -> None:
    """Others may continue."""
