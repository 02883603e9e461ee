"""Offloading: which file goes next, and what the tier must say before and after.

A master uploads its closed files one after the other, so that a manifest has no holes that were not there
before. Nothing is chosen silently: if the tier has other bytes for a range than the log, an operator decides.
Everything here blocks; the broker calls it in a thread.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pyromq.errors import TransportError
from pyromq.store.log.damage import is_removed
from pyromq.store.log.epochs import Epochs
from pyromq.tier.footers import read_footer
from pyromq.tier.manifest import HiddenMessages, Manifest, SegmentEntry
from pyromq.tier.manifests import Manifests, WrongTier
from pyromq.tier.names import segment_name
from pyromq.tier.objects import ObjectMissing
from pyromq.tier.packing import first_damage, records_in
from pyromq.tier.rewriting import log_file
from pyromq.tier.segment_format import BadObject
from pyromq.tier.tables import TieredTables, put_tables
from pyromq.tier.uploading import Uploader, UploadTask

_CHUNK_BYTES: Final = 1024 * 1024


class ClosedFile(NamedTuple):
    path: Path
    start: int
    end: int


class Offloading:
    def __init__(self, manifests: Manifests, uploader: Uploader, task: UploadTask) -> None:
        """`task`: what all tasks have in common."""
        self._manifests = manifests
        self._uploader = uploader
        self._task = task
        self.same_to = 0
        """Up to here the log was compared with the tier: a file behind it must not go."""

    @property
    def place(self) -> str:
        return self._manifests.objects.place

    @property
    def manifest(self) -> Manifest | None:
        """The newest that is known."""
        return self._manifests.known

    def refresh(self, files: Sequence[ClosedFile] = ()) -> Manifest | None:
        """The newest manifest, if there is one. Raises WrongTier if it is that of another log."""
        manifest = self._manifests.read_newest()
        if manifest is not None:
            self.compare(manifest, files)
        return manifest

    def claim(
        self,
        epoch: int,
        files: Sequence[ClosedFile],
        log_end: int,
        newer_from: Callable[[int], int] | None = None,
    ) -> Manifest:
        """Begin to write as the master of an epoch: older ones stop. `newer_from`: from where on the log is
        newer than a manifest of some epoch; by default its end.

        Raises Fenced, or WrongTier if the tier was written from another log."""
        place = self.place

        def begin(newest: Manifest) -> Manifest:
            if newest.end > log_end:
                raise WrongTier(
                    f"{place} has the log up to {newest.end}, this broker only up to {log_end}: bring back"
                    " the store that wrote it, rebuild it with `pyromq store restore`, or choose another"
                    " tieredStoreFilePath"
                )
            self.compare(newest, files)
            # A mark beyond that is of a log that lost its end: what comes there now is newer.
            limit = log_end if newer_from is None else newer_from(newest.epoch)
            deletions = [HiddenMessages(each.topic, min(each.log_offset, limit)) for each in newest.deletions]
            return msgspec.structs.replace(newest, deletions=tuple(deletions))

        return self._manifests.claim(epoch, begin)

    def is_claimed(self, epoch: int) -> bool:
        """Whether the newest known manifest says that this process writes the tier."""
        return self._manifests.is_claimed(epoch)

    def compare(self, manifest: Manifest, files: Sequence[ClosedFile]) -> None:
        """Compare the newest file that both have, unless that was done before. Raises WrongTier. A file that
        is damaged here, or a segment that cannot be read, says nothing: then it is the one before that, and
        this one stays."""
        entries = {each.log_start: each for each in manifest.segments}
        for file in reversed(files):
            if file.start not in entries or file.end <= self.same_to:
                continue
            entry = entries[file.start]
            is_whole = file.end == entry.log_end
            if is_whole and self._has_file(entry, found := _sha256(file.path)):
                self.same_to = file.end
                return
            is_same = self._is_same_but_for_removed(entry, file) if is_whole else False
            if is_same:
                self.same_to = file.end
                return
            if is_same is False and (not is_whole or not _is_damaged(file)):
                found = found if is_whole else f"up to {file.end}"
                raise WrongTier(
                    f"{self.place} has other bytes at log offset {file.start} than"
                    f" {file.path.name} ({entry.log_sha256[:16]}, here {found[:16]}): do two brokers with one"
                    " name and different stores use it?"
                )

    def _has_file(self, entry: SegmentEntry, found: str) -> bool:
        """Whether a log file is that of a segment, as it was or as it can be rebuilt from it."""
        if found == entry.log_sha256:
            return True
        return entry.is_rewritten and read_footer(self._manifests.objects, entry).log_sha256.hex() == found

    def _is_same_but_for_removed(self, entry: SegmentEntry, file: ClosedFile) -> bool | None:
        """Whether a log file differs from its segment only in messages that were removed from one of them;
        None if the segment cannot be read."""
        with _mapped(file) as local:
            if not (removed := _removed_in(local, file.start)):
                return False
            rebuilt = Path(f"{self._task.temporary}.log")
            try:
                with log_file(self._manifests.objects, entry, rebuilt) as theirs:
                    removed += _removed_in(theirs, file.start)
                    position = 0
                    for start, end in [*sorted(removed), (len(local), len(local))]:
                        for at in range(position, start, _CHUNK_BYTES):
                            piece = slice(at, min(at + _CHUNK_BYTES, start))
                            if local[piece] != theirs[piece]:
                                return False
                        position = max(position, end)
                    return True
            except (BadObject, ObjectMissing):
                return None
            finally:
                rebuilt.unlink(missing_ok=True)

    def offload(
        self,
        file: ClosedFile,
        epoch: int,
        hidden: Mapping[str, int],
        tables: TieredTables | None = None,
        files: Sequence[ClosedFile] = (),
    ) -> Manifest:
        """Upload a file and name it in a manifest, unless that is so already. `hidden`: topics, or
        `queue@topic`, and the log offsets before which their messages are gone. `files`: all that are closed;
        those before this one are compared with the tier.

        Raises Fenced, WrongTier, or TransportError if it must be tried again."""
        if self.manifest is not None:
            self.compare(self.manifest, files)
        task = msgspec.structs.replace(self._task, path=str(file.path), log_start=file.start, epoch=epoch)
        entry = self._uploader.upload(task)
        if (entry.log_start, entry.log_end) != (file.start, file.end):
            raise TransportError(
                f"{file.path} ended at {entry.log_end} when it was packed, not at {file.end}"
            )
        name = self._tables_name(tables)

        def change(newest: Manifest) -> Manifest | None:
            wanted = _with_entry(newest, entry, hidden, self.place)
            return wanted and msgspec.structs.replace(wanted, tables=name or newest.tables)

        manifest = self._manifests.add(epoch, change)
        if self.same_to >= file.start or file in files[:1]:
            self.same_to = max(self.same_to, file.end)
        return manifest

    def keep_tables(self, epoch: int, tables: TieredTables) -> Manifest:
        """Store a copy of the broker's tables, and name it in a manifest, unless the newest is the same."""
        name = self._tables_name(tables)
        return self._manifests.add(
            epoch,
            lambda newest: msgspec.structs.replace(newest, tables=name) if newest.tables != name else None,
        )

    def _tables_name(self, tables: TieredTables | None) -> str:
        if tables is None:
            return ""
        before = self.manifest.tables if self.manifest is not None else ""
        return put_tables(self._manifests.objects, tables, self._manifests.writer, before)

    def mark(self, epoch: int, hidden: Mapping[str, int]) -> Manifest:
        """Say in a manifest which messages are gone, unless one says so. Raises Fenced or TransportError."""
        return self._manifests.add(
            epoch,
            lambda newest: (
                msgspec.structs.replace(newest, deletions=_marked(newest, hidden))
                if has_new_marks(newest, hidden)
                else None
            ),
        )

    def mend(self, entry: SegmentEntry, file: ClosedFile, epoch: int) -> Manifest | None:
        """Replace a segment that is missing or damaged by another one of the same file; None if messages were
        erased from that. Raises Fenced."""
        if entry.is_rewritten:
            raise TransportError(
                f"{entry.name} is not replaced: messages were removed from it that {file.path} has"
            )
        if (found := _sha256(file.path)) != entry.log_sha256:
            with _mapped(file) as log:
                if _removed_in(log, file.start):
                    return None
            raise TransportError(
                f"{file.path} cannot replace {entry.name}: it has other bytes ({found[:16]})"
            )
        newest = self._manifests.owned(epoch)
        if entry not in newest.segments:
            return newest
        if entry.name == segment_name(entry.log_start, epoch, entry.sha256):
            self._manifests.objects.remove(entry.name)  # it is to get the same name
        task = msgspec.structs.replace(self._task, path=str(file.path), log_start=file.start, epoch=epoch)
        mended = self._uploader.upload(task)

        def change(newest: Manifest) -> Manifest | None:
            others = [mended if each == entry else each for each in newest.segments]
            is_new = mended != entry and entry in newest.segments
            return msgspec.structs.replace(newest, segments=tuple(others)) if is_new else None

        return self._manifests.add(epoch, change)


