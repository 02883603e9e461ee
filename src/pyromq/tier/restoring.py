"""Restoring: a broker's store is built again from its tier alone.

The log files come first, each rebuilt bit for bit, compared with its checksums, synced, and only then given
its name. Queues and index follow from them at the first start. Then come deletions, tables and the footers of
all segments. Until all of that is there, the file `restoring` keeps every broker from starting. Another run
continues where one was killed.

Parts of the log may have left the tier because they were too old, while older ones with other topics stay. A
file with one filler stands for each log file of such a hole, so that the log has no gap.

The log continues in a new file behind the last one of the tier. It begins with the record of a rolled back
message: so what the tier has stays as it is, and no log offset is used twice.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from mmap import ACCESS_READ, ACCESS_WRITE, mmap
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pyromq.protocol.record import BLANK_SIZE, StoredMessage, SysFlag, encode_record, pack_blank_into
from pyromq.store.deletions import Deletion, encode
from pyromq.store.filenames import StorePaths, can_be_directory, offset_name
from pyromq.store.log.damage import filler_for_removed
from pyromq.store.log.epochs import Epoch, encode_epochs
from pyromq.tier.footers import KeptFooters
from pyromq.tier.index import Spans, TierIndex, spans_of
from pyromq.tier.manifest import Manifest, SegmentEntry
from pyromq.tier.manifests import Manifests, WrongTier
from pyromq.tier.objects import ObjectMissing, Objects, size_problem
from pyromq.tier.packing import rebuild_into
from pyromq.tier.segment_format import TAIL_BYTES, BadObject, Footer, parse_footer, parse_tail, unpack_block
from pyromq.tier.tables import fitted, parse_tables

_CHUNK_BYTES: Final = 8 * 1024 * 1024
_HOLE_BYTES: Final = 128
_SEAM: Final = b"here the store was rebuilt from its tier"
_NO_TABLES: Final = "the tier has no copy of topics, groups and offsets: restore without these tables, or not"
_WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
_BEGUN_WITH: Final = frozenset({"lock", "restoring", f"restoring{UNFINISHED_SUFFIX}"})
"""The names in a directory in which a run was killed before its first file."""


class _Begun(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the file `restoring`."""

    tier_id: str
    log_start: int


class Hole(NamedTuple):
    """A part of the log that the tier does not have any more, or never had."""

    start: int
    end: int
    stored_ms: int
    """A time between those of the messages before and behind it."""

    def __str__(self) -> str:
        return (
            f"the tier does not have the log from {self.start} to {self.end}: its messages were too old, or"
            " never uploaded"
        )


class RestorePlan(NamedTuple):
    manifest: Manifest
    entries: tuple[SegmentEntry, ...]
    """The segments whose files are restored, oldest first. They end where the tier ends."""

    @property
    def log_start(self) -> int:
        return self.entries[0].log_start

    @property
    def log_bytes(self) -> int:
        return sum(each.log_end - each.log_start for each in self.entries)

    @property
    def holes(self) -> list[Hole]:
        """The missing parts between the segments."""
        return [
            Hole(before.log_end, after.log_start, before.last_ms)
            for before, after in pairwise(self.entries)
            if before.log_end < after.log_start
        ]

    @property
    def file_bytes(self) -> int:
        return self.entries[0].log_end - self.entries[0].log_start


class Outcome(NamedTuple):
    restored: int
    """Log files that were rebuilt."""
    kept: int
    """Those of an earlier run."""
    problems: list[str]
    """The objects that could not be restored, and why. With one, the store cannot be used."""
    remarks: list[str]


Tell = Callable[[SegmentEntry], None]


