"""A message that failed goes back to its broker, to be delivered again or moved to the dead letters.

The broker makes the copy itself. If it cannot be asked, the consumer sends the message to the retry topic of
the group, through any broker that has it.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta

from pyromq.chance import shuffle
from pyromq.client.consumer.handling.outcomes import TO_DEAD_LETTERS, Delay, level_for
from pyromq.client.consumer.reading.brokers import Network, QueueBrokers
from pyromq.client.values import ReceivedMessage
from pyromq.clock import Clock
from pyromq.cluster.retry_table import require_safe
from pyromq.cluster.sending.request import (
    INNER_PRODUCER_GROUP,
    PreparedMessage,
    SendTerms,
    send_request,
)
from pyromq.errors import NoRoute, PyroError
from pyromq.protocol import dead_letters, names
from pyromq.protocol import properties as props
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.requests.sending import SendMessageBack, SendMessageV2

_log = logging.getLogger(__name__)

_SEND_BACK_TIMEOUT_S = 5.0
_SEND_TIMEOUT_S = 3.0
_SEND_TRIES = 3
_MAX_REASON_CHARS = 500
_NOT_RESENT = (
    props.TRANSACTION_PREPARED,
    props.RECONSUME_TIME,
    props.MAX_RECONSUME_TIMES,
    props.TIMER_DELAY_MS,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELIVER_MS,
    props.TIMER_OUT_MS,
    props.TIMER_ENQUEUE_MS,
    props.TIMER_DEQUEUE_MS,
    props.TIMER_ROLL_TIMES,
)


class HandlerRetries:
    """`max_times`: how often a message is retried; None: as the group's settings say."""

    def __init__(
        self,
        network: Network,
        group: str,
        clock: Clock,
        *,
        max_times: int | None,
        unit_mode: bool = False,
        member: str = "unknown",
    ) -> None:
        self._network = network
        self._brokers = QueueBrokers(network)
        self._group = group
        self._clock = clock
        self._max_times = max_times
        self._unit_mode = unit_mode
        self._member = member
        self._terms = SendTerms(INNER_PRODUCER_GROUP, unit_mode=unit_mode)

    def __repr__(self) -> str:
        return f"<HandlerRetries {self._group} max_times={self._max_times}>"

    async def give_back(self, message: ReceivedMessage, delay: Delay) -> None:
        """Return when a broker has the message; raises if none takes it."""
        if isinstance(delay, timedelta):
            try:
                await self.send_again(message, delay=delay)
                return
            except PyroError as problem:
                _log.info(
                    "no broker times the message, it takes a level id=%s: %s", message.message_id, problem
                )
                delay = level_for(delay)
        delay_level, queue = delay, message.queue
        try:
            if self._brokers.broker_name(queue) == queue.broker_name:
                await self._send_back(message, delay_level)
                return
        except PyroError as problem:
            _log.info(
                "message not given back, sent to the retry topic instead id=%s: %s",
                message.message_id,
                problem,
            )
        await self.send_again(message, is_dead=delay_level < 0)

    async def bury(self, message: ReceivedMessage, reason: str) -> None:
        """Make it a dead letter that says why. If a broker accepts no copy, it creates one itself."""
        why = {
            # As brokers do: consoles and proxies show them.
            props.DLQ_ORIGIN_TOPIC: message.get(props.RETRY_TOPIC) or message.queue.topic,
            props.DLQ_ORIGIN_MESSAGE_ID: message.message_id,
            dead_letters.ERROR: _cut(reason),
            dead_letters.MEMBER: self._member,
            dead_letters.FAILED_AT: str(self._clock.now_ms()),
            dead_letters.ATTEMPTS: str(message.reconsume_times + 1),
        }
        try:
            await self.send_again(message, is_dead=True, why=why)
        except PyroError:
            await self._send_back(message, TO_DEAD_LETTERS)

    async def _send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        queue = message.queue
        request = SendMessageBack(
            offset=message.stored.log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=queue.topic,
            unit_mode=self._unit_mode,
            max_reconsume_times=self._max_times,
            target_broker_name=queue.broker_name,
        )
        address = await self._brokers.address(queue, only_this=True)
        await self._network.call(address, request, _SEND_BACK_TIMEOUT_S)

    async def send_again(
        self,
        message: ReceivedMessage,
        *,
        is_dead: bool = False,
        delay: timedelta | None = None,
        why: Mapping[str, str] | None = None,
    ) -> None:
        """Send a copy to the retry topic; after too many retries the broker makes it a dead letter."""
        topic = names.retry_topic(self._group)
        try:
            queues = list((await self._network.routes.get(topic)).publish_queues)
        except NoRoute:  # a broker creates it for its first message
            queues = [MessageQueue(topic, message.queue.broker_name, 0)]
        if not queues:
            raise NoRoute(topic, "brokers that take messages")
        shuffle(queues)
        problem: PyroError | None = None
        for queue in queues[:_SEND_TRIES]:
            try:
                address = await self._brokers.address(queue, only_this=True)
                answer = await self._network.call(
                    address, self._copy(message, queue, is_dead, delay, why or {}), _SEND_TIMEOUT_S
                )
                # A master of Apache's without a replica says so each time: more copies would not help.
                if answer.code != ResponseCode.SLAVE_NOT_AVAILABLE:
                    require_safe(answer.code)
                return
            except PyroError as failure:
                problem = failure
        assert problem is not None
        raise problem

    def _copy(
        self,
        message: ReceivedMessage,
        queue: MessageQueue,
        is_dead: bool,
        delay: timedelta | None,
        why: Mapping[str, str],
    ) -> SendMessageV2:
        times = message.reconsume_times
        properties = dict(message.properties)
        for name in _NOT_RESENT:
            properties.pop(name, None)
        properties[props.ORIGIN_MESSAGE_ID] = (
            properties.get(props.ORIGIN_MESSAGE_ID, "").strip() or message.message_id
        )
        properties[props.RETRY_TOPIC] = properties.get(props.RETRY_TOPIC) or message.queue.topic
        if delay is None:
            properties[props.DELAY] = str(props.FIRST_RETRY_LEVEL + times)
        else:
            properties.pop(props.DELAY, None)
            properties[props.TIMER_DELAY_MS] = str(round(delay.total_seconds() * 1000))
        properties |= why
        copy = PreparedMessage(
            queue.topic,
            message.body,
            encode_properties(properties),
            message.message_id,
            self._clock.now_ms(),
            flag=message.flag,
            reconsume_times=times + 1,
            # A limit below the count makes the broker move it to the dead letters at once.
            max_reconsume_times=TO_DEAD_LETTERS if is_dead else self._max_times,
        )
        return send_request(copy, self._terms, queue.queue_id, queue.broker_name)


def _cut(reason: str) -> str:
    """As much of it as a property should hold, without the separators of properties."""
    return "".join(each if each.isprintable() else " " for each in reason[:_MAX_REASON_CHARS]) or "unknown"
