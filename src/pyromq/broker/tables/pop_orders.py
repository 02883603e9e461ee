"""Pops in order: which messages of a queue a group holds, and when the queue is free for the next pop.

A queue is held until all messages of its last pop are acknowledged, or until those that are not are visible
again. The same attempt of a consumer may pop again before: its answer was lost. The table is written to disk
from time to time; after a crash the held messages are popped again.
"""

from collections.abc import Callable, Iterator, Sequence

from pyromq.broker.tables.table_file import FiledTable, TableFile
from pyromq.protocol.config_tables import ConsumerOrderInfoTable, OrderInfo
from pyromq.store.json_table import JsonTable

_SEPARATOR = "@"
_FORGOTTEN_AFTER_MS = 24 * 3_600_000
"""java: as long as this without a pop"""
_ALL_BITS = (1 << 64) - 1

OrderCounts = dict[int | None, int]
"""How often messages were popped before, by queue offset; under None the least of all."""


class PopOrderTable(FiledTable):
    def __init__(self, file: JsonTable) -> None:
        self._file = TableFile(file, self._snapshot)
        loaded = file.load(ConsumerOrderInfoTable) or ConsumerOrderInfoTable()
        self._held: dict[tuple[str, str], dict[int, OrderInfo]] = {}
        for key, queues in loaded.table.items():
            topic, _, group = key.partition(_SEPARATOR)
            self._held[topic, group] = queues
        self._is_dirty = False

    def __repr__(self) -> str:
        return f"<PopOrderTable pairs={len(self._held)}>"

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def popped(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[int],
        now_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
    ) -> OrderCounts:
        """Note a pop; returns how often its messages were popped before."""
        queues = self._held.setdefault((topic, group), {})
        before = queues.get(queue_id)
        counts: dict[int, int] = {}
        if before is not None and before.offset_list:
            counts = before.offset_consumed_count or {}
            if attempt_id is None or attempt_id != before.attempt_id:
                again = set(_offsets(before))
                counts = {offset: counts.get(offset, 0) + 1 for offset in offsets if offset in again}
        first = offsets[0]
        queues[queue_id] = OrderInfo(
            attempt_id=attempt_id,
            invisible_time=invisible_ms,
            last_consume_timestamp=now_ms,
            offset_list=[first, *(offset - first for offset in offsets[1:])],
            offset_consumed_count=counts or None,
            pop_time=now_ms,
        )
        self._is_dirty = True
        told: OrderCounts = {None: min(counts.values()) if len(counts) == len(offsets) else 0}
        told.update(counts.items())
        return told

    def free_at(self, topic: str, group: str, queue_id: int, attempt_id: str | None = None) -> int:
        """When the group may pop from the queue again; 0 if it may now."""
        held = self._held.get((topic, group), {}).get(queue_id)
        if held is None or (attempt_id is not None and attempt_id == held.attempt_id):
            return 0
        return max((visible_ms for _, visible_ms in _unacknowledged(held)), default=0)

    def acknowledge(
        self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int, consumed: int
    ) -> int | None:
        """The offset that the group has consumed up to now; None if this message is not held. `consumed` is
        the one up to here: without the table, which a crash or a new master may lack, only the message there
        counts. java: any counts, with all before it that may have failed"""
        held = self._held.get((topic, group), {}).get(queue_id)
        if held is None:
            return offset + 1 if offset == consumed else None
        if held.pop_time != pop_ms:
            return None
        offsets = _offsets(held)
        if offset not in offsets:
            return None
        bits = (held.commit_offset_bit & _ALL_BITS) | 1 << offsets.index(offset)
        held.commit_offset_bit = bits - (1 << 64) if bits >> 63 else bits
        self._is_dirty = True
        return next((first for first, _ in _unacknowledged(held)), offsets[-1] + 1)

    def hide(self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int, visible_ms: int) -> None:
        """Let a held message be visible at another time."""
        held = self._held.get((topic, group), {}).get(queue_id)
        if held is not None and held.pop_time == pop_ms:
            held.offset_next_visible_time = {**(held.offset_next_visible_time or {}), offset: visible_ms}
            self._is_dirty = True

    def remove_topic(self, topic: str) -> None:
        """Its messages are deleted: others get their offsets if it is made again."""
        self._remove([key for key in self._held if key[0] == topic])

    def remove_group(self, group: str) -> None:
        self._remove([key for key in self._held if key[1] == group])

    def _remove(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            del self._held[key]
            self._is_dirty = True

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """The offset of the group was reset."""
        if self._held.get((topic, group), {}).pop(queue_id, None) is not None:
            self._is_dirty = True

    def clean(self, now_ms: int, queues_of: Callable[[str, str], int]) -> None:
        """Forget queues that a group has not popped from for long, or that are gone; `queues_of` is how many
        the topic has for the group."""
        for (topic, group), queues in list(self._held.items()):
            count = queues_of(topic, group)
            for queue_id, held in list(queues.items()):
                if queue_id >= count or now_ms - held.last_consume_timestamp > _FORGOTTEN_AFTER_MS:
                    del queues[queue_id]
                    self._is_dirty = True
            if not queues:
                del self._held[topic, group]

    def save(self) -> None:
        """Write the changes since the last time, if there are any."""
        if self._is_dirty:
            self._is_dirty = False
            self._file.save_or_wait()

    def _snapshot(self) -> ConsumerOrderInfoTable:
        return ConsumerOrderInfoTable(
            table={
                f"{topic}{_SEPARATOR}{group}": dict(queues) for (topic, group), queues in self._held.items()
            }
        )


def _offsets(held: OrderInfo) -> list[int]:
    first, *others = held.offset_list or [0]
    return [first, *(first + distance for distance in others)]


def _unacknowledged(held: OrderInfo) -> Iterator[tuple[int, int]]:
    """Each offset that is not acknowledged, with the time when it is visible."""
    visible = held.offset_next_visible_time or {}
    usual_ms = held.pop_time + (held.invisible_time or 0)
    for index, offset in enumerate(_offsets(held) if held.offset_list else ()):
        if not held.commit_offset_bit >> index & 1:
            yield offset, visible.get(offset, usual_ms)
