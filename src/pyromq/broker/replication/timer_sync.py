"""The timers of a replica: it follows its master through the timer wheel, so that it can take over.

The master says up to which slot everything is delivered. The replica believes it once its own log is newer
than that word: then it has the deliveries, too. (A record of the same millisecond may be one of several.) A
replica that becomes master looks for the deliveries of the later slots in its log.
"""

import asyncio
import logging
from typing import Final

from pyromq.broker.replication.replica import Replica
from pyromq.broker.tables.all_tables import Tables
from pyromq.errors import PyroError
from pyromq.protocol.requests.upkeep import GetTimerCheckpoint
from pyromq.remoting.dialer import Dialer
from pyromq.store.message_store import MessageStore
from pyromq.store.timers.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint

_log = logging.getLogger(__name__)

_INTERVAL_S: Final = 3.0
_TIMEOUT_S: Final = 10.0


class TimerSync:
    def __init__(self, store: MessageStore, tables: Tables, replica: Replica, dialer: Dialer) -> None:
        self._store = store
        self._role = tables.role
        self._replica = replica
        self._dialer = dialer
        self._masters = 0
        self._told: TimerCheckpoint | None = None
        """The present master's last word; not believed yet."""
        self._trouble = ""
        replica.on_master(self._forget)
        tables.role.on_change(lambda _: self._forget())

    def __repr__(self) -> str:
        return f"<TimerSync from {self._replica.master} {self._store.timers!r}>"

    def _forget(self) -> None:
        self._told = None
        self._masters += 1

    async def run(self) -> None:
        while True:
            await self.follow()
            await asyncio.sleep(_INTERVAL_S)

    async def follow(self) -> None:
        """Ask the master, and go as far as this replica's log goes."""
        if self._role.now.is_master or not self._store.timers.wheel.is_made:
            self._told = None
            return
        self._believe()
        master, masters = self._replica.master, self._masters
        if master is None or self._told is not None:
            return
        try:
            answer = await self._dialer.call(master, GetTimerCheckpoint(), _TIMEOUT_S)
            told = decode_timer_checkpoint(answer.body)
            self._told = told if masters == self._masters else None
            self._trouble = ""
        except (PyroError, OSError, ValueError) as problem:
            if self._trouble != str(problem):
                self._trouble = str(problem)
                _log.warning("timers of the master not known address=%s: %s", master, problem)
        self._believe()

    def _believe(self) -> None:
        told = self._told
        if told is None or self._role.now.is_master:
            return
        if self._store.statistics().last_store_timestamp > told.version_ms:
            self._store.timers.follow(told.read_ms)
            self._told = None
