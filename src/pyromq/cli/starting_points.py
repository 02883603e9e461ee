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


class Kind(Enum):
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
    kind: Kind
    number: int = 0
    """A count, an offset, or a time in milliseconds, by `kind`."""

    async def offset(self, queue: MessageQueue, positions: Positions) -> int:
        """The offset in a queue; one outside of it is moved to the nearest end."""
        first, last = await positions.first(queue), await positions.last(queue)
        match self.kind:
            case Kind.LATEST:
                return last
            case Kind.LAST:
                wanted = last - self.number
            case Kind.OFFSET:
                wanted = self.number
            case Kind.TIME:
                wanted = await positions.at(queue, self.number)
            case _:
                return first
        return min(max(wanted, first), last)


_WORDS = {
    "earliest": Start(Kind.EARLIEST),
    "latest": Start(Kind.LATEST),
    "stored": Start(Kind.STORED),
    # The words of the client's `start_from`, and of other tools.
    "first": Start(Kind.EARLIEST),
    "last": Start(Kind.LATEST),
    "beginning": Start(Kind.EARLIEST),
    "end": Start(Kind.LATEST),
}


def parse_start(text: str, now_ms: int) -> Start:
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("-") and (ago_ms := duration_ms(text[1:])) is not None:
        return Start(Kind.TIME, now_ms - ago_ms)
    if found := _NUMBER.fullmatch(text):
        return Start(Kind.LAST if found[1] else Kind.OFFSET, int(found[2]))
    if (timestamp_ms := moment_ms(text)) is not None:
        return Start(Kind.TIME, timestamp_ms)
    raise ConfigError("from", text, _EXPECTED)
