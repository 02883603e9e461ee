"""Queues and positions in them, as people write them in options.

{"Orders": {"broker-a:0": 42, "broker-a:1": 17}}
"""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from pyromq.config.kinds import BadValue
from pyromq.protocol.queue_runs import unpack

V = TypeVar("V")

LARGEST: Final = 2**63 - 1
"""Brokers know no larger offsets and times."""


class Queue(NamedTuple):
    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker}:{self.queue_id}"

    @property
    def place(self) -> str:
        """Its name within its topic."""
        return f"{self.broker}:{self.queue_id}"


class Span(NamedTuple):
    """The offsets of one queue from `start` up to, and without, `end`."""

    queue: Queue
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.queue}[{self.start},{self.end})"

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)


def nest(offsets: Mapping[Queue, V]) -> dict[str, dict[str, V]]:
    """Sorted by topic, broker and queue."""
    nested: dict[str, dict[str, V]] = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {})[queue.place] = offsets[queue]
    return nested


def flatten(nested: Mapping[str, Mapping[str, V]]) -> dict[Queue, V]:
    return {
        parse_place(topic, place): offset
        for topic, places in nested.items()
        for place, offset in places.items()
    }


def numbers_of(nested: Mapping[str, Mapping[str, Any]]) -> dict[Queue, int]:
    """From such positions, or from those of an offset, with a list for each broker."""
    numbers: dict[Queue, int] = {}
    for topic, places in nested.items():
        for place, value in places.items():
            if isinstance(value, list):
                numbers |= {Queue(topic, place, number): each for number, each in unpack(value).items()}
            else:
                numbers[parse_place(topic, place)] = value
    return numbers


def parse_place(topic: str, place: object) -> Queue:
    # In JSON for Kafka a number is a place.
    broker, _, queue_id = str(place).rpartition(":")
    if not broker or not queue_id.isdecimal():
        raise ValueError(f"{place!r} is not a queue; queues are written as broker:number")
    return Queue(topic, broker, int(queue_id))


def parse_numbers(text: str) -> dict[Queue, int]:
    """A number for each queue, from JSON; raises BadValue."""
    try:
        numbers = numbers_of(_json_object(text))
    except (AttributeError, TypeError):
        raise BadValue("each topic needs its queues") from None
    except ValueError as problem:
        raise BadValue(problem) from None
    if not numbers or any(type(number) is not int for number in numbers.values()):
        raise BadValue("a whole number is needed for each queue")
    if max(numbers.values()) > LARGEST:
        raise BadValue(f"{max(numbers.values())} is more than {LARGEST}")
    return numbers


def parse_assignment(text: str) -> frozenset[Queue]:
    try:
        queues = frozenset(
            parse_place(topic, place) for topic, places in _json_object(text).items() for place in places
        )
    except (AttributeError, TypeError):
        raise BadValue("each topic needs its queues") from None
    except ValueError as problem:
        raise BadValue(problem) from None
    if not queues:
        raise BadValue("at least one queue is needed")
    return queues


def _json_object(text: str) -> dict[str, Any]:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise BadValue("it is not an object")
    return document


def split_spans(spans: Iterable[Span], min_partitions: int | None, max_records: int | None) -> list[Span]:
    """Cut spans so that none holds more than `max_records` and at least `min_partitions` come out.

    Larger spans are cut into more pieces; pieces of one span differ by one offset at most.
    """
    whole = [span for span in spans if span.size]
    if max_records is not None:
        whole = [piece for span in whole for piece in cut(span, max_records)]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(span.size for span in whole)
    pieces = [max(1, round(span.size / total * min_partitions)) for span in whole]
    # Rounding may leave some to hand out: each goes to the span whose pieces are the largest.
    missing = min(min_partitions, total) - sum(min(p, s.size) for p, s in zip(pieces, whole, strict=True))
    for _ in range(missing):
        largest = max(range(len(whole)), key=lambda index: whole[index].size / pieces[index])
        pieces[largest] += 1
    return [piece for span, count in zip(whole, pieces, strict=True) for piece in _cut(span, count)]


def cut(span: Span, most: int) -> list[Span]:
    """Pieces of at most this many messages."""
    return _cut(span, -(-span.size // most))


def _cut(span: Span, pieces: int) -> list[Span]:
    pieces = min(pieces, span.size)
    edges = [span.start + span.size * index // pieces for index in range(pieces + 1)]
    return [Span(span.queue, low, high) for low, high in pairwise(edges)]
