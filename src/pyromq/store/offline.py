"""Read a store directory without a broker: nothing is locked, written or mended.

For tools. The directory may belong to a running broker, PyroMQ's or Apache's; then the
results are a snapshot.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyromq.errors import PyroError, RemoteProtocolError, StoreError
from pyromq.filesystem import Files, MappedFile
from pyromq.protocol import json_body
from pyromq.protocol.java_hash import java_string_hash
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.protocol.properties import get_property_bytes
from pyromq.protocol.record import RecordOutline, StoredMessage, SysFlag, decode_record, verify_body_crc
from pyromq.protocol.requests.topics import TopicConfigSerializeWrapper
from pyromq.store.checkpoint import Checkpoint, read_checkpoint
from pyromq.store.deletions import Deletion, Deletions
from pyromq.store.filenames import StorePaths, is_index_name, offset_name, parse_offset_name
from pyromq.store.index.index_file import read_header
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.damage import is_loss
from pyromq.store.log.record_checks import next_sound_record
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.queues.all_queues import count_units
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, UNIT
from pyromq.store.queues.generations import newest_generation
from pyromq.store.queues.queue_files import UNIT_BYTES

_NO_LIMIT = 1 << 63
_MAX_RANGES = 10


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    path: Path
    start: int
    size_bytes: int
    used_bytes: int
    first_store_timestamp: int


@dataclass(frozen=True, slots=True)
class QueueSummary:
    topic: str
    queue_id: int
    first_unit: int
    """The first unit that has a file."""
    min_offset: int
    """The first message that the log still has."""
    max_offset: int
    files: int


@dataclass(frozen=True, slots=True)
class IndexSummary:
    path: Path
    begin_timestamp: int
    end_timestamp: int
    begin_log_offset: int
    end_log_offset: int
    used_slots: int
    entries: int


@dataclass(slots=True)
class Verification:
    """The result of reading every record and every unit."""

    records: int = 0
    record_bytes: int = 0
    units: int = 0
    damage: list[str] = field(default_factory=list)
    damaged_bytes: int = 0
    """Bytes of the log in which no sound record was found although sound ones follow."""
    messages_missing: int = 0
    """Messages with damaged bodies, units that lead to no message, and gaps that a start has left."""
    filled: list[tuple[int, int]] = field(default_factory=list)
    """Where fillers stand in the log: what was there was damaged, and set aside by a start."""

    @property
    def is_sound(self) -> bool:
        return not self.damage

    def note_filler(self, outline: RecordOutline) -> None:
        start, end = outline.log_offset, outline.log_offset + outline.size
        if self.filled and self.filled[-1][1] == start:
            start = self.filled.pop()[0]
        self.filled.append((start, end))


class _ReadOnlyFiles(Files):
    def map_for_reading(self, path: Path, *, in_small_pieces: bool = False) -> MappedFile:
        return self.map(path, writable=False, in_small_pieces=in_small_pieces)


class OfflineStore:
    """Use it as a context manager: `with OfflineStore(root) as store:`."""

    def __init__(self, root: Path, log_directory: Path | None = None) -> None:
        self.files = _ReadOnlyFiles()
        self.paths = StorePaths(root, log_directory)
        if not self.paths.commit_log.is_dir():
            raise StoreError(f"{root} is not a store: it has no {self.paths.commit_log.name} directory")
        self.was_clean = self.files.size(self.paths.abort) is None
        """Whether no broker has it open now, and the last one stopped cleanly."""
        self.checkpoint: Checkpoint = read_checkpoint(self.files, self.paths.checkpoint)
        self.deletions: list[Deletion] = []
        """The topics that were deleted while the log still had messages of theirs, oldest first."""
        sizes = self._file_sizes()
        segment_bytes = _most_likely_size(sizes)
        self.log = CommitLog(
            self.files, self.paths.commit_log, segment_bytes, preallocate=False, warm_up=False
        )
        self.remarks: list[str] = self.log.segments.load(repair=False)
        last = max(sizes, default=0)
        self._damage = [
            f"{self.paths.commit_log.name}/{offset_name(start)} has {size} of {segment_bytes} bytes"
            for start, size in sizes.items()
            if size > segment_bytes or (size < segment_bytes and start != last)
        ]
        self.log_start = self.log.start_offset
        self.log_end, end_remark = self._find_end()
        self.log.end_offset = self.log_end
        if end_remark:
            self.remarks.append(end_remark)
            self._damage.append(end_remark)
        try:
            self.deletions = Deletions(self.files, self.paths.deletions).all()
        except StoreError as error:
            self.remarks.append(str(error))
            self._damage.append(str(error))

    def __repr__(self) -> str:
        return f"<OfflineStore {self.paths.root.name} log {self.log_start}..{self.log_end}>"

    def __enter__(self) -> "OfflineStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.log.close()

    def _file_sizes(self) -> dict[int, int]:
        """The sizes of the log files by their first offsets; all are the same, except perhaps the last."""
        directory = self.paths.commit_log
        starts = map(parse_offset_name, self.files.names(directory)[0])
        return {
            start: size_bytes
            for start in starts
            if start is not None and (size_bytes := self.files.size(directory / offset_name(start)))
        }

    def _find_end(self) -> tuple[int, str]:
        """The end of the records, found from the checkpoint or from the last file that has records."""
        end = self.checkpoint.safe_offset
        if not self.log_start <= end <= self.log.segments.end:
            used = [each.start for each in self.log.segments.row if self.log.first_store_timestamp(each)]
            end = used[-1] if used else self.log_start
        offset = end
        while True:
            try:
                found = self.log.outline(offset)
            except RemoteProtocolError as error:
                following = next_sound_record(self.files, self.log, offset, self.log.segments.end)
                if following is not None:
                    offset = following
                    continue
                segment = self.log.source.find(offset)
                position = offset - segment.start if segment is not None else 0
                is_untouched = segment is None or not any(segment.buffer[position : position + 8])
                return end, "" if is_untouched else f"the log ends in damaged bytes: {error}"
            if found is None:
                return end, ""
            segment, outline = found
            offset = segment.end if outline is None else offset + outline.size
            end = end if outline is None else offset

    # Summaries

    def segments(self) -> list[SegmentSummary]:
        return [
            SegmentSummary(
                each.path,
                each.start,
                each.size_bytes,
                max(0, min(self.log_end, each.end) - each.start),
                self.log.first_store_timestamp(each),
            )
            for each in self.log.segments.row
        ]

    def topics(self) -> list[str]:
        return self.files.names(self.paths.consume_queues)[1]

    def queues(self, topic: str | None = None) -> list[QueueSummary]:
        summaries = []
        for name in self.topics() if topic is None else [topic]:
            ids = self.files.names(self.paths.consume_queues / name)[1]
            for queue_id in sorted(int(each) for each in ids if each.isascii() and each.isdigit()):
                summary = self._summarise_queue(name, queue_id)
                if summary is not None:
                    summaries.append(summary)
        return summaries

    def _summarise_queue(self, topic: str, queue_id: int) -> QueueSummary | None:
        starts = self.queue_starts(topic, queue_id)
        if not starts:
            return None
        first_unit = min_offset = end = starts[0] // UNIT_BYTES
        is_min_known = False
        for start in starts:
            with self.files.open(self.queue_path(topic, queue_id, start)) as reader:
                units = count_units(reader, _NO_LIMIT)
                if not units:
                    break
                end = start // UNIT_BYTES + units
                gone = count_units(reader, self.log_start)
                if not is_min_known:
                    min_offset = start // UNIT_BYTES + gone
                    is_min_known = gone < units
        return QueueSummary(topic, queue_id, first_unit, min_offset, end, len(starts))

    def queue_starts(self, topic: str, queue_id: int) -> list[int]:
        names = self.files.names(self.paths.queue(topic, queue_id))[0]
        return [start for start in map(parse_offset_name, names) if start is not None]

    def queue_path(self, topic: str, queue_id: int, start: int) -> Path:
        return self.paths.queue(topic, queue_id) / offset_name(start)

    def index_files(self) -> list[IndexSummary]:
        return [each for each in self._look_at_index_files() if isinstance(each, IndexSummary)]

    def _look_at_index_files(self) -> Iterator[IndexSummary | StoreError]:
        for name in self.files.names(self.paths.index)[0]:
            if is_index_name(name):
                path = self.paths.index / name
                try:
                    begin, end, first, last, slots, next_unit = read_header(self.files, path)
                except StoreError as error:
                    yield error
                else:
                    yield IndexSummary(path, begin, end, first, last, slots, max(next_unit - 1, 0))

    # Contents

    def records(self, start: int | None = None) -> Iterator[memoryview]:
        """Every record of the log in order, from `start` on. Raises RemoteProtocolError at damage."""
        offset = self.log_start if start is None else start
        for segment, outline in self.log.outlines(offset, self.log_end):
            yield segment.view[outline.start : outline.end]

    def messages(self, topic: str, queue_id: int | None = None, offset: int = 0) -> Iterator[StoredMessage]:
        """The messages of a topic, queue by queue, in the order of their offsets.

        Those that cannot be read are omitted, and a remark says which.
        """
        for summary in self.queues(topic):
            if queue_id is None or summary.queue_id == queue_id:
                yield from self._messages_of(summary, offset)

    def _messages_of(self, summary: QueueSummary, offset: int) -> Iterator[StoredMessage]:
        for number, log_offset, size, _ in self._units_of(summary):
            if number >= offset and size != PRE_BLANK_SIZE:
                record = self.log.record(log_offset)
                if record is None:
                    continue
                try:
                    message = decode_record(record)
                except RemoteProtocolError as error:
                    self.remarks.append(f"log offset {log_offset}: message skipped: {error}")
                    continue
                if (message.topic, message.queue_id, message.queue_offset) == (
                    summary.topic,
                    summary.queue_id,
                    number,
                ):
                    yield message
                else:
                    self.remarks.append(
                        f"queue {summary.topic}/{summary.queue_id}: unit {number} points to another queue's"
                        f" message at log offset {log_offset}: message skipped"
                    )

    def _units_of(self, summary: QueueSummary) -> Iterator[tuple[int, int, int, int]]:
        number = summary.first_unit
        for start in self.queue_starts(summary.topic, summary.queue_id):
            raw = self.files.read(self.queue_path(summary.topic, summary.queue_id, start))
            for log_offset, size, code in UNIT.iter_unpack(raw[: len(raw) // UNIT_BYTES * UNIT_BYTES]):
                if number >= summary.max_offset:
                    return
                yield number, log_offset, size, code
                number += 1

    # Everything

    def verify(self, tell: Callable[[int], None] = lambda _: None) -> Verification:
        """Read every record and every unit, and compare them; `tell` gets the number of bytes read."""
        result = Verification(damage=list(self._damage))
        marks = {each.topic: each.log_offset for each in self.deletions}
        places: dict[tuple[str, int], array[int]] = {}
        offset = self.log_start
        while offset < self.log_end:
            try:
                for segment, outline in self.log.outlines(offset, self.log_end):
                    self._verify_record(segment, outline, result)
                    tell(outline.log_offset + outline.size - offset)
                    offset = outline.log_offset + outline.size
                    if is_loss(outline, segment.buffer):
                        result.note_filler(outline)
                    is_prepared = outline.sys_flag & SysFlag.TRANSACTION_PREPARED
                    if not is_prepared and outline.log_offset >= marks.get(outline.topic, 0):
                        queue = places.setdefault((outline.topic, outline.queue_id), array("q"))
                        code = _tags_code(segment, outline)
                        queue.extend((outline.queue_offset, outline.log_offset, outline.size, code))
                break
            except RemoteProtocolError as error:
                damaged = self.log.end_of_blanks(offset)
                following = next_sound_record(self.files, self.log, damaged, self.log_end)
                end = self.log_end if following is None else following
                result.damage.append(f"log offsets {damaged} to {end}, {end - damaged} bytes: {error}")
                result.damaged_bytes += end - damaged
                tell(end - offset)
                offset = end
        result.damage += [str(each) for each in self._look_at_index_files() if isinstance(each, StoreError)]
        for summary in self.queues():
            found = places.pop((summary.topic, summary.queue_id), array("q"))
            self._verify_queue(summary, newest_generation(found, fields=4), result)
        deleted = self._deleted_topics({topic for topic, _ in places})
        for topic, queue_id in places:
            if topic not in deleted:
                result.damage.append(f"queue {topic}/{queue_id} is missing")
        return result

    def _deleted_topics(self, topics: set[str]) -> set[str]:
        """The topics that a broker has deleted; their messages stay in the log until its files expire."""
        try:
            table = json_body.decode(self.files.read(self.paths.topics), TopicConfigSerializeWrapper)
        except (PyroError, OSError):
            return set()
        return topics - set(table.topic_config_table) - set(self.topics())

    def _verify_record(self, segment: ReadableSegment, outline: RecordOutline, result: Verification) -> None:
        result.records += 1
        result.record_bytes += outline.size
        try:
            verify_body_crc(segment.buffer, outline)
        except RemoteProtocolError as error:
            end = outline.log_offset + outline.size
            result.damage.append(f"log offsets {outline.log_offset} to {end}, {outline.size} bytes: {error}")
            result.damaged_bytes += outline.size
            result.messages_missing += 1

    def _verify_queue(self, summary: QueueSummary, found: "array[int]", result: Verification) -> None:
        """`found`: queue offset, log offset, size and tags code of each of its messages in the log."""
        name = f"queue {summary.topic}/{summary.queue_id}"
        records = dict(zip(found[::4], zip(found[1::4], found[2::4], found[3::4], strict=True), strict=True))
        least = min(records, default=summary.max_offset)
        has_codes = summary.topic != SCHEDULE_TOPIC  # there it is a time, which follows from the settings
        astray, mistagged, without = array("q"), array("q"), array("q")
        for number, log_offset, size, code in self._units_of(summary):
            result.units += 1
            record = records.pop(number, None)
            if record is None:
                if size == PRE_BLANK_SIZE:
                    result.messages_missing += log_offset > self.log_start
                elif number >= least or log_offset >= self.log_start:
                    astray.append(number)
            elif size == PRE_BLANK_SIZE:
                without.append(number)
            elif record[:2] != (log_offset, size):
                astray.append(number)
            elif has_codes and record[2] != code:
                mistagged.append(number)
        without.extend(sorted(records))
        result.messages_missing += len(astray)
        for numbers, fault in (
            (astray, "do not point to their messages"),
            (mistagged, "have a wrong tags code"),
        ):
            if numbers:
                result.damage.append(f"{name}: {len(numbers)} units ({_ranges(numbers)}) {fault}")
        if without:
            result.damage.append(f"{name}: {len(without)} messages ({_ranges(without)}) have no unit")


def _most_likely_size(sizes: dict[int, int]) -> int:
    """The size that log files should have, derived from the sizes of most files and from their names."""
    named = [size for size in sizes.values() if all(start % size == 0 for start in sizes)]
    found = named or list(sizes.values())
    return max(found, key=lambda size: (found.count(size), size), default=1)


def _tags_code(segment: ReadableSegment, outline: RecordOutline) -> int:
    properties = segment.buffer[outline.properties_start : outline.properties_end]
    tags = get_property_bytes(properties, "TAGS")
    return java_string_hash(tags.decode("utf-8", "replace")) if tags else 0


def _ranges(numbers: "array[int]") -> str:
    """Ascending numbers as people write them: 3 to 7, 9, 12 to 14."""
    parts: list[str] = []
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            first, last = numbers[start], numbers[index - 1]
            parts.append(f"{first}" if first == last else f"{first} to {last}")
            start = index
    more = f" and {len(parts) - _MAX_RANGES} more ranges" if len(parts) > _MAX_RANGES else ""
    return ", ".join(parts[:_MAX_RANGES]) + more
