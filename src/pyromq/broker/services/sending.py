"""Sending: stores a message in its queue, or tells its producer why not."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.message_properties import closed, delay_level, is_true, is_unusual, pair, priority
from pyromq.broker.flow.resends import NotIndexedYet, Sent
from pyromq.broker.flow.retry_policy import RetryPolicy
from pyromq.broker.flow.send_answers import LITE_OFFSET, RECALL_HANDLE, SEND_CODES, send_answer_fields
from pyromq.broker.flow.timing import is_timed
from pyromq.broker.flow.writable_queues import NotWrittenYet, SendRequest, WritableQueue
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock, elapsed_ms
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchEntry, decode_batch
from pyromq.protocol.catalogue import RawAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import get_property, without_property
from pyromq.protocol.record import MAX_V1_TOPIC_BYTES, StoredMessage, SysFlag
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.remoting.routing import Caller, handles
from pyromq.store.light.light_queues import enters_light_queues, light_names
from pyromq.store.results import AppendResult, AppendStatus

_WAITING_TOPICS = frozenset((names.HALF_TOPIC, names.SCHEDULE_TOPIC, names.TIMER_TOPIC))

MAX_LITE_TOPIC_BYTES = 255
"""Fronts and clients have a smaller limit, which operators may raise."""

Reply = RawAnswer | asyncio.Future[RawAnswer]


class Sending:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        inbound: Inbound,
        tables: Tables,
        clock: Clock,
    ) -> None:
        self._live = live
        self._queues = inbound.writable_queues
        self._send_throttle = inbound.send_throttle
        self._quotas = inbound.quotas
        self._appending = inbound.appending
        self._broker_properties = inbound.broker_properties
        self._born_hosts = inbound.born_hosts
        self._unique_keys = inbound.unique_keys
        self._groups = tables.groups
        self._locks = tables.locks
        self._fences = inbound.fences
        self._statistics = tables.statistics
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    @handles(SendMessage, may_wait=True)
    def send(self, request: SendMessage, caller: Caller) -> Reply:
        return self._send(request, caller, bool(request.batch))

    @handles(SendMessageV2, may_wait=True)
    def send_v2(self, request: SendMessageV2, caller: Caller) -> Reply:
        return self._send(request, caller, bool(request.batch))

    @handles(SendMessageBatch, may_wait=True)
    def send_batch(self, request: SendMessageBatch, caller: Caller) -> Reply:
        return self._send(request, caller, True)

    def _send(self, request: SendRequest, caller: Caller, is_batch: bool) -> Reply:
        limits = self._quotas.of_sends(request.topic, caller.user)
        if limits:
            attempt = partial(self._send_unlimited, request, caller, is_batch)
            return self._quotas.send(limits, request.body, is_batch, attempt)
        return self._send_unlimited(request, caller, is_batch)

    def _send_unlimited(self, request: SendRequest, caller: Caller, is_batch: bool) -> Reply:
        try:
            return self._send_now(request, caller, is_batch)
        except NotWrittenYet as missing:
            again = partial(self._send_now, request, caller, is_batch)
            return self._loop.create_task(self._queues.when_written(missing.topic, again))

    def _send_now(self, request: SendRequest, caller: Caller, is_batch: bool) -> Reply:
        self._send_throttle.admit(caller.received_at)
        return self._store(request, caller, is_batch)

    def _store(self, request: SendRequest, caller: Caller, is_batch: bool) -> Reply:
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None:
            queue = self._queues.open(request, caller.address)
        try:
            send = self._send_many if is_batch else self._send_one
            return send(request, queue, caller)
        except NotIndexedYet as missing:
            again = partial(self._store, request, caller, is_batch)
            return self._loop.create_task(self._when_indexed(missing.end, again))

    async def _when_indexed(self, end: int, again: Callable[[], Reply]) -> RawAnswer:
        """A resend: the first try may be in the log already, and not in the index."""
        try:
            await self._appending.indexed(end, self._live.now.replica_timeout_ms / 1000)
        except TimeoutError:
            raise Refused(
                ResponseCode.SYSTEM_BUSY, "it is not known yet whether an earlier try stored the message"
            ) from None
        try:
            reply = again()
        except NotWrittenYet as missing:
            reply = self._loop.create_task(self._queues.when_written(missing.topic, again))
        return await reply if isinstance(reply, asyncio.Future) else reply

    def _send_one(self, request: SendRequest, queue: WritableQueue, caller: Caller) -> Reply:
        text = closed(request.properties)
        unusual = is_unusual(text)
        if unusual:
            text = without_property(text.encode(), props.POP_CK).decode()
            if priority(text) >= 0:
                queue, text = self._prioritized(request, queue, text, caller)
        target = queue
        if queue.retry_group is not None:
            target = self._retry_or_give_up(request, queue, queue.retry_group, caller)
            if target is not queue:
                text += pair(props.DELAY, "-1")
        unique_key = get_property(text, props.UNIQ_KEY)
        if unique_key is None:
            unique_key = self._unique_keys.next(self._clock.now_ms())
            text += pair(props.UNIQ_KEY, unique_key)
        if queue.needs_keys and not _has_keys(text):
            raise _without_keys(queue.topic)
        is_half = unusual and self._is_half(request, text)
        fenced: list[str] = []
        if queue.is_lite and props.LITE_TOPIC in text:
            text, fenced = _for_lite_topic(request.topic, text, is_half=is_half)
        elif self._appending.has_light_queues and props.INNER_MULTI_DISPATCH in text:
            fenced = _lite_queues(request.topic, text)
        if not request.body and not queue.needs_keys:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the message has no body")
        if unusual or request.sys_flag & SysFlag.INNER_BATCH:
            _refuse_inner_batch(request, text)
        draft = self._draft(request, target, text + self._broker_properties.suffix, caller)
        draft.delay_level = delay_level(text)
        draft.is_half = is_half
        is_resend = self._is_resend(request, unique_key)
        if is_resend:
            sent = Sent(((unique_key, request.body),), draft.born_timestamp, draft.reconsume_times)
            found = self._appending.sent_before(_places(draft), sent)
            if found:
                return self._answer_again(found, text, unique_key)
        for name in fenced:
            self._fences.check(name, text)
        result = self._appending.append(draft)
        if result.is_ok:
            for name in fenced:
                self._fences.appended(name, text)
            if is_resend:
                self._appending.resends.stored(unique_key, result.log_offset)
            if queue.retry_group is not None and target is not queue:
                origin = get_property(text, props.RETRY_TOPIC) or request.topic
                self._statistics.add_dead_letter(origin, queue.retry_group)
        return self._answer(result, draft, text, queue.queue_id, unique_key)

    def _send_many(self, request: SendRequest, queue: WritableQueue, caller: Caller) -> Reply:
        if len(request.topic) > MAX_V1_TOPIC_BYTES:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch for a topic of {len(request.topic)} bytes: expected at most {MAX_V1_TOPIC_BYTES}",
            )
        if queue.retry_group is not None:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot go to the retry topic {request.topic}"
            )
        text = closed(request.properties)
        if delay_level(text) > 0:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed")
        if is_unusual(text) and is_timed(text.encode()):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot have a time of delivery")
        draft, entries = self._draft(request, queue, text, caller), _entries(request.body)
        if queue.needs_keys and not all(_has_keys(each.properties) for each in entries):
            raise _without_keys(queue.topic)
        if queue.is_lite and any(get_property(each.properties, props.LITE_TOPIC) for each in entries):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "messages of lite topics cannot be in a batch")
        unique_key = get_property(text, props.UNIQ_KEY)
        first_key = _key_of(entries[0]) if entries else ""
        is_resend = self._is_resend(request, first_key)
        if is_resend:
            messages = [(_key_of(entry), entry.body) for entry in entries]
            sent = Sent(messages, draft.born_timestamp, draft.reconsume_times)
            found = self._appending.sent_before((draft.topic,), sent)
            if found:
                return self._answer_again(found, text, unique_key, is_batch=True)
        result = self._appending.append_batch(draft, entries)
        if is_resend and result.is_ok:
            self._appending.resends.stored(first_key, result.log_offset)
        return self._answer(result, draft, text, queue.queue_id, unique_key)

    def _is_resend(self, request: SendRequest, unique_key: str) -> bool:
        """Whether an earlier try may have stored it, or a later one."""
        if not request.resent and unique_key not in self._appending.resends.recent:
            return False
        return bool(unique_key) and self._live.now.stores_resends_once

    def _draft(self, request: SendRequest, queue: WritableQueue, properties: str, caller: Caller) -> Draft:
        return Draft(
            queue.topic,
            queue.queue_id,
            request.body,
            properties.encode(),
            request.born_timestamp,
            self._born_hosts.of(caller.channel),
            request.flag,
            # Transaction bits on a message outside of a transaction would hide it from consumers.
            request.sys_flag & ~SysFlag.TRANSACTION_MASK | queue.sys_flag,
            request.reconsume_times or 0,
        )

    # Special cases

    def _prioritized(
        self, request: SendRequest, queue: WritableQueue, text: str, caller: Caller
    ) -> tuple[WritableQueue, str]:
        """java: a priority is the number of a queue; a message of another type has none"""
        if (
            is_true(text, props.TRANSACTION_PREPARED)
            or get_property(text, props.DELAY) is not None
            or is_timed(text.encode())
            or get_property(text, props.SHARDING_KEY) is not None
        ):
            return queue, without_property(text.encode(), props.PRIORITY).decode()
        queue_id = self._queues.number_of(queue.topic, priority(text))
        found = self._queues.find(queue.topic, queue_id)
        return found or self._queues.open(replace(request, queue_id=queue_id), caller.address), text

    def _retry_or_give_up(
        self, request: SendRequest, queue: WritableQueue, group_name: str, caller: Caller
    ) -> WritableQueue:
        """The queue for a retry that a consumer sends itself: of the retry topic, or of the dead letters."""
        group = self._groups.find(group_name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the consumer group {group_name} does not exist"
            )
        policy = RetryPolicy.of(group, caller.version, request.max_reconsume_times)
        # java: while the group holds locks, only orderly consumers that gave up send here
        is_ordered = self._locks.holds_any(group_name, elapsed_ms(self._clock))
        if policy.has_retries_left(request.reconsume_times or 0) and not is_ordered:
            return queue
        return self._queues.dead_letters(group_name)

    def _is_half(self, request: SendRequest, text: str) -> bool:
        if not is_true(text, props.TRANSACTION_PREPARED):
            return False
        # java: consumers before 4.6.1 leave the property on messages that they retry
        if (request.reconsume_times or 0) > 0 and delay_level(text) > 0:
            return False
        settings = self._live.now
        if settings.reject_transaction_messages:
            # NO_PERMISSION makes a producer try another broker.
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker {settings.broker_ip1} accepts no transactional messages:"
                " rejectTransactionMessage is on",
            )
        return True

    # Answering

    def _answer(
        self, result: AppendResult, draft: Draft, properties: str, queue_id: int, unique_key: str | None
    ) -> Reply:
        if result.status is not AppendStatus.PUT_OK:
            self._statistics.put_failures += 1
            raise Refused(SEND_CODES[result.status], result.reason)
        self._statistics.put(draft.topic, draft.queue_id, result.message_count, result.size_bytes)
        ids = self._appending.message_ids(result)
        # java: the answer for a delayed message has the offset in the delay queue, but its own queue id
        answer = self._fields(result, ids, queue_id, unique_key)
        if draft.topic == names.TIMER_TOPIC and unique_key is not None:
            self._add_recall_handle(answer.ext, draft.properties, unique_key)
        if draft.light_queues and props.LITE_EPOCH in properties:
            answer.ext[LITE_OFFSET] = get_property(draft.properties, props.INNER_MULTI_QUEUE_OFFSET) or ""
        return self._in_time(result, answer, properties)

    def _answer_again(
        self, found: list[StoredMessage], properties: str, unique_key: str | None, *, is_batch: bool = False
    ) -> Reply:
        """The answer that an earlier try would have got; it waits until the messages are safe, too."""
        first = found[0]
        offsets = tuple(message.log_offset for message in found)
        result = AppendResult(
            AppendStatus.PUT_OK,
            first.log_offset,
            sum(message.size_bytes for message in found),
            first.queue_offset,
            first.store_timestamp,
            first.store_host.pack(),
            offsets if is_batch else (),
        )
        is_parked = first.topic in _WAITING_TOPICS
        queue_id = int(first.get(props.REAL_QUEUE_ID) or 0) if is_parked else first.queue_id
        answer = self._fields(result, result.message_id, queue_id, unique_key)
        if first.topic == names.TIMER_TOPIC and unique_key is not None:
            self._add_recall_handle(answer.ext, first.properties, unique_key)
        return self._in_time(result, answer, properties)

    def _fields(self, result: AppendResult, ids: str, queue_id: int, unique_key: str | None) -> RawAnswer:
        fixed = self._broker_properties.answer_fields
        return RawAnswer(ext=send_answer_fields(ids, queue_id, result.queue_offset, fixed, unique_key))

    def _in_time(self, result: AppendResult, answer: RawAnswer, properties: str) -> Reply:
        if self._appending.durability.is_safe_enough(result, properties):
            return answer
        return self._when_safe(result, answer)

    def _add_recall_handle(self, fields: dict[str, str], properties: bytes, unique_key: str) -> None:
        topic = get_property(properties, props.REAL_TOPIC) or ""
        slot_ms = int(get_property(properties, props.TIMER_OUT_MS) or 0)
        handle = self._broker_properties.recall_handle(topic, slot_ms, unique_key)
        if handle is not None:
            fields[RECALL_HANDLE] = handle

    def _when_safe(self, result: AppendResult, answer: RawAnswer) -> "asyncio.Future[RawAnswer]":
        answered: asyncio.Future[RawAnswer] = self._loop.create_future()

        def settle(status: AppendStatus) -> None:
            if not answered.done():
                answer.code = SEND_CODES[status]
                answered.set_result(answer)

        self._appending.durability.when_safe(result, settle)
        return answered


def _key_of(entry: BatchEntry) -> str:
    return get_property(entry.properties, props.UNIQ_KEY) or ""


def _places(draft: Draft) -> tuple[str, ...]:
    """The topics in which an earlier try may have stored a message. Its time may have come meanwhile."""
    if draft.is_half:
        return (names.HALF_TOPIC,)
    if draft.delay_level > 0:
        return names.SCHEDULE_TOPIC, draft.topic
    return (names.TIMER_TOPIC, draft.topic) if is_timed(draft.properties) else (draft.topic,)


def _for_lite_topic(topic: str, text: str, *, is_half: bool) -> tuple[str, list[str]]:
    """The properties of a message that enters a lite topic, if they name one, and its light queue."""
    lite_topic = get_property(text, props.LITE_TOPIC)
    if lite_topic is None:
        return text, []
    problem = names.lite_topic_problem(lite_topic, MAX_LITE_TOPIC_BYTES)
    if problem is None and (
        is_half
        or delay_level(text) > 0
        or is_timed(text.encode())
        or priority(text) >= 0
        or get_property(text, props.SHARDING_KEY) is not None
    ):
        problem = (
            f"a message of the lite topic {lite_topic} cannot be in a transaction or have a delay, a time of"
            " delivery, a priority or a sharding key"
        )
    if problem is not None:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, problem)
    others = without_property(text.encode(), props.INNER_MULTI_DISPATCH).decode()
    queue = names.lite_queue(topic, lite_topic)
    return closed(others) + pair(props.INNER_MULTI_DISPATCH, queue), [queue]


def _lite_queues(topic: str, text: str) -> list[str]:
    """The lite topics among the light queues that a message names. A lite topic takes messages only under its
    own topic: the right to send to that one is what counts."""
    if get_property(text, props.INNER_MULTI_DISPATCH) is None or not enters_light_queues(topic):
        return []
    try:
        named = light_names(text.encode())
    except ValueError as problem:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(problem)) from None
    for name in named:
        lite = names.lite_parts(name)
        if lite is not None and lite[0] != topic:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{name} is a lite topic of {lite[0]}: messages of {topic} cannot enter it",
            )
    return [name for name in named if names.lite_parts(name) is not None]


def _refuse_inner_batch(request: SendRequest, text: str) -> None:
    # java: such messages need BatchCQ queues, which are not supported
    if request.sys_flag & SysFlag.INNER_BATCH or get_property(text, props.INNER_NUM) is not None:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, "inner batches are not supported: send the messages as a batch"
        )


def _has_keys(properties: str | bytes) -> bool:
    return bool((get_property(properties, props.KEYS) or "").strip())


def _without_keys(topic: str) -> Refused:
    return Refused(ResponseCode.MESSAGE_ILLEGAL, f"a message of the compacted topic {topic} needs a key")


def _entries(body: bytes) -> list[BatchEntry]:
    try:
        return decode_batch(body)
    except RemoteProtocolError as problem:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(problem)) from None
