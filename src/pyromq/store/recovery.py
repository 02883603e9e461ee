"""Recovery: from whatever the last process left on disk to a store in which everything agrees.

The log is the truth; queues and index follow from it. Two marks say how far to trust: the `abort` file
(there: the last process did not stop cleanly) and the checkpoint. The steps:

 1. Look for `abort`, and write it: from here on a crash is a crash.
 2. Take in the log's files by name and size. An empty last file goes, a short one is extended with zeros; a
    wrong size anywhere else stops the start. Other files are left aside, and so is everything before a gap;
    unused files behind a gap count as other files.
 3. Take in the queues' files by name and size. A queue with a gap or a wrong size is dropped, to be built
    again.
 4. Choose where to begin: at the checkpoint's safe offset if the checkpoint is ours (at the start of the last
    file if the log has lost bytes before it). Otherwise, after a clean stop, at the last record the queues
    know; after a crash, at the newest file whose first record was stored before the checkpoint's times.
    Everything before that place is trusted, nothing behind it is.
 5. Cut the queues to the units that point before that place (after a clean stop: to their last unit), and
    wipe what follows. The last unit left must lead to the record it stands for; a queue where it does not is
    dropped.
 6. Cut the index to the entries that point before that place, and make its slots again from the entries.
    (Without a safe offset: drop index files newer than the checkpoint.)
 7. If queues were dropped, or there are fewer queues or other numbers of units than the checkpoint counted,
    walk the log from its start to that place and put the units that are missing.
 8. Walk the log from that place. A record counts if its sizes agree, it says its own offset and a possible
    topic, its body has the right checksum and no part of it is missing; each one is dispatched. Stop at the
    first that does not count.
 9. Make that the end of the log: wipe what follows, remove later files. Cut queues and index that point
    beyond it.
10. Make everything safe and write a checkpoint that says so.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.record import RecordOutline, SysFlag, verify_body_crc
from pyromq.store.checkpoint import UNITS_UNKNOWN, Checkpoint, write_checkpoint
from pyromq.store.commit_log import CommitLog
from pyromq.store.consume_queue import PRE_BLANK_SIZE, ConsumeQueue
from pyromq.store.dispatch import Dispatcher
from pyromq.store.filenames import StorePaths
from pyromq.store.filesystem import Files
from pyromq.store.index import Index
from pyromq.store.queues import Queues
from pyromq.store.segment import Segment

_SECTOR_BYTES = 512


@dataclass(slots=True)
class RecoveryReport:
    """What was found, kept and dropped."""

    was_clean: bool
    began_at: int = 0
    log_start: int = 0
    log_end: int = 0
    records_checked: int = 0
    bytes_checked: int = 0
    stopped_because: str = ""
    """Why the walk over the log ended where it did; empty if the log ended there cleanly."""
    segments_removed: int = 0
    tail_wiped: bool = False
    queues: int = 0
    queues_rebuilt: list[str] = field(default_factory=list)
    queues_cut: int = 0
    index_entries_kept: int = 0
    index_files_dropped: int = 0
    remarks: list[str] = field(default_factory=list)


class Recovery:
    def __init__(
        self,
        files: Files,
        paths: StorePaths,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        *,
        was_clean: bool,
    ) -> None:
        self._files = files
        self._paths = paths
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._loaded: list[tuple[ConsumeQueue, list[int]]] = []
        self._last_places: dict[ConsumeQueue, int] = {}
        self._are_queues_complete = False
        self.report = RecoveryReport(was_clean)

    def run(self) -> RecoveryReport:
        report = self.report
        report.remarks += self._log.segments.load(repair=True)
        self._load_queues()
        if report.was_clean:
            self._cut_queues(None)
        report.began_at = begin = self._choose_beginning()
        if not report.was_clean:
            self._cut_queues(begin)
        self._cut_index(begin)
        self._are_queues_complete = begin <= self._log.start_offset
        if self._are_units_missing():
            self._complete_queues(begin)
        end = self._walk(begin)
        report.segments_removed, report.tail_wiped = self._log.cut(end)
        self._drop_what_points_beyond(end)
        report.log_start, report.log_end = self._log.start_offset, end
        for queue in self._queues:
            queue.next_offset = queue.end_offset
        report.queues = self._queues.count
        # Names of files need not be text, but a report is.
        report.remarks = [each.encode(errors="backslashreplace").decode() for each in report.remarks]
        return report

    # Queues

    def _load_queues(self) -> None:
        loaded, remarks = self._queues.load()
        self.report.remarks += remarks
        for queue, starts in loaded:
            damage = self._queues.find_damage(queue, starts)
            if damage is None:
                self._loaded.append((queue, starts))
            elif starts:
                self._drop(queue, damage)
            else:
                self._queues.discard(queue)

    def _drop(self, queue: ConsumeQueue, why: str) -> None:
        self._queues.drop_files(queue)
        name = f"{queue.topic}/{queue.queue_id}"
        self.report.queues_rebuilt.append(name)
        self.report.remarks.append(f"consumequeue/{name}: {why}: built again from the log")

    def _cut_queues(self, before: int | None) -> None:
        kept = []
        for queue, starts in self._loaded:
            last = self._queues.adopt_files(queue, starts, before)
            if last is not None and not self._leads_to_its_record(queue, *last):
                self._drop(queue, "its last unit does not lead to its message")
                continue
            if last is not None:
                self._last_places[queue] = last[0]
            kept.append((queue, starts))
        self._loaded = kept

    def _leads_to_its_record(self, queue: ConsumeQueue, place: int, size: int) -> bool:
        if place < self._log.start_offset or size == PRE_BLANK_SIZE:
            return True
        try:
            found = self._log.outline(place)
        except RemoteProtocolError:
            return False
        if found is None:
            return self.report.was_clean  # beyond the log: cut off at the end
        outline = found[1]
        return (
            outline is not None
            and outline.topic == queue.topic
            and outline.queue_id == queue.queue_id
            and outline.queue_offset == queue.end_offset - 1
        )

    def _are_units_missing(self) -> bool:
        checkpoint = self._checkpoint
        if self.report.queues_rebuilt or len(self._loaded) < checkpoint.queue_count:
            return True
        if checkpoint.safe_offset < 0:
            return not self._loaded
        units = sum(queue.end_offset for queue, _ in self._loaded)
        return (
            checkpoint.unit_count not in (units, UNITS_UNKNOWN)
            and self.report.began_at == checkpoint.safe_offset
        )

    def _complete_queues(self, end: int) -> None:
        """Walk the log up to `end` and put the units that the queues do not have."""
        if self._checkpoint.unit_count == UNITS_UNKNOWN:
            # Nothing would tell the next start how far an interrupted one has come: then all is looked at.
            write_checkpoint(self._files, self._paths.checkpoint, Checkpoint())
        rebuilt = set(self.report.queues_rebuilt)
        offset = self._log.start_offset
        while offset < end:
            try:
                for segment, outline in self._log.outlines(offset, end):
                    offset = outline.log_offset + outline.size
                    if self._dispatcher.put_unit(segment, outline):
                        rebuilt.add(f"{outline.topic}/{outline.queue_id}")
                break
            except RemoteProtocolError as error:
                self.report.remarks.append(f"building queues again: {error}: rest of that file passed over")
                offset = offset - offset % self._log.segment_bytes + self._log.segment_bytes
        self.report.queues_rebuilt = sorted(rebuilt)
        self._are_queues_complete = True

    def _mend_gap(self, outline: RecordOutline) -> None:
        """A queue ends before the message that comes next: its last files are lost.

        If a walk has brought everything the log has, what is missing was cleaned.
        """
        if self._are_queues_complete or outline.sys_flag & SysFlag.TRANSACTION_PREPARED:
            return
        queue = self._queues.find(outline.topic, outline.queue_id)
        if outline.queue_offset > (queue.end_offset if queue is not None else 0):
            self._complete_queues(outline.log_offset)

    # Where to begin

    def _choose_beginning(self) -> int:
        row = self._log.segments.row
        if not row:
            return 0
        begin = self._checkpoint.safe_offset
        if begin < 0 and not self._loaded:
            begin = self._log.start_offset
        elif begin < 0:
            begin = self._last_known_record() if self.report.was_clean else self._newest_trusted_file()
        elif begin > self._log.segments.loaded_end:
            self.report.remarks.append(f"the log ends before the checkpoint's {begin}: bytes are missing")
            begin = row[-1].start
        return max(begin, row[0].start)

    def _last_known_record(self) -> int:
        begin = max(self._last_places.values(), default=self._log.start_offset)
        return begin if self._log.segments.find(begin) is not None else self._log.segments.row[-1].start

    def _newest_trusted_file(self) -> int:
        for segment in reversed(self._log.segments.row):
            if 0 < self._log.first_store_timestamp(segment) <= self._checkpoint.min_timestamp:
                return segment.start
        return self._log.start_offset

    # The index

    def _cut_index(self, begin: int) -> None:
        index = self._index
        if index is None:
            return
        self.report.remarks += index.load()
        if not self.report.was_clean:
            if self._checkpoint.safe_offset >= 0:
                self.report.index_files_dropped = index.keep_before(begin)
            else:
                self.report.index_files_dropped = index.keep_until_timestamp(self._checkpoint.index_timestamp)
        self.report.index_entries_kept = index.entry_count
        self._dispatcher.index_from = index.end_log_offset + 1

    # The log

    def _walk(self, begin: int) -> int:
        """Check and dispatch the records from `begin` on; returns where the log ends."""
        report = self.report
        log, dispatcher = self._log, self._dispatcher
        offset = end = begin
        log.last_store_timestamp = self._checkpoint.log_timestamp
        while True:
            try:
                found = log.outline(offset)
                if found is None:
                    break
                segment, outline = found
                if outline is None:
                    offset = segment.end
                    continue
                verify_body_crc(segment.mapped.buffer, outline)
                _verify_complete(segment, outline)
            except RemoteProtocolError as error:
                if not _is_untouched(log, offset):
                    report.stopped_because = str(error)
                break
            self._mend_gap(outline)
            dispatcher.dispatch_record(segment, outline)
            if report.records_checked % 1000 == 999:
                dispatcher.write_index()
            log.last_store_timestamp = max(log.last_store_timestamp, outline.store_timestamp)
            report.records_checked += 1
            report.bytes_checked += outline.size
            offset = end = outline.log_offset + outline.size
        dispatcher.write_index()
        dispatcher.last_timestamp = log.last_store_timestamp
        # java: a blank with nothing behind it does not count; the next record may still fit in its place
        return end

    def _drop_what_points_beyond(self, end: int) -> None:
        for queue, starts in self._loaded:
            if self._last_places.get(queue, -1) >= end:
                self._queues.adopt_files(queue, starts, end)
                self.report.queues_cut += 1
        if self._index is not None and self._index.end_log_offset >= end:
            self.report.index_files_dropped += self._index.keep_before(end)
            self.report.remarks.append(f"the index was ahead of the log: cut to {end}")
            self.report.index_entries_kept = self._index.entry_count
            self._dispatcher.index_from = end
        self._dispatcher.start_at(end)


def _verify_complete(segment: Segment, outline: RecordOutline) -> None:
    """The body has a checksum, the rest has not: look for pieces that were never written.

    Topic and properties lie behind the body, and before they were written there were zeros. No topic has a
    zero byte, a record of ours never ends in one unless it has no properties, and a lost piece is at least
    one disk sector.
    """
    buffer = segment.mapped.buffer
    start, end = outline.properties_start, outline.properties_end
    if end > start and buffer[end - 1] == 0:
        raise RemoteProtocolError(f"record at {outline.log_offset}: its end was not written")
    for sector in range(start + -start % _SECTOR_BYTES, end, _SECTOR_BYTES):
        piece = buffer[sector : min(sector + _SECTOR_BYTES, end)]
        if piece.count(0) == len(piece):
            raise RemoteProtocolError(f"record at {outline.log_offset}: a part was not written")


def _is_untouched(log: CommitLog, offset: int) -> bool:
    """Whether the log simply ends here: zeros where a record would begin."""
    segment = log.segments.find(offset)
    if segment is None:
        return True
    position = offset - segment.start
    return not any(segment.mapped.buffer[position : position + 8])


def write_first_checkpoint(
    files: Files,
    paths: StorePaths,
    log: CommitLog,
    queues: Queues,
    index: Index | None,
    before: Checkpoint,
    began_at: int,
) -> Checkpoint:
    """Step 10: sync all that recovery read as good or wrote, then say that it is safe."""
    log.sync(began_at, log.end_offset + 1)
    for queue, start in queues.queue_files.take_dirty():
        with suppress(FileNotFoundError):  # a queue that started over behind a gap in the log
            files.sync(queue.path_of(start))
    for file in index.take_dirty() if index is not None else ():
        files.sync(file.path)
    files.sync_all_directories()
    queue_count, unit_count = queues.totals()
    checkpoint = Checkpoint(
        log_timestamp=log.last_store_timestamp,
        queue_timestamp=log.last_store_timestamp,
        index_timestamp=index.end_timestamp if index is not None else log.last_store_timestamp,
        master_flushed_offset=before.master_flushed_offset,
        confirm_offset=log.end_offset,
        safe_offset=log.end_offset,
        queue_count=queue_count,
        unit_count=unit_count,
    )
    if checkpoint != before:
        write_checkpoint(files, paths.checkpoint, checkpoint)
    return checkpoint
