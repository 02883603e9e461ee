"""Batches of messages go to brokers, several at once; each is sent until a broker has stored it.

A batch whose answer was lost is sent again, with the same ids inside: to the same queue first, where PyroMQ's
brokers recognize it. A queue gets one batch at a time, so that a later one never overtakes one that was
refused.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pyromq.clock import Clock, SystemClock
from pyromq.cluster.retry_table import is_passing, require_safe
from pyromq.cluster.sending.request import DEFAULT_QUEUES, PreparedMessage, SendTerms, send_request
from pyromq.errors import (
    BadMessage,
    CallTimeout,
    ConnectionLost,
    NoRoute,
    PyroError,
    Refused,
    RemoteProtocolError,
    SendFailed,
    TransportError,
)
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import AUTO_CREATE_TOPIC
from pyromq.protocol.requests.sending import STORED, SendMessageAnswer, SendMessageBatch, SendMessageV2
from pyromq.remoting.blocking_link import Data, Link
from pyromq.spark.cluster import BrokerAway, SparkCluster
from pyromq.spark.options import WriteOptions
from pyromq.spark.queues import Queue

_log = logging.getLogger(__name__)

_STORED_BEFORE_MORE = 16
_BUSY_PAUSE_MS = 2


@dataclass(slots=True)
class SendUnit:
    """One request: a batch of messages, or a single one with its properties next to it."""

    topic: str
    body: Data
    messages: int
    queue: Queue | None = None
    """The queue it must go to; None for any."""
    properties: str | None = None
    sys_flag: int = 0
    born_ms: int = 0
    """When it was sent first."""
    attempts: int = 0
    is_resent: bool = False
    """Whether an earlier try may have stored it."""
    place: Queue | None = None
    """The queue it goes to."""


class TaskSender:
    def __init__(
        self,
        cluster: SparkCluster,
        options: WriteOptions,
        first: int,
        *,
        in_flight: int | None = None,
        on_stored: Callable[[SendUnit, SendMessageAnswer], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`first`: a number that differs between tasks, so that they do not all begin with the same queue.
        `on_stored` is for messages that are decided later: it gets every answer, queues get several requests
        at a time, and a message counts when it is as safe as its broker promises.
        """
        self._cluster = cluster
        self._on_stored = on_stored
        self._max_in_flight = in_flight or options.sends_in_flight
        self._options = options
        self._terms = SendTerms(options.group)
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._turn = first
        self._queues: dict[str, list[Queue]] = {}
        self._new: set[str] = set()
        """Topics that our messages create, on one broker after the other."""
        self._links: dict[str, Link] = {}
        self._waiting: dict[tuple[str, int], SendUnit] = {}
        """In flight, by address and number of the request."""
        self._lines: dict[Queue | int, deque[SendUnit]] = {}
        """Batches by queue, in their order; the first one is in flight, or about to be."""
        self._again: deque[SendUnit] = deque()
        """Those at the head of their line that must be sent."""
        self._unstored = 0
        self._pause = threading.Event()
        self._stored_since_busy = 0
        self._room = self._max_in_flight
        """How many may be in flight: fewer after a broker has said that it is busy."""
        self.messages = 0

    def __repr__(self) -> str:
        return f"<TaskSender messages={self.messages} waiting={len(self._waiting)}>"

    def queues(self, topic: str, *, patient: bool = True) -> list[Queue]:
        """The queues of a topic; those it will have if it does not exist and may be created by a message."""
        if topic not in self._queues:
            try:
                queues = self._cluster.writable_queues(topic, patient=patient)
            except NoRoute:
                try:
                    template = self._cluster.writable_queues(AUTO_CREATE_TOPIC, patient=patient)
                except NoRoute:
                    template = []
                queues = [q._replace(topic=topic) for q in template if q.queue_id < DEFAULT_QUEUES]
                if not queues:
                    raise
                self._new.add(topic)
            if not queues:
                raise BadMessage(f"no queue of topic {topic} can be written to")
            self._queues[topic] = queues
        return self._queues[topic]

    def send(self, batch: SendUnit) -> None:
        """Returns when fewer than the allowed number are in flight, or wait for their queue."""
        self._join_line(batch)
        self._unstored += 1
        self._dispatch()
        while self._unstored >= self._room:
            self._receive_one()

    def flush(self) -> None:
        """Returns when everything is stored."""
        while self._waiting:
            self._receive_one()

    def close(self) -> None:
        for link in self._links.values():
            self._cluster.links.give_back(link)
        self._links.clear()

    def _join_line(self, batch: SendUnit) -> None:
        if batch.place is None:
            batch.place = batch.queue or self._next_queue(batch.topic)
        line = self._lines.setdefault(self._line_of(batch), deque())
        line.append(batch)
        if len(line) == 1:
            self._again.append(batch)

    def _leave_line(self, batch: SendUnit) -> None:
        line = self._lines[self._line_of(batch)]
        line.popleft()
        if line:
            self._again.append(line[0])
        else:
            del self._lines[self._line_of(batch)]

    def _line_of(self, batch: SendUnit) -> Queue | int:
        assert batch.place is not None
        return batch.place if self._on_stored is None else id(batch)

    def _move(self, batch: SendUnit) -> None:
        """Any queue will do, and the broker of this one may be gone."""
        with contextlib.suppress(PyroError):  # the routes may come back
            place = self._next_queue(batch.topic, patient=False)
            self._leave_line(batch)
            batch.place = place
            self._join_line(batch)
            return
        self._again.append(batch)

    def _next_queue(self, topic: str, *, patient: bool = True) -> Queue:
        queues = self.queues(topic, patient=patient)
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _dispatch(self) -> None:
        while self._again:
            current = self._again.popleft()
            assert current.place is not None
            address = ""
            try:
                address = self._address(current.place)
                if address not in self._links:
                    self._links[address] = self._cluster.links.take(address)
                number = self._links[address].send(self._request(current, current.place), current.body)
                self._waiting[(address, number)] = current
            except PyroError as problem:
                self._failed(current, problem)
                if address:
                    self._lose_link(address, problem)

    def _address(self, queue: Queue) -> str:
        try:
            return self._cluster.address(queue)
        except (NoRoute, BrokerAway):
            if queue.topic not in self._new:
                raise
            # Its broker has not got a message yet, and will have the topic when it gets one.
            return self._cluster.address(queue._replace(topic=AUTO_CREATE_TOPIC))

    def _request(self, batch: SendUnit, queue: Queue) -> SendMessageV2:
        kind = SendMessageV2 if batch.properties is not None else SendMessageBatch
        batch.born_ms = batch.born_ms or self._clock.now_ms()
        message = PreparedMessage(
            batch.topic, b"", batch.properties or "", "", batch.born_ms, batch.sys_flag, kind=kind
        )
        return send_request(message, self._terms, queue.queue_id, queue.broker, is_resent=batch.is_resent)

    def _receive_one(self) -> None:
        address = next(iter(self._waiting))[0]
        link = self._links[address]
        try:
            frame, _ = link.receive()
            if (address, frame.opaque) not in self._waiting:
                raise RemoteProtocolError(f"{address} answered {frame.opaque}, which was never requested")
        except PyroError as problem:
            self._lose_link(address, problem)
        else:
            batch = self._waiting.pop((address, frame.opaque))
            try:
                answer = decode_answer(SendMessageV2, frame)
                if self._on_stored is not None:
                    require_safe(frame.code, frame.remark)
            except PyroError as problem:
                self._failed(batch, problem)
            else:
                self._stored(batch, answer)
        self._dispatch()

    def _stored(self, batch: SendUnit, answer: SendMessageAnswer) -> None:
        self._leave_line(batch)
        self._unstored -= 1
        if self._on_stored is not None:
            self._on_stored(batch, answer)
        self.messages += batch.messages
        self._stored_since_busy += 1
        if self._stored_since_busy >= _STORED_BEFORE_MORE:
            self._stored_since_busy = 0
            self._room = min(self._room + 1, self._max_in_flight)

    def _lose_link(self, address: str, problem: PyroError) -> None:
        """Send the batches of a broken connection again."""
        link = self._links.pop(address, None)
        if link is not None:
            link.close()
        for key in [key for key in self._waiting if key[0] == address]:
            self._failed(self._waiting.pop(key), problem, pauses=False)

    def _failed(self, batch: SendUnit, problem: PyroError, *, pauses: bool = True) -> None:
        batch.attempts += 1
        if not is_passing(problem):
            raise problem
        if batch.attempts > self._options.access.retries:
            raise SendFailed(f"a batch of {batch.messages} messages for {batch.topic}", [str(problem)])
        _log.warning("send failed, trying again topic=%s: %s", batch.topic, problem)
        self._queues.clear()
        if isinstance(problem, TransportError):
            self._cluster.forget_routes()
        pause_ms = self._options.access.retry_interval_ms
        if isinstance(problem, Refused) and problem.code == ResponseCode.SYSTEM_BUSY:
            # The broker is busy with our own batches: sending fewer at once is quicker than a long pause.
            self._room = max(self._room // 2, 1)
            self._stored_since_busy = 0
            pause_ms = min(pause_ms, _BUSY_PAUSE_MS << min(batch.attempts, 10))
        if pauses:
            self._pause.wait(pause_ms / 1000)
        was_sent = isinstance(problem, ConnectionLost | CallTimeout)
        moves = isinstance(problem, TransportError) and (batch.is_resent or not was_sent)
        batch.is_resent |= was_sent or (isinstance(problem, Refused) and problem.code in STORED)
        if batch.queue is None and moves:
            self._move(batch)
        else:
            self._again.append(batch)
