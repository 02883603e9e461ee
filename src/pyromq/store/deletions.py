"""Deletions: the deleted topics and where the log ended then, one line each in the file `deletions`.

The log keeps the records of a deleted topic until their files expire. A record below its topic's newest mark
(a log offset) belongs to a deleted generation of the topic, and readers never see it again.

The mark is on disk before the first queue file is removed. A `finished` line follows when queues and tables
are removed; the next start finishes a deletion without it. docs/formats/deletions.md describes the file.
"""

import json
import re
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.store.filenames import can_be_directory

HEADER: Final = b"pyromq deletions 1\n"
_LINE: Final = re.compile(rb'([0-9a-f]{8}) ((deleted|finished) (\d{1,19}) (\d{1,19}) (".*"))')


@dataclass(frozen=True, slots=True)
class Deletion:
    topic: str
    log_offset: int
    """Where the log ended: records before this place are gone for readers."""
    time_ms: int
    is_finished: bool = False


def encode_line(deletion: Deletion) -> bytes:
    kind = "finished" if deletion.is_finished else "deleted"
    # JSON makes plain ASCII of any name, without line breaks.
    text = f"{kind} {deletion.log_offset} {deletion.time_ms} {json.dumps(deletion.topic)}".encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_line(line: bytes) -> Deletion | None:
    """The deletion in a line without its line break; None if it is damaged."""
    found = _LINE.fullmatch(line)
    if found is None or int(found[1], 16) != zlib.crc32(found[2]):
        return None
    try:
        topic = json.loads(found[6])
    except ValueError:
        return None
    if not isinstance(topic, str) or not can_be_directory(topic):
        return None
    return Deletion(topic, int(found[4]), int(found[5]), found[3] == b"finished")


def encode(deletions: Iterable[Deletion]) -> bytes:
    return HEADER + b"".join(map(encode_line, deletions))


def decode(content: bytes) -> dict[str, Deletion]:
    """The newest deletion of each topic.

    A last line that is damaged was being written when the power went, and its deletion was never answered:
    it does not count. Any other damage raises ValueError.
    """
    if not content:
        return {}
    if not content.startswith(HEADER):
        raise ValueError(f"it begins with {content[: len(HEADER)]!r}, expected {HEADER!r}")
    newest: dict[str, Deletion] = {}
    lines = content[len(HEADER) :].split(b"\n")
    unfinished = lines.pop()  # empty, or a line whose end is missing
    for number, line in enumerate(lines):
        deletion = decode_line(line)
        if deletion is not None:
            newest[deletion.topic] = deletion
        elif number != len(lines) - 1 or unfinished:
            raise ValueError(f"line {number + 2} is damaged: {line[:200]!r}")
    return newest


class Deletions:
    def __init__(self, files: Files, path: Path) -> None:
        """Raises StoreError if the file is damaged."""
        self._files = files
        self._path = path
        self._writing = threading.Lock()
        """Deletions are finished by threads, and begun by the owner of the store."""
        self._content = files.read(path) if files.size(path) is not None else b""
        try:
            self._newest = decode(self._content)
            self._last_offset = max((each.log_offset for each in self._newest.values()), default=0)
        except ValueError as error:
            raise StoreError(
                f"{path}: {error}. The file lists deleted topics. Restore it from a copy, or move it away to "
                "start without it; then messages of deleted topics may reappear"
            ) from error

    def __repr__(self) -> str:
        return f"<Deletions of {len(self._newest)} topics>"

    # Asked

    def all(self) -> list[Deletion]:
        return sorted(self._newest.values(), key=lambda each: (each.log_offset, each.topic))

    def offset_of(self, topic: str) -> int:
        """Records of the topic before this log offset are gone for readers."""
        deletion = self._newest.get(topic)
        return 0 if deletion is None else deletion.log_offset

    def covers(self, topic: str, log_offset: int) -> bool:
        """Whether a record of the topic at this log offset belongs to a deleted generation."""
        deletion = self._newest.get(topic)
        return deletion is not None and log_offset < deletion.log_offset

    def unfinished(self) -> list[str]:
        return [topic for topic, each in self._newest.items() if not each.is_finished]

    @property
    def last_offset(self) -> int:
        """Records from this log offset on belong to no deleted generation."""
        return self._last_offset

    # Marking

    def mark(self, topic: str, log_offset: int, time_ms: int, *, is_finished: bool = False) -> None:
        """Note a deletion; on return it is safe. After an OSError it counts as never asked for."""
        with self._writing:
            self._append(Deletion(topic, log_offset, time_ms, is_finished))

    def finish(self, topic: str) -> None:
        """Note that nothing is left to do for a deletion; on return it is safe."""
        with self._writing:
            deletion = self._newest.get(topic)
            if deletion is not None and not deletion.is_finished:
                self._append(replace(deletion, is_finished=True))

    def fit_to_log(self, log_start: int, log_end: int) -> None:
        """Bring the file in line with the log, before the log grows.

        A mark beyond the end of the log is moved there: the log has lost its tail, and what is appended next
        is newer than the deletion. A mark at or before the start of the log has nothing to hide any more.
        """
        with self._writing:
            kept = {
                topic: replace(each, log_offset=min(each.log_offset, log_end))
                for topic, each in self._newest.items()
                if min(each.log_offset, log_end) > log_start or not each.is_finished
            }
            content = encode(kept.values()) if kept else b""
            if content != self._content:
                self._replace(content)
            self._newest = kept
            self._last_offset = max((each.log_offset for each in kept.values()), default=0)

    def forget_before(self, log_start: int) -> None:
        """Drop the marks that the log has left behind."""
        if any(each.is_finished and each.log_offset <= log_start for each in list(self._newest.values())):
            self.fit_to_log(log_start, 1 << 63)

    def _append(self, deletion: Deletion) -> None:
        line = encode_line(deletion)
        if not self._content:
            self._replace(HEADER + line)
        else:
            try:
                # Whatever a failed attempt has left behind the last good line is written over.
                self._files.overwrite(self._path, len(self._content), line)
            except OSError:
                with suppress(OSError):
                    self._replace(self._content)
                raise
            self._content += line
        self._newest[deletion.topic] = deletion
        self._last_offset = max(self._last_offset, deletion.log_offset)

    def _replace(self, content: bytes) -> None:
        if content:
            beside = self._path.with_name(self._path.name + UNFINISHED_SUFFIX)
            self._files.write(beside, content)
            self._files.rename(beside, self._path)
        else:
            self._files.remove(self._path)
        self._files.sync_directory(self._path.parent)
        self._content = content
