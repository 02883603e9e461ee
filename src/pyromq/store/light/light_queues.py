"""All light queues of a store: their names, where each begins and ends, and the way to their entries.

A record may enter any number of light queues besides the queue of its topic: `INNER_MULTI_DISPATCH` has
their names, `INNER_MULTI_QUEUE_OFFSET` the offset that it has in each. There may be a million of them: a
queue costs its name and three numbers in memory, and no file. Everything can be built again from the log;
docs/formats/light-queues.md describes the files.

The entries of a queue are a chain from the last one backwards. Each also names one far back, chosen so that
any entry is found in a number of steps that grows with the logarithm of the queue's length (E. W. Myers, An
applicative random-access stack, 1983).
"""

import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.protocol import properties as props
from pyromq.protocol.names import (
    DLQ_PREFIX,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    lite_parts,
)
from pyromq.store.deletions import Deletions
from pyromq.store.light.entries import REMOVAL, Entry, LightEntries
from pyromq.store.light.light_end import LightEnd
from pyromq.store.light.names import LightNames

MARK: Final = f"{props.INNER_MULTI_DISPATCH}\x01".encode()
"""Properties without it name no light queue."""
OFFSETS_MARK: Final = f"{props.INNER_MULTI_QUEUE_OFFSET}\x01".encode()
_ELSEWHERE: Final = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX, "RMQ_SYS_", SCHEDULE_TOPIC)
_ENDS_HEAD: Final = struct.Struct(">8sqqI")
_MAGIC: Final = b"PYROLMQ1"
_SAVE_AFTER: Final = 1_000_000
"""Number of entries that a start reads at most, besides those that follow the checkpoint."""


class LightRecord(NamedTuple):
    """The light queues that a record of the log names."""

    topic: str
    log_offset: int
    size: int
    tags_code: int
    names: bytes
    offsets: bytes


def enters_light_queues(topic: str) -> bool:
    """java: copies of a message that wait or are repeated enter them no second time."""
    return not topic.startswith(_ELSEWHERE)


class _Ends(NamedTuple):
    """The ends of all queues, behind the first `entries` entries."""

    entries: int
    ends: "array[int]"
    lasts: "array[int]"
    log_offset: int = 0
    """The entries are safe when everything before this log offset is."""

    def encode(self) -> bytes:
        arrays = [_big_endian(self.ends), _big_endian(self.lasts)]
        head = _ENDS_HEAD.pack(_MAGIC, self.entries, len(self.ends), zlib.crc32(b"".join(arrays)))
        return b"".join([head, *arrays])

    @staticmethod
    def decode(content: bytes) -> "_Ends | None":
        """None if it is damaged."""
        if len(content) < _ENDS_HEAD.size:
            return None
        magic, entries, count, checksum = _ENDS_HEAD.unpack_from(content)
        rest = content[_ENDS_HEAD.size :]
        if magic != _MAGIC or len(rest) != 16 * count or zlib.crc32(rest) != checksum:
            return None
        return _Ends(entries, _from_big_endian(rest[: 8 * count]), _from_big_endian(rest[8 * count :]))


