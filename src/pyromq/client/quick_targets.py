"""The first tries of plain sends: the queues of topics whose brokers are all known, one after the other.

A target has the pieces of the requests to its queue, so that the compiled core only fills in what varies. An
answer that is not a plain success is judged here, and the message's plan continues from there.
"""

from typing import TYPE_CHECKING, Any, Protocol

from pyromq.client.batching import Accumulator
from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.sending import Sender, SendOutcome
from pyromq.client.session import Session
from pyromq.client.values import MessageQueue, SendResult
from pyromq.cluster.sending.plan import SendPlan, Try
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import CallTimeout, ConnectionLost, Refused
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2
from pyromq.remoting.connection import Connection

if TYPE_CHECKING:
    from pyromq_native.client.fast_batches import PlainBatch


class PlainParts(Protocol):
    """The parts of a producer that plain sends need."""

    @property
    def session(self) -> Session: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def preparer(self) -> MessagePreparer: ...
    @property
    def in_flight(self) -> InFlightLimit: ...
    @property
    def accumulator(self) -> Accumulator[SendResult] | None: ...
    @property
    def body_limit(self) -> int: ...
    @property
    def sends_directly(self) -> bool: ...
    def shown_queue(self, queue: MessageQueue) -> MessageQueue: ...
    def result(self, prepared: PreparedMessage, outcome: SendOutcome) -> SendResult: ...
    async def send_on(self, prepared: PreparedMessage, plan: SendPlan) -> SendResult: ...
    def settle_gathered(self, batch: "PlainBatch", outcome: SendOutcome) -> None: ...
    async def send_gathered(self, batch: "PlainBatch", plan: SendPlan | None = None) -> None: ...


class Target(Try, frozen=True, gc=False, kw_only=True):
    """The first try of a plain message, and the pieces of the requests to its queue."""

    address: str
    shown_queue: MessageQueue
    pieces: tuple[bytes, ...]
    batch_pieces: tuple[bytes, ...]


class Targets:
    def __init__(self, parts: PlainParts) -> None:
        self._sender = parts.sender
        self._next_turn = parts.sender.next_turn
        self._routes = parts.session.routes
        self._shown_queue = parts.shown_queue
        self._of_topics: dict[str, list[Target]] = {}
        self._route_changes = -1

    def __repr__(self) -> str:
        return f"<Targets topics={len(self._of_topics)}>"

    def next(self, topic: str) -> Target | None:
        """The queue whose turn it is; None if something must be found out first, or a broker is avoided.

        `topic`: as brokers know it.
        """
        targets = self.of(topic)
        turn = self._next_turn(topic) if targets else None
        return targets[turn % len(targets)] if turn is not None else None

    def of(self, topic: str) -> list[Target]:
        """The queues of a topic; none unless all of their brokers are known."""
        if self._route_changes != self._routes.changes:
            self._of_topics.clear()
            self._route_changes = self._routes.changes
        return self._of_topics.get(topic) or self._find(topic)

    def _find(self, topic: str) -> list[Target]:
        pieces = self._sender.forms.pieces
        found = self._of_topics[topic] = [
            Target(
                queue=first.queue,
                broker_name=first.broker_name,
                address=first.address,
                limit_s=first.limit_s,
                shown_queue=self._shown_queue(first.queue),
                pieces=pieces(SendMessageV2, topic, first.broker_name),
                batch_pieces=pieces(SendMessageBatch, topic, first.broker_name),
            )
            for first in self._sender.first_tries(topic)
            if first.address is not None
        ]
        return found


def judged(
    parts: PlainParts,
    kind: type[SendMessageV2],
    target: Target,
    connection: Connection,
    started: float,
    answer: Any,
) -> SendOutcome | SendPlan:
    """The meaning of an unusual answer to a plain send: an outcome, or the plan by which it is sent on.

    `answer` is a Frame or an error; one that no retry helps against is raised.
    """
    sender = parts.sender
    latency_ms = (parts.session.clock.monotonic() - started) * 1000
    try:
        if isinstance(answer, BaseException):
            raise answer
        read = decode_answer(kind, answer)
    except TimeoutError:
        problem: CallTimeout | ConnectionLost | Refused = CallTimeout(
            f"{target.address}: no answer to {kind.__name__} in {target.limit_s:.3g} s"
        )
    except (ConnectionLost, Refused) as failure:
        problem = failure
    else:
        sender.note_answer(target.queue.broker_name, latency_ms)
        return SendOutcome(read, target.queue, target.address, latency_ms)
    if isinstance(problem, Refused) and problem.code == ResponseCode.GO_AWAY:
        # Another server may listen by now: as if nothing had been sent.
        parts.session.retire(target.address, connection)
        return sender.plan()
    plan = sender.plan_after(target, started)
    sender.note_failure(plan, target.queue.topic, problem)
    return plan
