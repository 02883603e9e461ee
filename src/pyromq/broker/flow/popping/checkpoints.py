"""The pops of one queue of the revive log that are not finished: due in time, finished in any order.

Everything up to `progress` is finished, so whoever continues after a restart begins behind it.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from pyromq.protocol.pop_records import AckMsg, BatchAckMsg, PopCheckPoint

_Key = tuple[str | None, str | None, int, int, int, str | None]


class PopCheckpoint:
    """A pop with its acknowledgements so far; `position` is its place in the revive log."""

    __slots__ = ("acked", "info", "offsets", "position")

    def __init__(self, position: int, info: PopCheckPoint) -> None:
        self.position = position
        self.info = info
        start = info.start_offset
        # java: records of before 5.0 have no differences; their messages lie side by side
        differences = info.queue_offset_diff or range(info.num)
        self.offsets = [start + difference for difference in differences]
        self.acked = info.bit_map

    def __repr__(self) -> str:
        return f"<PopCheckpoint {self.position} due={self.due_ms} unacked={list(self.unacked())}>"

    @property
    def due_ms(self) -> int:
        """When its unacknowledged messages are to be delivered again."""
        return self.info.pop_time + self.info.invisible_time

    def acknowledge(self, *offsets: int) -> None:
        for offset in offsets:
            if offset in self.offsets:
                self.acked |= 1 << self.offsets.index(offset)

    def acknowledge_all(self) -> None:
        self.acked |= (1 << len(self.offsets)) - 1

    def unacked(self) -> Iterator[int]:
        return (offset for bit, offset in enumerate(self.offsets) if not self.acked >> bit & 1)


class Checkpoints:
    def __init__(self, progress: int) -> None:
        self.next = progress + 1
        """The position to read from."""
        self._pending: dict[_Key, PopCheckpoint] = {}
        self._positions: deque[int] = deque()
        self._finished: set[int] = set()
        self._due: list[tuple[int, int, _Key]] = []

    def __repr__(self) -> str:
        return f"<Checkpoints pending={len(self._pending)} next={self.next}>"

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def progress(self) -> int:
        """The last position up to which everything is finished."""
        return (self._positions[0] if self._positions else self.next) - 1

    @property
    def first_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def add(self, position: int, info: PopCheckPoint) -> None:
        key = _key_of(info)
        if key not in self._pending:  # else the record was stored twice, around a crash
            checkpoint = self._pending[key] = PopCheckpoint(position, info)
            self._positions.append(position)
            heappush(self._due, (checkpoint.due_ms, position, key))

    def acknowledge(self, ack: AckMsg) -> None:
        """An acknowledgement without its checkpoint came too late, or again."""
        checkpoint = self._pending.get(_key_of(ack))
        if checkpoint is None:
            return
        if not isinstance(ack, BatchAckMsg):
            checkpoint.acknowledge(ack.ack_offset)
        elif ack.ack_offset_list == checkpoint.offsets:
            checkpoint.acknowledge_all()
        else:
            checkpoint.acknowledge(*ack.ack_offset_list)

    def take_due(self, until_ms: int) -> PopCheckpoint | None:
        """The next checkpoint that is due; `finish` it, or `put_back`."""
        if self._due and self._due[0][0] <= until_ms:
            return self._pending.pop(heappop(self._due)[2])
        return None

    def put_back(self, checkpoint: PopCheckpoint) -> None:
        """It could not be finished; it is due again at once."""
        info = checkpoint.info
        key = _key_of(info)
        self._pending[key] = checkpoint
        heappush(self._due, (checkpoint.due_ms, checkpoint.position, key))

    def finish(self, checkpoint: PopCheckpoint) -> None:
        self._finished.add(checkpoint.position)
        while self._positions and self._positions[0] in self._finished:
            self._finished.remove(self._positions.popleft())


def _key_of(record: PopCheckPoint | AckMsg) -> _Key:
    return (
        record.topic,
        record.consumer_group,
        record.queue_id,
        record.start_offset,
        record.pop_time,
        record.broker_name,
    )
