"""One connection of kombu: what it publishes, and what its loop side has received for it.

kombu's thread calls here; everything about receiving runs on the client's loop (`inflow`). In a forked child
a link of the parent does nothing.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from pyromq.celery import readers
from pyromq.celery.envelope import Times, packed
from pyromq.celery.inflow import Inflow
from pyromq.celery.names import exchange_topic_of, group_of, topic_of
from pyromq.celery.options import ClusterTarget
from pyromq.celery.traits import QueueTraits
from pyromq.celery.waiting import WaitingTasks, revoked_ids
from pyromq.client.blocking import LoopThread, Producer, TransactionProducer
from pyromq.client.values import Message, SendResult
from pyromq.errors import BadMessage, ConnectFailed, Refused

_HEALTH_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 10.0
_GET_WAIT_S = 0.1
_GET_AFTER_REQUEUE_S = 1.0
_LOOK_S = 1.0
_CONTROL = ".pidbox"
"""How the exchanges of Celery's remote control end."""


class BrokerLink:
    def __init__(self, target: ClusterTarget) -> None:
        self.target = target
        self._thread = LoopThread.shared()
        self._declared: set[str] = set()
        self._requeued_at = 0.0
        # Not a condition: a signal handler may interrupt this thread anywhere, and close the link.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._wake: Callable[[], None] | None = None
        self.producer = Producer(
            "CELERY-PRODUCERS", **target.client_options, max_message_bytes=target.options.max_message_bytes
        )
        self.producer.start()
        health = self.producer.health(timeout_s=_HEALTH_TIMEOUT_S)
        if not health.is_ok:
            self.producer.close()
            raise ConnectFailed("; ".join(health.problems))
        self._waiting = WaitingTasks(target) if target.options.recall else None
        self._transactions: TransactionProducer | None = None
        self.inflow = Inflow(target, self._thread, self._notify, self._waiting)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_of_this_process

    # Publishing

    def put(self, queue: str, raw: dict[str, Any], traits: QueueTraits) -> None:
        topic = topic_of(queue)
        self.declare(topic, traits)
        goes_with_commit = self.target.options.transactional and self._is_in_transaction(raw)
        times = self._times(raw, traits, is_half=goes_with_commit)
        message = packed(topic, raw, times)
        if traits.max_priority and times.due_ms is None:
            wanted = raw["properties"].get("priority")
            message = message.replace(priority=max(0, min(int(wanted or 0), traits.max_priority)))
        key = raw["headers"].get("order_key") if traits.is_ordered else None
        if goes_with_commit:
            self._send_on_commit(message, key)
            return
        sent = self._send(message, None if key is None else str(key))
        if self._waiting is not None and sent.recall_handle is not None:
            self._thread.run(self._waiting.note, queue, message, sent.recall_handle)

    def post(self, exchange: str, routing_key: str, raw: dict[str, Any], tag: str | None) -> None:
        """For private queues: whoever follows the exchange reads it."""
        topic = exchange_topic_of(exchange)
        self.declare(topic, QueueTraits(), queues=1)
        self._send(packed(topic, raw, Times(), tag or ""))
        if self._waiting is not None and exchange.endswith(_CONTROL) and (ids := revoked_ids(raw["body"])):
            self._thread.run(self._waiting.recall, ids)

    def _is_in_transaction(self, raw: dict[str, Any]) -> bool:
        """Whether a transaction of Django runs in this thread. A retry does not go with it: it ends it."""
        # Imported late: only applications with Django need it.
        from celery import current_task
        from django.db import transaction

        if not transaction.get_connection(self.target.options.database).in_atomic_block:
            return False
        return not current_task or current_task.request.id != raw["headers"].get("id")

    def _send_on_commit(self, message: Message, key: object) -> None:
        # Imported late: only applications with Django need it.
        from pyromq.django.outbox import outbox_check, send_on_commit

        database = self.target.options.database
        if key is not None:
            raise BadMessage(
                "a task with an order_key cannot go with a transaction: send it after the commit"
            )
        if self._transactions is None:
            self._transactions = TransactionProducer(
                "CELERY-TRANSACTIONS",
                check=partial(outbox_check, using=database),
                **self.target.client_options,
                max_message_bytes=self.target.options.max_message_bytes,
            )
            self._transactions.start()
        # A half message has no time: the worker that gets it sends it again for its time.
        send_on_commit(self._transactions, message.replace(deliver_at_ms=None), using=database)

    def _send(self, message: Message, sharding_key: str | None = None) -> SendResult:
        try:
            if sharding_key is None:
                return self.producer.send(message)
            return self.producer.send(message, sharding_key=sharding_key)
        except BadMessage as problem:
            limit = self.target.options.max_message_bytes
            if len(message.body) > limit:
                raise BadMessage(
                    f"{problem}: raise maxMessageSize of the brokers and max_message_bytes of"
                    " broker_transport_options, or store the argument elsewhere and send a reference to it"
                ) from problem
            raise

    def _times(self, raw: dict[str, Any], traits: QueueTraits, *, is_half: bool = False) -> Times:
        now_ms = round(time.time() * 1000)
        ttl = raw["properties"].get("expiration")
        lives_ms = [int(each) for each in (ttl, traits.ttl_ms) if each is not None]
        expires_ms = now_ms + min(lives_ms) if lives_ms else None
        options = self.target.options
        eta_ms = eta_of(raw) if options.native_delay and not traits.is_ordered else None
        if eta_ms is None or eta_ms <= now_ms:
            return Times(None, None, expires_ms)
        due_ms = now_ms if is_half else min(eta_ms, now_ms + round(options.max_delay_s * 1000))
        return Times(due_ms, eta_ms, expires_ms)

    def declare(self, topic: str, traits: QueueTraits, queues: int | None = None) -> None:
        """Once in a process; a broker that forbids it may have the topic all the same."""
        if topic in self._declared:
            return
        if queues is None:
            queues = traits.max_priority + 1 if traits.max_priority else self.target.options.queues
        with suppress(Refused):
            self.producer.declare_topic(topic, queues=queues, message_type=traits.topic_type)
        self._declared.add(topic)

    # Receiving

    def consume(self, channel: Any, queue: str, traits: QueueTraits, *, no_ack: bool) -> None:
        self.declare(topic_of(queue), traits)
        self._thread.run(self.inflow.consume, channel, queue, traits, no_ack=no_ack)

    def bind(self, queue: str, exchange: str, tag: str) -> None:
        """Fix where a private queue begins to read an exchange: now, or earlier if it is bound already."""
        if readers.is_known(self.target, queue, exchange):
            self.inflow.keep(queue)
            return
        self.declare(exchange_topic_of(exchange), QueueTraits(), queues=1)
        self._thread.run(readers.prepare, self.target, queue, exchange, tag)

    def follow(self, channel: Any, queue: str, is_wanted: Callable[[str, dict[str, Any]], bool]) -> None:
        self._thread.run(self.inflow.follow, channel, queue, is_wanted)

    def cancel(self, channel: Any, queue: str) -> None:
        if self.is_alive:
            self._thread.run(self.inflow.cancel, channel, queue)

    def poll(self, queue: str, is_wanted: Callable[[str, dict[str, Any]], bool]) -> dict[str, Any] | None:
        return self._thread.run(self.inflow.poll, queue, is_wanted)

    def get(self, channel: Any, queue: str, traits: QueueTraits) -> dict[str, Any] | None:
        self.declare(topic_of(queue), traits)
        is_expected = time.monotonic() < self._requeued_at + _GET_AFTER_REQUEUE_S
        wait_s = _GET_AFTER_REQUEUE_S if is_expected else _GET_WAIT_S
        arrival = self._thread.run(self.inflow.get, channel, queue, traits, wait_s)
        return None if arrival is None else arrival.raw

    def purge(self, queue: str, traits: QueueTraits) -> int:
        self.declare(topic_of(queue), traits)
        return self._thread.run(self.inflow.purge, queue, traits)

    def size(self, queue: str) -> int | None:
        """None: no one has used the queue."""
        # Imported late: workers do not need it.
        from pyromq.admin.blocking import Admin
        from pyromq.admin.failures import NotFound

        with Admin(**self.target.client_options) as admin:
            try:
                return admin.lag(group_of(queue), topic_of(queue)).total
            except NotFound:
                return None

    def ack(self, tag: int) -> None:
        self.inflow.settle(tag, "ack")

    def reject(self, tag: int) -> None:
        self.inflow.settle(tag, "reject")

    def requeue(self, tag: int) -> None:
        self._requeued_at = time.monotonic()
        self.inflow.settle(tag, "requeue")

    # Waking kombu

    def on_arrival(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def _notify(self) -> None:
        """Called on the client's loop, and by acknowledgements of other threads."""
        if self._bell.empty():
            self._bell.put(None)
        if self._wake is not None:
            self._wake()

    def wait(self, timeout_s: float | None) -> None:
        """Until something may have arrived or been settled, or the time is over."""
        with suppress(Empty):
            self._bell.get(timeout=_LOOK_S if timeout_s is None else min(timeout_s, _LOOK_S))

    def close(self) -> None:
        """Give back what no one has taken, and leave. Nothing in a forked child."""
        if not self.is_alive:
            return

        async def close() -> None:
            with suppress(TimeoutError):  # then the messages are delivered again by themselves
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self.inflow.close()
                    if self._waiting is not None:
                        await self._waiting.close()

        self._thread.run(close)
        if self._transactions is not None:
            self._transactions.close()
        self.producer.close()


def eta_of(raw: dict[str, Any]) -> int | None:
    """When the task is to run, in milliseconds since 1970."""
    text = raw["headers"].get("eta")
    if not isinstance(text, str):
        return None
    # Imported late: a process that publishes no such task does not need it.
    from datetime import UTC, datetime

    try:
        eta = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((eta if eta.tzinfo is not None else eta.replace(tzinfo=UTC)).timestamp() * 1000)
