"""Brokers that leave without a word: their connection ends at once, or they fall silent."""

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
        self._next_look_ms = 0.0
        self._look_again = asyncio.Event()
        self._is_sweeping = False

    def __repr__(self) -> str:
        return f"<Departures {self._counter!r}>"

    def count_farewell(self) -> None:
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
        """Very many topics that are gone are forgotten some at a time, while others are served."""
        if self._table.needs_sweeping and not self._is_sweeping:
            self._is_sweeping = True
            asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        self._is_sweeping = False
        self._table.sweep()
        self.sweep_soon()

    def expect_no_later_than(self, check_ms: float | None) -> None:
        """Somebody may be due before we meant to look again."""
        if check_ms is not None and check_ms < self._next_look_ms:
            self._look_again.set()

    def expire(self) -> None:
        """Let go of brokers that were silent for too long."""
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
        """Wake when the first deadline may have passed, and not more often than it takes."""
        while True:
            self.expire()
            now_ms = self._clock.monotonic() * 1000
            self._next_look_ms = now_ms + self._settings.now.scan_interval_ms
            next_check_ms = self._table.next_expiry_check_ms()
            if next_check_ms is not None:
                # A deadline has passed when the clock is beyond it, not on it.
                self._next_look_ms = min(self._next_look_ms, next_check_ms + 1)
            self._look_again.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout((self._next_look_ms - now_ms) / 1000):
                    await self._look_again.wait()