class LightQueues(LightEnd):
    def __init__(self, files: Files, directory: Path, per_file: int) -> None:
        """`per_file`: how many entries a file has."""
        self._files = files
        self._directory = directory
        self._names = self.names_end = LightNames(files, directory / "names")
        self.numbers = self._names.numbers
        self._ends_path = directory / "ends"
        self.chain = LightEntries(files, directory, per_file)
        self._forget_ends()
        self._saved_entries = 0
        """Number of entries that the ends on disk count."""
        self._unsaved: _Ends | None = None
        self.deletions: Deletions | None = None

    def __repr__(self) -> str:
        return f"<LightQueues {len(self)} with {self.chain!r}>"

    def __len__(self) -> int:
        """How many have messages, or had."""
        return self.count

    @property
    def capacity(self) -> int:
        """How many numbers there are: no more than queues at one time."""
        return len(self.ends)

    def __contains__(self, name: str) -> bool:
        return self.max_offset(name) > 0

    # Numbering

    def numbered(self, properties: bytes, names: list[str]) -> bytes:
        """The properties of a new message with the offsets that it gets in its light queues; `appended` makes
        them final."""
        numbers, nexts = self.numbers, self.nexts
        if len(names) == 1:
            number = numbers.get(names[0])
            text = b"%d" % (0 if number is None else nexts[number])
        else:
            taken: dict[str, int] = {}
            offsets = []
            for name in names:
                offset = taken.get(name, self.next_offset(name))
                offsets.append(b"%d" % offset)
                taken[name] = offset + 1
            text = b",".join(offsets)
        properties = props.without_property(properties, props.INNER_MULTI_QUEUE_OFFSET)
        if not properties.endswith(b"\x02"):
            properties += b"\x02"
        return properties + OFFSETS_MARK + text + b"\x02"

    def appended(self, names: list[str]) -> None:
        """A message that was numbered, and has no epoch as yet, is in the log."""
        for name in names:
            number = self.number_of(name)
            self.count += not self.nexts[number]
            self.nexts[number] += 1
            self.epochs[number] = 0

    def made_by(self, names: list[str]) -> int:
        """How many light queues a message would make."""
        return sum(not self.next_offset(name) for name in set(names))

    def number_of(self, name: str) -> int:
        """The number of a queue, which gets one if it has none."""
        number = self.numbers.get(name)
        if number is None:
            number = self._names.add(name, self.chain.end)
            if number == len(self.ends):
                for column in (self.ends, self.nexts, self.lasts, self.epochs):
                    column.append(0)
        return number

    def epoch(self, name: str) -> int:
        """The epoch of the last message, which there must be; -1 if it is not known."""
        return self.epochs[self.numbers[name]]

    def note_epoch(self, name: str, epoch: int) -> None:
        self.epochs[self.numbers[name]] = epoch

    def forget_epochs(self) -> None:
        self.epochs = array("q", [-1]) * len(self.ends)

    # Dispatching

    def put(self, record: LightRecord) -> list[tuple[str, int]]:
        """Add a record to its queues, unless it is there; the queues, each with its end.

        Raises OSError if there is no room; then it is in none of them.
        """
        if record.log_offset < self.after or not enters_light_queues(record.topic):
            return []
        places = _places(record)
        self.chain.make_room(len(places))
        advanced = []
        for name, queue_offset in places:
            if record.log_offset >= self._deleted_before(name):
                self._put(self.number_of(name), queue_offset, record)
                advanced.append((name, queue_offset + 1))
        self.after = record.log_offset + 1
        return advanced

    def _put(self, number: int, queue_offset: int, record: LightRecord) -> None:
        entries = self.chain
        place = jump = self.lasts[number]
        previous = entries.find(place)
        if previous is None or queue_offset < self.ends[number]:
            # The log has nothing before it, or the queue was removed elsewhere, and starts over.
            place = jump = 0
        elif (far := entries.find(previous.jump)) is not None:
            further = entries.find(far.jump)
            if further is not None and (
                previous.queue_offset - far.queue_offset == far.queue_offset - further.queue_offset
            ):
                jump = far.jump
        entries.put((record.log_offset, queue_offset, record.tags_code, place, jump, record.size, number))
        self.lasts[number] = entries.end
        self.ends[number] = end = queue_offset + 1
        if self.nexts[number] < end:
            self.count += not self.nexts[number]
            self.nexts[number] = end
            self.epochs[number] = -1

    def _deleted_before(self, name: str) -> int:
        """The log offset up to which a light queue was deleted."""
        return 0 if self.deletions is None else self.deletions.offset_of(name)

    def look_at_deletions(self) -> None:
        """Find out which records compiled code may put."""
        self.usual_from = 0 if self.deletions is None else self.deletions.last_offset

    def remove(self, name: str) -> bool:
        """Remove a queue, whose next message has offset 0 again; False if there is none. Raises OSError."""
        number = self.numbers.get(name, -1)
        if number < 0 or not self.nexts[number]:
            return False
        self._note_removal(number)
        self.ends[number] = self.nexts[number] = self.lasts[number] = 0
        self._names.remove(name)
        self.count -= 1
        return True

    def _note_removal(self, number: int) -> None:
        """Behind a cut, bytes of what was there may come back with the power until something is synced. So a
        removal there counts only if the log is safe beyond the cut."""
        last = self.chain.last()
        self.chain.make_room(1)
        log_offset = max(last.log_offset if last else 0, self._cut_at)
        self.chain.put((log_offset, 0, 0, 0, 0, REMOVAL, number))

    def cut(self, end: int) -> None:
        """The log was cut: drop the entries of records from a log offset on. Raises OSError."""
        entries, number = self.chain, self.chain.end
        firsts, removed = self._names.firsts, set[int]()
        while number > entries.first and (entry := entries[number - 1]).log_offset >= end:
            number -= 1
            if number < firsts[entry.queue]:
                continue  # the number had another name
            if entry.size == REMOVAL:
                removed.add(entry.queue)
            elif entry.queue not in removed:
                before = entries.find(entry.previous)
                self.lasts[entry.queue] = entry.previous if before is not None else 0
                # What was before it may have left the log: the queue continues where it was.
                self.ends[entry.queue] = entry.queue_offset if before is None else before.queue_offset + 1
        if number < self._saved_entries:
            self._files.remove(self._ends_path)
            self._saved_entries = 0
        if self._unsaved is not None and number < self._unsaved.entries:
            self._unsaved = None
        entries.cut(number)
        self._cut_at = end
        for each in removed:
            self._note_removal(each)
        # The next entries of an empty queue may have smaller numbers than it was named for.
        for name in [name for name, each in self.numbers.items() if not self.ends[each]]:
            self._names.remove(name)
        for number in self._names.unused:  # they may have had other names before
            self.ends[number] = self.lasts[number] = 0
        self.after = min(self.after, end)
        self.number_on()

    def number_on(self) -> None:
        """The next messages follow those that are dispatched."""
        self.nexts = self.ends[:]
        self.count = len(self.nexts) - self.nexts.count(0)
        self.forget_epochs()

    # Files

    def take_dirty(self) -> list[Path]:
        """The files to sync, so that everything dispatched is safe. Raises OSError."""
        return self._names.write() + self.chain.take_dirty()

    def clean(self, log_start: int, safe_offset: int, dispatched: int) -> None:
        """Delete files whose records have left the log; save the ends of the queues before, and now and then.

        `safe_offset`: everything before this log offset is in synced files. Raises OSError.
        """
        unsaved = self._unsaved
        if unsaved is not None and safe_offset >= unsaved.log_offset:
            self._save(unsaved)
        entries = self.chain
        if self._saved_entries > entries.first:
            entries.clean(log_start, self._saved_entries)
        is_due = entries.end - self._saved_entries >= _SAVE_AFTER or entries.can_clean(log_start)
        if self._unsaved is None and is_due:
            self._unsaved = _Ends(entries.end, self.ends[:], self.lasts[:], dispatched)

    def save(self) -> None:
        """Write the ends; everything dispatched must be safe. Raises OSError."""
        if self._saved_entries != self.chain.end:
            self._save(_Ends(self.chain.end, self.ends, self.lasts))

    def _save(self, ends: _Ends) -> None:
        unfinished = self._ends_path.with_suffix(UNFINISHED_SUFFIX)
        self._files.write(unfinished, ends.encode())
        self._files.rename(unfinished, self._ends_path)
        self._files.sync_directory(self._directory)
        self._saved_entries, self._unsaved = ends.entries, None

    def load(self, before: int) -> str | None:
        """Take over the files, as far as they are about records before a log offset.

        Otherwise it says why not: then `begin_anew` must follow, and all records of the log be put.
        """
        try:
            if (names := self._names.load()) is None:
                return "there was none"
            self.chain.load(before)
            if names and not self.chain.capacity:
                return f"{self._directory} has no entries"
            self._take_over_ends(len(names))
            self._names.take_over(names, self.ends)
        except StoreError as problem:
            return str(problem)
        last = self.chain.last()
        self.after = 0 if last is None else last.log_offset + 1
        self.number_on()
        return None

    def _take_over_ends(self, count: int) -> None:
        """Of `count` queues. Raises StoreError if entries and names do not fit together."""
        entries, firsts = self.chain, self._names.firsts
        content = self._files.read(self._ends_path) if self._files.size(self._ends_path) is not None else b""
        saved = _Ends.decode(content)
        number = entries.first
        if saved is not None and saved.entries > entries.capacity:
            raise StoreError(f"{self._ends_path} counts {saved.entries} entries, there are files for fewer")
        self.ends, self.lasts = array("q", bytes(8 * count)), array("q", bytes(8 * count))
        if saved is not None and number <= saved.entries <= entries.end and len(saved.ends) <= count:
            number = self._saved_entries = saved.entries
            self.ends[: len(saved.ends)], self.lasts[: len(saved.ends)] = saved.ends, saved.lasts
            for queue, first in enumerate(firsts):
                if first >= number:
                    self.ends[queue] = self.lasts[queue] = 0
        elif number:
            raise StoreError(f"{self._ends_path} does not fit the entries from {number} on")
        else:
            # It counts entries that are cut off. When there are as many again, they are others.
            self._files.remove(self._ends_path)
        ends, lasts = self.ends, self.lasts
        for _, queue_offset, _, _, _, size, queue in entries.since(number):
            number += 1
            if queue >= count:
                raise StoreError(f"entry {number - 1} is of the queue {queue}, which has no name")
            if number > firsts[queue]:
                ends[queue], lasts[queue] = (queue_offset + 1, number) if size != REMOVAL else (0, 0)

    def _forget_ends(self) -> None:
        self.ends, self.nexts, self.lasts, self.epochs = (array("q") for _ in range(4))
        self.after = self.usual_from = self.count = self._cut_at = 0

    def begin_anew(self) -> None:
        """Begin with nothing: all records of the log must be put. Raises OSError."""
        self._files.make_directories(self._directory)
        self._files.remove(self._ends_path)
        self.chain.drop()
        self._names.drop()
        self._forget_ends()
        self._saved_entries = 0
        self._unsaved = None

    def remove_deleted(self, deleted: Iterable[str]) -> None:
        """Finish the removal of queues that a crash has interrupted."""
        for name in deleted:
            if self.ends_before(name, self._deleted_before(name)):
                self.remove(name)

    def remove_lite_topics_of_deleted(self, parents: Container[str]) -> None:
        """The same for the lite topics of deleted topics."""
        for name in list(self.numbers):
            parts = lite_parts(name)
            if (
                parts is not None
                and parts[0] in parents
                and self.ends_before(name, self._deleted_before(parts[0]))
            ):
                self.remove(name)

    def ends_before(self, name: str, log_offset: int) -> bool:
        """Whether a queue has no message at this log offset, or later."""
        number = self.numbers.get(name, -1)
        last = self.chain.find(self.lasts[number]) if number >= 0 else None
        return number >= 0 and (last is None or last.log_offset < log_offset)

    def close(self) -> None:
        self.chain.close()

    # Asked

    def names(self, prefix: str, entries: int | None = None) -> Iterator[str]:
        """The queues whose names begin like this and that have messages, or had; with `entries` those whose
        last entry is among the first `entries`."""
        numbers = self.numbers
        for name in list(numbers):
            if not name.startswith(prefix) or (number := numbers.get(name)) is None:
                continue
            if self.nexts[number] and (entries is None or self.lasts[number] <= entries):
                yield name

    def entries_before(self, time_ms: int, time_of: Callable[[int], int | None]) -> int:
        """How many entries there are of messages stored before a time; `time_of` finds the time of a log
        offset, or None if it has left the log."""
        low, high = self.chain.first, self.chain.end
        while low < high:
            middle = (low + high) // 2
            stored_ms = time_of(self.chain[middle].log_offset)
            if stored_ms is None or stored_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def max_offset(self, name: str) -> int:
        number = self.numbers.get(name)
        return 0 if number is None else self.ends[number]

    def next_offset(self, name: str) -> int:
        number = self.numbers.get(name)
        return 0 if number is None else self.nexts[number]

    def min_offset(self, name: str, log_start: int) -> int:
        """The first message that the log still has; the end if there is none."""
        find = self.chain.find
        number = self.numbers.get(name)
        if number is None:
            return 0
        entry = find(self.lasts[number])
        if entry is None or entry.log_offset < log_start:
            return self.ends[number]
        while True:
            before = find(entry.jump)
            if before is None or before.log_offset < log_start:
                before = find(entry.previous)
            if before is None or before.log_offset < log_start:
                return entry.queue_offset
            entry = before

    def entries(self, name: str, offset: int, count: int) -> list[Entry]:
        """The entries of the messages from `offset` up to `offset + count`, as far as there are."""
        find, found = self.chain.find, list[Entry]()
        number = self.numbers.get(name)
        entry = None if number is None else find(self.lasts[number])
        while entry is not None and entry.queue_offset >= offset + count:
            far = find(entry.jump)
            is_near = far is None or far.queue_offset < offset + count - 1
            entry = find(entry.previous) if is_near else far
        while entry is not None and entry.queue_offset >= offset:
            found.append(entry)
            entry = find(entry.previous)
        found.reverse()
        return found


def light_names(properties: bytes) -> list[str]:
    """The light queues that a message names. Raises ValueError if it names anything else."""
    text = (props.get_property_bytes(properties, props.INNER_MULTI_DISPATCH) or b"").decode(errors="replace")
    names = text.split(",")
    for name in names:
        if not name.startswith(LMQ_PREFIX) or name == LMQ_PREFIX:
            raise ValueError(
                f"{props.INNER_MULTI_DISPATCH} names {name!r}: expected light queues, which begin with"
                f" {LMQ_PREFIX}, with commas in between"
            )
    return names


def _places(record: LightRecord) -> list[tuple[str, int]]:
    """The light queues of a record with its offsets; none if the one does not fit the other."""
    try:
        names = record.names.decode().split(",")
    except UnicodeDecodeError:
        return []
    offsets = record.offsets.split(b",")
    if len(names) != len(offsets) or not all(each.isdigit() and len(each) < 19 for each in offsets):
        return []
    return [
        (name, int(offset))
        for name, offset in zip(names, offsets, strict=True)
        if name.startswith(LMQ_PREFIX)
    ]


def _big_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _from_big_endian(content: bytes) -> "array[int]":
    numbers = array("q", content)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
