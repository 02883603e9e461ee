"""Offsets by topic and group, in parts: a walk copies the keys of one part at a time, and others may change
the offsets in between.

There may be millions of light queues, whose groups have offsets here. All others are in the first part.
"""

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from pyromq.protocol.names import LMQ_PREFIX

Pair = tuple[str, str]
"""A topic and a group."""
Queues = dict[int, int]
"""An offset for each queue id of one topic."""

_PARTS: Final = 256


class OffsetPairs:
    def __init__(self) -> None:
        self.ordinary: dict[Pair, Queues] = {}
        """Those of topics, the oldest first."""
        self._light: list[dict[Pair, Queues]] = [{} for _ in range(_PARTS)]

    def __len__(self) -> int:
        return len(self.ordinary) + sum(map(len, self._light))

    def __repr__(self) -> str:
        return f"<OffsetPairs {len(self)} ordinary={len(self.ordinary)}>"

    def __iter__(self) -> Iterator[Pair]:
        """Those that are added during a walk may be omitted."""
        for part in (self.ordinary, *self._light):
            yield from list(part)

    def groups_of(self, topic: str) -> list[str]:
        return [group for each, group in self._part(topic) if each == topic]

    def light(self) -> Iterator[Pair]:
        """Those of light queues."""
        for part in self._light:
            yield from list(part)

    def items(self) -> Iterator[tuple[Pair, Queues]]:
        for part in (self.ordinary, *self._light):
            yield from list(part.items())

    def get(self, topic: str, group: str) -> Queues | None:
        return self._part(topic).get((topic, group))

    def get_or_add(self, topic: str, group: str) -> Queues:
        return self._part(topic).setdefault((topic, group), {})

    def put(self, topic: str, group: str, queues: Queues) -> None:
        self._part(topic)[topic, group] = queues

    def remove(self, topic: str, group: str) -> Queues | None:
        return self._part(topic).pop((topic, group), None)

    def _part(self, topic: str) -> dict[Pair, Queues]:
        if topic.startswith(LMQ_PREFIX):
            return self._light[crc32(topic.encode()) % _PARTS]
        return self.ordinary
