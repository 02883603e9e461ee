"""Messages that have left the log of this disk and can be read elsewhere: what the store asks about them."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from pyromq.errors import StoreError
from pyromq.store.reading import RecordFilter
from pyromq.store.results import ReadResult


class OlderUnknown(StoreError):
    """It is not known at the moment which older messages there are. Ask again later."""


class WantedRead(NamedTuple):
    """A reader's question."""

    topic: str
    queue_id: int
    offset: int
    max_messages: int
    max_bytes: int
    tag_codes: Collection[int] | None
    only: RecordFilter | None


class OlderMessages(Protocol):
    """It answers at once, from memory. What it does not have there is fetched: ask again."""

    def min_offset(self, topic: str, queue_id: int, local: int) -> int:
        """The first message of a queue; `local` is the first one that this disk has."""
        ...

    def read(self, wanted: WantedRead, local: ReadResult) -> ReadResult:
        """Messages from an offset on, at most to where this disk begins, which `local` says."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored; -1 if that cannot be said without reading it, or it is not there. Raises
        OlderUnknown."""
        ...
