"""Removes brokers that did not unregister: their connection was lost, or they expired."""

import asyncio
import logging
from contextlib import suppress

from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.metrics import Counter
from pyromq.nameserver.consequences import Consequences
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.settings import NameServerSettings
from pyromq.remoting.connection import Connection

_log = logging.getLogger(__name__)


class Departures:
    def __init__(
        self,
        table: RouteTable,
        consequences: Consequences,
        settings: LiveSettings[NameServerSettings],
        clock: Clock,
        counter: Counter,
    ) -> None:
        self._table = table
        self._consequences = consequences
        self._settings = settings
        self._clock = clock
        self._counter = counter
        self._wakes_at_ms = 0.0
        self._wake = asyncio.Event()
        self._is_sweeping = False

    def __repr__(self) -> str:
        return f"<Departures {self._counter!r}>"

    def count_unregistration(self) -> None:
        self._counter.add(("unregistered",))

    def connection_lost(self, connection: Connection) -> None:
        lost = self._table.brokers_on(connection)
        if lost:
            self._counter.add(("disconnected",), len(lost))
            addresses = ",".join(key.address for key in lost)
            _log.warning("brokers disconnected addresses=%s", addresses)
            self._consequences.act(self._table.connection_lost(connection))
            self.sweep_soon()

    def sweep_soon(self) -> None:
        """Remove the topics of brokers that left from the tables, a part in each turn of the loop."""
        if self._table.needs_sweeping and not self._is_sweeping:
            self._is_sweeping = True
            asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        self._is_sweeping = False
        self._table.sweep()
        self.sweep_soon()

    def wake_before(self, check_ms: float | None) -> None:
        """A broker may expire at this time: wake up earlier if necessary."""
        if check_ms is not None and check_ms < self._wakes_at_ms:
            self._wake.set()

    def expire(self) -> None:
        """Remove brokers whose timeout has passed."""
        expired = self._table.expire(self._clock.monotonic() * 1000)
        if not expired.brokers:
            return
        self._counter.add(("expired",), len(expired.brokers))
        for key in expired.brokers:
            _log.warning("broker expired cluster=%s address=%s", key.cluster, key.address)
        self._consequences.act(expired.changes)
        self.sweep_soon()
        for connection in expired.connections:
            if isinstance(connection, Connection):
                connection.abort()

    async def run(self) -> None:
        """Wake up when the next deadline may have passed, and at every scan interval."""
        while True:
            self.expire()
            now_ms = self._clock.monotonic() * 1000
            self._wakes_at_ms = now_ms + self._settings.now.scan_interval_ms
            next_check_ms = self._table.next_expiry_check_ms()
            if next_check_ms is not None:
                # A deadline has passed when the clock is later than it, not equal to it.
                self._wakes_at_ms = min(self._wakes_at_ms, next_check_ms + 1)
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout((self._wakes_at_ms - now_ms) / 1000):
                    await self._wake.wait()
