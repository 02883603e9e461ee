"""Uploading: a closed file of the log becomes a segment in the object store, read back before it is named.

Packing takes seconds for each GiB, so brokers leave it to a child process of low priority. What that does is
one function, `upload`; everything it needs comes in one JSON document on its standard input, and its answer
leaves in another. It ends when its input ends: so it does not outlive its broker.
"""

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from pyromq.errors import PyroError, TransportError
from pyromq.tier.counted_objects import CountedObjects, Traffic
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.names import segment_name
from pyromq.tier.objects import ObjectMissing, Objects
from pyromq.tier.opening import open_objects
from pyromq.tier.packing import Packed, first_damage, pack
from pyromq.tier.rewriting import Gone, log_file, remove_from
from pyromq.tier.segment_format import TAIL_BYTES, BadObject, parse_footer, parse_tail

_NICENESS: Final = 10
_ANSWER_BYTES: Final = 64 * 1024


class UploadTask(msgspec.Struct, frozen=True):
    path: str
    """A closed file of the log. If a segment is rewritten: where its log file is rebuilt."""
    log_start: int
    epoch: int
    temporary: str
    """Where the segment is built."""
    place: str
    cluster: str
    broker: str
    endpoint: str = ""
    upload_concurrency: int = 4
    rewritten: SegmentEntry | None = None
    """The segment that gets another one in its place, without the messages that are `gone`."""
    gone: Gone = Gone()


class DamagedFile(TransportError):
    """A closed file of the log, or a segment, is not sound. It is not uploaded before it was repaired, or not
    rewritten."""


class UploadAnswer(msgspec.Struct, frozen=True):
    entry: SegmentEntry | None = None
    """None without a problem: no message had to go."""
    problem: str = ""
    is_damaged: bool = False
    """Whether the problem is a DamagedFile."""
    traffic: Traffic = Traffic()
    """Requests to the object store."""


class Uploader(Protocol):
    """Does one task after the other, in a thread that may wait."""

    @property
    def traffic(self) -> Traffic:
        """Requests to the object store that its broker has not counted."""
        ...

    def upload(self, task: UploadTask) -> SegmentEntry:
        """Raises TransportError if it did not succeed: trying again is right. It is a DamagedFile if a record
        of the file is not sound."""
        ...

    def rewrite(self, task: UploadTask) -> SegmentEntry | None:
        """The same, for a task that rewrites a segment; None if it can stay as it is."""
        ...

    def close(self) -> None: ...


def upload(objects: Objects, task: UploadTask) -> SegmentEntry:
    """Pack, upload, and read the end of the object back. Doing it again gives the same name."""
    temporary = Path(task.temporary)
    try:
        packed = _packed_file(task, temporary)
        name = segment_name(task.log_start, task.epoch, packed.sha256)
        objects.put_file(name, temporary)
    except OSError as problem:
        raise TransportError(f"{task.path}: {problem}") from None
    finally:
        temporary.unlink(missing_ok=True)
    footer = packed.footer
    verify(objects, name, packed)
    return SegmentEntry(
        name,
        footer.log_start,
        footer.log_end,
        packed.size_bytes,
        packed.footer_at,
        footer.first_ms,
        footer.last_ms,
        packed.sha256,
        footer.log_sha256.hex(),
    )


def rewrite(objects: Objects, task: UploadTask) -> SegmentEntry | None:
    """Rebuild the log file of a segment, remove what is gone, and upload the rest as another segment."""
    before = task.rewritten
    assert before is not None
    path = Path(task.path)
    try:
        with log_file(objects, before, path) as log:
            if not remove_from(log, before.log_start, task.gone):
                return None
            log.flush()
        entry = upload(objects, task)
        return msgspec.structs.replace(entry, log_sha256=before.log_sha256, is_rewritten=True)
    except OSError as problem:
        raise TransportError(f"{task.path}: {problem}") from None
    except (BadObject, ObjectMissing) as problem:
        raise DamagedFile(f"{objects.place}/{before.name} cannot be rewritten: {problem}") from None
    finally:
        path.unlink(missing_ok=True)


