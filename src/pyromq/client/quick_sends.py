"""Plain sends with nothing in their way, compiled: a message becomes a frame, and its answer a result.

That is a message without unusual properties, one by one, to a topic whose route is known, on an open
connection, while no broker is avoided. Everything else takes the general path, and so does a send whose first
try fails here: it continues there with one try less. Without the compiled core there is no other path.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pyromq.client.fault_avoidance import LATENCIES_MS
from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.prepared_messages import MessagePreparer, PreparedMessage
from pyromq.client.sending import FirstTry, Sender, SendOutcome
from pyromq.client.session import Session
from pyromq.client.values import Message, MessageQueue, SendResult, SendStatus
from pyromq.compiled import twin
from pyromq.errors import CallTimeout, ConnectionLost, Refused
from pyromq.protocol import names
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.connection import Connection

_native = twin("quick_sends")

SLOW_MS: Final = LATENCIES_MS[0]
"""A slower answer counts against its broker."""


class Parts(Protocol):
    """The parts of a producer that are used here."""

    @property
    def session(self) -> Session: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def preparer(self) -> MessagePreparer: ...
    @property
    def in_flight(self) -> InFlightLimit: ...
    @property
    def body_limit(self) -> int: ...
    @property
    def sends_directly(self) -> bool: ...
    def shown_queue(self, queue: MessageQueue) -> MessageQueue: ...
    def result(self, prepared: PreparedMessage, outcome: SendOutcome) -> SendResult: ...
    async def send(
        self, prepared: PreparedMessage, queue: MessageQueue | None, timeout_s: float | None
    ) -> SendResult: ...
    async def send_on(self, prepared: PreparedMessage, first: FirstTry) -> SendResult: ...


class Target(NamedTuple):
    """A queue, and the pieces of the requests to it."""

    queue: MessageQueue
    shown_queue: MessageQueue
    broker_name: str
    address: str
    pieces: tuple[bytes, ...]
    limit_s: float


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


def quick_sends(parts: Parts) -> "QuickSends | None":
    """None without the compiled core, and for producers that have more to do."""
    return QuickSends(parts) if _native is not None and parts.sends_directly else None


class QuickSends:
    def __init__(self, parts: Parts) -> None:
        assert _native is not None
        self._parts = parts
        self._session = parts.session
        self._sender = parts.sender
        self._routes = parts.session.routes
        self._known_topics = parts.preparer.known_topics
        self._suffix = parts.preparer.suffix
        self._body_limit = parts.body_limit
        self._in_flight = parts.in_flight
        self._now_ms, self._monotonic = parts.session.clock.now_ms, parts.session.clock.monotonic
        self._next_key = parts.session.unique_keys.next
        self._targets: dict[str, list[Target]] = {}
        self._route_changes = -1
        self._plain_frame = _native.plain_frame
        max_frame_bytes = parts.session.max_frame_bytes
        self._max_frame_bytes = max_frame_bytes
        self.answers: Callable[..., tuple[int, int]] = _native.QuickAnswers(
            SendResult, SendStatus.SEND_OK, names.DEFAULT_REGION, max_frame_bytes
        )

    def __repr__(self) -> str:
        return f"<QuickSends topics={len(self._targets)}>"

    def begin(self, message: Message) -> Begun | None:
        """Send a message; None if the general path must do it."""
        session, sender = self._session, self._sender
        session.check_loop()
        target = self.next_target(message)
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
        if topic is None:
            return None
        if self._route_changes != self._routes.changes:
            self._targets.clear()
            self._route_changes = self._routes.changes
        targets = self._targets.get(topic) or self._find_targets(topic)
        turn = self._sender.next_turn(topic) if targets else None
        return targets[turn % len(targets)] if turn is not None else None

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
        connection, target = begun.connection, begun.target
        self._forget(begun)
        latency_ms = (self._monotonic() - begun.started) * 1000
        try:
            if isinstance(answer, BaseException):
                raise answer
            read = decode_answer(SendMessageV2, answer)
            self._sender.note_answer(target.queue.broker_name, latency_ms)
            outcome = SendOutcome(read, target.queue, target.address, latency_ms)
            return self._parts.result(self._prepared(begun), outcome)
        except TimeoutError:
            name = SendMessageV2.__name__
            problem: CallTimeout | ConnectionLost | Refused = CallTimeout(
                f"{target.address}: no answer to {name} in {target.limit_s:.3g} s"
            )
        except (ConnectionLost, Refused) as failure:
            problem = failure
        if isinstance(problem, Refused) and problem.code == ResponseCode.GO_AWAY:
            # As if nothing had been sent: another server may listen by now.
            self._session.retire(target.address, connection)
            return await self._parts.send(self._prepared(begun), None, None)
        first = FirstTry(
            target.queue, target.broker_name, target.address, begun.started, target.limit_s, problem
        )
        return await self._parts.send_on(self._prepared(begun), first)

    def _prepared(self, begun: Begun) -> PreparedMessage:
        return self._parts.preparer.prepare(begun.message, begun.unique_key, begun.born_ms)

    def _find_targets(self, topic: str) -> list[Target]:
        """The queues of a topic; none unless all of their brokers are known."""
        parts, sender = self._parts, self._sender
        found: list[Target] = []
        for first in sender.first_tries(topic):
            pieces = sender.form_of(topic, first.queue, first.broker_name).pieces
            shown = parts.shown_queue(first.queue)
            found.append(Target(first.queue, shown, first.broker_name, first.address, pieces, first.limit_s))
        self._targets[topic] = found
        return found
