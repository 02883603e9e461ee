"""Plain sends with nothing in their way, compiled: a message becomes a frame, and its answer a result.

That is a message without unusual properties, one by one, to a topic whose route is known, on an open
connection, while no broker is avoided. Everything else takes the general path, and so does a send whose first
try fails here: it continues there with one try less. Without the compiled core there is no other path.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from pyromq.client.fault_avoidance import LATENCIES_MS
from pyromq.client.prepared_messages import PreparedMessage
from pyromq.client.quick_targets import PlainParts, Target, Targets
from pyromq.client.sending import FirstTry, SendOutcome
from pyromq.client.unusual_answers import judged
from pyromq.client.values import Message, MessageQueue, SendResult, SendStatus
from pyromq.compiled import twin
from pyromq.protocol import names
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.connection import Connection

_native = twin("quick_sends")

SLOW_MS: Final = LATENCIES_MS[0]
"""A slower answer counts against its broker."""


class Parts(PlainParts, Protocol):
    """The parts of a producer that are used here."""

    @property
    def sends_directly(self) -> bool: ...
    def result(self, prepared: PreparedMessage, outcome: SendOutcome) -> SendResult: ...
    async def send(
        self, prepared: PreparedMessage, queue: MessageQueue | None, timeout_s: float | None
    ) -> SendResult: ...
    async def send_on(self, prepared: PreparedMessage, first: FirstTry) -> SendResult: ...


class Begun(msgspec.Struct):
    """A send that waits for its answer."""

    message: Message
    answered: "asyncio.Future[Any]"
    """A SendResult, or an unusual answer as a Frame."""
    connection: Connection
    opaque: int
    target: Target
    unique_key: str
    born_ms: int
    started: float
    size_bytes: int


def quick_answers(max_frame_bytes: int) -> Callable[..., tuple[int, int]]:
    """The fast path of the connections: it reads the answers to quick sends."""
    assert _native is not None
    answers: Callable[..., tuple[int, int]] = _native.QuickAnswers(
        SendResult, SendStatus.SEND_OK, names.DEFAULT_REGION, max_frame_bytes
    )
    return answers


def quick_sends(parts: Parts) -> "QuickSends | None":
    """None without the compiled core, and for producers that have more to do."""
    return QuickSends(parts) if _native is not None and parts.sends_directly else None


class QuickSends:
    def __init__(self, parts: Parts) -> None:
        assert _native is not None
        self._parts = parts
        self._session = parts.session
        self._sender = parts.sender
        self._targets = Targets(parts)
        self._known_topics = parts.preparer.known_topics
        self._suffix = parts.preparer.suffix
        self._body_limit = parts.body_limit
        self._in_flight = parts.in_flight
        self._now_ms, self._monotonic = parts.session.clock.now_ms, parts.session.clock.monotonic
        self._next_key = parts.session.unique_keys.next
        self._plain_frame = _native.plain_frame
        max_frame_bytes = parts.session.max_frame_bytes
        self._max_frame_bytes = max_frame_bytes
        self.answers = quick_answers(max_frame_bytes)

    def __repr__(self) -> str:
        return f"<QuickSends {self._targets!r}>"

    def begin(self, message: Message) -> Begun | None:
        """Send a message; None if the general path must do it."""
        session, sender = self._session, self._sender
        session.check_loop()
        topic = self._known_topics.get(message.topic)
        target = self._targets.next(topic) if topic is not None else None
        if target is None:
            return None
        connection = session.writable(target.address)
        if connection is None:
            return None
        now_ms = self._now_ms()
        unique_key = self._next_key(now_ms)
        opaque = connection.take_opaque()
        frame = self.frame(message, target, unique_key, now_ms, opaque)
        if frame is None:
            return None
        size_bytes = len(frame)
        if not self._in_flight.try_enter(size_bytes):
            return None
        sender.statistics.attempts += 1
        if connection.fast_path is None:
            connection.fast_path = self.answers
        answered = connection.send_quickly(frame, opaque, target.limit_s)
        connection.quick[opaque] = (answered, target.shown_queue, unique_key)
        return Begun(
            message,
            answered,
            connection,
            opaque,
            target,
            unique_key,
            now_ms,
            self._monotonic(),
            size_bytes,
        )

    def next_target(self, message: Message) -> Target | None:
        """The queue whose turn it is; None if something must be found out first, or a broker is avoided."""
        topic = self._known_topics.get(message.topic)
        return self._targets.next(topic) if topic is not None else None

    def frame(
        self, message: Message, target: Target, unique_key: str, born_ms: int, opaque: int
    ) -> bytes | None:
        """The whole request; None for an unusual message."""
        frame: bytes | None = self._plain_frame(
            target.pieces,
            message,
            unique_key,
            self._suffix,
            self._body_limit,
            target.queue.queue_id,
            born_ms,
            opaque,
        )
        return frame if frame is not None and len(frame) <= self._max_frame_bytes else None

    def end(self, begun: Begun) -> None:
        """The answer was a SendResult."""
        self._forget(begun)
        sender, latency_ms = self._sender, (self._monotonic() - begun.started) * 1000
        if latency_ms >= SLOW_MS or sender.avoids_brokers:
            sender.note_answer(begun.target.queue.broker_name, latency_ms)

    def _forget(self, begun: Begun) -> None:
        begun.connection.end_quick_call(begun.opaque)
        self._in_flight.leave(begun.size_bytes)

    async def end_otherwise(self, begun: Begun, answer: Any) -> SendResult:
        """The answer was an unusual frame, or an error: after that the general path continues."""
        self._forget(begun)
        parts, prepared = self._parts, self._prepared(begun)
        verdict = judged(parts, SendMessageV2, begun.target, begun.connection, begun.started, answer)
        if isinstance(verdict, SendOutcome):
            return parts.result(prepared, verdict)
        if verdict is None:
            return await parts.send(prepared, None, None)
        return await parts.send_on(prepared, verdict)

    def _prepared(self, begun: Begun) -> PreparedMessage:
        return self._parts.preparer.prepare(begun.message, begun.unique_key, begun.born_ms)
