"""Recovery: make log, queues and index agree again, whatever the last process left on disk.

The log is authoritative; queues and index can be rebuilt from it. The `abort` file (the last process did not
stop cleanly) and the checkpoint say how much of the files recovery can trust. The steps:

 1. Look for `abort`, and create it, so that the next start notices a crash. After a crash, sync all
    directories: the last process may have made files whose names are not safe.
 2. Load the log's files by name and size. Remove an empty last file, extend a short one with zeros; any other
    wrong size stops the start. Create blank files in place of missing ones. Ignore other files, and unused
    files behind a gap. After a crash, sync what was not safe and read it back from the disk: what is in
    memory may never have got there.
 3. Load the queues' files by name and size. Remove a queue that has messages from before its topic was
    deleted; drop a queue with a gap or a wrong size, to rebuild it.
 4. Choose the *begin offset*: the checkpoint's safe offset if PyroMQ wrote the checkpoint (the start of the
    last file if the log has lost bytes before it). Otherwise, after a clean stop, the last record that the
    queues know; after a crash, the newest file whose first record was stored before the checkpoint's times.
    Recovery trusts everything before the begin offset, and nothing behind it.
 5. Cut the queues to the units that point before the begin offset (after a clean stop: to their last unit),
    and overwrite the rest with zeros. The last unit must point to its record, and the units around it must be
    in order; otherwise drop the queue. Other damaged units are mended when they are read.
 6. Cut the index to the entries that point before the begin offset, and rebuild its slots from the entries.
    (Without a safe offset: drop index files newer than the checkpoint.) Likewise the light queues; without
    their files, they are built from the log.
 7. If queues were dropped, if there are fewer queues than the checkpoint says, or another number of units,
    first drop queues that may have lost their first files. Then walk the log from its start to the begin
    offset and add missing units. Skip damage and leave it in place. In this walk and the next, ignore records
    from before their topic was deleted, and start a queue over when its offsets start again at 0.
 8. Walk the log from the begin offset and dispatch each sound record. A record is sound if it is complete,
    its sizes agree, its log offset is its own, its topic and queue are possible, and its body matches the
    checksum. Behind damage, continue with the next sound record. If there is none, or if other brokers have
    this log, it ends before the damage: what follows is copied again. A record whose queue offset jumps ahead
    gets its unit when the records behind it confirm the jump.
 9. Set the damaged bytes aside under `damaged/`, and replace them with records that readers skip. Behind the
    end of the log, overwrite the rest with zeros and remove later files. Cut queues and index that point
    beyond the end. A queue whose last message is damaged keeps its end.
10. Move marks of deleted topics that lie beyond the end of the log to the end. Sync everything and write a
    checkpoint.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol.names import LMQ_PREFIX
from pyromq.protocol.record import RecordOutline, SysFlag
from pyromq.store.checkpoint import UNITS_UNKNOWN, Checkpoint, is_time, write_checkpoint
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.damage import Damage, DamagedBytes, is_filler
from pyromq.store.log.record_checks import MIN_GAP_BYTES, complete_outline, next_sound_record
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.parts import StoreParts
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, ConsumeQueue
from pyromq.store.queues.generations import Generations
from pyromq.store.queues.numbering import Numbering
from pyromq.store.rocksdb import refuse_rocksdb


@dataclass(slots=True)
class RecoveryReport:
    """A report: what was found, kept and dropped."""

    was_clean: bool
    began_at: int = 0
    log_start: int = 0
    log_end: int = 0
    records_checked: int = 0
    bytes_checked: int = 0
    stopped_because: str = ""
    """Why the walk over the log ended where it did; empty if the log ended there cleanly."""
    is_whole: bool = False
    """Whether the log has everything that was synced: no damage was found but a torn end."""
    has_lost_files: bool = False
    """Whether files are gone that were synced once: the log ends earlier, or queues begin again."""
    segments_removed: int = 0
    tail_wiped: bool = False
    damage: list[Damage] = field(default_factory=list)
    """The damaged ranges of the log, in the order in which they were found."""
    messages_missing: int = 0
    """Queue offsets that no record of the log has, as far as the records around them show."""
    messages_left_out: int = 0
    """Records that are in the log and not in their queues, because their queue offsets cannot be true."""
    queues: int = 0
    queues_rebuilt: list[str] = field(default_factory=list)
    queues_cut: int = 0
    index_entries_kept: int = 0
    index_files_dropped: int = 0
    remarks: list[str] = field(default_factory=list)

    @property
    def may_lack(self) -> bool:
        """Whether messages may be missing that were there before the last stop."""
        return not self.was_clean or self.has_lost_files or bool(self.queues_rebuilt)


class Recovery:
    def __init__(
        self,
        parts: StoreParts,
        checkpoint: Checkpoint,
        *,
        was_clean: bool,
        has_group: bool,
    ) -> None:
        """`has_group`: other brokers have this log, too."""
        queues, dispatcher = parts.queues, parts.dispatcher
        self._files = parts.files
        self._paths = parts.paths
        self._has_group = has_group
        self._log = parts.log
        self._queues = queues
        self._index = parts.index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._deletions = parts.deletions
        self._loaded: list[tuple[ConsumeQueue, list[int]]] = []
        self._last_places: dict[ConsumeQueue, int] = {}
        self._are_queues_complete = False
        self._numbering = Numbering(queues, dispatcher.put_unit)
        self._generations = Generations(queues, self._start_over, dispatcher.put_unit)
        self._former_last_units: list[tuple[ConsumeQueue, int, int, int]] = []
        self._former_numbers: dict[int, int] = {}
        self._was_cut_short = False
        """Whether there were sound records behind the end of the log."""
        self.report = RecoveryReport(was_clean)

    def load_log(self) -> None:
        """Step 2. Raises StoreError if a log file has a wrong size or name; then nothing has changed.

        Likewise if all of them are gone, or if Apache's broker left queues of batches, or tables or pops in
        RocksDB.
        """
        refuse_rocksdb(self._files, self._paths)
        self._queues.refuse_queues_of_batches()
        self._queues.refuse_files_of_another_size()
        self.report.remarks += self._log.segments.load(repair=True)
        if not self._log.segments.row and self._had_messages():
            raise StoreError(
                f"{self._log.segments.directory} has no log files, but the store had messages. Mount or"
                " restore the directory, or set storePathCommitLog to where they are. To start without them,"
                f" move {self._paths.consume_queues} and {self._paths.checkpoint} away"
            )
        self._numbering.log_start = self._log.start_offset

    def _had_messages(self) -> bool:
        if self._checkpoint.safe_offset >= 0:  # a log that was cut at its start has neither queues nor files
            return self._checkpoint.safe_offset > 0 and self._checkpoint.queue_count > 0
        return self._queues.has_files()

    def run(self) -> RecoveryReport:
        """Steps 3 to 9."""
        report = self.report
        if not report.was_clean:
            for segment in self._log.segments.covering(self._checkpoint.safe_offset, 1 << 63):
                self._files.read_back(segment.path)
        self._load_queues()
        if report.was_clean:
            self._cut_queues(None)
        report.began_at = begin = self._choose_beginning()
        if not report.was_clean:
            self._cut_queues(begin)
        self._cut_index(begin)
        self._load_light(begin)
        self._are_queues_complete = begin <= self._log.start_offset
        if self._are_units_missing():
            self._drop_queues_without_begin()
            self._complete_queues(begin)
        end = self._walk(begin)
        self._finish_numbering(end)
        self._mend(end)
        report.segments_removed, report.tail_wiped = self._log.cut(end)
        self._drop_what_points_beyond(end)
        self._deletions.fit_to_log(self._log.start_offset, end)
        report.log_start, report.log_end = self._log.start_offset, end
        report.has_lost_files |= end < self._checkpoint.safe_offset
        report.has_lost_files |= self._queues.totals()[0] < self._checkpoint.queue_count
        report.is_whole = (
            0 <= self._checkpoint.safe_offset <= self._checkpoint.confirm_offset <= end
            and not self._was_cut_short
            and all(each.is_tail for each in report.damage)
        )
        for queue in self._queues:
            queue.next_offset = queue.end_offset
        if self._dispatcher.light is not None:
            self._dispatcher.light.number_on()
        report.queues = self._queues.count
        # Names of files need not be text, but a report is.
        report.remarks = [each.encode(errors="backslashreplace").decode() for each in report.remarks]
        return report

    # Queues

    def _load_queues(self) -> None:
        loaded, remarks = self._queues.load()
        self.report.remarks += remarks
        for queue, starts in loaded:
            if self._remove_if_deleted(queue, starts) or self._leave_if_light(queue, starts):
                continue
            damage = self._queues.find_damage(queue, starts)
            if damage is None:
                self._loaded.append((queue, starts))
            elif starts:
                self._drop(queue, damage)
            else:
                self._queues.discard(queue)
        for topic in self._deletions.unfinished():
            if topic not in self._queues.by_topic:
                self._queues.remove_topic(topic)  # a directory may be left

    def _remove_if_deleted(self, queue: ConsumeQueue, starts: list[int]) -> bool:
        """Finish a deletion: remove the files of a queue that begins before the mark of its topic.

        If it has units of a later generation, they are rebuilt from the log.
        """
        mark = self._deletions.offset_of(queue.topic)
        place = self._queues.first_place(queue, starts) if mark else None
        if place is None or place >= mark:
            return False
        last = self._queues.adopt_files(queue, starts, None)
        if last is not None and last[0] >= mark:
            self._drop(queue, "it has messages from before its topic was deleted")
        else:
            self._queues.drop_files(queue)
            self.report.remarks.append(
                f"consumequeue/{queue.topic}/{queue.queue_id}: its topic was deleted: removed"
            )
        self._queues.discard(queue)
        return True

    def _leave_if_light(self, queue: ConsumeQueue, starts: list[int]) -> bool:
        """Leave a light message queue of Apache's broker: its units point to messages of other topics."""
        last = self._queues.last_unit(queue, starts) if queue.topic.startswith(LMQ_PREFIX) else None
        found = None
        with suppress(RemoteProtocolError):
            found = self._log.outline(last[1]) if last is not None else None
        if found is None or found[1] is None or found[1].topic == queue.topic:
            return False
        self._queues.discard(queue)
        self.report.remarks.append(
            f"consumequeue/{queue.topic}/{queue.queue_id} is a light message queue: ignored"
        )
        return True

    def _start_over(self, queue: ConsumeQueue, log_offset: int) -> None:
        """The topic was deleted and created again without a mark: remove the old units."""
        self._numbering.forget(queue)
        self._former_last_units = [each for each in self._former_last_units if each[0] is not queue]
        self._drop(queue, f"its queue offsets start over at log offset {log_offset}")

    def _drop(self, queue: ConsumeQueue, why: str) -> None:
        self._queues.drop_files(queue)
        name = f"{queue.topic}/{queue.queue_id}"
        self.report.queues_rebuilt.append(name)
        self.report.remarks.append(f"consumequeue/{name}: {why}: rebuilt from the log")

    def _cut_queues(self, before: int | None) -> None:
        kept = []
        for queue, starts in self._loaded:
            former = self._queues.last_unit(queue, starts)
            if former is not None:
                self._former_last_units.append((queue, *former))
            try:
                last = self._queues.adopt_files(queue, starts, before)
            except StoreError as damage:
                self._drop(queue, str(damage))
                continue
            if former is not None:  # only now: a unit out of order knows nothing about its message
                self._former_numbers[former[1]] = former[0]
            if last is not None and not self._leads_to_its_record(queue, *last):
                self._drop(queue, "its last unit does not point to its message")
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
            and not self._deletions.covers(queue.topic, place)
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
        units = sum(queue.end_offset - queue.first_unit for queue, _ in self._loaded)
        return (
            checkpoint.unit_count not in (units, UNITS_UNKNOWN)
            and self.report.began_at == checkpoint.safe_offset
        )

    def _drop_queues_without_begin(self) -> None:
        """Have queues rebuilt that may have lost their first files: the log may have earlier messages."""
        for queue, starts in list(self._loaded):
            place = self._queues.first_place(queue, starts) if queue.first_unit else None
            if place is not None and place > self._log.start_offset:
                self._drop(queue, "its first files may be missing")
                self._loaded.remove((queue, starts))

    def _complete_queues(self, end: int) -> None:
        """Walk the log up to `end` and put the units that the queues do not have."""
        if self._checkpoint.unit_count == UNITS_UNKNOWN:
            # If this start is interrupted, the next one must check everything.
            write_checkpoint(self._files, self._paths.checkpoint, Checkpoint())
        rebuilt = set(self.report.queues_rebuilt)
        offset = self._log.start_offset
        while offset < end:
            try:
                for segment, outline in self._log.outlines(offset, end):
                    offset = outline.log_offset + outline.size
                    if is_filler(outline) or self._is_deleted(outline):
                        continue
                    if self._must_wait(segment, outline) or self._dispatcher.put_unit(segment, outline):
                        rebuilt.add(f"{outline.topic}/{outline.queue_id}")
                break
            except RemoteProtocolError as error:
                # `outlines` skips blanks silently: ask where it stopped.
                offset = self._log.end_of_blanks(offset)
                offset = self._pass_over(offset, end, str(error))
        self.report.queues_rebuilt = sorted(rebuilt)
        self._are_queues_complete = True

    def _pass_over(self, offset: int, end: int, reason: str) -> int:
        """Where the walk that rebuilds queues continues behind damage."""
        for known in self.report.damage:
            if known.start == offset:
                return known.end
        following = next_sound_record(self._files, self._log, offset, end)
        damage = Damage(offset, end if following is None else following, reason, is_left_in_place=True)
        self.report.damage.append(damage)
        return damage.end

    def _is_deleted(self, outline: RecordOutline) -> bool:
        return self._deletions.covers(outline.topic, outline.log_offset)

    def _must_wait(self, segment: ReadableSegment, outline: RecordOutline) -> bool:
        """Whether the records behind a record must confirm its place in its queue."""
        if not outline.queue_offset and self._former_numbers.get(outline.log_offset):
            self._numbering.leave_out(outline)  # its queue had a higher number for it: not a new beginning
            return True
        return self._generations.must_wait(segment, outline) or self._numbering.must_wait(segment, outline)

    def _finish_numbering(self, end: int) -> None:
        numbering, report = self._numbering, self.report
        self._generations.finish()
        numbering.finish()
        for queue, number, place, size in self._former_last_units:
            # Its last message is damaged: no other message may get its offset, which readers may have seen.
            missing = number + 1 - queue.end_offset
            is_in_log = place + size <= end and size >= MIN_GAP_BYTES
            if self._deletions.covers(queue.topic, place):
                continue
            if 0 < missing <= place // MIN_GAP_BYTES + 1 and is_in_log and queue.end_offset:
                numbering.missing += missing
                queue.fill_gap(number + 1)
        report.messages_missing = numbering.missing
        report.messages_left_out = numbering.left_out
        if numbering.left_out:
            places = ", ".join(map(str, numbering.places_left_out))
            report.remarks.append(
                f"{numbering.left_out} records have impossible queue offsets and were left out of"
                f" their queues; their log offsets are {places}"
            )

    def _mend_gap(self, outline: RecordOutline) -> None:
        """A queue ends before the message that comes next: its last files are lost.

        After a complete walk, messages that are still missing have expired.
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
            self.report.remarks.append(
                f"the log ends before the checkpoint's offset {begin}: bytes are missing"
            )
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

    # Light queues

    def _load_light(self, begin: int) -> None:
        """Take over the light queues up to the begin offset, or build them from the log."""
        light, offset = self._dispatcher.light, self._log.start_offset
        if light is None:
            return
        light.deletions = self._deletions
        missing = light.load(begin)
        if missing is None and self._checkpoint.safe_offset < 0 and offset < begin:
            missing = "the checkpoint does not say how far they reach"
        self.report.has_lost_files = missing is not None and begin > 0
        if missing is not None:
            if offset < begin:
                # If this start is interrupted, the next one must put everything again.
                write_checkpoint(self._files, self._paths.checkpoint, Checkpoint())
            light.begin_anew()
        deleted = {each.topic for each in self._deletions.all()}
        if deleted:
            light.remove_deleted(deleted)
            light.remove_lite_topics_of_deleted(deleted)
        if missing is None or offset >= begin:
            return
        self.report.remarks.append(f"light queues: {missing}: built from the log")
        while offset < begin:
            try:
                for segment, outline in self._log.outlines(offset, begin):
                    offset = outline.log_offset + outline.size
                    if not is_filler(outline) and not self._is_deleted(outline):
                        self._dispatcher.put_light(segment, outline)
                        self._dispatcher.take_light_advances()
                return
            except RemoteProtocolError as error:
                offset = self._log.end_of_blanks(offset)
                offset = self._pass_over(offset, begin, str(error))

    # The log

    def _walk(self, begin: int) -> int:
        """Check and dispatch the records from `begin` on; returns where the log ends."""
        report = self.report
        log, dispatcher = self._log, self._dispatcher
        offset = end = begin
        log.last_store_timestamp = self._checkpoint.log_timestamp
        last_timestamp = 0
        while True:
            try:
                found = complete_outline(log, offset)
            except RemoteProtocolError as error:
                following = next_sound_record(self._files, log, offset, log.segments.end)
                self._was_cut_short = following is not None and self._has_group
                if following is None or self._has_group:
                    if following is not None or not _is_untouched(log, offset):
                        report.stopped_because = str(error)
                    break
                report.damage.append(Damage(offset, following, str(error)))
                offset = following
                continue
            if found is None:
                break
            segment, outline = found
            if outline is None:
                offset = segment.end
                continue
            if not is_filler(outline) and not self._is_deleted(outline):
                self._mend_gap(outline)
                dispatcher.dispatch_record(segment, outline, has_unit=not self._must_wait(segment, outline))
                if is_time(outline.store_timestamp):
                    last_timestamp = outline.store_timestamp
            if report.records_checked % 1000 == 999:
                dispatcher.write_index()
                dispatcher.take_light_advances()
            report.records_checked += 1
            report.bytes_checked += outline.size
            offset = end = outline.log_offset + outline.size
        dispatcher.write_index()
        # Store times never decrease: the last one is the latest, unless a damaged one is among them.
        log.last_store_timestamp = max(log.last_store_timestamp, last_timestamp)
        dispatcher.last_timestamp = log.last_store_timestamp
        # java: a blank with nothing behind it does not count; the next record may still fit in its place
        return end

    def _mend(self, end: int) -> None:
        """Set damaged bytes aside, also those behind the end, and replace those before it with fillers."""
        report = self.report
        damaged_bytes = DamagedBytes(self._files, self._log, self._paths.damaged)
        tail = Damage(end, self._log.segments.end, report.stopped_because or "garbage", is_tail=True)
        damaged_bytes.set_aside(tail)
        for each in report.damage:
            if not each.is_left_in_place:
                damaged_bytes.set_aside(each)
                damaged_bytes.fill(each)
        if tail.kept_as:
            report.damage.append(tail)

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


def _is_untouched(log: CommitLog, offset: int) -> bool:
    """Whether the log simply ends here: zeros where a record would begin."""
    segment = log.segments.find(offset)
    if segment is None:
        return True
    position = offset - segment.start
    return not any(segment.buffer[position : position + 8])


def write_first_checkpoint(parts: StoreParts, before: Checkpoint, began_at: int) -> Checkpoint:
    """Step 10: sync everything that recovery trusted or wrote, then write the checkpoint."""
    files, log, queues, index = parts.files, parts.log, parts.queues, parts.index
    log.sync(began_at, log.end_offset + 1)
    for queue, start in queues.queue_files.take_dirty():
        with suppress(FileNotFoundError):  # a queue that started over behind a gap in the log
            files.sync(queue.path_of(start))
    for file in index.take_dirty() if index is not None else ():
        files.sync(file.path)
    for path in parts.dispatcher.light.take_dirty() if parts.dispatcher.light is not None else ():
        files.sync(path)
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
        write_checkpoint(files, parts.paths.checkpoint, checkpoint)
    return checkpoint
