"""The form in which Spark journals how far each queue of a stream is read, and what the next start must know.

An offset is `{"v": 2, "q": positions}`. A source in Python has no place in the checkpoint to write to, and
Spark shows it only the last two offsets, so each offset names all queues. It has a list for each topic and
broker: `{"Orders": {"broker-a": [42, 17]}}` are the positions of queues 0 and 1 (`protocol/queue_runs.py`).

Where a queue is read for the first time, the end of that batch also journals where it begins, as `"from"`:
the first offset of all is symbolic, because Spark asks for it several times, and "latest" means something
else each time. `"since"` is the time of that start, for queues of brokers that were away then: they have
older messages, which are not new. `"seen"` has one message of each queue, with the time at which it was
stored: a queue in which another message has its place was made anew. For each topic and broker it has the
oldest of these times, how much later each message was stored, and how far it lies before the position.

Version 1 had `{"Orders": {"broker-a:0": 42}}` and `"seen": {"Orders": {"broker-a:0": [offset, time]}}`. It is
read, and never written.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyromq.errors import ConfigError
from pyromq.protocol.queue_runs import Packed, pack, unpack
from pyromq.spark.queues import Queue, Span, flatten, numbers_of

VERSION: Final = 2
_READ: Final = (1, VERSION)
FIRST = {"v": VERSION, "first": True}
"""The symbolic start, before any queue has a position."""

Offset = dict[str, Any]


class Seen(NamedTuple):
    offset: int
    stored_ms: int


def make_offset(
    positions: Mapping[Queue, int],
    begins: Mapping[Queue, int],
    seen: Mapping[Queue, Seen] | None = None,
    since_ms: int | None = None,
) -> Offset:
    offset: Offset = {"v": VERSION, "q": _packed(positions)}
    if since_ms is not None:
        offset["since"] = since_ms
    if begins:
        offset["from"] = _packed(begins)
    if seen:
        offset["seen"] = _packed_seen(seen, positions)
    return offset


def is_first(offset: Offset) -> bool:
    return "q" not in offset


def ends_of(offset: Offset) -> dict[Queue, int]:
    """Up to where each queue is read; nothing at the symbolic start. ConfigError for a newer version."""
    if offset.get("v") not in _READ:
        found = f"an offset of version {offset.get('v')}"
        raise ConfigError(
            "checkpoint", found, "one that this release of PyroMQ or an earlier one has written"
        )
    return numbers_of(offset.get("q", {}))


def begins_of(offset: Offset) -> dict[Queue, int]:
    """Where queues begin that the batch with this end is the first to read."""
    return numbers_of(offset.get("from", {}))


def seen_of(offset: Offset) -> dict[Queue, Seen]:
    """The witnesses."""
    ends, seen = ends_of(offset), offset.get("seen", {})
    if offset["v"] == 1:
        return {queue: Seen(*message) for queue, message in flatten(seen).items()}
    return {
        queue: Seen(ends[queue] - behind, oldest_ms + later_ms)
        for topic, brokers in seen.items()
        for broker, (oldest_ms, all_later, all_behind) in brokers.items()
        for (queue_id, later_ms), behind in zip(
            unpack(all_later).items(), unpack(all_behind).values(), strict=True
        )
        for queue in (Queue(topic, broker, queue_id),)
    }


def spans_between(start: Offset, end: Offset) -> list[Span]:
    """The spans that the batch from `start` to `end` reads."""
    begins, ends = ends_of(start), ends_of(end)
    if start == end:
        return []
    begins |= begins_of(end)
    return [Span(queue, begins[queue], to) for queue, to in sorted(ends.items())]


def _packed(numbers: Mapping[Queue, int]) -> dict[str, dict[str, Packed]]:
    """Sorted: Spark compares offsets as text."""
    return {
        topic: {broker: pack(of_broker) for broker, of_broker in brokers.items()}
        for topic, brokers in _grouped(numbers).items()
    }


def _grouped(numbers: Mapping[Queue, int]) -> dict[str, dict[str, dict[int, int]]]:
    grouped: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for queue in sorted(numbers):
        grouped[queue.topic][queue.broker][queue.queue_id] = numbers[queue]
    return grouped


def _packed_seen(
    seen: Mapping[Queue, Seen], positions: Mapping[Queue, int]
) -> dict[str, dict[str, list[Any]]]:
    packed: dict[str, dict[str, list[Any]]] = {}
    for topic, brokers in _grouped({queue: message.stored_ms for queue, message in seen.items()}).items():
        for broker, stored in brokers.items():
            oldest_ms = min(stored.values())
            later = {queue_id: stored_ms - oldest_ms for queue_id, stored_ms in stored.items()}
            queues = {queue_id: Queue(topic, broker, queue_id) for queue_id in stored}
            behind = {number: positions[queue] - seen[queue].offset for number, queue in queues.items()}
            packed.setdefault(topic, {})[broker] = [oldest_ms, pack(later), pack(behind)]
    return packed
