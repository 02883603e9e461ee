from collections.abc import Callable
from typing import Any, TypeVar

from pyromq.client.consumer.reading.in_flight import InterpretedHeld
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.record import StoredMessage

class PulledMessage:
    queue: MessageQueue
    topic: str
    _properties: dict[str, str] | None
    def __init__(self, stored: StoredMessage, queue: MessageQueue, topic: str | None = None) -> None: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def body_bytes(self) -> int: ...
    @property
    def stored(self) -> StoredMessage: ...
    @property
    def body(self) -> bytes: ...
    @property
    def raw_properties(self) -> bytes: ...

M = TypeVar("M", bound=PulledMessage)

def pulled_messages(
    kind: type[M],
    data: bytes,
    queue: MessageQueue,
    queue_id: int,
    topic: bytes,
    shown: str,
    first: int,
    end: int,
) -> list[M] | None: ...

class PullAnswers:
    def __init__(
        self,
        kind: type[PulledMessage],
        pulled: Callable[..., object],
        sends: Callable[[bytes, Any], tuple[int, int]],
        max_frame_bytes: int,
    ) -> None: ...
    def __call__(self, data: bytes, connection: Any) -> tuple[int, int]: ...

class HeldMessages(InterpretedHeld): ...
