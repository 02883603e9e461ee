"""Finds messages by id, key or offset, reads queues, and sends, without a consumer or producer."""

import socket
from collections.abc import AsyncIterator, Mapping
from functools import cache
from itertools import chain

import msgspec

from pyromq.admin.cluster import Cluster, members_of
from pyromq.admin.failures import NotFound
from pyromq.chance import getrandbits, process_id
from pyromq.client.values import SendStatus
from pyromq.cluster import routes
from pyromq.cluster.routes import route_addresses
from pyromq.cluster.sending.request import PreparedMessage, SendTerms, send_request
from pyromq.errors import PyroError, RemoteProtocolError
from pyromq.filtering.tags import ALL, parse_tags
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.message_id import (
    OffsetMessageId,
    UniqueKeys,
    decode_offset_message_id,
    encode_offset_message_id,
)
from pyromq.protocol.names import TOOLS_GROUP
from pyromq.protocol.properties import (
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from pyromq.protocol.record import StoredMessage, decode_record, decode_records
from pyromq.protocol.requests.inspection import ConsumeMessageDirectly, ConsumeMessageDirectlyResult
from pyromq.protocol.requests.pulling import PullMessage, QueryMessage, ViewMessage
from pyromq.protocol.requests.routes import TopicRouteData
from pyromq.protocol.requests.transactions import ResumeTransactionCheck

SENDER_GROUP = "TOOLS_PRODUCER"
FOREVER_MS = 2**63 - 1
TAG, SQL92 = "TAG", "SQL92"
"""Kinds of expressions that a broker filters by."""

_PULL_WITH_SUBSCRIPTION = 4
_PAGE = 32
_MAX_BY_UNIQUE_KEY = 32
_PASSED_ON_TIMEOUT_S = 15.0


class Receipt(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a send; `message_id` is the unique id."""

    broker_name: str
    queue_id: int
    queue_offset: Int64
    status: str
    message_id: str
    offset_message_id: str


# Look-ups


async def by_id(cluster: Cluster, topic: str, message_id: str) -> StoredMessage:
    """The message with an offset id or a unique id."""
    place = _place(message_id)
    if place is not None:
        addresses = {member.address for member in members_of(await cluster.info())}
        # Both kinds of id look alike; only an offset id starts with the address of a broker.
        if str(place.host) in addresses:
            return await at(cluster, place, topic)
    found = await by_unique_key(cluster, topic, message_id)
    if not found:
        raise NotFound(f"topic {topic} has no message {message_id}; is it the right topic?")
    return found[0]


def _place(message_id: str) -> OffsetMessageId | None:
    try:
        return decode_offset_message_id(message_id)
    except RemoteProtocolError:
        return None


async def at(cluster: Cluster, place: OffsetMessageId, topic: str | None = None) -> StoredMessage:
    """The message at an offset of a broker's commit log."""
    answer = await cluster.ask(str(place.host), ViewMessage(topic=topic, offset=place.log_offset))
    return open_message(decode_record(answer.body, check_crc=False))[0]


async def by_key(
    cluster: Cluster,
    topic: str,
    key: str,
    limit: int = 64,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    routed_as: str | None = None,
) -> list[StoredMessage]:
    """Messages with a key, oldest first."""
    question = QueryMessage(
        topic=topic, key=key, max_num=limit, begin_timestamp=begin_ms, end_timestamp=end_ms
    )
    found = await _query(cluster, question, routed_as)
    return [message for message in found if _has_key(message, key)][:limit]


def _has_key(message: StoredMessage, key: str) -> bool:
    return key in (message.get(KEYS) or "").split(KEY_SEPARATOR)


class KeyLook(msgspec.Struct, frozen=True):
    """The newest messages with a key, newest first. `is_whole` if there are no older ones; else `next_end_ms`
    is the end to ask with for them, None if the brokers' index cannot tell them apart: it knows seconds."""

    found: list[StoredMessage]
    is_whole: bool
    next_end_ms: int | None = None


async def newest_by_key(
    cluster: Cluster, topic: str, key: str, limit: int = 64, end_ms: int = FOREVER_MS
) -> KeyLook:
    """The newest messages with a key, stored until `end_ms`; a broker returns at most `limit`."""
    while True:
        question = QueryMessage(topic=topic, key=key, max_num=limit, begin_timestamp=0, end_timestamp=end_ms)
        told = await _told(cluster, question)
        # A broker that returned as many as it may has not listed those that are older than the oldest of
        # them.
        ends = [min(each.store_timestamp for each in found) for count, found in told if count >= limit]
        untold_ms = max(ends, default=None)
        every = sorted(
            chain.from_iterable(found for _, found in told), key=lambda each: -each.store_timestamp
        )
        wanted = [each for each in every if each.store_timestamp <= end_ms and _has_key(each, key)]
        if untold_ms is None or untold_ms >= end_ms:
            return KeyLook(wanted, is_whole=untold_ms is None)
        if sure := [each for each in wanted if each.store_timestamp > untold_ms]:
            return KeyLook(sure, is_whole=False, next_end_ms=untold_ms)
        end_ms = untold_ms  # their keys only looked alike


async def by_unique_key(
    cluster: Cluster, topic: str, unique_key: str, routed_as: str | None = None
) -> list[StoredMessage]:
    """Messages with a unique id, oldest first; several if the message was sent again."""
    question = QueryMessage(
        topic=topic,
        key=unique_key,
        max_num=_MAX_BY_UNIQUE_KEY,
        begin_timestamp=0,
        end_timestamp=FOREVER_MS,
        is_unique_key=True,
    )
    found = await _query(cluster, question, routed_as)
    return [message for message in found if message.get(UNIQ_KEY) == unique_key]


async def _query(cluster: Cluster, question: QueryMessage, routed_as: str | None) -> list[StoredMessage]:
    """The messages found by all brokers, oldest first."""
    found = chain.from_iterable(messages for _, messages in await _told(cluster, question, routed_as))
    return sorted(found, key=lambda message: message.store_timestamp)


async def _told(
    cluster: Cluster, question: QueryMessage, routed_as: str | None = None
) -> list[tuple[int, list[StoredMessage]]]:
    """The result of each broker: the number of records, and the messages in them."""
    told: list[tuple[int, list[StoredMessage]]] = []
    for address in route_addresses(await cluster.route(routed_as or question.topic)).values():
        answer = await cluster.ask_unless(ResponseCode.QUERY_NOT_FOUND, address, question)
        if answer is not None:
            records = decode_records(answer.body)
            # A remark says that there may be more, as if it had returned as many as it may.
            count = max(len(records), question.max_num) if answer.remark else len(records)
            told.append((count, [each for record in records for each in open_message(record)]))
    return told


async def at_queue_offset(cluster: Cluster, queue: MessageQueue, offset: int) -> StoredMessage:
    address = await cluster.broker_address(queue.broker_name)
    answer = await cluster.ask(address, _pull(queue, offset, 1, ALL))
    if answer.code != ResponseCode.SUCCESS:
        raise NotFound(
            f"there is no message at offset {offset} of {queue}, which has"
            f" {answer.min_offset} to {answer.max_offset - 1}"
        )
    for message in open_message(decode_records(answer.body)[0]):
        if message.queue_offset == offset:
            return message
    raise NotFound(f"the batch at offset {offset} of {queue} does not contain that offset")


# Reads


class SqlText(str):
    """A condition on the properties of messages; a plain text is tags."""

    __slots__ = ()


async def read(
    cluster: Cluster,
    address: str,
    queue: MessageQueue,
    begin: int,
    end: int,
    expression: str | SqlText = ALL,
    group: str = TOOLS_GROUP,
) -> AsyncIterator[StoredMessage]:
    """The messages of a queue in a range of offsets, the end excluded, that match tags or SQL."""
    wanted = parse_tags(ALL if isinstance(expression, SqlText) else expression)
    offset = begin
    while offset < end:
        request = _pull(queue, offset, min(_PAGE, end - offset), expression, group)
        answer = await cluster.ask(address, request)
        if answer.code == ResponseCode.SUCCESS:
            for record in decode_records(answer.body):
                for message in open_message(record):
                    if message.queue_offset < end and wanted.matches_tag(message.get(TAGS)):
                        yield message
        elif answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            return
        if answer.next_begin_offset <= offset:
            return
        offset = answer.next_begin_offset


def _pull(
    queue: MessageQueue, offset: int, count: int, expression: str | SqlText, group: str = TOOLS_GROUP
) -> PullMessage:
    return PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=_PULL_WITH_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=SQL92 if isinstance(expression, SqlText) else TAG,
    )


# Sends


def writable_queues(topic: str, route: TopicRouteData, broker_name: str | None = None) -> list[MessageQueue]:
    """The writable queues of a topic, on brokers that have a master."""
    found = routes.writable_queues(topic, route)
    return sorted(queue for queue in found if broker_name in (None, queue.broker_name))


async def send(
    cluster: Cluster,
    topic: str,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | None = None,
    broker_name: str | None = None,
    queue_id: int | None = None,
) -> Receipt:
    """Send one message, to any queue or to a given one."""
    return await send_with(cluster, topic, body, {TAGS: tags, KEYS: keys}, broker_name, queue_id)


async def send_with(
    cluster: Cluster,
    topic: str,
    body: bytes,
    properties: Mapping[str, str | None],
    broker_name: str | None = None,
    queue_id: int | None = None,
) -> Receipt:
    """Send one message with these properties, to any queue or to a given one."""
    route = await cluster.route(topic)
    queues = writable_queues(topic, route, broker_name)
    if queue_id is not None:
        queues = [queue for queue in queues if queue.queue_id == queue_id]
    if not queues:
        where = "" if broker_name is None else f" on broker {broker_name}"
        raise NotFound(
            f"topic {topic} has no such writable queue{where};"
            f" `mqadmin topicRoute -l -t {topic}` shows its queues"
        )
    queue = queues[_counter() % len(queues)]
    return await _send_to(cluster, route, queue, body, {**properties, WAIT: "true"})


async def resend(cluster: Cluster, message: StoredMessage) -> Receipt:
    """Send a stored message again, with its properties, to any queue of its topic."""
    route = await cluster.route(message.topic)
    queues = writable_queues(message.topic, route)
    if not queues:
        raise NotFound(f"topic {message.topic} has no writable queue now")
    queue = queues[_counter() % len(queues)]
    properties: dict[str, str | None] = dict(message.property_map())
    properties.pop(TRANSACTION_PREPARED, None)  # its transaction is over: it would wait for ever
    return await _send_to(cluster, route, queue, message.body, properties, message.flag)


async def _send_to(
    cluster: Cluster,
    route: TopicRouteData,
    queue: MessageQueue,
    body: bytes,
    properties: dict[str, str | None],
    flag: int = 0,
) -> Receipt:
    """Send a message, with a unique id if it has none, to a queue of a route."""
    properties = {UNIQ_KEY: _unique_keys().next(cluster.clock.now_ms()), **properties}
    message = PreparedMessage(
        queue.topic, body, encode_properties(properties), "", cluster.clock.now_ms(), flag=flag
    )
    request = send_request(message, SendTerms(SENDER_GROUP), queue.queue_id, queue.broker_name)
    answer = await cluster.ask(route_addresses(route)[queue.broker_name], request)
    return Receipt(
        broker_name=queue.broker_name,
        queue_id=answer.queue_id,
        queue_offset=answer.queue_offset,
        status=SendStatus(answer.code).name,
        message_id=properties[UNIQ_KEY] or "",
        offset_message_id=answer.msg_id,
    )


@cache
def _unique_keys() -> UniqueKeys:
    ip = socket.inet_aton("127.0.0.1")
    return UniqueKeys(ip, process_id(), getrandbits(32))


def _counter() -> int:
    """A number that differs from run to run, so that runs use different queues."""
    return getrandbits(32)


class Trial(msgspec.Struct, frozen=True, rename="camel"):
    """One timed send."""

    queue: MessageQueue
    is_sent: bool
    took_ms: float
    remark: str


async def trials(cluster: Cluster, topic: str, count: int, size_bytes: int) -> AsyncIterator[Trial]:
    """Send messages to the queues in turn and time each send."""
    route = await cluster.route(topic)
    queues = writable_queues(topic, route)
    if not queues:
        raise NotFound(f"topic {topic} has no writable queue; try `mqadmin topicRoute -l -t {topic}`")
    for number in range(count):
        queue = queues[number % len(queues)]
        start = cluster.clock.monotonic()
        try:
            receipt = await _send_to(cluster, route, queue, b"a" * size_bytes, {WAIT: "true"})
        except PyroError as problem:
            is_sent, remark = False, str(problem)
        else:
            is_sent, remark = True, f"{receipt.status} {receipt.message_id}"
        took_ms = (cluster.clock.monotonic() - start) * 1000
        yield Trial(queue, is_sent, took_ms, remark)


def average_ms(times_ms: list[float]) -> float:
    """The average without the first send, which opens the connection."""
    counted = times_ms[1:] or times_ms
    return sum(counted) / len(counted) if counted else 0.0


# Redelivery


async def consume_directly(
    cluster: Cluster, group: str, client_id: str, message: StoredMessage
) -> ConsumeMessageDirectlyResult:
    """Have one consumer consume a stored message at once."""
    request = ConsumeMessageDirectly(
        consumer_group=group, client_id=client_id, topic=message.topic, msg_id=offset_id(message)
    )
    return (await cluster.ask(str(message.store_host), request, _PASSED_ON_TIMEOUT_S)).body


async def resume_check(cluster: Cluster, message: StoredMessage) -> None:
    """Have producers asked again about a transaction that was given up, by its message."""
    request = ResumeTransactionCheck(topic=message.topic, msg_id=offset_id(message))
    await cluster.ask(str(message.store_host), request)


def offset_id(message: StoredMessage) -> str:
    return encode_offset_message_id(message.store_host, message.log_offset)
