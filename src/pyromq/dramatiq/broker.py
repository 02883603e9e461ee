"""Dramatiq's broker: a queue is a topic, a delayed message is a timed one, so there are no delay queues.

Dramatiq's threads call here; receiving runs on the client's own loop. Worker processes that were forked
connect by themselves.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import dramatiq
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout, QueueNotFound
from dramatiq.middleware import Middleware

from pyromq.client.blocking import LoopThread
from pyromq.errors import NoRoute, SendFailed, TransportError
from pyromq.tasks.intake import Intake, TakenTask
from pyromq.tasks.link import OutgoingTask, TaskLink

_AWAY = (NoRoute, SendFailed, TransportError)
"""Dramatiq tries again after these, as ConnectionClosed."""


class DramatiqBroker(dramatiq.Broker):
    """`namesrv`: addresses of name servers or a URL, None: PYROMQ_URL or NAMESRV_ADDR.

    With `max_priority`, the option `broker_priority` of a message counts: higher numbers first. Options are
    those of `TaskOptions` and `ClientSettings`.
    """

    def __init__(
        self,
        namesrv: str | Iterable[str] | None = None,
        *,
        middleware: list[Middleware] | None = None,
        max_priority: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self._new_link: Callable[[], TaskLink] = lambda: TaskLink(
            "DRAMATIQ", namesrv, options, max_priority=max_priority
        )
        self._new_link()  # bad options stop the start
        self._making = threading.RLock()  # a signal handler may close it meanwhile
        self._connected: tuple[LoopThread, TaskLink] | None = None
        self._intakes: list[tuple[str, ref[Intake]]] = []

    def connected(self) -> tuple[LoopThread, TaskLink]:
        """The connection of this process."""
        with self._making:
            if self._connected is None or not self._connected[0].is_of_this_process:
                thread, link = LoopThread.shared(), self._new_link()
                thread.run(link.start)
                self._connected = thread, link
            return self._connected

    @property
    def actor_options(self) -> set[str]:
        return self._actor_options | {"broker_priority"}

    @actor_options.setter
    def actor_options(self, options: set[str]) -> None:
        self._actor_options = options

    def close(self) -> None:
        with self._making:
            connected, self._connected = self._connected, None
        if connected is not None and connected[0].is_of_this_process:
            connected[0].run(connected[1].close)

    def declare_queue(self, queue_name: str) -> None:
        """The topic is created when it is first used."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def enqueue(self, message: "dramatiq.Message[Any]", *, delay: int | None = None) -> Any:
        if message.queue_name not in self.queues:
            raise QueueNotFound(message.queue_name)
        self.emit_before("enqueue", message, delay)
        priority = message.options.get("broker_priority")
        if priority is None and message.actor_name in self.actors:
            priority = self.actors[message.actor_name].options.get("broker_priority")
        task = OutgoingTask(
            queue=message.queue_name,
            body=message.encode(),
            id=message.message_id,
            name=message.actor_name,
            priority=priority,
            eta_ms=None if delay is None else round(time.time() * 1000) + delay,
        )
        try:
            thread, link = self.connected()
            thread.run(link.send, task)
        except _AWAY as problem:
            raise ConnectionClosed(problem) from problem
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> "DramatiqConsumer":
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        try:
            thread, link = self.connected()
        except _AWAY as problem:
            raise ConnectionClosed(problem) from problem
        intake = Intake(link, [queue_name], max(prefetch, 1))
        self._intakes.append((queue_name, ref(intake)))
        return DramatiqConsumer(thread, intake, timeout / 1000)

    def _of_queue(self, queue_name: str) -> list[Intake]:
        found = [(name, intake()) for name, intake in self._intakes]
        return [intake for name, intake in found if name == queue_name and intake is not None]

    def flush(self, queue_name: str) -> None:
        """Throw away what waits in a queue; delayed messages come all the same."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        thread, link = self.connected()

        async def purge() -> None:
            intake = Intake(link, [queue_name], 1)
            try:
                await intake.purge()
            finally:
                await intake.close()

        thread.run(purge)

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until nothing is left in a queue, or worked on in this process; for tests.

        Delayed messages do not count.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        # Imported late: workers do not need it.
        from pyromq.admin.blocking import Admin

        _, link = self.connected()
        topic = link.topic_of(queue_name)
        until = None if timeout is None else time.monotonic() + timeout / 1000
        with Admin(**link.client) as admin:
            while admin.lag(topic, topic).total or any(map(len, self._of_queue(queue_name))):
                if until is not None and time.monotonic() >= until:
                    raise QueueJoinTimeout(queue_name)
                time.sleep(interval / 1000)


class DramatiqConsumer(Consumer):
    """Of one queue, for one thread of Dramatiq; worker threads acknowledge."""

    def __init__(self, thread: LoopThread, intake: Intake, timeout_s: float) -> None:
        self._thread = thread
        self._intake = intake
        self._timeout_s = timeout_s

        async def start() -> None:
            intake.start()

        thread.run(start)

    def __next__(self) -> MessageProxy | None:
        taken = self._thread.run(self._intake.next, self._timeout_s)
        if taken is None:
            return None
        try:
            message: dramatiq.Message[Any] = dramatiq.Message.decode(taken.message.body)
        except DecodeError as problem:
            self._settle(self._intake.reject, taken, f"not a message of Dramatiq: {problem}")
            return None
        return DramatiqMessage(message, taken)

    def ack(self, message: MessageProxy) -> None:
        self._settle(self._intake.ack, _taken(message))

    def nack(self, message: MessageProxy) -> None:
        """Make it a dead letter, with the reason."""
        problem = message._exception
        reason = "rejected by a worker" if problem is None else f"{type(problem).__name__}: {problem}"
        self._settle(self._intake.reject, _taken(message), reason)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            self._settle(self._intake.give_back, _taken(message))

    def close(self) -> None:
        if self._thread.is_of_this_process:
            self._thread.run(self._intake.close)

    def _settle(self, how: Callable[..., None], *arguments: Any) -> None:
        if self._thread.is_of_this_process:
            self._thread.call_soon(lambda: how(*arguments))


class DramatiqMessage(MessageProxy):
    """Knows the delivery that it stands for."""

    def __init__(self, message: "dramatiq.Message[Any]", taken: TakenTask) -> None:
        super().__init__(message)
        self.taken = taken


def _taken(message: MessageProxy) -> TakenTask:
    assert isinstance(message, DramatiqMessage), message
    return message.taken