def _packed_file(task: UploadTask, temporary: Path) -> Packed:
    with (
        Path(task.path).open("rb") as source,
        temporary.open("wb") as sink,
        mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        # A segment may have damage from before this was checked: it can still be rewritten.
        if task.rewritten is None and (damage := first_damage(content, task.log_start)):
            raise DamagedFile(f"{task.path} is damaged and not uploaded: {damage}")
        return pack(content, task.log_start, sink)


def verify(objects: Objects, name: str, packed: Packed) -> None:
    """Compare size and footer of what the store has. Raises TransportError if they differ."""
    found = objects.info(name)
    if found is None or found.size_bytes != packed.size_bytes:
        size = "no" if found is None else found.size_bytes
        raise TransportError(
            f"{objects.place}/{name} has {size} bytes after an upload of {packed.size_bytes}"
        )
    try:
        raw = objects.read(name, packed.footer_at, packed.size_bytes - packed.footer_at)
        footer = parse_footer(parse_tail(raw[-TAIL_BYTES:], packed.size_bytes), raw[:-TAIL_BYTES])
    except (BadObject, ObjectMissing) as problem:
        raise TransportError(f"{objects.place}/{name} after its upload: {problem}") from None
    if footer != packed.footer:
        raise TransportError(f"{objects.place}/{name} has another footer than was uploaded")


class OwnUploader:
    """In this process: for tests and tools."""

    traffic: Final = Traffic()

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def upload(self, task: UploadTask) -> SegmentEntry:
        return upload(self._objects, task)

    def rewrite(self, task: UploadTask) -> SegmentEntry | None:
        return rewrite(self._objects, task)

    def close(self) -> None:
        """There is nothing to stop."""


class ChildUploader:
    """In a child process for each file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self.traffic = Traffic()

    def __repr__(self) -> str:
        return f"<ChildUploader {self._child.pid if self._child is not None else 'idle'}>"

    def upload(self, task: UploadTask) -> SegmentEntry:
        entry = self.rewrite(task)
        assert entry is not None
        return entry

    def rewrite(self, task: UploadTask) -> SegmentEntry | None:
        with self._lock:
            if self._is_closed:
                raise TransportError("the broker stops")
            child = self._child = subprocess.Popen(
                [sys.executable, "-m", "pyromq.tier.uploading"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            with child.stdin, child.stdout:
                child.stdin.write(msgspec.json.encode(task) + b"\n")
                child.stdin.flush()
                raw = child.stdout.read(_ANSWER_BYTES)
            status = child.wait()
        except OSError as problem:
            raise TransportError(f"the process that uploads {task.path}: {problem}") from None
        finally:
            self._end(child)
            self._child = None
        answer = _answer(raw, status, task.path)
        self.traffic += answer.traffic
        if answer.problem:
            raise (DamagedFile if answer.is_damaged else TransportError)(answer.problem)
        return answer.entry

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            child = self._child
        if child is not None:
            self._end(child)

    def _end(self, child: "subprocess.Popen[bytes]") -> None:
        if child.poll() is None:
            child.kill()
            child.wait()


def _answer(raw: bytes, status: int, path: str) -> UploadAnswer:
    try:
        return msgspec.json.decode(raw, type=UploadAnswer)
    except msgspec.DecodeError:
        raise TransportError(f"the process that uploads {path} ended with status {status}") from None


def main() -> None:
    """The child process."""
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=UploadTask)
    os.nice(_NICENESS)
    threading.Thread(target=_leave_with_parent, name="parent", daemon=True).start()
    answer = _attempt(task)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()


def _attempt(task: UploadTask, opened: Callable[..., Objects] = open_objects) -> UploadAnswer:
    try:
        objects = CountedObjects(
            opened(
                task.place,
                task.cluster,
                task.broker,
                endpoint=task.endpoint,
                upload_concurrency=task.upload_concurrency,
            )
        )
    except PyroError as problem:
        return UploadAnswer(problem=str(problem))
    try:
        entry = (upload if task.rewritten is None else rewrite)(objects, task)
        return UploadAnswer(entry, traffic=objects.traffic)
    except PyroError as problem:
        return UploadAnswer(None, str(problem), isinstance(problem, DamagedFile), objects.traffic)


def _leave_with_parent() -> None:
    """The parent holds the other end of standard input until it has the answer, or is gone."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
