"""Offloading: which file goes next, and what the tier must say before and after.

A master uploads its closed files one after the other, so that a manifest has no holes that were not there
before. Nothing is chosen silently: if the tier has other bytes for a range than the log, an operator decides.
Everything here blocks; the broker calls it in a thread.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pyromq.errors import TransportError
from pyromq.tier.manifest import HiddenMessages, Manifest, SegmentEntry
from pyromq.tier.manifests import Manifests, WrongTier
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

    @property
    def manifest(self) -> Manifest | None:
        """The newest that is known."""
        return self._manifests.known

    def refresh(self) -> Manifest | None:
        return self._manifests.read_newest()

    def claim(self, epoch: int, files: Sequence[ClosedFile], log_end: int) -> Manifest:
        """Begin to write as the master of an epoch: older ones stop. Raises Fenced, or WrongTier if the tier
        was written from another log."""
        newest = self._manifests.read_newest()
        if newest is not None:
            self._compare(newest, files, log_end)

        def change(found: Manifest) -> Manifest | None:
            return None if found.number and found.epoch == epoch else found

        return self._manifests.add(epoch, change)

    def _compare(self, manifest: Manifest, files: Sequence[ClosedFile], log_end: int) -> None:
        """Compare the newest file that both have."""
        place = self._manifests.objects.place
        if manifest.end > log_end:
            raise WrongTier(
                f"{place} has the log up to {manifest.end}, this broker only up to {log_end}: bring back the"
                " store that wrote it, or choose another tieredStoreFilePath"
            )
        entries = {each.log_start: each for each in manifest.segments}
        common = [each for each in files if each.start in entries]
        if common and (found := _sha256(common[-1].path)) != entries[common[-1].start].log_sha256:
            raise WrongTier(
                f"{place} has other bytes at log offset {common[-1].start} than {common[-1].path.name}"
                f" ({entries[common[-1].start].log_sha256[:16]}, here {found[:16]}): do two brokers with one"
                " name and different stores use it?"
            )

    def offload(self, file: ClosedFile, epoch: int, hidden: Mapping[str, int]) -> Manifest:
        """Upload a file and name it in a manifest, unless that is so already. `hidden`: topics, or
        `queue@topic`, and the log offsets before which their messages are gone.

        Raises Fenced, WrongTier, or TransportError if it has to be tried again."""
        task = msgspec.structs.replace(self._task, path=str(file.path), log_start=file.start, epoch=epoch)
        entry = self._uploader.upload(task)
        if (entry.log_start, entry.log_end) != (file.start, file.end):
            raise TransportError(
                f"{file.path} ended at {entry.log_end} when it was packed, not at {file.end}"
            )

        def change(newest: Manifest) -> Manifest | None:
            return _with_entry(newest, entry, hidden, self._manifests.objects.place)

        return self._manifests.add(epoch, change)


def _with_entry(
    newest: Manifest, entry: SegmentEntry, hidden: Mapping[str, int], place: str
) -> Manifest | None:
    known = newest.covering(entry.log_start)
    if known is None and entry.log_start >= newest.end:
        segments = (*newest.segments, entry)
        marks = {each.topic: each.log_offset for each in newest.deletions}
        for topic, log_offset in hidden.items():
            marks[topic] = max(log_offset, marks.get(topic, 0))
        begin = segments[0].log_start
        deletions = tuple(HiddenMessages(*mark) for mark in sorted(marks.items()) if mark[1] > begin)
        return msgspec.structs.replace(newest, segments=segments, deletions=deletions)
    if known is not None and (known.log_end, known.log_sha256) == (entry.log_end, entry.log_sha256):
        return None
    raise WrongTier(f"{place} has other bytes for the log from {entry.log_start} to {entry.log_end}")


def next_file(manifest: Manifest | None, files: Sequence[ClosedFile]) -> ClosedFile | None:
    """The oldest file behind the end of the tier."""
    end = manifest.end if manifest is not None else 0
    return next((each for each in files if each.start >= end), None)


def uploaded_to(manifest: Manifest | None, log_start: int) -> int:
    """The tier has everything from the start of the log up to here."""
    position = log_start
    for each in manifest.segments if manifest is not None else ():
        if each.log_start <= position < each.log_end:
            position = each.log_end
    return position


def _sha256(path: Path) -> str:
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                whole.update(chunk)
    except OSError as problem:
        raise TransportError(f"{path}: {problem}") from None
    return whole.hexdigest()
