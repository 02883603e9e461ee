"""A number for each queue of a topic on a broker, as a short list: `[42, 17, [0, 998]]`.

The place in the list is the number of the queue. A pair is a run: a value, and how many queues in a row have
it. `None` stands for queues without a value. Spark's checkpoints have such lists.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

Packed = list[Any]

_SHORTEST_RUN: Final = 4
_MOST: Final = 1_000_000
"""The most queues of a topic on one broker that a list may name: a run of a few bytes could name more."""


def pack(values: Mapping[int, int]) -> Packed:
    """Equal values give equal lists."""
    packed: Packed = []
    for value, pieces in groupby(_with_gaps(values), key=lambda piece: piece[0]):
        count = sum(count for _, count in pieces)
        packed += [value] * count if count < _SHORTEST_RUN else [[value, count]]
    return packed


def _with_gaps(values: Mapping[int, int]) -> Iterator[tuple[int | None, int]]:
    following = 0
    for queue_id in sorted(values):
        if queue_id > following:
            yield None, queue_id - following
        yield values[queue_id], 1
        following = queue_id + 1


def unpack(packed: Packed) -> dict[int, int]:
    """Raises ValueError for a list that `pack` does not make."""
    values: dict[int, int] = {}
    queue_id = 0
    for each in packed:
        value, count = each if isinstance(each, list) and len(each) == 2 else (each, 1)
        if type(count) is not int or count < 1 or (value is not None and type(value) is not int):
            raise ValueError(f"{each!r} is neither a number nor a run of numbers")
        if value is not None:
            if len(values) + count > _MOST:
                raise ValueError(f"more than {_MOST} queues of one topic on one broker")
            values |= dict.fromkeys(range(queue_id, queue_id + count), value)
        queue_id += count
    return values
