"""The asyncio producer. The blocking producer runs this one on a background thread."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack, cast, overload

from pyromq.chance import uuid
from pyromq.client.application_log import application_log
from pyromq.client.batching import Accumulator, batch_request, check_batch, encode_batch, offset_ids, split
from pyromq.client.declaring import TopicType, declare_topic
from pyromq.client.health import DEFAULT_TIMEOUT_S, Health, health_of
from pyromq.client.in_flight_limit import InFlightLimit
from pyromq.client.middleware import Middleware, surrounded
from pyromq.client.opened import Opened
from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.producer_settings import ProducerOptions, ProducerSettings
from pyromq.client.quick_batches import gathering, quick_batches
from pyromq.client.quick_sends import quick_sends
from pyromq.client.recalling import handle_text, recall
from pyromq.client.requesting import error_in, error_reply, is_expired, reply_to, request_properties
from pyromq.client.sending import Sender, SenderStatistics, SendOutcome
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings, split_options
from pyromq.client.timing import timed
from pyromq.client.trace_records import MessageKind, SentRecord
from pyromq.client.tracing import Tracing
from pyromq.client.tracing_choice import is_traced
from pyromq.client.values import Message, MessageFields, ReceivedMessage, Selector, SendResult, SendStatus
from pyromq.cluster.sending.choice import queue_of_key, queue_of_lite_topic
from pyromq.cluster.sending.plan import SendPlan
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import (
    AskerGone,
    BadMessage,
    ConfigError,
    NoReply,
    PyroError,
    Refused,
    SendFailed,
    StateError,
    TransportError,
)
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.sending import SendMessageV2, SendReplyV2
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.remoting.addresses import parse_address

if TYPE_CHECKING:
    from pyromq_native.client.fast_batches import Gathering, PlainBatch
    from pyromq_native.client.fast_sends import Sending

    from pyromq.client import spans


DEFAULT_REQUEST_TIMEOUT_S = 3.0

_STATUS = {int(status): status for status in SendStatus}
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_RESERVED_GROUP = "DEFAULT_PRODUCER"
_CHECK_TIMEOUT_S = 1.0


Send: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""A `send` of messages."""

MethodT = TypeVar("MethodT", bound=Send)


def in_middleware(method: MethodT) -> MethodT:
    """A method that sends a message, with the producer's middleware and spans around it."""

    @wraps(method)
    def sending(self: "Producer", message: Message, *args: Any, **options: Any) -> Any:
        if not self._is_surrounded:
            return method(self, message, *args, **options)
        name = method.__name__.lstrip("_")
        return self._surrounded(partial(method, self), name)(message, *args, **options)

    return cast(MethodT, sending)


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    in_flight: int
    in_flight_bytes: int
    waiting_for_room: int
    sender: SenderStatistics
    batches: int
    batched_messages: int
    dropped_traces: int


