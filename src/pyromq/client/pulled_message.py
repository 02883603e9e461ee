"""A message of a pull answer, and the queue that it came from.

The compiled twin decodes only what is asked of it: most handlers want the body alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyromq.compiled import twin
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.record import StoredMessage


class InterpretedMessage:
    __slots__ = ("_properties", "queue", "stored", "topic")

    def __init__(self, stored: StoredMessage, queue: MessageQueue, topic: str | None = None) -> None:
        """`topic`: the name to show, if it is not the stored one."""
        self.stored = stored
        self.queue = queue
        self.topic = stored.topic if topic is None else topic
        self._properties: dict[str, str] | None = None

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def body(self) -> bytes:
        return self.stored.body

    @property
    def body_bytes(self) -> int:
        """The size of the body."""
        return len(self.stored.body)

    @property
    def raw_properties(self) -> bytes:
        """All properties as they are stored."""
        return self.stored.properties


_twin = twin("client.twin_pulled_message")

if TYPE_CHECKING:
    PulledMessage = InterpretedMessage
else:
    PulledMessage = InterpretedMessage if _twin is None else _twin.PulledMessage

pulled_messages: Callable[..., list[Any] | None] | None = None if _twin is None else _twin.pulled_messages
"""Decodes a whole answer; returns None for one that the general path must decode. None without the twin."""
