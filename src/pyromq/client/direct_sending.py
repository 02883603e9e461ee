"""Plain sends of a blocking producer, on the caller's thread and a separate connection.

The event loop knows the routes and introduces the producer to brokers; this path only reads what it knows. So
the first message of a topic goes through the loop, and so does every message of a producer that batches,
traces, signs or retries unsafe stores. A send that fails here continues there, as if its first try had failed
there.
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from pyromq.chance import getrandbits, process_id
from pyromq.client.producer import ProducerParts
from pyromq.client.quick_sends import QuickSends
from pyromq.client.sending import SendOutcome
from pyromq.client.values import Message, SendResult
from pyromq.cluster.sending.plan import SendPlan, Try
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.requests.sending import SendMessageV2
from pyromq.remoting.blocking_link import LinkOptions
from pyromq.remoting.form_link import FormLink
from pyromq.remoting.tls import TlsClient

_SURELY_OPEN_S: Final = 1.0
"""A connection that was idle for longer is checked before it is used: servers close idle ones."""

Continue = Callable[[PreparedMessage, SendPlan, TransportError | Refused], SendResult]
"""Carries on with a plan by the event loop, after its first try has failed."""


class _Slot:
    """Takes a result in the place of a future."""

    result: SendResult

    def done(self) -> bool:
        return False

    def set_result(self, result: SendResult) -> None:
        self.result = result


def _usable_after(problem: BaseException, link: FormLink | None) -> FormLink | None:
    """The connection after a failed try, if it can be used again; else it is closed."""
    if isinstance(problem, Refused) and problem.code != ResponseCode.GO_AWAY:
        return link
    if link is not None:
        link.close()  # its answer may still come
    return None


class _Begun(NamedTuple):
    unique_key: str
    born_ms: int
    link: FormLink | None
    """None if a connection must be opened."""


class DirectSending:
    """Used by many threads; each call has a connection to itself."""

    def __init__(self, parts: ProducerParts, continue_sending: Continue) -> None:
        session = parts.session
        settings = session.settings
        self._parts = parts
        self._continue = continue_sending
        self._clock = session.clock
        self._keys = UniqueKeys(session.packed_ip, process_id(), getrandbits(32))
        self._options = LinkOptions(
            timeout_ms=round(settings.connect_timeout_s * 1000),
            tls=TlsClient(settings.tls, session.clock) if settings.tls is not None else None,
            monotonic=session.clock.monotonic,
        )
        self._idle: dict[str, list[tuple[FormLink, float]]] = {}
        # A bare lock for every send; the condition around it, which costs much more, for those who wait.
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._is_awaited = False
        self._in_flight = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<DirectSending in_flight={self._in_flight}>"

    def send(self, message: Message) -> SendResult | None:
        """Send a message; None if the event loop must do it."""
        if message.lite_topic is not None:
            return None
        parts = self._parts
        plan = self._send_quickly(message, parts.quick) if parts.quick is not None else None
        if isinstance(plan, SendResult):
            return plan
        topic = parts.preparer.known_topics.get(message.topic)
        if plan is None and topic is not None:
            plan = parts.sender.plan_with_try(topic)
        first = plan.current if plan is not None else None
        if plan is None or first is None or first.address is None:
            return None
        begun = self._begin(first.address)
        if begun is None:
            return None
        return self._send(message, plan, first, first.address, begun)

    def _begin(self, address: str) -> _Begun | None:
        """None if nothing may be sent any more."""
        now_ms, link = self._clock.now_ms(), None
        with self._lock:
            if self._is_closed:
                return None
            self._in_flight += 1
            unique_key = self._keys.next(now_ms)
            idle = self._idle.get(address)
            if idle:
                link, since = idle.pop()
        if link is not None and self._clock.monotonic() - since > _SURELY_OPEN_S and link.is_closed_by_peer():
            link.close()
            link = None
        return _Begun(unique_key, now_ms, link)

    def _end(self, link: FormLink | None) -> None:
        """The connection, if it can be used again, is for others now."""
        with self._lock:
            self._in_flight -= 1
            if self._is_awaited:
                self._empty.notify_all()
            if link is None:
                return
            if not self._is_closed:
                self._idle.setdefault(link.address, []).append((link, self._clock.monotonic()))
                return
        link.close()

    def _send_quickly(self, message: Message, quick: QuickSends) -> SendResult | SendPlan | None:
        """The same for a plain message, by the compiled path. For others, the queue whose turn it was."""
        sender, target = self._parts.sender, quick.next_target(message)
        if target is None or not self._parts.session.is_introduced(target.address):
            return None
        begun = self._begin(target.address)
        if begun is None:
            return None
        started = self._clock.monotonic()
        unique_key, born_ms, link = begun
        usable: FormLink | None = None
        try:
            if link is None:
                link = FormLink(target.address, self._options)
            opaque = link.take_opaque()
            frame = quick.frame(message, target, unique_key, born_ms, opaque)
            sender.statistics.attempts += 1
            if frame is None:
                usable = link
                return sender.plan_after(target, started)
            slot = _Slot()
            link.quick[opaque] = (slot, target.shown_queue, unique_key)
            answer = link.call_frame(frame, opaque, target.limit_s, SendMessageV2, quick.answers)
            link.quick.pop(opaque, None)
            usable = link
        except BaseException as problem:
            usable = _usable_after(problem, link)
            prepared = self._parts.preparer.prepare(message, unique_key, born_ms)
            return self._after(problem, prepared, sender.plan_after(target, started))
        finally:
            self._end(usable)
        latency_ms = (self._clock.monotonic() - started) * 1000
        sender.note_answer(target.queue.broker_name, latency_ms)
        if answer is None:
            return slot.result
        prepared = self._parts.preparer.prepare(message, unique_key, born_ms)
        return self._parts.result(prepared, SendOutcome(answer, target.queue, target.address, latency_ms))

    def _send(
        self, message: Message, plan: SendPlan, first: Try, address: str, begun: _Begun
    ) -> SendResult | None:
        parts, sender, link = self._parts, self._parts.sender, begun.link
        usable = link
        try:
            prepared = parts.preparer.prepare(message, begun.unique_key, begun.born_ms)
            try:
                if link is None:
                    link = FormLink(address, self._options)
                filled = sender.forms.filled(prepared, first.queue.queue_id, first.broker_name)
                answer = link.call_filled(filled, first.limit_s, DEFAULT_MAX_FRAME_BYTES)
                usable = link
            except BaseException as problem:
                usable = _usable_after(problem, link)
                return self._after(problem, prepared, plan)
        finally:
            self._end(usable)
        latency_ms = (self._clock.monotonic() - plan.started) * 1000
        sender.note_answer(first.queue.broker_name, latency_ms)
        return parts.result(prepared, SendOutcome(answer, first.queue, address, latency_ms))

    def _after(self, problem: BaseException, prepared: PreparedMessage, plan: SendPlan) -> SendResult | None:
        """Continue by the event loop after a failed first try. None: as if nothing had been sent."""
        if isinstance(problem, Refused) and problem.code == ResponseCode.GO_AWAY:
            return None  # another server may listen by now
        if not isinstance(problem, Refused | TransportError):
            raise problem
        return self._continue(prepared, plan, problem)

    def wait_empty(self) -> None:
        """Return when nothing is in flight."""
        with self._empty:
            self._is_awaited = True
            self._empty.wait_for(lambda: not self._in_flight)

    def close(self) -> None:
        """Send no more, and return when nothing is in flight."""
        with self._lock:
            self._is_closed = True
            links = [link for idle in self._idle.values() for link, _ in idle]
            self._idle.clear()
        for link in links:
            link.close()
        self.wait_empty()
