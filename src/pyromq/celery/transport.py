"""kombu's transport: a queue is a topic and its group, an exchange with private queues is a topic to follow.

Queues are bound in the process that declares them. A message goes to the queues that its exchange has here
and, if there is none or a private one, to the topic of the exchange.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING, Any

from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.transport.virtual.base import queue_declare_ok_t

from pyromq.celery.names import is_private
from pyromq.celery.traits import QueueTraits
from pyromq.errors import NoRoute, Refused, SendFailed, TransportError
from pyromq.tasks.names import as_tag

if TYPE_CHECKING:
    from pyromq.celery.link import BrokerLink


class QoS(virtual.QoS):  # type: ignore[misc]
    """Messages of one channel that are worked on."""

    def ack(self, delivery_tag: int) -> None:
        self._quick_ack(delivery_tag)
        self.channel.link.ack(delivery_tag)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        if requeue:
            self.channel.link.requeue(delivery_tag)
        else:
            self.channel.link.reject(delivery_tag)
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """When the channel closes: the broker has the messages, so there is nothing to send."""
        self._flush()
        if self.channel.is_of_this_process:
            for tag in list(self._delivered):
                self.channel.link.requeue(tag)
        self._delivered.clear()
        return []


class RocketChannel(virtual.Channel):  # type: ignore[misc]
    QoS = QoS
    supports_fanout = True
    body_encoding = None
    """Bodies are bytes."""

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.link: BrokerLink = connection.link

    @property
    def is_of_this_process(self) -> bool:
        return self.link.is_alive

    @property
    def prefetch_limit(self) -> int:
        return 0 if self._qos is None else int(self._qos.prefetch_count or 0)

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **kwargs)

    # Queues

    def queue_declare(
        self, queue: str | None = None, passive: bool = False, **kwargs: Any
    ) -> queue_declare_ok_t:
        if not passive:
            declared = super().queue_declare(queue, passive=False, **kwargs)
            return queue_declare_ok_t(declared.queue, 0, 0)
        count = self.link.size(queue) if queue and not self._is_followed(queue) else 0
        if not queue or (count is None and queue not in self.connection.traits):
            raise ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404")
        return queue_declare_ok_t(queue, count or 0, 0)

    def _new_queue(self, queue: str, arguments: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.connection.traits[queue] = QueueTraits(arguments)
        if is_private(queue):
            self.link.bind(queue, "", as_tag(queue) or "*")

    def _size(self, queue: str) -> int:
        """Not asked for by a mere declaration: that would be a request for each."""
        return 0

    def _purge(self, queue: str) -> int:
        return 0 if self._is_followed(queue) else self.link.purge(queue, self._traits(queue))

    def _traits(self, queue: str) -> QueueTraits:
        traits: QueueTraits = self.connection.traits.get(queue) or QueueTraits()
        return traits

    def _is_followed(self, queue: str) -> bool:
        return is_private(queue) or any(
            self.typeof(exchange).type == "fanout" for exchange, _, _ in self.state.queue_bindings(queue)
        )

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        kind = self.typeof(exchange).type
        if kind == "fanout" or is_private(queue):
            self.link.bind(queue, exchange, (as_tag(routing_key) if kind == "direct" else None) or "*")

    # Publishing

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange and not is_private(routing_key):
            self._put(routing_key, message)
            return
        if exchange and exchange not in self.connection.known_exchanges:
            self._declare_queues_of(exchange)
        kind = self.typeof(exchange).type if exchange else "direct"
        found = self._lookup(exchange, routing_key) if exchange and kind != "fanout" else ()
        shared = [queue for queue in found if queue and not is_private(queue)]
        for queue in shared:
            self._put(queue, message)
        if not shared or len(shared) < len(found):
            self.link.post(exchange, routing_key, message, as_tag(routing_key) if kind == "direct" else None)

    def _declare_queues_of(self, exchange: str) -> None:
        """Celery declares a queue that it sends to by name. Other brokers know the rest from workers."""
        self.connection.known_exchanges.add(exchange)
        celery = sys.modules.get("celery")
        for queue in () if celery is None else list(celery.current_app.amqp.queues.values()):
            if queue.exchange is not None and queue.exchange.name == exchange:
                queue(self).declare()

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        self.link.put(queue, message, self._traits(queue))

    # Consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[..., Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if self._is_followed(queue):
            for exchange, key, _ in list(self.state.queue_bindings(queue)):
                self._queue_bind(exchange, key, None, queue)
            self.link.follow(self, queue, self._wants(queue))
        else:
            self.link.consume(self, queue, self._traits(queue), no_ack=no_ack)

    def _wants(self, queue: str) -> Callable[[str, dict[str, Any]], bool]:
        """Whether a message of an exchange is for the queue."""
        bindings = {exchange: key for exchange, key, _ in self.state.queue_bindings(queue)}
        metas = {
            exchange: (self.typeof(exchange), self.typeof(exchange).prepare_bind(queue, exchange, key, None))
            for exchange, key in bindings.items()
        }

        def wants(exchange: str, raw: dict[str, Any]) -> bool:
            key = raw["properties"]["delivery_info"].get("routing_key", "")
            if not exchange:
                return bool(key == queue)
            kind, meta = metas[exchange]
            return kind.type == "fanout" or bool(kind.lookup([meta], exchange, key, None))

        return wants

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self.link.cancel(self, queue)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.link.inflow.wake(self)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        if self._is_followed(queue):
            raw = self.link.poll(queue, self._wants(queue))
        else:
            raw = self.link.get(self, queue, self._traits(queue))
        if raw is None:
            raise Empty
        return raw

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.link.ack(message.delivery_tag)
        return message

    def _reset_cycle(self) -> None:
        """Messages come by themselves: queues are not polled in turns."""


class Transport(virtual.Transport):  # type: ignore[misc]
    Channel = RocketChannel
    can_parse_url = True
    default_port = 9876
    driver_type = "rocketmq"
    driver_name = "pyromq"
    connection_errors = (*virtual.Transport.connection_errors, TransportError, NoRoute, SendFailed, OSError)
    channel_errors = (*virtual.Transport.channel_errors, Refused)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )
    link: "BrokerLink | None" = None

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.traits: dict[str, QueueTraits] = {}
        """The declared arguments of queues."""
        self.known_exchanges: set[str] = set()
        self._socket: tuple[socket.socket, socket.socket] | None = None
        self._is_woken = False
        self._hide_keys(client)

    def _hide_keys(self, client: Any) -> None:
        # Here, not with this module: a worker forks its children after this, and they share what is loaded.
        import pyromq.celery.link  # noqa: F401
        from pyromq.celery.options import without_keys

        if "://" in (client.hostname or ""):
            client.hostname, user, secret = without_keys(client.hostname)
            client.userid, client.password = user or client.userid, secret or client.password

    def driver_version(self) -> str:
        from pyromq.version import version

        return version()

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        from pyromq.celery.options import masked

        return masked(uri, self.client.userid, self.client.password if include_password else None, mask)

    def establish_connection(self) -> "Transport":
        from pyromq.celery.link import BrokerLink
        from pyromq.celery.options import target_of

        self.link = BrokerLink(target_of(self.client))
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        if self.link is not None:
            self.link.close()
        if self._socket is not None and os.getpid() == self._pid:
            for each in self._socket:
                each.close()
            self._socket = None

    def verify_connection(self, connection: Any) -> bool:
        return self.link is not None and self.link.is_alive

    # Delivering

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        assert self.link is not None
        until = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_arrived():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self.link.wait(left)

    def _deliver_arrived(self) -> int:
        """Hand over what may be; what a channel's prefetch count leaves out stays."""
        link, count = self.link, 0
        if link is None:
            return 0
        arrived = link.inflow.arrived
        for _ in range(len(arrived)):
            try:
                arrival = arrived.popleft()
            except IndexError:
                break
            channel, queue = arrival.feed.channel, arrival.feed.queue
            if channel.closed or queue not in self._callbacks:
                link.inflow.settle(arrival.tag, "show")
            elif not arrival.feed.no_ack and not channel.qos.can_consume():
                arrived.append(arrival)
            else:
                count += 1
                if arrival.feed.no_ack:
                    link.ack(arrival.tag)
                self._callbacks[queue](arrival.raw)
        return count

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        assert self.link is not None
        self._pid = os.getpid()
        self._socket = reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)

        def wake() -> None:
            if not self._is_woken:
                self._is_woken = True
                with suppress(OSError):  # full, or closed
                    writing.send(b"1")

        def deliver() -> None:
            with suppress(OSError):
                reading.recv(4096)
            # After that: `recv` would take the byte of a `wake` in between, and no later one would send any.
            self._is_woken = False
            self._deliver_arrived()

        def tick() -> None:
            if self._socket is None:
                loop.on_tick.discard(tick)
            elif self.link is not None and self.link.inflow.arrived:
                self._deliver_arrived()

        self.link.on_arrival(wake)
        loop.add_reader(reading, deliver)
        loop.on_tick.add(tick)
        wake()
