"""The asyncio producer. Nothing is done twice: the blocking one is the same, awaited on another thread."""

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self, Unpack, overload

from pyromq.client.batching import Accumulator, check_batch, pack_letters, split
from pyromq.client.letters import Letter, LetterWriter
from pyromq.client.plain_entries import Parcel, plain_entry
from pyromq.client.producer_settings import ProducerOptions, ProducerSettings
from pyromq.client.queue_choice import Selector, queue_of_key
from pyromq.client.requesting import reply_to, request_properties
from pyromq.client.room import Room
from pyromq.client.sending import Sender, SenderStatistics, Sent
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings, split_options
from pyromq.client.trace_records import MessageKind, sent_record
from pyromq.client.tracing import Tracing
from pyromq.client.values import Message, ReceivedMessage, SendResult, SendStatus
from pyromq.errors import BadMessage, ConfigError, NoReply, PyroError, StateError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.pushes import CheckTransactionState
from pyromq.protocol.requests.sending import SendMessageV2, SendReplyV2

DEFAULT_REQUEST_TIMEOUT_S = 3.0

_STATUS = {int(status): status for status in SendStatus}
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_RESERVED_GROUP = "DEFAULT_PRODUCER"


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    in_flight: int
    in_flight_bytes: int
    waiting_for_room: int
    sender: SenderStatistics
    batches: int
    batched_messages: int
    dropped_traces: int


