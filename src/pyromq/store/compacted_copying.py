"""Copying a compacted queue: a replica's first snapshot has what its master's log had lost before it came.

Only messages before the replica's log are taken. Those behind come with the log.
"""

from functools import partial
from typing import Final

from pyromq.disk_steps import Steps, Wait
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.properties import TAGS, get_property
from pyromq.protocol.record import peek_size, scan_record
from pyromq.store.compacted.snapshot import SnapshotEnd, SnapshotEntry, SnapshotWriter
from pyromq.store.compacting import Compacting, entry_of
from pyromq.store.queues.consume_queue import ConsumeQueue

_MIN_BYTES: Final = 4


class SnapshotCopy:
    def __init__(
        self, compacting: Compacting, key: tuple[str, int], queue: ConsumeQueue | None, log_start: int
    ) -> None:
        self._compacting = compacting
        self._key = key
        self._log_start = log_start
        self._queue = queue
        self._first_own = _first_own(queue, log_start)
        self._last = -1
        self._has_begun = False
        self._is_wanted = compacting.unless_changed(*key)
        self._writer: SnapshotWriter = compacting.writer_of(key)

    def __repr__(self) -> str:
        return f"<SnapshotCopy of {self._key} up to {self._last}>"

    def wants(self, offset: int) -> bool:
        """Whether messages from this queue offset on are wanted."""
        return self._first_own is None or offset < self._first_own

    def add(self, records: bytes) -> Wait:
        """Take over records of the master that follow each other, as in the answer to a pull.

        Raises RemoteProtocolError if they are none, or if they belong to the log that is still to come.
        """
        entries, pieces, position = list[SnapshotEntry](), list[memoryview](), 0
        while position + _MIN_BYTES <= len(records):
            size = peek_size(records, position)
            record = memoryview(records)[position : position + size]
            entry, topic, queue_id = _entry_of(record)
            if (topic, queue_id) != self._key or entry.queue_offset <= self._last:
                raise RemoteProtocolError(
                    f"message {entry.queue_offset} of {topic}, queue {queue_id}, where one of {self._key[0]},"
                    f" queue {self._key[1]}, after {self._last} was expected"
                )
            if not self.wants(entry.queue_offset):
                break
            if entry.log_offset >= self._log_start:
                raise RemoteProtocolError(
                    f"message {entry.queue_offset} is at log offset {entry.log_offset}, which this replica's"
                    " log does not have yet"
                )
            self._last = entry.queue_offset
            entries.append(entry)
            pieces.append(record)
            position += size
        return partial(self._write, entries, pieces)

    def _write(self, entries: list[SnapshotEntry], pieces: list[memoryview]) -> None:
        if not self._has_begun:
            self._writer.begin()
            self._has_begun = True
        self._writer.add(entries, pieces)

    def finish(self, master_end: int) -> Steps[bool]:
        """Use the copy; False if the queue has changed meanwhile. `master_end`: where the master's queue
        ends."""
        first_own = self._first_own
        if _first_own(self._queue, self._log_start) != first_own:
            return False
        covered = max(master_end, self._last + 1) if first_own is None else first_own
        if not self._has_begun:
            yield partial(self._write, [], [])
        end = SnapshotEnd(covered, self._log_start)
        return (yield from self._compacting.finish(self._key, end, self._writer, self._is_wanted))

    def close(self) -> None:
        self._writer.close()


def _first_own(queue: ConsumeQueue | None, log_start: int) -> int | None:
    """The first message of a queue that the replica's log has."""
    if queue is None or queue.end_offset == queue.first_unit:
        return None
    first = queue.min_offset(log_start)
    return first if first < queue.end_offset else None


def _entry_of(record: memoryview) -> tuple[SnapshotEntry, str, int]:
    outline = scan_record(record)
    if outline is None:
        raise RemoteProtocolError("a blank, where a message was expected")
    raw = bytes(record[outline.properties_start : outline.properties_end])
    return entry_of(record, tag_code(get_property(raw, TAGS))), outline.topic, outline.queue_id
