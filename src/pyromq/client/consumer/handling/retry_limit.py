"""Tells the application about messages that will not be delivered again: one warning for each dead letter.

The broker decides, and says nothing when it does. The limit is the consumer's own, or else the group's, which
is asked for only after failures, and then at most once a minute.
"""

import asyncio
import logging

from pyromq.client.application_log import application_log
from pyromq.client.consumer.handling.outcomes import Delay, is_given_up
from pyromq.client.consumer.reading.brokers import Network, QueueBrokers
from pyromq.client.values import ReceivedMessage
from pyromq.clock import Clock
from pyromq.errors import PyroError
from pyromq.protocol.requests.groups import GetGroupConfig, SubscriptionGroupConfig

_log = logging.getLogger(__name__)

_ASK_TIMEOUT_S = 1.0
_KNOWN_FOR_S = 60.0


class RetryLimit:
    """`max_times`: how often a message is retried; None: as the group's settings say."""

    def __init__(self, network: Network, group: str, clock: Clock, *, max_times: int | None) -> None:
        self._brokers = QueueBrokers(network)
        self._group = group
        self._clock = clock
        self._max_times = max_times
        self._groups_limit = SubscriptionGroupConfig(group_name=group).retry_max_times
        self._is_known = False
        """Whether the group's limit is what a broker said."""
        self._asked: float | None = None
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<RetryLimit {self._group} max_times={self._max_times}>"

    async def tell_if_dead(self, message: ReceivedMessage, delay: Delay, reason: str) -> None:
        """Called after a broker took a failed message back."""
        if await self.is_dead(message, delay):
            self.tell(message, reason)

    async def is_dead(self, message: ReceivedMessage, delay: Delay) -> bool:
        return is_given_up(delay) or message.reconsume_times >= await self.limit(message)

    async def is_surely_dead(self, message: ReceivedMessage, delay: Delay) -> bool:
        """Whether the broker would decide so: not if the group's limit could not be asked for."""
        is_dead = await self.is_dead(message, delay)
        return is_dead and (is_given_up(delay) or self._max_times is not None or self._is_known)

    def tell(self, message: ReceivedMessage, reason: str) -> None:
        application_log.warning(
            "message became a dead letter topic=%s id=%s group=%s times=%d: %s",
            message.topic,
            message.message_id,
            self._group,
            message.reconsume_times + 1,
            reason,
        )

    async def limit(self, message: ReceivedMessage) -> int:
        """How often the message is retried."""
        if self._max_times is not None:
            return self._max_times
        async with self._asking:
            now = self._clock.monotonic()
            if self._asked is None or now - self._asked > _KNOWN_FOR_S:
                self._asked = now
                await self._ask(message)
            return self._groups_limit

    async def _ask(self, message: ReceivedMessage) -> None:
        try:
            request = GetGroupConfig(group=self._group)
            answer = await self._brokers.call(message.queue, request, _ASK_TIMEOUT_S)
        except PyroError as problem:
            _log.info(
                "retries of the group not known, %d assumed group=%s: %s",
                self._groups_limit,
                self._group,
                problem,
            )
        else:
            self._groups_limit = answer.body.retry_max_times
            self._is_known = True
