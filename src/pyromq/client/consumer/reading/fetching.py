"""One pull: the request to the broker of a queue, and what its answer means.

An answer has messages, or none that match, or says that the offset is not in the queue and where to continue.
Every answer also says which broker to ask next time.
"""

import logging
from collections.abc import Awaitable
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from pyromq.client.consumer.reading.brokers import Network, QueueBrokers
from pyromq.client.consumer.reading.quick_pulls import Pulled, QuickPulls, Wanted
from pyromq.client.consumer.reading.subscriptions import TAG, Subscription
from pyromq.client.namespaces import unwrap
from pyromq.client.pulled_message import pulled_messages
from pyromq.client.values import ReceivedMessage
from pyromq.errors import Refused, RemoteProtocolError, StateError
from pyromq.protocol import properties as props
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.message import open_message
from pyromq.protocol.names import LMQ_PREFIX, MASTER_ID, retry_topic
from pyromq.protocol.record import StoredMessage, SysFlag, decode_records
from pyromq.protocol.request_forms import RequestForm
from pyromq.protocol.requests.pulling import (
    CLASS_FILTER_FLAG,
    COMMIT_FLAG,
    LITE_FLAG,
    SUBSCRIPTION_FLAG,
    SUSPEND_FLAG,
    LitePullMessage,
    PullMessage,
    PullMessageAnswer,
)

_log = logging.getLogger(__name__)

_CLOSED = SysFlag.COMPRESSED | SysFlag.INNER_BATCH

_VARYING = ("queue_offset", "sys_flag", "commit_offset")
_MAX_FORMS = 4096

_MAX_OPENED_BYTES = 64 * 1024 * 1024
"""When the decompressed bodies of one answer exceed this, the rest waits for the next pull."""


class _Asking(NamedTuple):
    subscription: Subscription
    form: RequestForm[PullMessageAnswer]
    wanted: Wanted | None
    """The answers that quick pulls expect; None if there are no quick pulls."""


class PullLimits(NamedTuple):
    """How much a pull asks for, and how long it waits: at the broker, and for the answer."""

    messages: int = 32
    size_bytes: int = 256 * 1024
    suspend_s: float = 15.0
    timeout_s: float = 30.0


_LIMITS: Final = PullLimits()