def newer_from(epochs: Epochs, began: int, epoch: int) -> int:
    """From where on a log is newer than a manifest of an epoch. `began`: where it ended when this master
    began. One that was the master before may not have reached the tier then."""
    starts = [after.start for before, after in pairwise(epochs) if before.number <= epoch < after.number]
    return min([began, *starts])


def _with_entry(
    newest: Manifest, entry: SegmentEntry, hidden: Mapping[str, int], place: str
) -> Manifest | None:
    known = newest.covering(entry.log_start)
    if known is None and entry.log_start >= newest.end:
        segments = (*newest.segments, entry)
        newest = msgspec.structs.replace(newest, segments=segments)
        return msgspec.structs.replace(newest, deletions=_marked(newest, hidden))
    if known is not None and (known.log_end, known.log_sha256) == (entry.log_end, entry.log_sha256):
        return None
    raise WrongTier(f"{place} has other bytes for the log from {entry.log_start} to {entry.log_end}")


def _marked(manifest: Manifest, hidden: Mapping[str, int]) -> tuple[HiddenMessages, ...]:
    """The deletions of the manifest and these, as far as they concern what it has."""
    marks = {each.topic: each.log_offset for each in manifest.deletions}
    for topic, log_offset in hidden.items():
        marks[topic] = max(log_offset, marks.get(topic, 0))
    return tuple(HiddenMessages(*mark) for mark in sorted(marks.items()) if mark[1] > manifest.begin)


