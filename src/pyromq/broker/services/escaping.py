"""A group without its master: delayed messages that are due go to other brokers that have their topic.

Only the acting master does so, and only with `enableRemoteEscape`. Its progress is handed to the master that
comes back. A message that was sent shortly before may be delivered twice, and none is lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final, Protocol

from pyromq.broker.flow.draft import Draft
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.cluster.routes import Route
from pyromq.cluster.sending.request import (
    INNER_PRODUCER_GROUP,
    PreparedMessage,
    SendTerms,
    send_request,
)
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import get_property, without_property
from pyromq.remoting.dialer import Dialer

_log = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.5
_TIMEOUT_S: Final = 3.0
_QUEUES: Final = 8
"""java: of a topic that the other broker creates"""


class Delayed(Protocol):
    """The messages of delay levels, as `Delays` has them."""

    def levels(self) -> list[int]: ...

    def first_due(self, level: int) -> tuple[int, Draft | None] | None:
        """The offset of the next message of a level if it is due, and the message unless it is gone."""
        ...

    def passed(self, level: int, offset: int) -> None:
        """The message at an offset is delivered."""
        ...


class Escaping:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        delayed: Delayed,
        is_acting: Callable[[], bool],
        find_route: Callable[[str], Awaitable[Route]],
        dialer: Dialer,
    ) -> None:
        self._live = live
        self._offsets = tables.delay_offsets
        self._delayed = delayed
        self._is_acting = is_acting
        self._find_route = find_route
        self._dialer = dialer
        self._turn = count()
        self._told = ""

    def __repr__(self) -> str:
        return f"<Escaping of {self._delayed!r}>"

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if self._live.now.remote_escape and self._is_acting():
                await self.send_due()

    async def send_due(self) -> int:
        """Send what is due to other brokers; how many messages that were."""
        sent = 0
        try:
            for level in self._delayed.levels():
                while self._is_acting() and (due := self._delayed.first_due(level)) is not None:
                    offset, draft = due
                    if draft is not None:
                        await self._send(draft)
                        sent += 1
                    self._delayed.passed(level, offset)
            self._told = ""
        except PyroError as problem:
            if self._told != str(problem):
                self._told = str(problem)
                _log.warning("delayed messages wait, no other broker takes them: %s", problem)
        finally:
            if sent:
                self._offsets.hand_over()
        return sent

    async def _send(self, draft: Draft) -> None:
        route = await self._find_route(draft.topic)
        own = self._live.now.broker_name
        queues = [queue for queue in route.publish_queues if route.broker_of(queue) != own]
        if not queues:
            raise TransportError(f"no other broker has the topic {draft.topic}")
        queue = queues[next(self._turn) % len(queues)]
        properties = without_property(draft.properties, props.DELAY)  # it has waited
        group = get_property(properties, props.PRODUCER_GROUP) or INNER_PRODUCER_GROUP
        message = PreparedMessage(
            draft.topic,
            draft.body,
            properties.decode(),
            "",
            draft.born_timestamp,
            draft.sys_flag,
            draft.flag,
            reconsume_times=draft.reconsume_times,
        )
        request = send_request(message, SendTerms(group, template_queues=_QUEUES), queue.queue_id)
        answer = await self._dialer.call(
            route.brokers[route.broker_of(queue)][names.MASTER_ID], request, _TIMEOUT_S
        )
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, f"the broker {route.broker_of(queue)} does not confirm it")