class Fetching:
    """Pulls of one group.

    `is_lite`: every pull carries the subscription, and brokers may serve such pulls separately.
    """

    def __init__(
        self,
        network: Network,
        group: str,
        *,
        namespace: str | None = None,
        is_lite: bool = False,
        limits: PullLimits = _LIMITS,
        quick: QuickPulls | None = None,
    ) -> None:
        self._network = network
        self._brokers = QueueBrokers(network)
        self._group = group
        self._retry_topic = retry_topic(group)
        self._namespace = namespace
        self._is_lite = is_lite
        self._lite_unknown: set[str] = set()
        self._quick = quick
        self._forms: dict[MessageQueue, _Asking] = {}
        self._limits = limits

    def __repr__(self) -> str:
        return f"<Fetching {self._group} lite={self._is_lite}>"

    async def pull(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        commit_offset: int = 0,
        broker_id: int = MASTER_ID,
    ) -> Pulled:
        """Wait for messages from `offset` on; raises Refused and TransportError."""
        address = self._brokers.known_address(queue, broker_id)
        if address is None:
            address = await self._brokers.address(queue, broker_id)
        flags = SUSPEND_FLAG
        if commit_offset > 0 and broker_id == MASTER_ID:
            flags |= COMMIT_FLAG
        is_lite = self._is_lite and subscription.filter is None
        if is_lite:
            flags |= SUBSCRIPTION_FLAG | LITE_FLAG
        elif subscription.filter is not None:
            flags |= CLASS_FILTER_FLAG
            address = self._filter_server(queue, address)
        is_lite = is_lite and address not in self._lite_unknown
        numbers = (offset, flags, max(commit_offset, 0))
        kind = LitePullMessage if is_lite else PullMessage
        try:
            answer = await self._call(kind, address, queue, subscription, numbers)
        except Refused as refusal:
            if is_lite and refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                # Brokers before 5.0 know only the code of PullMessage.
                self._lite_unknown.add(address)
                return await self.pull(queue, subscription, offset, commit_offset, broker_id)
            raise
        if type(answer) is not Pulled:
            assert isinstance(answer, PullMessageAnswer)
            return self._understood(queue, subscription, offset, answer)
        if subscription.tags:
            wanted = [message for message in answer.messages if subscription.wants(message.tags)]
            return msgspec.structs.replace(answer, messages=wanted)
        return answer

    def _filter_server(self, queue: MessageQueue, broker: str) -> str:
        """The filter server that reads a queue at a broker: several share the queues."""
        route = self._network.routes.cached(queue.topic)
        servers = route.filter_servers.get(broker) if route is not None else None
        if not servers:
            raise StateError(f"no filter server of {queue.broker_name} is in the route of {queue.topic}")
        return servers[queue.queue_id % len(servers)]

    def _call(
        self,
        kind: type[PullMessage],
        address: str,
        queue: MessageQueue,
        subscription: Subscription,
        numbers: tuple[int, int, int],
    ) -> Awaitable[PullMessageAnswer | Pulled]:
        network, timeout_s = self._network, self._limits.timeout_s
        if not network.fills_forms:
            return network.call(address, self._request(kind, queue, subscription, *numbers), timeout_s)
        asking = self._asking(kind, queue, subscription)
        quick = self._quick
        if quick is not None and asking.wanted is not None:
            connection = quick.connection(address)
            if connection is not None:
                return quick.call(connection, address, asking.form, numbers, asking.wanted, timeout_s)
        return network.call(address, asking.form.fill(numbers, b""), timeout_s)

    def _request(
        self,
        kind: type[PullMessage],
        queue: MessageQueue,
        subscription: Subscription,
        offset: int = 0,
        flags: int = 0,
        commit_offset: int = 0,
    ) -> PullMessage:
        return kind(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=self._limits.messages,
            sys_flag=flags,
            commit_offset=commit_offset,
            suspend_timeout_millis=round(self._limits.suspend_s * 1000),
            subscription=subscription.expression if self._is_lite else None,
            # java: a pull that carries the subscription has no version of it
            sub_version=0 if self._is_lite and subscription.expression_type == TAG else subscription.version,
            expression_type=subscription.expression_type,
            max_msg_bytes=self._limits.size_bytes,
            target_broker_name=queue.broker_name,
        )

    def _asking(self, kind: type[PullMessage], queue: MessageQueue, subscription: Subscription) -> _Asking:
        """How a queue is pulled; `_VARYING` says what is filled into the form."""
        known = self._forms.get(queue)
        if known is None or known.subscription is not subscription or known.form.request_type is not kind:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            form = RequestForm(self._request(kind, queue, subscription), _VARYING)
            wanted = self._quick.wanted(queue) if self._quick is not None else None
            known = self._forms[queue] = _Asking(subscription, form, wanted)
        return known

    def _understood(
        self, queue: MessageQueue, subscription: Subscription, offset: int, answer: PullMessageAnswer
    ) -> Pulled:
        messages: list[ReceivedMessage] = []
        next_offset = answer.next_begin_offset
        if answer.code == ResponseCode.SUCCESS:
            plain = self._plain(queue, subscription, offset, answer)
            if plain is not None:
                messages = plain
            else:
                records, next_offset = _records(queue, offset, answer)
                messages = self._received(queue, subscription, records)
        elif answer.code != ResponseCode.PULL_OFFSET_MOVED:
            next_offset = max(next_offset, offset)
        if next_offset < 0:
            raise RemoteProtocolError(f"{queue}: the answer to a pull at {offset} continues at {next_offset}")
        return Pulled(
            messages,
            next_offset,
            answer.min_offset,
            answer.max_offset,
            answer.suggest_which_broker_id,
            is_moved=answer.code == ResponseCode.PULL_OFFSET_MOVED,
        )

    def _plain(
        self, queue: MessageQueue, subscription: Subscription, offset: int, answer: PullMessageAnswer
    ) -> list[ReceivedMessage] | None:
        """The messages of a plain answer, decoded by the compiled core; None for any other."""
        if (
            pulled_messages is None
            or answer.offset_delta is not None
            or answer.next_begin_offset <= offset
            or queue.topic == self._retry_topic
            or queue.topic.startswith(LMQ_PREFIX)
        ):
            return None
        messages: list[ReceivedMessage] | None = pulled_messages(
            ReceivedMessage,
            answer.body,
            queue,
            queue.queue_id,
            queue.topic.encode(),
            unwrap(queue.topic, self._namespace),
            offset,
            answer.next_begin_offset,
        )
        if messages and subscription.tags:
            messages = [message for message in messages if subscription.wants(message.tags)]
        return messages

    def _received(
        self, queue: MessageQueue, subscription: Subscription, records: list[StoredMessage]
    ) -> list[ReceivedMessage]:
        if subscription.tags:
            records = [record for record in records if subscription.wants(record.get(props.TAGS))]
        if queue.topic == self._retry_topic:
            return [ReceivedMessage(record, queue, self._original_topic(record)) for record in records]
        topic = unwrap(queue.topic, self._namespace)
        return [ReceivedMessage(record, queue, topic) for record in records]

    def _original_topic(self, record: StoredMessage) -> str:
        """The topic from which a retried message was first consumed."""
        return unwrap(record.get(props.RETRY_TOPIC) or record.topic, self._namespace)