def has_new_marks(manifest: Manifest, hidden: Mapping[str, int]) -> bool:
    """Whether a manifest has messages that were deleted, and does not say so."""
    return bool(manifest.segments) and any(
        manifest.begin < each.log_offset != hidden_before(manifest, each.topic)
        for each in _marked(manifest, hidden)
    )


def hidden_before(manifest: Manifest, topic: str) -> int:
    return next((each.log_offset for each in manifest.deletions if each.topic == topic), 0)


def next_file(manifest: Manifest | None, files: Sequence[ClosedFile]) -> ClosedFile | None:
    """The oldest file behind the end of the tier."""
    end = manifest.end if manifest is not None else 0
    return next((each for each in files if each.start >= end), None)


def uploaded_to(manifest: Manifest | None, log_start: int) -> int:
    """Everything from the start of the log up to here is in the tier, or was there until it was too old."""
    return max(log_start, manifest.end if manifest is not None else 0)


def _is_damaged(file: ClosedFile) -> bool:
    with _mapped(file) as content:
        return bool(first_damage(content, file.start))


def _removed_in(log: mmap, log_start: int) -> list[tuple[int, int]]:
    """Where in a log file something was removed on purpose."""
    return [(each.start, each.end) for each in records_in(log, log_start) if is_removed(each)]


@contextmanager
def _mapped(file: ClosedFile) -> Iterator[mmap]:
    try:
        with file.path.open("rb") as source, mmap(source.fileno(), 0, access=ACCESS_READ) as content:
            yield content
    except OSError as problem:
        raise TransportError(f"{file.path}: {problem}") from None


def _sha256(path: Path) -> str:
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                whole.update(chunk)
    except OSError as problem:
        raise TransportError(f"{path}: {problem}") from None
    return whole.hexdigest()