class Restoring:
    """Everything here blocks. Raises what reading a tier raises, and StoreError."""

    def __init__(self, manifests: Manifests, root: Path, files: Files | None = None) -> None:
        self._manifests = manifests
        self._objects: Objects = manifests.objects
        self._files = files if files is not None else Files()
        self._paths = StorePaths(root)

    def plan(self, newest: int | None = None, since_ms: int = 0) -> RestorePlan:
        """The files to restore: all of them, the newest few, or those with messages since a time."""
        tier_id = self._manifests.tier_id()
        manifest = self._manifests.read_newest() if tier_id is not None else None
        if manifest is None or not manifest.segments:
            raise WrongTier(f"{self._objects.place} has no log files: nothing can be restored from there")
        begun = self._begun()
        entries = manifest.segments
        if begun is not None:
            if begun.tier_id != manifest.tier_id:
                raise StoreError(
                    f"{self._paths.restoring} is of another tier ({begun.tier_id}), this one is"
                    f" {manifest.tier_id}: choose an empty directory"
                )
            entries = tuple(each for each in entries if each.log_start >= begun.log_start)
        elif newest is not None:
            entries = entries[-newest:]
        else:
            entries = tuple(each for each in entries if each.last_ms >= since_ms) or entries[-1:]
            entries = tuple(each for each in manifest.segments if each.log_start >= entries[0].log_start)
        plan = RestorePlan(manifest, entries)
        size = plan.file_bytes
        if odd := [
            each.name for each in entries if each.log_end - each.log_start != size or each.log_start % size
        ]:
            raise StoreError(
                f"{odd[0]} is not of a log file of {size} bytes as {entries[0].name}: restore only the newest"
                " files, which have one size"
            )
        return plan

    def missing(self, plan: RestorePlan, *, with_tables: bool = True) -> list[str]:
        """The objects of a plan that are not there, or have another size: the contents are not read."""
        found = [
            self._problem(entry.name, problem)
            for entry in plan.entries
            if (problem := size_problem(self._objects, entry.name, entry.size_bytes))
        ]
        tables = plan.manifest.tables
        if with_tables and not tables:
            found.append(_NO_TABLES)
        elif with_tables and self._objects.info(tables) is None:
            found.append(self._problem(tables, "it is missing"))
        return found

    def run(self, plan: RestorePlan, tell: Tell = lambda entry: None, *, with_tables: bool = True) -> Outcome:
        """Restore the rest of what is not restored yet. `tell` is called after each log file."""
        self._files.make_directories(self._paths.root)
        lock = self._files.lock(self._paths.lock)
        try:
            self._begin(plan)
            return self._run(plan, tell, with_tables=with_tables)
        except OSError as problem:
            raise StoreError(
                f"{self._paths.root}: {problem}. The rest is still to be restored: run this again"
            ) from None
        finally:
            lock.release()

    # Beginning

    def _begun(self) -> _Begun | None:
        """The content of the file of an earlier run. Raises StoreError if something else is there."""
        path = self._paths.restoring
        if self._files.size(path) is not None:
            try:
                return msgspec.json.decode(self._files.read(path), type=_Begun)
            except msgspec.DecodeError as problem:
                raise StoreError(f"{path}: {problem}: choose an empty directory") from None
        try:
            names = {each for found in self._files.names(self._paths.root) for each in found}
        except OSError as problem:
            raise StoreError(f"{self._paths.root}: {problem}") from None
        if others := names - _BEGUN_WITH:
            raise StoreError(f"{self._paths.root} is not empty: it has {min(others)}")
        return None

    def _begin(self, plan: RestorePlan) -> None:
        if self._begun() is None:
            content = msgspec.json.encode(_Begun(plan.manifest.tier_id, plan.log_start))
            self._replace(self._paths.restoring, content)
        there = sum(self._files.size(self._path(each)) is not None for each in plan.entries)
        needed = (len(plan.entries) - there + 1) * plan.file_bytes + max(
            each.size_bytes for each in plan.entries
        )
        free = self._files.space(self._paths.root).free_bytes
        if free < needed:
            raise StoreError(f"{self._paths.root} has {free} free bytes, {needed} are needed")

    def _run(self, plan: RestorePlan, tell: Tell, *, with_tables: bool) -> Outcome:
        restored = kept = 0
        problems: list[str] = []
        for entry in plan.entries:
            try:
                if self._is_restored(entry):
                    kept += 1
                else:
                    self._restore(entry)
                    restored += 1
            except ObjectMissing:
                problems.append(self._problem(entry.name, "it is missing"))
            except BadObject as problem:
                problems.append(self._problem(entry.name, str(problem)))
            else:
                tell(entry)
        index, remarks = self._index(plan)
        remarks += [f"{hole}. Fillers stand for them" for hole in plan.holes]
        tables = dict[str, bytes]()
        if with_tables:
            try:
                tables = self._tables(plan, index)
            except ObjectMissing:
                problems.append(self._problem(plan.manifest.tables, "it is missing"))
            except BadObject as problem:
                problems.append(self._problem(plan.manifest.tables, str(problem)))
        if not problems:
            self._finish(plan, tables)
        return Outcome(restored, kept, problems, remarks)

    def _problem(self, name: str, reason: str) -> str:
        return f"{self._objects.place}/{name}: {reason}"

    # Log files

    def _path(self, entry: SegmentEntry) -> Path:
        return self._paths.commit_log / offset_name(entry.log_start)

    def _is_restored(self, entry: SegmentEntry) -> bool:
        path = self._path(entry)
        if self._files.size(path) != entry.log_end - entry.log_start:
            return False
        found = _sha256(path)
        return found == (self._footer(entry).log_sha256.hex() if entry.is_rewritten else entry.log_sha256)

    def _footer(self, entry: SegmentEntry) -> Footer:
        footer = self._footers.footer(entry)
        assert footer is not None
        return footer

    @property
    def _footers(self) -> KeptFooters:
        return KeptFooters(self._objects, self._files, self._paths.root / "tier")

    def _restore(self, entry: SegmentEntry) -> None:
        path = self._path(entry)
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        segment = self._segment
        for each in (path.parent, segment.parent):
            self._files.make_directories(each)
        try:
            self._download(entry, segment)
            self._rebuild(entry, segment, unfinished)
            self._files.rename(unfinished, path)
            self._files.sync_all_directories()
        finally:
            for each in (unfinished, segment):
                with suppress(OSError):
                    self._files.remove(each)

    @property
    def _segment(self) -> Path:
        """Where an object is while its log file is rebuilt."""
        return self._paths.root / "tier" / f"segment{UNFINISHED_SUFFIX}"

    def _download(self, entry: SegmentEntry, target: Path) -> None:
        """The whole object, compared with its checksum."""
        whole = hashlib.sha256()
        with target.open("wb") as file:
            for start in range(0, entry.size_bytes, _CHUNK_BYTES):
                wanted = min(_CHUNK_BYTES, entry.size_bytes - start)
                chunk = self._objects.read(entry.name, start, wanted)
                if len(chunk) != wanted:
                    raise BadObject(f"it ends at {start + len(chunk)}, expected {entry.size_bytes} bytes")
                whole.update(chunk)
                file.write(chunk)
        if (found := whole.hexdigest()) != entry.sha256:
            raise BadObject(f"it does not match its checksum (it has {found[:16]})")

    def _rebuild(self, entry: SegmentEntry, segment: Path, target: Path) -> None:
        log_bytes = entry.log_end - entry.log_start
        with segment.open("rb") as source, mmap(source.fileno(), 0, access=ACCESS_READ) as content:
            tail = parse_tail(content[-TAIL_BYTES:], entry.size_bytes)
            footer = parse_footer(tail, content[tail.footer_at : -TAIL_BYTES])
            if (footer.log_start, footer.log_end) != (entry.log_start, entry.log_end):
                raise BadObject(f"it has the log from {footer.log_start} to {footer.log_end}")
            if not entry.is_rewritten and footer.log_sha256.hex() != entry.log_sha256:
                raise BadObject("it has another log file than the manifest says")
            last: tuple[int, bytes] = -1, b""

            def block_of(number: int) -> bytes:
                nonlocal last
                if last[0] != number:
                    block = footer.blocks[number]
                    stored = content[block.position : block.position + block.size_bytes]
                    last = number, unpack_block(block, stored)
                return last[1]

            with target.open("wb") as file:
                file.truncate(log_bytes)
            with target.open("r+b") as rebuilt, mmap(rebuilt.fileno(), 0, access=ACCESS_WRITE) as log:
                rebuild_into(log, footer, block_of)
                log.flush()
        self._files.sync(target)

    # What is not in the log

    def _index(self, plan: RestorePlan) -> tuple[TierIndex, list[str]]:
        parts: dict[str, Spans] = {}
        remarks = []
        for entry in plan.manifest.segments:
            try:
                parts[entry.name] = spans_of(entry, self._footer(entry))
            except (ObjectMissing, BadObject) as problem:
                if entry not in plan.entries:
                    reason = "it is missing" if isinstance(problem, ObjectMissing) else str(problem)
                    remarks.append(f"{self._problem(entry.name, reason)}: its readers will wait")
        waiting = [
            number
            for number, entry in enumerate(plan.manifest.segments[: -len(plan.entries)])
            if any(queue[0] in _WAITING_TOPICS for queue, _ in parts.get(entry.name, ()))
        ]
        if waiting:
            remarks.append(
                f"{len(waiting)} older log files have timed or delayed messages. Those that were not due are"
                f" not delivered; --newest {len(plan.manifest.segments) - waiting[0]} restores them as well"
            )
        return TierIndex(plan.manifest, parts), remarks

    def _tables(self, plan: RestorePlan, index: TierIndex) -> dict[str, bytes]:
        name = plan.manifest.tables
        if not name:
            raise BadObject(_NO_TABLES)
        marks = {each.topic: each.log_offset for each in plan.manifest.deletions}
        tables = parse_tables(self._objects.read(name))
        return fitted(tables, marks, lambda topic, queue_id: index.end_of((topic, queue_id)))

    def _finish(self, plan: RestorePlan, tables: dict[str, bytes]) -> None:
        manifest, files, paths = plan.manifest, self._files, self._paths
        for hole in plan.holes:
            for start in range(hole.start, hole.end, plan.file_bytes):
                self._write_hole(start, hole.stored_ms, plan.file_bytes)
        self._write_seam(plan)
        deleted, purged = list[Deletion](), list[Deletion]()
        for each in manifest.deletions:
            # What follows the end of the log is newer than every deletion.
            before = min(each.log_offset, manifest.end)
            if before > plan.log_start and can_be_directory(each.topic):
                mark = Deletion(each.topic, before, manifest.segments[-1].last_ms, is_finished=True)
                (purged if "@" in each.topic else deleted).append(mark)
        for path, marks in ((paths.deletions, deleted), (paths.purges, purged)):
            if marks:
                self._replace(path, encode(marks))
        if manifest.epoch:
            self._replace(paths.epochs, encode_epochs((Epoch(manifest.epoch, plan.log_start),)))
        for name, content in tables.items():
            self._replace(paths.config / name, content)
        self._footers.keep_manifest(manifest)
        files.remove(self._segment)  # of a run that was killed
        files.sync_all_directories()
        files.remove(paths.restoring)
        files.sync_all_directories()

    def _write_seam(self, plan: RestorePlan) -> None:
        """A rolled back message, which enters no queue."""
        end, stored_ms = plan.manifest.end, plan.entries[-1].last_ms
        record = encode_record(
            StoredMessage(
                HALF_TOPIC,
                _SEAM,
                log_offset=end,
                sys_flag=SysFlag.TRANSACTION_ROLLBACK,
                born_timestamp=stored_ms,
                store_timestamp=stored_ms,
            )
        )
        self._write_log_file(end, record, plan.file_bytes)

    def _write_hole(self, start: int, stored_ms: int, file_bytes: int) -> None:
        """A filler, and the blank that fills the rest of the file."""
        record = filler_for_removed(start, _HOLE_BYTES, stored_ms)
        blank = bytearray(BLANK_SIZE)
        pack_blank_into(blank, 0, file_bytes - len(record))
        self._write_log_file(start, record + blank, file_bytes)

    def _write_log_file(self, start: int, content: bytes, file_bytes: int) -> None:
        """A file that begins with these bytes. The rest is zeros, which take no room."""
        path = self._paths.commit_log / offset_name(start)
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        self._files.write(unfinished, content)
        self._files.resize(unfinished, file_bytes)
        self._files.sync(unfinished)
        self._files.rename(unfinished, path)

    def _replace(self, path: Path, content: bytes) -> None:
        unfinished = path.with_name(path.name + UNFINISHED_SUFFIX)
        self._files.write(unfinished, content)
        self._files.rename(unfinished, path)
        self._files.sync_all_directories()


def _sha256(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            whole.update(chunk)
    return whole.hexdigest()
