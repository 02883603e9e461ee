"""Plain sends of a blocking producer, on the caller's thread and a connection of its own.

The event loop knows the routes and introduces the producer to brokers; this path only reads what it knows. So
the first message of a topic goes through the loop, and so does every message of a producer that batches,
traces, signs or retries unsafe stores. A send that fails here continues there, as if its first try had failed
there.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from pyromq.client.prepared_messages import PreparedMessage
from pyromq.client.producer import ProducerParts
from pyromq.client.quick_sends import QuickSends
from pyromq.client.sending import FirstTry, SendOutcome
from pyromq.client.values import Message, SendResult
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

Continue = Callable[[PreparedMessage, FirstTry], SendResult]
"""Sends a message by the event loop, after its first try has failed."""


class _Slot:
    """Takes a result in the place of a future."""

    result: SendResult

    def done(self) -> bool:
        return False

    def set_result(self, result: SendResult) -> None:
        self.result = result


class DirectSending:
    """Used by many threads; each call has a connection to itself."""

    def __init__(self, parts: ProducerParts, continue_sending: Continue) -> None:
        session = parts.session
        settings = session.settings
        self._parts = parts
        self._continue = continue_sending
        self._clock = session.clock
        self._keys = UniqueKeys(session.packed_ip, os.getpid(), random.getrandbits(32))
        self._options = LinkOptions(
            timeout_ms=round(settings.connect_timeout_s * 1000),
            tls=TlsClient(settings.tls, session.clock) if settings.tls is not None else None,
        )
        self._idle: dict[str, list[tuple[FormLink, float]]] = {}
        self._changed = threading.Condition()
        self._in_flight = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<DirectSending in_flight={self._in_flight}>"

    def send(self, message: Message) -> SendResult | None:
        """Send a message; None if the event loop must do it."""
        parts = self._parts
        sender = parts.sender
        if parts.quick is not None and (result := self._send_quickly(message, parts.quick)) is not None:
            return result
        topic = parts.preparer.known_topics.get(message.topic)
        if topic is None or (first := sender.plan_first_try(topic)) is None:
            return None
        begun = self._begin()
        if begun is None:
            return None
        try:
            return self._send(parts.preparer.prepare(message, *begun), first)
        finally:
            self._end()

    def _begin(self) -> tuple[str, int] | None:
        """A unique key and the time; None if nothing may be sent any more."""
        with self._changed:
            if self._is_closed:
                return None
            now_ms = self._clock.now_ms()
            self._in_flight += 1
            return self._keys.next(now_ms), now_ms

    def _end(self) -> None:
        with self._changed:
            self._in_flight -= 1
            self._changed.notify_all()

    def _send_quickly(self, message: Message, quick: QuickSends) -> SendResult | None:
        """The same for a plain message, by the compiled path; None if it declines."""
        sender, target = self._parts.sender, quick.next_target(message)
        if target is None or not self._parts.session.is_introduced(target.address):
            return None
        begun = self._begin()
        if begun is None:
            return None
        first = FirstTry(
            target.queue, target.broker_name, target.address, self._clock.monotonic(), target.limit_s
        )
        link: FormLink | None = None
        try:
            link = self._take(target.address)
            opaque = link.take_opaque()
            frame = quick.frame(message, target, *begun, opaque)
            if frame is None:
                self._give_back(link)
                return None
            sender.statistics.attempts += 1
            slot = _Slot()
            link.quick[opaque] = (slot, target.shown_queue, begun[0])
            answer = link.call_frame(frame, opaque, target.limit_s, SendMessageV2, quick.answers)
            link.quick.pop(opaque, None)
        except BaseException as problem:
            prepared = self._parts.preparer.prepare(message, *begun)
            return self._after(problem, link, prepared, first)
        finally:
            self._end()
        self._give_back(link)
        latency_ms = (self._clock.monotonic() - first.started) * 1000
        sender.note_answer(first.queue.broker_name, latency_ms)
        if answer is None:
            return slot.result
        prepared = self._parts.preparer.prepare(message, *begun)
        return self._parts.result(prepared, SendOutcome(answer, first.queue, first.address, latency_ms))

    def _send(self, prepared: PreparedMessage, first: FirstTry) -> SendResult | None:
        parts, sender = self._parts, self._parts.sender
        link: FormLink | None = None
        try:
            link = self._take(first.address)
            filled = sender.filled(prepared, first.queue, first.broker_name)
            answer = link.call_filled(filled, first.limit_s, DEFAULT_MAX_FRAME_BYTES)
        except BaseException as problem:
            return self._after(problem, link, prepared, first)
        self._give_back(link)
        latency_ms = (self._clock.monotonic() - first.started) * 1000
        sender.note_answer(first.queue.broker_name, latency_ms)
        return parts.result(prepared, SendOutcome(answer, first.queue, first.address, latency_ms))

    def _after(
        self, problem: BaseException, link: FormLink | None, prepared: PreparedMessage, first: FirstTry
    ) -> SendResult | None:
        """Continue by the event loop after a failed first try. None: as if nothing had been sent."""
        is_answered = isinstance(problem, Refused) and problem.code != ResponseCode.GO_AWAY
        if link is not None:
            if is_answered:
                self._give_back(link)
            else:
                link.close()  # its answer may still come
        if isinstance(problem, Refused) and not is_answered:
            return None  # another server may listen by now
        if not isinstance(problem, Refused | TransportError):
            raise problem
        first.problem = problem
        return self._continue(prepared, first)

    def _take(self, address: str) -> FormLink:
        now = time.monotonic()
        with self._changed:
            idle = self._idle.get(address)
            link, since = idle.pop() if idle else (None, now)
        if link is not None and now - since > _SURELY_OPEN_S and link.is_closed_by_peer():
            link.close()
            link = None
        return link if link is not None else FormLink(address, self._options)

    def _give_back(self, link: FormLink) -> None:
        with self._changed:
            if not self._is_closed:
                self._idle.setdefault(link.address, []).append((link, time.monotonic()))
                return
        link.close()

    def wait_empty(self) -> None:
        """Return when nothing is in flight."""
        with self._changed:
            self._changed.wait_for(lambda: not self._in_flight)

    def close(self) -> None:
        """Send no more, and return when nothing is in flight."""
        with self._changed:
            self._is_closed = True
            links = [link for idle in self._idle.values() for link, _ in idle]
            self._idle.clear()
        for link in links:
            link.close()
        self.wait_empty()
