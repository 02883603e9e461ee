"""Which micro-batches of a transactional sink are decided, as files beside Spark's own in the checkpoint.

A file `N` says that batch N is committed, and lists its half messages. It is written before the first of them
is committed, so from then on there is no way back: whoever finds it commits the rest. `N.ended` replaces it
when all are. A batch without either was not committed, and none of its messages may become visible.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from pyromq.spark.queues import Queue

DIRECTORY: Final = "rocketmq-commits"

_ENDED: Final = ".ended"
_UNFINISHED: Final = ".unfinished"
_TOPIC: Final = b"topic"
_KEPT: Final = 100
"""So many decided batches are remembered; Spark repeats no batch but its last one."""


class Half(NamedTuple):
    """A half message that a broker has stored."""

    queue: Queue
    """Where it goes when it is committed."""
    unique_key: str
    queue_offset: int
    log_offset: int


class BatchJournal:
    def __init__(self, checkpoint: str) -> None:
        """`checkpoint`: a path, or the URI of a file system that Arrow knows."""
        if "://" in checkpoint or checkpoint.startswith("file:"):
            self._files, root = fs.FileSystem.from_uri(checkpoint)
        else:
            self._files, root = fs.LocalFileSystem(), os.path.abspath(checkpoint)
        self._directory = f"{root.rstrip('/')}/{DIRECTORY}"

    def __repr__(self) -> str:
        return f"<BatchJournal {self._directory}>"

    @property
    def short_name(self) -> str:
        """The same for all processes that use this journal."""
        return hashlib.blake2b(self._directory.encode(), digest_size=6).hexdigest()

    def decided_ms(self, batch: int) -> int | None:
        """When a batch was decided that has not been ended; None for any other."""
        info = self._files.get_file_info(f"{self._directory}/{batch}")
        if info.type == fs.FileType.NotFound or self._exists(f"{batch}{_ENDED}"):
            return None
        return int(info.mtime_ns // 1_000_000)

    def last_decided(self) -> int:
        """The number of the last batch that is decided; -1 if there is none."""
        names = fs.FileSelector(self._directory, allow_not_found=True)
        batches = (info.base_name.removesuffix(_ENDED) for info in self._files.get_file_info(names))
        return max((int(batch) for batch in batches if batch.isdecimal()), default=-1)

    def is_decided(self, batch: int) -> bool:
        return self._exists(f"{batch}{_ENDED}") or self._exists(str(batch))

    def decide(self, batch: int, halves: Sequence[Half], topic: str | None = None) -> None:
        """Batch is committed: on return, nothing can change that. `topic`: the one that it was written to."""
        self._files.create_dir(self._directory, recursive=True)
        self._write(str(batch), _encode(halves, topic or ""))

    def topic(self, batch: int) -> str | None:
        """Where a decided batch was written to; None if that is not known, or was each row's own affair."""
        for name, topic_in in ((f"{batch}{_ENDED}", bytes.decode), (str(batch), _topic_in)):
            with (
                contextlib.suppress(FileNotFoundError),
                self._files.open_input_stream(f"{self._directory}/{name}") as stream,
            ):
                return topic_in(stream.read()) or None
        return None

    def unended(self, batch: int) -> list[Half]:
        """The half messages of a decided batch whose commits may not have reached the brokers."""
        if self._exists(f"{batch}{_ENDED}"):
            return []
        try:
            with self._files.open_input_stream(f"{self._directory}/{batch}") as stream:
                return _decode(stream.read())
        except FileNotFoundError:
            if self._exists(f"{batch}{_ENDED}"):
                return []  # a moment ago
            raise

    def end(self, batch: int) -> None:
        """All half messages of a decided batch are committed."""
        self._write(f"{batch}{_ENDED}", (self.topic(batch) or "").encode())
        self._remove(str(batch))
        self._remove(f"{batch - _KEPT}{_ENDED}")

    def _exists(self, name: str) -> bool:
        info = self._files.get_file_info(f"{self._directory}/{name}")
        return bool(info.type != fs.FileType.NotFound)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(f"{self._directory}/{name}")

    def _write(self, name: str, content: bytes) -> None:
        path = f"{self._directory}/{name}"
        if not isinstance(self._files, fs.LocalFileSystem):
            with self._files.open_output_stream(path + _UNFINISHED) as stream:
                stream.write(content)
            self._files.move(path + _UNFINISHED, path)
            return
        with open(path + _UNFINISHED, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + _UNFINISHED, path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _encode(halves: Sequence[Half], topic: str) -> bytes:
    table = pa.table(
        {
            "topic": pa.array([half.queue.topic for half in halves], pa.string()).dictionary_encode(),
            "broker": pa.array([half.queue.broker for half in halves], pa.string()).dictionary_encode(),
            "queue": pa.array([half.queue.queue_id for half in halves], pa.int32()),
            "key": pa.array([half.unique_key for half in halves], pa.string()),
            "offset": pa.array([half.queue_offset for half in halves], pa.int64()),
            "log_offset": pa.array([half.log_offset for half in halves], pa.int64()),
        }
    ).replace_schema_metadata({_TOPIC: topic})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _topic_in(content: bytes) -> str:
    """Journals of earlier releases do not name it."""
    metadata: dict[bytes, bytes] = pa.ipc.open_stream(content).schema.metadata or {}
    return metadata.get(_TOPIC, b"").decode()


def _decode(content: bytes) -> list[Half]:
    columns = pa.ipc.open_stream(content).read_all().to_pydict()
    queues = map(Queue, columns["topic"], columns["broker"], columns["queue"])
    return list(map(Half, queues, columns["key"], columns["offset"], columns["log_offset"]))
