"""One call: what its handler knows about the caller, and where it sends answers."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from pyromq.proxy.grpc.framing import MessageReader, frame_message
from pyromq.proxy.grpc.metadata import Metadata
from pyromq.proxy.grpc.status import GrpcCode, GrpcError

_MAX_UNREAD_MESSAGES = 256


class CallOrigin(Protocol):
    """The connection that a call came on."""

    peer_address: str
    peer_host: bytes
    local_address: tuple[str, int]

    def has_call(self, call: "Call") -> bool: ...

    def send(self, call: "Call", framed: bytes) -> bool:
        """Send a part of an answer; False if it waits for the peer."""
        ...

    def answer_quickly(self, call: "Call", framed: bytes, status: int) -> None:
        """Send the whole answer of a quick call."""
        ...

    def go_on(self, call: "Call", work: Callable[[], Any]) -> None:
        """Answer a quick call on the general path."""
        ...


class Shape(Enum):
    """How many messages a call has: of the caller, and of the server."""

    UNARY = "one request, one answer"
    ANSWER_STREAM = "one request, many answers"
    BOTH_STREAMS = "many requests, many answers"


class Later(NamedTuple):
    """Returned by a handler that is not a coroutine and cannot answer yet."""

    waiting: "asyncio.Future[Any]"
    answer: Callable[[], Any]
    """Called when `waiting` is done, even if the caller is gone; returns the answer, or a coroutine."""


Quick = Callable[[bytes, "Call"], bool]
"""Takes the framed request of a unary call, undecoded, and the call, which it will answer; False if the
handler must take it."""


class Method(msgspec.Struct, frozen=True):
    """`handler` takes the request and the call; with many requests, only the call. That of a unary call
    returns its answer, a coroutine or a Later; the others are coroutines and send theirs."""

    shape: Shape
    request_type: Any
    handler: Callable[..., Any]
    quick: Quick | None = None
    translate: Callable[[Callable[[], Any]], Any] | None = None
    """With `quick`: calls a function as `handler` would, so that a refusal becomes an answer."""
    observe: Callable[[int, float], None] | None = None
    """With `quick`: takes the status of each call that it took, and the seconds."""


class Call:
    is_raw = False
    """Whether it takes bytes instead of messages, and answers without gRPC's frames."""

    __slots__ = (
        "_arrival",
        "_connection",
        "_drained",
        "_has_ended",
        "_unread",
        "began",
        "deadline",
        "has_begun",
        "metadata",
        "method",
        "name",
        "reader",
        "stream_id",
        "task",
        "user",
    )

    def __init__(
        self,
        connection: CallOrigin,
        stream_id: int,
        name: str,
        method: Method,
        metadata: Metadata,
        began: float,
        deadline: float,
    ) -> None:
        self.stream_id = stream_id
        self.name = name
        self.user = ""
        """The sender's user name, once it is known; empty without access control."""
        self.method = method
        self.metadata = metadata
        self.began = began
        self.deadline = deadline
        """When the caller gives up, by the time of the event loop."""
        self.reader: MessageReader | None = None
        """Reads the messages of a call that came in parts."""
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        """Whether its handler has been called."""
        self._connection = connection
        self._drained: asyncio.Future[None] | None = None
        self._unread: deque[Any] | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<Call {self.name} stream={self.stream_id} from {self.peer_address}>"

    @property
    def peer_address(self) -> str:
        return self._connection.peer_address

    @property
    def peer_host(self) -> bytes:
        """The same without the port."""
        return self._connection.peer_host

    @property
    def local_address(self) -> tuple[str, int]:
        return self._connection.local_address

    @property
    def is_open(self) -> bool:
        """Whether the caller still takes answers."""
        return self._connection.has_call(self)

    # Answers

    def send_now(self, message: Any) -> bool:
        """Send one message; False if it waits for the caller to read."""
        return self._connection.send(self, frame_message(message.SerializeToString()))

    async def send(self, message: Any) -> None:
        """Send one message; returns when the caller can take the next one."""
        await self.send_framed(frame_message(message.SerializeToString()))

    async def send_framed(self, framed: bytes) -> None:
        """The same for messages that are encoded already."""
        if not self._connection.send(self, framed):
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def answer_quickly(self, framed: bytes, status: int) -> None:
        """The whole answer of a call that `quick` took, and the status that it says."""
        self._connection.answer_quickly(self, framed, status)

    def go_on(self, work: Callable[[], Any]) -> None:
        """Answer a call that `quick` took with what `work` returns, as if it were the handler."""
        assert self.method.translate is not None
        self._connection.go_on(self, partial(self.method.translate, work))

    def drained(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    # Requests of a stream

    def received(self, data: bytes, has_ended: bool) -> None:
        """Take bytes of a raw call."""
        raise NotImplementedError

    def arrived(self, message: Any) -> None:
        if self._unread is None:
            self._unread = deque()
        if len(self._unread) >= _MAX_UNREAD_MESSAGES:
            raise GrpcError(
                GrpcCode.RESOURCE_EXHAUSTED, f"more than {_MAX_UNREAD_MESSAGES} messages are unread"
            )
        self._unread.append(message)
        self._wake()

    def half_closed(self) -> None:
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def __aiter__(self) -> "Call":
        return self

    async def __anext__(self) -> Any:
        while not self._unread:
            if self._has_ended:
                raise StopAsyncIteration
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return self._unread.popleft()