def _records(queue: MessageQueue, offset: int, answer: PullMessageAnswer) -> tuple[list[StoredMessage], int]:
    """The messages of an answer, decompressed and unbatched, and the offset of the next pull.

    A message that was not asked for is an error: with it the consumer would commit a wrong offset, or pull
    the same messages for ever.
    """
    records = decode_records(answer.body)
    end, delta = answer.next_begin_offset, answer.offset_delta
    if end <= offset:
        raise RemoteProtocolError(f"{queue}: the answer to a pull at {offset} continues at {end}")
    if delta is not None:
        for record in records:
            record.queue_offset += delta
    topic, queue_id, least, flags = queue.topic, queue.queue_id, offset, 0
    if topic.startswith(LMQ_PREFIX):
        # java: a light queue holds messages of other topics, with the offsets that they have there
        return [opened for record in records for opened in open_message(record)], end
    for record in records:
        place = record.queue_offset
        if (
            not least <= place < end or record.queue_id != queue_id or record.topic != topic
        ) and not _is_all_right(queue, offset, least, answer, record):
            raise _not_asked_for(queue, offset, record)
        least = place + 1
        flags |= record.sys_flag
    if not flags & _CLOSED:
        return records, end
    opened, end = _opened(records, offset, end)
    for before, after in pairwise(opened):
        if after.queue_offset <= before.queue_offset:
            raise _not_asked_for(queue, offset, after)
    if opened and opened[-1].queue_offset >= end:
        raise _not_asked_for(queue, offset, opened[-1])
    return opened, end


def _is_all_right(
    queue: MessageQueue, offset: int, least: int, answer: PullMessageAnswer, record: StoredMessage
) -> bool:
    """Whether a message that looks wrong belongs to the queue all the same."""
    # java: a queue of a static topic is stored in a queue with another number
    is_of_queue = record.queue_id == queue.queue_id or answer.offset_delta is not None
    # Brokers with namespaces prepend them to the topic.
    is_of_topic = record.topic == queue.topic or record.topic.endswith(f"%{queue.topic}")
    # A batch is returned whole, whichever of its messages was asked for.
    is_begun = least == offset and bool(record.sys_flag & SysFlag.INNER_BATCH)
    is_in_order = record.queue_offset < answer.next_begin_offset and (
        record.queue_offset >= least or is_begun
    )
    return is_of_queue and is_of_topic and is_in_order


def _opened(records: list[StoredMessage], offset: int, end: int) -> tuple[list[StoredMessage], int]:
    opened: list[StoredMessage] = []
    size_bytes = 0
    for record in records:
        if size_bytes > _MAX_OPENED_BYTES:
            return opened, record.queue_offset
        inside = [
            each for each in open_message(record, on_problem=_unreadable) if each.queue_offset >= offset
        ]
        opened += inside
        size_bytes += sum(len(each.body) for each in inside)
    return opened, end


def _unreadable(problem: RemoteProtocolError) -> None:
    _log.warning("a message is delivered as it is stored, because it cannot be unpacked: %s", problem)


def _not_asked_for(queue: MessageQueue, offset: int, record: StoredMessage) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{queue}: a pull at {offset} returned message {record.queue_offset} of {record.topic}"
        f" queue {record.queue_id}"
    )
