"""What a broker declares safe is on its disk, and nothing that it keeps leads behind the end of its log."""

import struct
from collections.abc import Iterator
from contextlib import suppress

from tests.simulation.cluster import Server
from tests.simulation.disk import SimulatedDisk

from pyromq.broker.broker import Broker
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol import json_body
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.store.checkpoint import Checkpoint
from pyromq.store.filenames import offset_name
from pyromq.store.log.epochs import Epoch, decode_epochs
from pyromq.store.message_store import MessageStore

_UNIT = struct.Struct(">qiq")

Problem = tuple[str, str]
"""The short name of what is violated, and how."""


class DiskRules:
    def __init__(self, server: Server, broker: Broker) -> None:
        self._disk: SimulatedDisk = server.disk
        self._store: MessageStore = broker.store
        self._role = broker.role
        self._flushed = 0
        self._checkpoint: Checkpoint | None = None
        self._epochs: tuple[Epoch, ...] = ()
        self._used = (-1, -1)
        """Where the log ended, and how often the disk was synced, when new epochs were looked at last."""
        self._offsets_path = self._store.paths.config / "consumerOffset.json"
        self._offsets = self._disk.content.safe(self._offsets_path)
        """What an earlier process saved was looked at then. The log may have been cut since: a replica is in
        sync only when it has saved those of its master."""
        self._syncs = -1
        """Of the disk, when its offsets were looked at last."""
        self._ends: tuple[object, ...] = ()

    def look(self) -> Iterator[Problem]:
        yield from self._check_log()
        yield from self._check_checkpoint()
        yield from self._check_epochs()
        yield from self._check_offsets()
        yield from self._check_ends()

    def _check_log(self) -> Iterator[Problem]:
        """What was declared safe last is on the disk, in a file whose name is safe."""
        store = self._store
        end = store.flushes.offset
        if end <= self._flushed:
            self._flushed = min(self._flushed, end)
            return
        checked, self._flushed = self._flushed, end
        size = store.settings.log_segment_bytes
        for first in range(max(checked, store.log.start) // size * size, end, size):
            start, stop = max(first, checked, store.log.start), min(first + size, end)
            safe = self._disk.content.safe(store.paths.commit_log / offset_name(first)) or b""
            if safe[start - first : stop - first] != bytes(store.log.bytes_at(start, stop - start)):
                yield "flushed, but not on disk", f"the log from {start} to {stop}"

    def _check_checkpoint(self) -> Iterator[Problem]:
        """Queues are on disk up to the checkpoint, for recovery does not look there."""
        checkpoint = self._store._flusher.checkpoint
        if checkpoint is self._checkpoint:
            return
        self._checkpoint = checkpoint
        queues = f"{self._store.paths.consume_queues}/"
        for path in self._disk.content.live:
            if not str(path).startswith(queues) or not path.is_file():
                continue
            safe, content = self._disk.content.safe(path) or b"", path.read_bytes()
            for place, unit in _units(content) if content != safe else ():
                if unit[0] >= checkpoint.safe_offset or not unit[1]:
                    continue
                if safe[place : place + _UNIT.size] != _UNIT.pack(*unit):
                    name = path.relative_to(self._disk.root)
                    text = f"{name} at {place}, the checkpoint says {checkpoint.safe_offset}"
                    yield "a checkpoint ahead of a queue", text
                    break

    def _check_epochs(self) -> Iterator[Problem]:
        """Bytes go to the log only when the epoch that they are of is on disk."""
        epochs, now = self._store.epochs, (self._store.log.end, self._disk.content.syncs)
        if epochs.epochs == self._epochs or now == self._used:
            return
        self._used = now
        used = [each for each in epochs.epochs if each.start < self._store.log.end]
        safe = self._disk.content.safe(epochs._path)
        try:
            found = decode_epochs(safe) if safe else ()
        except StoreError:
            found = ()
        if missing := [each for each in used if each not in found]:
            yield "an epoch that is not on disk", f"{missing}"
        elif len(used) == len(epochs.epochs):
            self._epochs = epochs.epochs

    def _check_offsets(self) -> Iterator[Problem]:
        """Offsets go to the disk when the log that they depend on is there.

        Not at a replica: a consumer may commit there what only the others in sync have yet. Before it leads,
        what its log lacks is set back, on its disk, too.
        """
        store = self._store
        if self._disk.content.syncs == self._syncs:
            return
        self._syncs = self._disk.content.syncs
        safe = self._disk.content.safe(self._offsets_path)
        if not safe or safe == self._offsets:
            return
        self._offsets = safe
        if not self._role.now.is_master:
            return
        with suppress(RemoteProtocolError):
            for key, queues in json_body.decode(safe, ConsumerOffsetSerializeWrapper).offset_table.items():
                for queue_id, offset in queues.items():
                    place = store.queues.log_offset(key.partition("@")[0], queue_id, offset - 1)
                    if place is not None and place >= store.flushes.offset:
                        text = (
                            f"{key} {queue_id} is {offset}, the log is flushed up to {store.flushes.offset}"
                        )
                        yield "offsets on disk ahead of the log", text

    def _check_ends(self) -> Iterator[Problem]:
        """A log that is being cut is ahead of its deletions for a moment."""
        store = self._store
        end, checkpoint = store.log.end, store._flusher.checkpoint.safe_offset
        is_cut = not store.cutting.is_unfinished
        flushed, syncs = store.flushes.offset, self._disk.content.syncs
        ends = end, checkpoint, flushed, store.queues.dispatched_offset, syncs, is_cut
        if ends == self._ends:
            return
        self._ends = ends
        if flushed > end or checkpoint > end:
            text = f"flushed {flushed}, checkpoint {checkpoint}, end {end}"
            yield "safe behind the end of the log", text
        for queue in store._queues:
            if queue.last_place >= end:
                text = f"{queue.topic} {queue.queue_id}: {queue.last_place}, the log ends at {end}"
                yield "a queue leads behind the end of the log", text
        for each in store.topics.deletions() if is_cut else ():
            if each.log_offset > end:
                text = f"{each.topic}: {each.log_offset}, the log ends at {end}"
                yield "a topic is deleted behind the end of the log", text


def _units(content: bytes) -> Iterator[tuple[int, tuple[int, int, int]]]:
    for place in range(0, len(content) - _UNIT.size + 1, _UNIT.size):
        yield place, _UNIT.unpack_from(content, place)
