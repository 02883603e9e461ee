"""Which micro-batches of a transactional sink are decided, as files next to Spark's own in the checkpoint.

A file `N` says that batch N is committed, and lists its half messages. One driver creates it, before the
first of them is committed; from then on there is no way back: whoever finds it commits the rest. `N.ended`
follows when all are, and `N` stays without its content, so that no other driver can decide the batch again.
A batch without either was not committed, and none of its messages may become visible.
"""

import contextlib
import hashlib
import os
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

import pyarrow as pa

from pyromq.errors import StateError
from pyromq.spark.journal_files import journal_files
from pyromq.spark.queues import Queue

DIRECTORY: Final = "rocketmq-commits"

_ENDED: Final = ".ended"
_TOPIC: Final = b"topic"
_DRIVER: Final = b"driver"
_KEPT: Final = 100
"""Number of decided batches that are remembered; Spark repeats only its last batch."""


class StoredHalf(NamedTuple):
    """A half message that a broker has stored."""

    queue: Queue
    """Where it goes when it is committed."""
    unique_key: str
    queue_offset: int
    log_offset: int


class BatchHeld(StateError):
    """Another driver has decided the batch."""


class BatchJournal:
    def __init__(self, checkpoint: str) -> None:
        """`checkpoint`: a path, or the URI of an object store or of a file system that Arrow knows."""
        self._files = journal_files(f"{checkpoint.rstrip('/')}/{DIRECTORY}")

    def __repr__(self) -> str:
        return f"<BatchJournal {self._files.directory}>"

    @property
    def short_name(self) -> str:
        """The same for all processes that use this journal."""
        return hashlib.blake2b(self._files.directory.encode(), digest_size=6).hexdigest()

    def decided_ms(self, batch: int) -> int | None:
        """When a batch was decided that has not been ended; None for any other."""
        decided_ms = self._files.written_ms(str(batch))
        return None if self._is_ended(batch) else decided_ms

    def last_decided(self) -> int:
        """The number of the last batch that is decided; -1 if there is none."""
        batches = (name.removesuffix(_ENDED) for name in self._files.names())
        return max((int(batch) for batch in batches if batch.isdecimal()), default=-1)

    def is_decided(self, batch: int) -> bool:
        return self._is_ended(batch) or self._files.written_ms(str(batch)) is not None

    def decide(self, batch: int, halves: Sequence[StoredHalf], topic: str | None = None) -> None:
        """Batch is committed: on return, nothing can change that. `topic`: the one that it was written to.

        Raises BatchHeld if somebody else has decided it, or a later one.
        """
        if (last := self.last_decided()) > batch:
            self._refuse(batch, last)
        try:
            self._files.create(str(batch), _encode(halves, topic or ""))
        except FileExistsError:
            self._refuse(batch, batch)

    def _refuse(self, batch: int, decided: int) -> NoReturn:
        _, driver = self._told(decided)
        raise BatchHeld(
            f"batch {batch} is not committed: {driver or 'another driver'} has decided batch {decided} in"
            f" {self._files.directory}. Two queries use this checkpoint; stop one of them"
        )

    def topic(self, batch: int) -> str | None:
        """Where a decided batch was written to; None if that is not known, or was each row's own affair."""
        return self._told(batch)[0] or None

    def _told(self, batch: int) -> tuple[str, str]:
        """The topic and the driver of a decided batch; journals of earlier releases may name neither."""
        ended = self._files.read(f"{batch}{_ENDED}")
        if ended is not None:
            topic, _, driver = ended.decode().partition("\n")
            return topic, driver
        decided = self._files.read(str(batch))
        metadata: dict[bytes, bytes] = (decided and pa.ipc.open_stream(decided).schema.metadata) or {}
        return metadata.get(_TOPIC, b"").decode(), metadata.get(_DRIVER, b"").decode()

    def unended(self, batch: int) -> list[StoredHalf]:
        """The half messages of a decided batch whose commits may not have reached the brokers."""
        content = None if self._is_ended(batch) else self._files.read(str(batch))
        return _decode(content) if content else []  # it ended a moment ago

    def end(self, batch: int) -> None:
        """All half messages of a decided batch are committed."""
        with contextlib.suppress(FileExistsError):  # it was ended before
            self._files.create(f"{batch}{_ENDED}", "\n".join(self._told(batch)).encode())
            self._files.replace(str(batch), b"")
        for old in (f"{batch - _KEPT}{_ENDED}", str(batch - _KEPT)):
            self._files.remove(old)

    def _is_ended(self, batch: int) -> bool:
        return self._files.written_ms(f"{batch}{_ENDED}") is not None


def _encode(halves: Sequence[StoredHalf], topic: str) -> bytes:
    table = pa.table(
        {
            "topic": pa.array([half.queue.topic for half in halves], pa.string()).dictionary_encode(),
            "broker": pa.array([half.queue.broker for half in halves], pa.string()).dictionary_encode(),
            "queue": pa.array([half.queue.queue_id for half in halves], pa.int32()),
            "key": pa.array([half.unique_key for half in halves], pa.string()),
            "offset": pa.array([half.queue_offset for half in halves], pa.int64()),
            "log_offset": pa.array([half.log_offset for half in halves], pa.int64()),
        }
    ).replace_schema_metadata({_TOPIC: topic, _DRIVER: _this_driver()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _this_driver() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _decode(content: bytes) -> list[StoredHalf]:
    columns = pa.ipc.open_stream(content).read_all().to_pydict()
    queues = map(Queue, columns["topic"], columns["broker"], columns["queue"])
    return list(map(StoredHalf, queues, columns["key"], columns["offset"], columns["log_offset"]))
