"""Acts on changes of the tables: notifies watching clients and broker groups."""

import asyncio
import logging

from pyromq.errors import TransportError
from pyromq.metrics import Metrics
from pyromq.nameserver.changes import Changes, MinBrokerIdNotice
from pyromq.nameserver.watch import Watches
from pyromq.protocol.requests.brokers import NotifyMinBrokerIdChange
from pyromq.protocol.requests.pushes import NotifyRoutesChanged
from pyromq.remoting.channel import Channel
from pyromq.remoting.dialer import Dialer

_log = logging.getLogger(__name__)

_NOTICE_TIMEOUT_S = 3.0


class Consequences:
    def __init__(self, dialer: Dialer, metrics: Metrics) -> None:
        self._dialer = dialer
        self.watches: Watches[Channel] = Watches(self._flush_soon)
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushes = metrics.counter("pyromq_namesrv_pushes", "Messages to clients about changed routes.")
        self._pushed_topics = metrics.counter(
            "pyromq_namesrv_pushed_topics", "Changed routes in messages to clients."
        )
        self._notices = metrics.counter(
            "pyromq_namesrv_min_broker_id_notices", "Brokers notified of the smallest id of their group."
        )

    def __repr__(self) -> str:
        return f"<Consequences {self.watches!r} {self._pushes!r} underway={len(self._tasks)}>"

    def act(self, changes: Changes) -> None:
        if changes.topics:
            self.watches.note(changes.topics)
        for notice in changes.notices:
            for address in notice.recipients:
                task = asyncio.create_task(self._tell_broker(address, notice))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _flush_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._push)

    def _push(self) -> None:
        for channel, topics in self.watches.take_pending().items():
            if channel.is_open:
                channel.send_oneway(NotifyRoutesChanged(body=topics))
                self._pushes.add()
                self._pushed_topics.add((), len(topics))

    async def _tell_broker(self, address: str, notice: MinBrokerIdNotice) -> None:
        request = NotifyMinBrokerIdChange(
            min_broker_id=notice.min_broker_id,
            min_broker_addr=notice.min_broker_address,
            offline_broker_addr=notice.offline_address,
            ha_broker_addr=notice.ha_address,
        )
        try:
            await self._dialer.send_oneway(address, request, _NOTICE_TIMEOUT_S)
        except TransportError as problem:
            # Brokers also find out by themselves, when they next ask for their group.
            _log.warning(
                "could not notify a broker of its group's smallest id address=%s: %s", address, problem
            )
        else:
            self._notices.add()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