class Producer:
    """`async with Producer("orders", namesrv="127.0.0.1:9876") as producer: await producer.send(message)`.

    Producers and consumers of one process with the same client settings share connections, routes and
    heartbeats: a thousand producers cost little more than one.
    """

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        """`namesrv`: addresses of name servers, separated by `;` or in a list; None looks at NAMESRV_ADDR."""
        problem = names.group_problem(group)
        if problem is None and group == _RESERVED_GROUP:
            problem = "the name is reserved"
        if problem is not None:
            raise ConfigError("group", group, f"another name: {problem}")
        self.group = group
        self.settings, client_options = split_options(options, ProducerSettings)
        self.client_settings = ClientSettings.of(namesrv, **client_options)
        self._parts: ProducerParts | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        parts = self._parts
        state = "closed" if self._is_closed else "not started" if parts is None else repr(parts.room)
        return f"<{type(self).__name__} {self.group} {state}>"

    def statistics(self) -> ProducerStatistics:
        parts = self._started()
        accumulator, tracing = parts.accumulator, parts.tracing
        return ProducerStatistics(
            in_flight=parts.room.count,
            in_flight_bytes=parts.room.size_bytes,
            waiting_for_room=parts.room.waiting,
            sender=parts.sender.statistics,
            batches=accumulator.batches if accumulator is not None else 0,
            batched_messages=accumulator.letters if accumulator is not None else 0,
            dropped_traces=tracing.dropped if tracing is not None else 0,
        )

    # Beginning and end

    async def start(self) -> None:
        """Done by `async with`."""
        if self._is_closed:
            raise StateError("the producer is closed: make another one")
        if self._parts is not None:
            raise StateError("the producer has been started already")
        session = await Session.obtain(self.client_settings)
        self._parts = ProducerParts(self, session)
        session.add_producer(session.wrap(self.group), self)

    async def close(self) -> None:
        """Send what waits to be sent, wait for what is in flight, leave."""
        parts = self._parts
        if self._is_closed or parts is None:
            self._is_closed = True
            return
        self._is_closed = True
        try:
            await self._finish(parts)
        finally:
            self._parts = None
            await parts.session.remove_producer(parts.sender.group, self)
            await parts.session.release()

    async def _finish(self, parts: "ProducerParts") -> None:
        if parts.accumulator is not None:
            await parts.accumulator.close()
        await parts.room.wait_empty()
        if parts.tracing is not None:
            await parts.tracing.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _started(self) -> "ProducerParts":
        parts = self._parts
        if parts is None or self._is_closed:
            how = "is closed" if self._is_closed else "has not been started: use it in a `with` block"
            raise StateError(f"the producer {self.group} {how}")
        return parts

    # Sending

    @overload
    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult: ...

    @overload
    async def send(
        self,
        message: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]: ...

    async def send(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult | list[SendResult]:
        """Send one message, or several to one topic in as few requests as hold them.

        At most one of `queue`, `selector` and `sharding_key` says where it goes; it is tried again there, and
        not elsewhere. Raises SendFailed, Refused, NoRoute or BadMessage.
        """
        parts = self._started()
        if type(message) is Message and parts.gathers_plainly and timeout_s is None:
            if queue is None and selector is None and sharding_key is None:
                promise = parts.gather(message)
                if promise is not None:
                    return await promise
        elif not isinstance(message, Message):
            return await self._send_many(parts, message, queue, selector, sharding_key, timeout_s)
        if queue is None and selector is None and sharding_key is None:
            return await parts.send(parts.write(message), None, timeout_s)
        letter = parts.write(message, _sharding(sharding_key))
        queue = await self._choose(parts, message, letter.topic, queue, selector, sharding_key)
        return await parts.send(letter, queue, timeout_s)

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
        letters = [parts.write(message, system, pack=False) for message in messages]
        check_batch(letters)
        if queue is not None or selector is not None or sharding_key is not None:
            queue = await self._choose(parts, messages[0], letters[0].topic, queue, selector, sharding_key)
        results: list[SendResult] = []
        for part in split(letters, self.settings.max_message_bytes):
            try:
                results += await parts.send_batch(part, queue, timeout_s)
            except PyroError as problem:
                problem.add_note(f"{len(results)} of {len(letters)} messages of the batch were stored before")
                raise
        return results

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message and do not ask what became of it."""
        parts = self._started()
        letter = parts.write(message, _sharding(sharding_key))
        if queue is not None or selector is not None or sharding_key is not None:
            queue = await self._choose(parts, message, letter.topic, queue, selector, sharding_key)
        await parts.sender.send_oneway(letter, queue)

    async def flush(self) -> None:
        """Send what waits to be sent now, and return when nothing is in flight."""
        parts = self._started()
        if parts.accumulator is not None:
            parts.accumulator.flush()
        await parts.room.wait_empty()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be sent to."""
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
        """The queue that a message must go to, as brokers know it."""
        if (queue is not None) + (selector is not None) + (sharding_key is not None) > 1:
            raise BadMessage("give one of queue, selector and sharding_key, not several")
        if queue is None:
            route = await parts.sender.route_in_time(topic)
            if sharding_key is not None:
                return queue_of_key(route.publish_queues, sharding_key)
            assert selector is not None
            queue = selector(tuple(map(parts.shown_queue, route.publish_queues)), message)
            if not isinstance(queue, MessageQueue):
                raise BadMessage(f"the selector chose {queue!r}: it must return one of the queues it gets")
        wanted = MessageQueue(parts.session.wrap(queue.topic), queue.broker_name, queue.queue_id)
        if wanted.topic != topic:
            raise BadMessage(f"the queue {queue} is not one of the topic {message.topic}")
        return wanted

    # Requests and replies between clients

    async def request(
        self,
        message: Message,
        timeout_s: float = DEFAULT_REQUEST_TIMEOUT_S,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it; raises NoReply if none comes."""
        parts = self._started()
        session = parts.session
        correlation_id = str(uuid.uuid4())
        system = request_properties(correlation_id, session.client_id, timeout_s)
        letter = parts.write(message, system | (_sharding(sharding_key) or {}))
        replied = session.replies.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_s):
                await parts.sender.route_in_time(letter.topic)
                # The reply may come through any broker: all of them must know who waits for it.
                await session.wait_known()
                if queue is not None or selector is not None or sharding_key is not None:
                    queue = await self._choose(parts, message, letter.topic, queue, selector, sharding_key)
                await parts.send(letter, queue, timeout_s, alone=True)
                return await replied
        except TimeoutError:
            raise NoReply(
                f"no reply to {message!r} came in {timeout_s} s: does a consumer of {message.topic} reply?"
            ) from None
        finally:
            session.replies.forget(correlation_id)

    async def reply(
        self,
        to: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Answer a message that was sent by `request`."""
        parts = self._started()
        message, system = reply_to(to, body, tags=tags, properties=properties)
        letter = parts.write(message, system, kind=SendReplyV2)
        return await parts.send(letter, None, timeout_s, alone=True)

    # What brokers ask

    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> bool:
        return False


class ProducerParts:
    """What a started producer consists of."""

    def __init__(self, producer: Producer, session: Session) -> None:
        settings = producer.settings
        client_settings = session.settings
        self.session = session
        self.group = producer.group
        self.sender = Sender(session, session.wrap(producer.group), settings)
        self.writer = LetterWriter(
            wrap=session.wrap,
            namespace=client_settings.namespace or client_settings.namespace_v2,
            max_bytes=settings.max_message_bytes,
            pack_bytes=settings.compress_from_bytes,
            compression=settings.compression,
            level=settings.compression_level,
        )
        self.room = Room(settings.max_in_flight, settings.max_in_flight_bytes)
        self.tracing = (
            Tracing(session, producer.group, "PRODUCE", settings.trace_topic) if settings.trace else None
        )
        self.accumulator: Accumulator[SendResult] | None = None
        if settings.linger_ms is not None:
            self.accumulator = Accumulator(
                self._send_gathered,
                linger_s=settings.linger_ms / 1000,
                max_bytes=settings.batch_max_bytes,
                left=self.room.leave_together,
            )
        self.gathers_plainly = self.accumulator is not None and self.tracing is None
        self._batch_max_bytes = settings.batch_max_bytes
        self._now_ms, self._next_key = session.clock.now_ms, session.unique_keys.next
        self._body_limit = min(settings.compress_from_bytes, settings.max_message_bytes + 1)
        self._has_namespace = client_settings.namespace is not None

    def write(
        self,
        message: Message,
        system: Mapping[str, str] | None = None,
        *,
        pack: bool = True,
        kind: type[SendMessageV2] = SendMessageV2,
    ) -> Letter:
        session = self.session
        session.check_loop()
        now_ms = session.clock.now_ms()
        unique_key = session.unique_keys.next(now_ms)
        return self.writer.write(message, unique_key, now_ms, system, pack=pack, kind=kind)

    def gather(self, message: Message) -> "asyncio.Future[SendResult] | None":
        """Put a plain message into a batch; None if it needs a closer look, or if there is no room."""
        accumulator = self.accumulator
        topic = self.writer.batch_topics.get(message.topic)
        if topic is None or accumulator is None:
            return None
        self.session.check_loop()
        now_ms = self._now_ms()
        unique_key = self._next_key(now_ms)
        entry = plain_entry(message, unique_key, self.writer.suffix, self._body_limit)
        if entry is None:
            return None
        size_bytes = len(entry)
        if size_bytes > self._batch_max_bytes or not self.room.try_enter(size_bytes):
            return None
        parcel = Parcel(topic, entry, unique_key, now_ms, message)
        return accumulator.add((topic, None, True, message.tags), parcel, size_bytes)

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the application knows it."""
        if not self._has_namespace:
            return queue
        return MessageQueue(self.session.unwrap(queue.topic), queue.broker_name, queue.queue_id)

    async def send(
        self, letter: Letter, queue: MessageQueue | None, timeout_s: float | None, *, alone: bool = False
    ) -> SendResult:
        """`alone`: even if others would share a request with it."""
        size_bytes = letter.size_bytes
        if not self.room.try_enter(size_bytes):
            await self.room.enter(size_bytes)
        try:
            if self.accumulator is not None and not alone:
                promise = self.accumulator.maybe_add(letter, queue) if timeout_s is None else None
                if promise is not None:
                    return await promise
                # What was sent before this one leaves before it.
                self.accumulator.flush(letter.topic)
                await asyncio.sleep(0)
            sent = await self.sender.send(letter, queue, timeout_s)
        finally:
            self.room.leave(size_bytes)
        return self.result(letter, sent)

    async def send_batch(
        self, letters: Sequence[Letter], queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        size_bytes = sum(letter.size_bytes for letter in letters)
        await self.room.enter(size_bytes)
        try:
            return await self._send_packed(letters, queue, timeout_s)
        finally:
            self.room.leave(size_bytes)

    async def _send_gathered(
        self, letters: list[Letter | Parcel], queue: MessageQueue | None
    ) -> list[SendResult]:
        if len(letters) > 1:
            return await self._send_packed(letters, queue, None)
        (letter,) = letters
        if type(letter) is Parcel:
            letter = self.writer.write(letter.message, letter.unique_key, letter.born_ms)
        assert isinstance(letter, Letter)
        return [self.result(letter, await self.sender.send(letter, queue))]

    async def _send_packed(
        self, letters: Sequence[Letter | Parcel], queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        sent = await self.sender.send(pack_letters(letters), queue, timeout_s)
        answer = sent.answer
        places = answer.msg_id.split(",")
        if len(places) != len(letters):
            # java: queues made for batches have one place for all of them
            places = [answer.msg_id] * len(letters)
        return self._results(letters, places, sent)

    def result(self, letter: Letter, sent: Sent) -> SendResult:
        return self._results((letter,), (sent.answer.msg_id,), sent)[0]

    def _results(
        self, letters: Sequence[Letter | Parcel], places: Sequence[str], sent: Sent
    ) -> list[SendResult]:
        """What became of letters that left together; `places` are their ids in the store."""
        answer = sent.answer
        queue = sent.queue if not self._has_namespace else self.shown_queue(sent.queue)
        if queue.queue_id != answer.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, answer.queue_id)
        status, offset = _STATUS[answer.code], answer.queue_offset
        transaction_id, recall_handle = answer.transaction_id, answer.recall_handle
        region = answer.msg_region or names.DEFAULT_REGION
        results = [
            SendResult(
                status,
                letter.unique_key,
                place,
                queue,
                offset + index,
                transaction_id,
                recall_handle,
                region,
            )
            for index, (letter, place) in enumerate(zip(letters, places, strict=True))
        ]
        tracing = self.tracing
        if tracing is not None and answer.trace_on is not False and letters[0].topic != tracing.topic:
            for letter, result in zip(letters, results, strict=True):
                assert isinstance(letter, Letter), "who reports on messages looks at them closely"
                self._trace(tracing, letter, sent, result)
        return results

    def _trace(self, tracing: Tracing, letter: Letter, sent: Sent, result: SendResult) -> None:
        kind = MessageKind.NORMAL
        if letter.sys_flag & SysFlag.TRANSACTION_PREPARED:
            kind = MessageKind.TRANSACTION_HALF
        elif letter.is_delayed:
            kind = MessageKind.DELAYED
        record = sent_record(
            at_ms=self.session.clock.now_ms() - round(sent.latency_ms),
            region=result.region,
            group=self.group,
            topic=self.session.unwrap(letter.topic),
            message_id=result.message_id,
            tags=letter.tags,
            keys=letter.keys or None,
            store_host=sent.address,
            body_bytes=len(letter.body),
            cost_ms=round(sent.latency_ms),
            kind=kind,
            offset_message_id=result.offset_message_id,
            is_ok=result.is_ok,
        )
        tracing.report(record, (result.message_id, *letter.keys.split()))


def _several(messages: object) -> list[Message]:
    """Applications without a type checker give all sorts of things."""
    if isinstance(messages, Iterable) and not isinstance(messages, str | bytes):
        several = list(messages)
        if all(isinstance(each, Message) for each in several):
            return several
    raise BadMessage(f"a Message, or several in a list, can be sent, not {type(messages).__name__}")


def _sharding(key: str | None) -> dict[str, str] | None:
    if key is not None and not isinstance(key, str):
        raise BadMessage(f"the sharding key {key!r} is no text: give str(...) of it")
    return None if key is None else {props.SHARDING_KEY: key}
