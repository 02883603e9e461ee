import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.values import Message, MessageQueue, SendResult, SendStatus
from pyromq.protocol.message_id import UniqueKeys
from pyromq_native.client.sent import PlainSends

class PlainBatch:
    topic: str
    born_ms: int
    @property
    def messages(self) -> list[Message]: ...
    @property
    def keys(self) -> list[str]: ...
    size_bytes: int
    entered: int
    entered_bytes: int
    timer: asyncio.Handle | None
    is_closed: bool
    def __len__(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    def frame(self, pieces: tuple[bytes, ...], queue_id: int, opaque: int) -> bytes | None: ...
    def drop_cancelled(self) -> None: ...
    def settle(
        self,
        result: Callable[..., SendResult],
        offset_ids: list[str],
        status: SendStatus,
        queue: MessageQueue,
        offset: int,
        transaction_id: str | None,
        recall: str | None,
        region: str,
    ) -> None: ...
    def fail(self, problem: BaseException) -> None: ...
    def cancel(self) -> None: ...

class Gathering(PlainSends):
    def __init__(
        self,
        kind: type[Message],
        topics: dict[str, str],
        find_topic: Callable[[str], str | None],
        in_flight: InFlightLimit,
        unique_keys: UniqueKeys,
        now_ms: Callable[[], int] | None,
        check_loop: Callable[[], None],
        begin: Callable[[PlainBatch], None],
        flush: Callable[[PlainBatch], None],
        generally: Callable[..., Coroutine[Any, Any, Any]],
        *,
        suffix: str,
        body_limit: int,
        max_bytes: int,
    ) -> None: ...
