"""Where to start reading: the words, offsets and times that `--from` takes."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from pyromq.cli.moments import MOMENTS, duration_ms, moment_ms
from pyromq.client.values import MessageQueue
from pyromq.errors import ConfigError

_EXPECTED = (
    "earliest, latest, stored (with --group), an offset, -N for the last N of each queue, -N with a unit for"
    f" a time ago (-90s -10m -2h -7d), or {MOMENTS}"
)
_NUMBER = re.compile(r"(-?)(\d{1,18})")


class StartKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    STORED = auto()
    LAST = auto()
    OFFSET = auto()
    TIME = auto()


class Positions(Protocol):
    async def first(self, queue: MessageQueue) -> int: ...
    async def last(self, queue: MessageQueue) -> int: ...
    async def at(self, queue: MessageQueue, timestamp_ms: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Start:
    kind: StartKind
    number: int = 0
    """A count, an offset, or a time in milliseconds, by `kind`."""

    async def offset(self, queue: MessageQueue, positions: Positions) -> int:
        """The offset in a queue; one outside of it is moved to the nearest end."""
        first, last = await positions.first(queue), await positions.last(queue)
        match self.kind:
            case StartKind.LATEST:
                return last
            case StartKind.LAST:
                wanted = last - self.number
            case StartKind.OFFSET:
                wanted = self.number
            case StartKind.TIME:
                wanted = await positions.at(queue, self.number)
            case _:
                return first
        return min(max(wanted, first), last)


_WORDS = {
    "earliest": Start(StartKind.EARLIEST),
    "latest": Start(StartKind.LATEST),
    "stored": Start(StartKind.STORED),
    # The words of the client's `start_from`, and of other tools.
    "first": Start(StartKind.EARLIEST),
    "last": Start(StartKind.LATEST),
    "beginning": Start(StartKind.EARLIEST),
    "end": Start(StartKind.LATEST),
}


def parse_start(text: str, now_ms: int) -> Start:
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("-") and (ago_ms := duration_ms(text[1:])) is not None:
        return Start(StartKind.TIME, now_ms - ago_ms)
    if found := _NUMBER.fullmatch(text):
        return Start(StartKind.LAST if found[1] else StartKind.OFFSET, int(found[2]))
    if (timestamp_ms := moment_ms(text)) is not None:
        return Start(StartKind.TIME, timestamp_ms)
    raise ConfigError("from", text, _EXPECTED)
