"""All queues of the store, by topic and queue id, and the checks of their files when they are loaded."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import FileReader, Files
from pyromq.protocol.record import MIN_RECORD_SIZE
from pyromq.store.filenames import StorePaths, is_text, parse_offset_name, parse_queue_name
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, UNIT, ConsumeQueue
from pyromq.store.queues.queue_files import UNIT_BYTES, QueueFiles
from pyromq.store.rocksdb import is_rocksdb

_NO_LIMIT: Final = 1 << 63
_LOOKED_AT: Final = 256
"""How many units behind the last good one a start checks, if they are not zeros."""
_LAST_UNITS: Final = 26
"""How many last units of each queue a start checks: a disk sector's worth."""


class Queues:
    def __init__(self, files: Files, paths: StorePaths, queue_files: QueueFiles) -> None:
        self._files = files
        self._paths = paths
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.queue_files = queue_files
        self.count = 0
        self.floor_of: Callable[[str, int], int] = lambda topic, queue_id: 0
        """The floor of a queue that is added. It may have been purged before it was here."""

    def __repr__(self) -> str:
        return f"<Queues {self.count} in {len(self.by_topic)} topics>"

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for topic in list(self.by_topic.values()):
            yield from list(topic.values())

    @property
    def topics(self) -> list[str]:
        return sorted(self.by_topic)

    def of_topic(self, topic: str) -> dict[int, ConsumeQueue]:
        return dict(self.by_topic.get(topic, {}))

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queues = self.by_topic.get(topic)
        return queues.get(queue_id) if queues else None

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created if there is none; its files are created with its first message."""
        queues = self.by_topic.get(topic)
        queue = queues.get(queue_id) if queues else None
        return queue if queue is not None else self._add(topic, queue_id)

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(self.queue_files, self._paths.queue(topic, queue_id), topic, queue_id)
        queue.floor = self.floor_of(topic, queue_id)
        self.by_topic.setdefault(topic, {})[queue_id] = queue
        self.count += 1
        return queue

    def begin_at(self, topic: str, queue_id: int, offset: int) -> None:
        """The messages before `offset` are known elsewhere: the next one of the queue follows them. Raises
        OSError."""
        queue = self.get(topic, queue_id)
        if queue.end_offset < offset:
            if queue.end_offset > queue.first_unit:
                queue.fill_gap(offset)
            else:
                queue.fill_up_to(offset)
            queue.next_offset = offset

    def discard(self, queue: ConsumeQueue) -> None:
        """Forget a queue that has no files."""
        del self.by_topic[queue.topic][queue.queue_id]
        if not self.by_topic[queue.topic]:
            del self.by_topic[queue.topic]
        self.count -= 1

    def totals(self) -> tuple[int, int]:
        """How many queues have files, and how many units these have."""
        queues = units = 0
        for topic in self.by_topic.values():
            for queue in topic.values():
                if queue.end_offset:
                    queues += 1
                    units += queue.end_offset - queue.first_unit
        return queues, units

    # Loading

    def refuse_queues_of_batches(self) -> None:
        """Raises StoreError if Apache's broker left such queues.

        Their messages would be missing, and new ones would get the same offsets.
        """
        root = self._paths.batch_queues
        for topic in self._files.names(root)[1]:
            for queue in self._files.names(root / topic)[1]:
                if self._files.names(root / topic / queue)[0]:
                    raise StoreError(
                        f"{root / topic} has queues of batches (queue.type=BatchCQ), which are not supported:"
                        " consume and delete the topic with Apache's broker, or move this directory away to"
                        " start without its messages"
                    )

    def has_files(self) -> bool:
        """Whether any queue has a file on disk."""
        return next(self._file_paths(), None) is not None

    def refuse_files_of_another_size(self) -> None:
        """Raises StoreError if all files have another size: then the setting is another one.

        Built anew, a queue whose messages have all expired would begin before what its groups have read.
        """
        expected, sizes = self.queue_files.file_bytes, list[int]()
        for path in self._file_paths():
            sizes.append(self._files.size(path) or 0)
            if sizes[-1] in (0, expected) or sizes[-1] != sizes[0]:
                return
        if len(sizes) > 1 and not sizes[0] % UNIT_BYTES:
            raise StoreError(
                f"all files in {self._paths.consume_queues} have {sizes[0]} bytes, expected {expected}:"
                f" set mappedFileSizeConsumeQueue={sizes[0]}"
            )

    def _file_paths(self) -> Iterator[Path]:
        root = self._paths.consume_queues
        for topic in self._files.names(root)[1]:
            for queue in self._files.names(root / topic)[1]:
                for name in self._files.names(root / topic / queue)[0]:
                    if parse_offset_name(name) is not None:
                        yield root / topic / queue / name

    def load(self) -> tuple[list[tuple[ConsumeQueue, list[int]]], list[str]]:
        """Every queue with the start positions of its files, and remarks about ignored files."""
        loaded = []
        remarks: list[str] = []

        def ignore(path: Path, what: str) -> None:
            remarks.append(f"{path.relative_to(self._paths.root)} is not {what}: ignored")

        root = self._paths.consume_queues
        names, topics = self._files.names(root)
        if is_rocksdb(self._files, root):
            remarks.append(f"{root.name} has queues in RocksDB: ignored, and built from the log")
        else:
            for name in names:
                ignore(root / name, "a topic")
        for topic in topics:
            if not is_text(topic):
                ignore(root / topic, "a topic")
                continue
            names, directories = self._files.names(root / topic)
            for name in names + directories:
                queue_id = parse_queue_name(name)
                if queue_id is None or name in names:
                    ignore(root / topic / name, "a queue")
                else:
                    starts = []
                    for file_name in self._files.names(root / topic / name)[0]:
                        start = parse_offset_name(file_name)
                        if start is None:
                            ignore(root / topic / name / file_name, "a queue file")
                        else:
                            starts.append(start)
                    loaded.append((self._add(topic, queue_id), starts))
        return loaded, remarks

    def find_damage(self, queue: ConsumeQueue, starts: list[int]) -> str | None:
        """The fault in the files of a queue, judged by names and sizes alone."""
        file_bytes = self.queue_files.file_bytes
        if not starts:
            return "no files"
        for index, start in enumerate(starts):
            if start != starts[0] + index * file_bytes or start % file_bytes:
                return f"file {start} does not follow the file before it"
            if self._files.size(queue.path_of(start)) != file_bytes:
                return f"file {start} has the wrong size"
        return None

    def adopt_files(
        self, queue: ConsumeQueue, starts: list[int], before: int | None
    ) -> tuple[int, int] | None:
        """Set the queue's range to the units that point before a log offset, or to all; wipe what follows.

        Returns log offset and size of the last unit kept. No file is mapped: there may be very many queues.
        Raises StoreError if damage hides the end of the units; then nothing is wiped.
        """
        self.queue_files.forget(queue)
        queue.first_file = starts[0]
        queue.end_offset = queue.next_offset = queue.first_unit
        last_place = None
        for start in reversed(starts):
            path = queue.path_of(start)
            limit = _NO_LIMIT if before is None else before
            with self._files.open(path) as reader:
                units = count_units(reader, limit)
                clean = reader.is_zero_after(units * UNIT_BYTES)
                if not clean and _has_unit_before(reader, units, limit):
                    raise StoreError(
                        f"unit {start // UNIT_BYTES + units} is damaged and followed by other units"
                    )
                if units:
                    last_place = _last_in_order(reader, units, start // UNIT_BYTES)
            if units == 0 and start != starts[0]:
                self._files.remove(path)
                continue
            if not clean:
                self.queue_files.zero_after(queue, start, units * UNIT_BYTES)
                self._files.sync(path)
            queue.end_offset = queue.next_offset = start // UNIT_BYTES + units
            break
        return last_place

    def last_unit(self, queue: ConsumeQueue, starts: list[int]) -> tuple[int, int, int] | None:
        """Number, log offset and size of the last unit that the files of a queue seem to have."""
        for start in reversed(starts):
            with self._files.open(queue.path_of(start)) as reader:
                units = count_units(reader, _NO_LIMIT)
                if units:
                    log_offset, size, _ = UNIT.unpack(reader.read((units - 1) * UNIT_BYTES, UNIT_BYTES))
                    return start // UNIT_BYTES + units - 1, log_offset, size
        return None

    def first_place(self, queue: ConsumeQueue, starts: list[int]) -> int | None:
        """The log offset of the first message in a queue's files; None if they have none."""
        for start in starts:
            raw = self._files.read(queue.path_of(start))
            for place, size, _ in UNIT.iter_unpack(raw[: len(raw) // UNIT_BYTES * UNIT_BYTES]):
                if size != PRE_BLANK_SIZE:
                    return place if size > 0 else None
        return None

    def drop_files(self, queue: ConsumeQueue) -> None:
        """Delete the files of a queue, which is then rebuilt from the log."""
        self.queue_files.forget(queue)
        self._files.remove_tree(queue.directory)
        queue.close_for_writing()
        queue.first_file = queue.end_offset = queue.next_offset = 0

    # Cleaning and removal

    def clean(self, log_start: int) -> int:
        """Delete queue files whose last message has left the log, except a queue's last file."""
        removed = 0
        per_file = self.queue_files.file_bytes // UNIT_BYTES
        for queue in self:
            keep_from = queue.first_unit
            while keep_from + per_file < queue.end_offset:
                with suppress(FileNotFoundError):  # then it is gone already
                    if queue.unit(keep_from + per_file - 1)[0] >= log_start:
                        break
                    if not queue.is_gone_before(keep_from + per_file, log_start):
                        break  # damaged: a file that may lead to messages stays
                keep_from += per_file
            if keep_from > queue.first_unit:
                removed += self.queue_files.remove_files(queue, queue.first_file, keep_from * UNIT_BYTES)
                queue.first_file = keep_from * UNIT_BYTES
        return removed

    def remove_topic(self, topic: str) -> int:
        """Delete everything a topic has; how many queues there were. `sync_removals` makes that safe."""
        queues = self.by_topic.pop(topic, {})
        for queue in queues.values():
            self.queue_files.forget(queue)
        self.count -= len(queues)
        self._files.remove_tree(self._paths.consume_queues / topic)
        return len(queues)

    def sync_removals(self) -> None:
        """Topics that were removed do not come back after a crash; any thread may call it. Raises OSError."""
        self._files.sync_directory(self._paths.consume_queues)

    def close(self) -> None:
        self.queue_files.close()
        self.by_topic.clear()


def _has_unit_before(reader: FileReader, position: int, before: int) -> bool:
    """Whether any of the next units points before a log offset, where none should."""
    count = min(_LOOKED_AT, reader.size_bytes // UNIT_BYTES - position)
    raw = reader.read(position * UNIT_BYTES, count * UNIT_BYTES)
    return any(size > 0 and 0 <= log_offset < before for log_offset, size, _ in UNIT.iter_unpack(raw))


def _last_in_order(reader: FileReader, units: int, first: int) -> tuple[int, int]:
    """Log offset and size of the last unit. Raises StoreError if those before it are not in order."""
    count = min(units, _LAST_UNITS)
    end = 0
    for index, (log_offset, size, _) in enumerate(
        UNIT.iter_unpack(reader.read((units - count) * UNIT_BYTES, count * UNIT_BYTES))
    ):
        if size != PRE_BLANK_SIZE:
            if log_offset < end or size < MIN_RECORD_SIZE:
                raise StoreError(f"unit {first + units - count + index} does not follow the file before it")
            end = log_offset + size
    return log_offset, size


def count_units(reader: FileReader, before: int) -> int:
    """How many units from the start on point before a log offset, found by galloping and bisection."""

    def is_kept(index: int) -> bool:
        log_offset, size, _ = UNIT.unpack(reader.read(index * UNIT_BYTES, UNIT_BYTES))
        return bool(size > 0 and 0 <= log_offset < before)

    total = reader.size_bytes // UNIT_BYTES
    if not total or not is_kept(0):
        return 0
    low, step = 0, 1
    while low + step < total and is_kept(low + step):
        low += step
        step *= 2
    high = min(low + step, total)
    while high - low > 1:
        middle = (low + high) // 2
        if is_kept(middle):
            low = middle
        else:
            high = middle
    return high