class Producer(Opened):
    """`async with Producer("orders", namesrv="127.0.0.1:9876") as producer: await producer.send(message)`.

    Producers and consumers of one process with the same client settings share connections, routes and
    heartbeats: a thousand producers cost little more than one.
    """

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        """`namesrv`: addresses of name servers, separated by `;` or in a list; None: NAMESRV_ADDR."""
        problem = names.group_problem(group)
        if problem is None and group == _RESERVED_GROUP:
            problem = "the name is reserved"
        if problem is not None:
            raise ConfigError("group", group, f"another name: {problem}")
        self.group = group
        self.settings, client_options = split_options(options, ProducerSettings)
        self.client_settings = ClientSettings.of(namesrv, **client_options)
        self._parts: ProducerParts | None = None
        self._compiled: Gathering | Sending | None = None
        self._is_closed = False
        self._priority_topics: set[str] = set()
        """Topics that were checked for what priorities do there."""
        self._middlewares: list[Middleware] = []
        self._spans: spans.SendSpans | None = None
        if is_traced(self.settings.otel):
            # Imported late: OpenTelemetry is optional.
            from pyromq.client.spans import SendSpans

            self._spans = SendSpans(self._span_attributes)
        self._send: Send = self._surrounded(self._send_generally, "send")
        self._send_plainly: Send = self._send
        """For a message without options; compiled while the producer runs, where that is possible."""

    @property
    def _is_surrounded(self) -> bool:
        return self._spans is not None or bool(self._middlewares)

    def _surrounded(self, method: Send, name: str) -> Send:
        if self._middlewares:
            method = surrounded(method, self._middlewares)
        return method if self._spans is None else self._spans.around(method, name)

    def around(self, middleware: Middleware) -> Middleware:
        """Send every message inside the context manager that this function returns for it, or for a list.

        It can be a decorator, over `@contextmanager`. A message, or list, that it yields is sent instead. Add
        it before the start.
        """
        if self._parts is not None:
            raise StateError("the producer has been started: add what is around its sends first")
        self._middlewares.append(middleware)
        self._send = self._send_plainly = self._surrounded(self._send_generally, "send")
        return middleware

    def _span_attributes(self, broker_name: str | None) -> dict[str, str | int]:
        session = self._started().session
        known: dict[str, str | int] = {
            "messaging.client.id": session.client_id,
            "messaging.rocketmq.namespace": session.settings.namespace or "",
        }
        if broker_name is not None and (address := session.broker_address(broker_name)) is not None:
            known["server.address"], known["server.port"] = parse_address(address)
        return known

    def __repr__(self) -> str:
        parts = self._parts
        state = "closed" if self._is_closed else "not started" if parts is None else repr(parts.in_flight)
        return f"<{type(self).__name__} {self.group} {state}>"

    def statistics(self) -> ProducerStatistics:
        parts = self._started()
        accumulator, tracing = parts.accumulator, parts.tracing
        return ProducerStatistics(
            in_flight=parts.in_flight.count,
            in_flight_bytes=parts.in_flight.size_bytes,
            waiting_for_room=parts.in_flight.waiting,
            sender=parts.sender.statistics,
            batches=accumulator.batches if accumulator is not None else 0,
            batched_messages=accumulator.messages if accumulator is not None else 0,
            dropped_traces=tracing.dropped if tracing is not None else 0,
        )

    async def health(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Health:
        """Ask the known brokers, or a name server while there are none, whether they answer."""
        parts = self._parts
        return await health_of(None if parts is None else parts.session, self.group, timeout_s)

    # Beginning and end

    async def start(self) -> None:
        """Done by `async with`."""
        if self._is_closed:
            raise StateError("the producer is closed: create a new one")
        if self._parts is not None:
            raise StateError("the producer has been started already")
        session = await Session.obtain(self.client_settings)
        self._parts = parts = ProducerParts(self, session)
        if not self._is_surrounded:
            self._compiled = parts.compiled_sends(self._send)
        if self._compiled is not None:
            self._send_plainly = self._compiled.send
        session.add_producer(session.wrap(self.group), self)

    async def close(self) -> None:
        """Send all batches, wait for messages in flight, and leave."""
        parts = self._parts
        if self._is_closed or parts is None:
            self._is_closed = True
            return
        parts.session.check_loop()
        self._is_closed = True
        if self._compiled is not None:
            self._compiled.close()  # from now on it calls the general path
        try:
            await self._finish(parts)
        finally:
            self._parts = None
            await parts.session.remove_producer(parts.sender.group, self)
            await parts.session.release()

    async def _finish(self, parts: "ProducerParts") -> None:
        if parts.accumulator is not None:
            await parts.accumulator.close()
        await parts.in_flight.wait_empty()
        if parts.tracing is not None:
            await parts.tracing.close()

    def _started(self) -> "ProducerParts":
        parts = self._parts
        if parts is None or self._is_closed:
            how = "is closed" if self._is_closed else "has not been started: use it in a `with` block"
            raise StateError(f"the producer {self.group} {how}")
        return parts

    def _direct_parts(self) -> "ProducerParts | None":
        """The parts of a started producer whose plain sends need not go through the loop; else None."""
        parts = self._parts
        if parts is None or self._is_closed or self._is_surrounded or not parts.sends_directly:
            return None
        return parts

    async def _send_on(
        self, prepared: PreparedMessage, plan: SendPlan, problem: TransportError | Refused
    ) -> SendResult:
        """Carry on with a plan whose first try, on another thread, has failed."""
        parts = self._started()
        parts.sender.note_failure(plan, prepared.topic, problem)
        return await parts.send_on(prepared, plan)

    # Sending

    def message(self, topic: str, value: object, **fields: Unpack[MessageFields]) -> Message:
        """A message whose body is the value, in the producer's codec; `fields` as in `Message`."""
        return Message.of(topic, value, codec=self.settings.codec, **fields)

    @overload
    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> Coroutine[Any, Any, SendResult]: ...

    @overload
    def send(
        self,
        message: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Coroutine[Any, Any, list[SendResult]]: ...

    def send(
        self, message: Message | Sequence[Message], **options: Any
    ) -> Coroutine[Any, Any, SendResult | list[SendResult]]:
        """Send one message, or several of one topic in as few requests as possible.

        At most one of `queue`, `selector` and `sharding_key` chooses the queue; retries then go to the same
        queue. With `delay` or `deliver_at` (which needs a time zone) the broker delivers the message later,
        and `recall` takes it back until then. Raises SendFailed, Refused, NoRoute or BadMessage.
        """
        # A plain message is by far the most frequent: this is all that it costs before the compiled path.
        return self._send(message, **options) if options else self._send_plainly(message)

    async def _send_generally(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult | list[SendResult]:
        parts = self._started()
        if delay is not None or deliver_at is not None:
            message = timed(message, delay, deliver_at)
        if not isinstance(message, Message):
            return await self._send_many(parts, message, queue, selector, sharding_key, timeout_s)
        prepared = parts.prepare(message, _sharding(sharding_key))
        if _is_chosen(message, queue, selector, sharding_key):
            queue = await self._choose(parts, message, prepared.topic, queue, selector, sharding_key)
        result = await parts.send(prepared, queue, timeout_s)
        if message.priority is not None and prepared.topic not in self._priority_topics:
            self._priority_topics.add(prepared.topic)
            await self._check_priorities(parts, prepared.topic, result.queue.broker_name)
        return result

    async def _check_priorities(self, parts: "ProducerParts", topic: str, broker_name: str) -> None:
        """Brokers say nothing of a priority that has no effect."""
        address = parts.session.broker_address(broker_name)
        try:
            answer = await parts.session.call(address or "", GetTopicConfig(topic=topic), _CHECK_TIMEOUT_S)
        except PyroError:
            return  # an old broker; the message is stored
        if (kind := answer.body.attributes.get("message.type", "NORMAL")) != "PRIORITY":
            application_log.warning(
                "priorities have no effect topic=%s: its type is %s, not PRIORITY", topic, kind
            )

    async def _send_many(
        self,
        parts: "ProducerParts",
        messages: Sequence[Message],
        queue: MessageQueue | None,
        selector: Selector | None,
        sharding_key: str | None,
        timeout_s: float | None,
    ) -> list[SendResult]:
        messages = _several(messages)
        system = _sharding(sharding_key)
        entries = [parts.prepare(message, system, compress=False) for message in messages]
        check_batch(entries)
        if queue is not None or selector is not None or sharding_key is not None:
            queue = await self._choose(parts, messages[0], entries[0].topic, queue, selector, sharding_key)
        results: list[SendResult] = []
        for part in split(entries, self.settings.max_message_bytes):
            try:
                results += await parts.send_batch(part, queue, timeout_s)
            except PyroError as problem:
                problem.add_note(f"{len(results)} of {len(entries)} messages of the batch were stored before")
                raise
        return results

    @in_middleware
    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Send a message without an answer: it may be lost unnoticed."""
        parts = self._started()
        if delay is not None or deliver_at is not None:
            message = timed(message, delay, deliver_at)
        prepared = parts.prepare(message, _sharding(sharding_key))
        if _is_chosen(message, queue, selector, sharding_key):
            queue = await self._choose(parts, message, prepared.topic, queue, selector, sharding_key)
        await parts.sender.send_oneway(prepared, parts.sender.plan(queue))

    async def recall(self, handle: SendResult | str, timeout_s: float | None = None) -> str:
        """Take back a timed message, by its SendResult or the `recall_handle` in it, before its delivery.

        Returns the id of the message. Raises Refused if the broker does not take messages back, or if the
        message was due; a message that is due in this moment may still be delivered.
        """
        parts, text = self._started(), handle_text(handle)
        return await recall(parts.sender, text, timeout_s or self.settings.send_timeout_s)

    async def flush(self) -> None:
        """Send all batches now, and return when nothing is in flight."""
        parts = self._started()
        if parts.accumulator is not None:
            parts.accumulator.flush()
        await parts.in_flight.wait_empty()

    async def declare_topic(self, topic: str, *, queues: int = 8, message_type: TopicType = "NORMAL") -> bool:
        """Create a topic on every master, unless it exists; True if it was created."""
        parts = self._started()
        return await declare_topic(parts.session, parts.session.wrap(topic), queues, message_type)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The writable queues of a topic."""
        parts = self._started()
        route = await parts.sender.route(parts.session.wrap(topic))
        return tuple(map(parts.shown_queue, route.publish_queues))

    async def _choose(
        self,
        parts: "ProducerParts",
        message: Message,
        topic: str,
        queue: MessageQueue | None,
        selector: Selector | None,
        sharding_key: str | None,
    ) -> MessageQueue:
        """The chosen queue of a message, with the topic name that brokers know."""
        if (queue is not None) + (selector is not None) + (sharding_key is not None) > 1:
            raise BadMessage("set only one of queue, selector and sharding_key")
        if queue is None:
            route = await parts.sender.route_in_time(topic)
            if sharding_key is not None:
                return queue_of_key(route.publish_queues, sharding_key)
            if selector is None:
                return queue_of_lite_topic(route.publish_queues, message.lite_topic or "")
            queue = selector(tuple(map(parts.shown_queue, route.publish_queues)), message)
            if not isinstance(queue, MessageQueue):
                raise BadMessage(f"the selector must return one of the queues it was given, not {queue!r}")
        elif not isinstance(queue, MessageQueue):
            raise BadMessage(f"queue must be a MessageQueue, not {queue!r}")
        wanted = MessageQueue(parts.session.wrap(queue.topic), queue.broker_name, queue.queue_id)
        if wanted.topic != topic:
            raise BadMessage(f"the queue {queue} does not belong to the topic {message.topic}")
        return wanted

    # Requests and replies between clients

    @in_middleware
    async def request(
        self,
        message: Message,
        timeout_s: float = DEFAULT_REQUEST_TIMEOUT_S,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply.

        Raises NoReply if none comes in time, and RequestFailed if the consumer calls `reply_error`.
        """
        parts = self._started()
        session = parts.session
        correlation_id = str(uuid())
        system = request_properties(correlation_id, session.client_id, timeout_s)
        prepared = parts.prepare(message, system | (_sharding(sharding_key) or {}))
        replied = session.replies.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_s):
                await parts.sender.route_in_time(prepared.topic)
                # Any broker may deliver the reply, so all of them must know this client.
                await session.wait_known()
                if _is_chosen(message, queue, selector, sharding_key):
                    queue = await self._choose(parts, message, prepared.topic, queue, selector, sharding_key)
                await parts.send(prepared, queue, timeout_s, alone=True)
                reply = await replied
        except TimeoutError:
            raise NoReply(
                f"no reply to {message!r} within {timeout_s} s: does a consumer of {message.topic} reply?"
            ) from None
        finally:
            session.replies.forget(correlation_id)
        if (failure := error_in(reply)) is not None:
            raise failure
        return reply

    async def reply(
        self,
        to: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Answer a message that was sent by `request`. Raises AskerGone if its sender waits no more: in a
        handler, let that pass, and the request is done."""
        message, system = reply_to(to, body, tags=tags, properties=properties)
        return await self._reply(to, message, system, timeout_s)

    async def reply_error(
        self, to: ReceivedMessage, error: BaseException | str, *, timeout_s: float | None = None
    ) -> SendResult:
        """Answer a request with the reason why it failed: the sender's `request` raises RequestFailed."""
        body, marks = error_reply(error)
        message, system = reply_to(to, body, tags=None, properties={})
        return await self._reply(to, message, system | marks, timeout_s)

    async def _reply(
        self, to: ReceivedMessage, message: Message, system: dict[str, str], timeout_s: float | None
    ) -> SendResult:
        parts = self._started()
        if is_expired(to, parts.session.clock.now_ms()):
            raise AskerGone(f"the request {to.message_id} has expired")
        prepared = parts.prepare(message, system, kind=SendReplyV2)
        try:
            return await parts.send(prepared, None, timeout_s, alone=True)
        except SendFailed as problem:
            # java: brokers have no other code for it
            if isinstance(problem.last, Refused) and problem.last.code == ResponseCode.SYSTEM_ERROR:
                raise AskerGone(
                    f"no reply to {to.message_id} was delivered: {problem.last.remark}"
                ) from problem
            raise

    # Questions of brokers

    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> bool:
        return False


class ProducerParts:
    """The parts of a started producer."""

    def __init__(self, producer: Producer, session: Session) -> None:
        settings = producer.settings
        client_settings = session.settings
        self.session = session
        self.settings = settings
        self.group = producer.group
        self.sender = Sender(session, session.wrap(producer.group), settings)
        self.preparer = MessagePreparer(
            wrap=session.wrap,
            namespace=client_settings.namespace or client_settings.namespace_v2,
            max_bytes=settings.max_message_bytes,
            compress_from_bytes=settings.compress_from_bytes,
            compression=settings.compression,
            level=settings.compression_level,
            max_delay_level=settings.max_delay_level,
        )
        self.in_flight = InFlightLimit(settings.max_in_flight, settings.max_in_flight_bytes)
        self.tracing = (
            Tracing(session, producer.group, "PRODUCE", settings.trace_topic) if settings.trace else None
        )
        self.accumulator: Accumulator[SendResult] | None = None
        if settings.linger_ms is not None:
            self.accumulator = Accumulator(
                self._send_accumulated,
                linger_s=settings.linger_ms / 1000,
                max_bytes=settings.batch_max_bytes,
                deliver_plain=self.send_gathered,
                left=self.in_flight.leave_together,
            )
        self.body_limit = min(settings.compress_from_bytes, settings.max_message_bytes + 1)
        self._has_namespace = client_settings.namespace is not None
        self.quick = quick_sends(self, producer._send) if not producer._is_surrounded else None
        if self.accumulator is not None and (batches := quick_batches(self)) is not None:
            self.accumulator.quickly = batches.begin

    def compiled_sends(self, generally: Send) -> "Gathering | Sending | None":
        """The compiled sends of messages without options; a coroutine of ours would cost as much as all the
        rest of a send. `generally` sends what they decline.
        """
        if self.quick is not None:
            return self.quick.sending
        return gathering(self, self.settings.batch_max_bytes, generally) if self.tracing is None else None

    def prepare(
        self,
        message: Message,
        system: Mapping[str, str] | None = None,
        *,
        compress: bool = True,
        kind: type[SendMessageV2] = SendMessageV2,
    ) -> PreparedMessage:
        session = self.session
        session.check_loop()
        if not isinstance(message, Message):
            raise BadMessage(f"a message must be a Message, not {type(message).__name__}")
        now_ms = session.clock.now_ms()
        unique_key = session.unique_keys.next(now_ms)
        return self.preparer.prepare(message, unique_key, now_ms, system, compress=compress, kind=kind)

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue with the topic name that the application knows."""
        if not self._has_namespace:
            return queue
        return MessageQueue(self.session.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    async def send(
        self,
        prepared: PreparedMessage,
        queue: MessageQueue | None,
        timeout_s: float | None,
        *,
        alone: bool = False,
    ) -> SendResult:
        """`alone`: never in a batch."""
        size_bytes = prepared.size_bytes
        if not self.in_flight.try_enter(size_bytes):
            await self.in_flight.enter(size_bytes)
        try:
            if self.accumulator is not None and not alone:
                future = self.accumulator.maybe_add(prepared, queue) if timeout_s is None else None
                if future is not None:
                    return await future
                # Keep the order: batches with earlier messages leave first.
                self.accumulator.flush(prepared.topic)
                await asyncio.sleep(0)
            outcome = await self.sender.send(prepared, self.sender.plan(queue, timeout_s))
        finally:
            self.in_flight.leave(size_bytes)
        return self.result(prepared, outcome)

    @property
    def sends_directly(self) -> bool:
        """Whether another thread may make the first try of a plain send; see `DirectSending`."""
        is_plain = self.accumulator is None and self.tracing is None
        return is_plain and self.sender.allows_first_tries

    async def send_on(self, prepared: PreparedMessage, plan: SendPlan) -> SendResult:
        """Carry on with the plan of a message whose first try has failed."""
        await self.in_flight.enter(prepared.size_bytes)
        try:
            outcome = await self.sender.send(prepared, plan)
        finally:
            self.in_flight.leave(prepared.size_bytes)
        return self.result(prepared, outcome)

    async def send_batch(
        self, entries: Sequence[PreparedMessage], queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        size_bytes = sum(prepared.size_bytes for prepared in entries)
        await self.in_flight.enter(size_bytes)
        try:
            return await self._send_as_batch(entries, queue, timeout_s)
        finally:
            self.in_flight.leave(size_bytes)

    async def _send_accumulated(
        self, entries: list[PreparedMessage], queue: MessageQueue | None
    ) -> list[SendResult]:
        if len(entries) > 1:
            return await self._send_as_batch(entries, queue, None)
        (prepared,) = entries
        return [self.result(prepared, await self.sender.send(prepared, self.sender.plan(queue)))]

    async def send_gathered(self, batch: "PlainBatch", plan: SendPlan | None = None) -> None:
        """Send a batch of plain messages, and give each its result. `plan`: one that has begun."""
        if len(batch) > 1:
            request = batch_request(batch.topic, batch.body, "", batch.keys[0], batch.born_ms)
        else:
            request = self.preparer.prepare(batch.messages[0], batch.keys[0], batch.born_ms)
        self.settle_gathered(batch, await self.sender.send(request, plan or self.sender.plan()))

    def settle_gathered(self, batch: "PlainBatch", outcome: SendOutcome) -> None:
        batch.settle(SendResult, offset_ids(outcome.answer.msg_id, len(batch)), *self._place(outcome))

    async def _send_as_batch(
        self, entries: Sequence[PreparedMessage], queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        # A message that fills a request alone would not fit into a batch, which needs more bytes for it.
        request = encode_batch(entries) if len(entries) > 1 else entries[0]
        outcome = await self.sender.send(request, self.sender.plan(queue, timeout_s))
        return self._results(entries, offset_ids(outcome.answer.msg_id, len(entries)), outcome)

    def result(self, prepared: PreparedMessage, outcome: SendOutcome) -> SendResult:
        return self._results((prepared,), (outcome.answer.msg_id,), outcome)[0]

    def _place(
        self, outcome: SendOutcome
    ) -> tuple[SendStatus, MessageQueue, int, str | None, str | None, str]:
        """The result that all messages of one request share; the offset is that of the first message."""
        answer = outcome.answer
        queue = outcome.queue if not self._has_namespace else self.shown_queue(outcome.queue)
        if queue.queue_id != answer.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, answer.queue_id)
        region = answer.msg_region or names.DEFAULT_REGION
        return (
            _STATUS[answer.code],
            queue,
            answer.queue_offset,
            answer.transaction_id,
            answer.recall_handle,
            region,
        )

    def _results(
        self, entries: Sequence[PreparedMessage], offset_ids: Sequence[str], outcome: SendOutcome
    ) -> list[SendResult]:
        """The results of messages sent in one request; `offset_ids` are their ids in the store."""
        status, queue, offset, transaction_id, recall, region = self._place(outcome)
        results = [
            SendResult(
                status,
                prepared.unique_key,
                offset_id,
                queue,
                offset + index,
                transaction_id,
                recall,
                region,
            )
            for index, (prepared, offset_id) in enumerate(zip(entries, offset_ids, strict=True))
        ]
        tracing, answer = self.tracing, outcome.answer
        if tracing is not None and answer.trace_on is not False and entries[0].topic != tracing.topic:
            for prepared, result in zip(entries, results, strict=True):
                self._trace(tracing, prepared, outcome, result)
        return results

    def _trace(
        self, tracing: Tracing, prepared: PreparedMessage, outcome: SendOutcome, result: SendResult
    ) -> None:
        kind = MessageKind.NORMAL
        if prepared.sys_flag & SysFlag.TRANSACTION_PREPARED:
            kind = MessageKind.TRANSACTION_HALF
        elif prepared.is_delayed:
            kind = MessageKind.DELAYED
        record = SentRecord(
            at_ms=self.session.clock.now_ms() - round(outcome.latency_ms),
            region=result.region,
            group=self.group,
            topic=self.session.unwrap(prepared.topic),
            message_id=result.message_id,
            tags=prepared.tags,
            keys=prepared.keys or None,
            store_host=outcome.address,
            body_bytes=len(prepared.body),
            cost_ms=round(outcome.latency_ms),
            kind=kind,
            offset_message_id=result.offset_message_id,
            is_ok=result.is_ok,
        )
        tracing.report(record.text(), (result.message_id, *prepared.keys.split()))


def _several(messages: object) -> list[Message]:
    """Checked at run time, for applications without a type checker."""
    if isinstance(messages, Iterable) and not isinstance(messages, str | bytes):
        several = list(messages)
        if all(isinstance(each, Message) for each in several):
            return several
    raise BadMessage(f"send takes a Message or a sequence of them, not {type(messages).__name__}")


def _is_chosen(
    message: Message, queue: MessageQueue | None, selector: Selector | None, sharding_key: str | None
) -> bool:
    """Whether the application, or the lite topic of the message, says which queue it goes to."""
    return any(each is not None for each in (queue, selector, sharding_key, message.lite_topic))


def _sharding(key: str | None) -> dict[str, str] | None:
    if key is not None and not isinstance(key, str):
        raise BadMessage(f"sharding_key must be str, not {type(key).__name__}")
    return None if key is None else {props.SHARDING_KEY: key}
