"""How far the replicas in sync have the tables of their master.

Whoever may become master has what an operator was promised: a topic, a group or a user is acknowledged when
the replicas in sync have it on disk. A replica says so by asking for the changes after it. Replicas of ours
ask for tables before they come for the log. Those of Apache never ask, so a master waits for them only until
they have come.
"""

import asyncio
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from functools import partial
from typing import Final

from pyromq.broker.replication.master import Master
from pyromq.errors import Refused
from pyromq.protocol.codes import REPLICA_REMARK, ResponseCode
from pyromq.remoting.channel import Channel

Counts = tuple[int, ...]

_LOOK_AGAIN_S: Final = 0.25
"""A replica may leave the others in sync meanwhile."""


class TableCopies:
    def __init__(self, master: Master, counts: Callable[[], Counts], timeout_ms: Callable[[], int]) -> None:
        """`counts` are the changes of each table so far."""
        self._master = master
        master.has_tables = self.has_all
        self._counts = counts
        self._timeout_ms = timeout_ms
        self._copied: dict[int, tuple[Counts, Channel]] = {}
        """By broker id: the changes that a replica has, and the connection on which it said so."""
        self._told = asyncio.Event()

    def __repr__(self) -> str:
        return f"<TableCopies { ({broker_id: counts for broker_id, (counts, _) in self._copied.items()}) }>"

    def heard(self, broker_id: int, counts: Counts, channel: Channel) -> None:
        """A replica has all changes up to `counts`."""
        self._copied[broker_id] = counts, channel
        self._told.set()
        self._master.tables_copied(broker_id)

    def has_all(self, broker_id: int) -> bool:
        """Whether a replica has all changes so far, or never asks for any."""
        known = self._copied.get(broker_id)
        return known is None or all(
            copied >= change for copied, change in zip(known[0], self._counts(), strict=True)
        )

    def has(self, table: int, change: int) -> bool:
        """Whether all replicas in sync have a change of a table, or none needs it."""
        return self._master.acknowledges_alone or (
            not self._unheard() and all(copied[table] >= change for copied in self._awaited())
        )

    def begin(self) -> Callable[[], Awaitable[str | None]]:
        """Call this before a change, and what it returns afterwards: it waits for the replicas, and returns a
        remark for the answer if this broker was a replica itself."""
        return partial(self._wait, self._master.reign)

    async def _wait(self, reign: object | None) -> str | None:
        """Return when all replicas in sync have the changes up to this call. Raises Refused if they do not
        get them in time, unless this master acknowledges messages alone, too; or if it was replaced since
        `begin`, because the tables of the new master count from then on."""
        if reign is None:
            return REPLICA_REMARK
        late = self._late(wanted := self._counts())
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout_ms() / 1000
        while late and (now := loop.time()) < until:
            self._told.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_AGAIN_S, until - now)):
                    await self._told.wait()
            late = self._late(wanted)
        if self._master.reign is not reign:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "this broker is no longer the master, and the new one may not have the change: try again",
            )
        if late and not self._master.acknowledges_alone:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the change is stored on this master, but {late} replicas in sync did not confirm it within"
                f" {self._timeout_ms()} ms (slaveTimeout): try again",
            )
        return None

    def _late(self, wanted: Counts) -> int:
        """How many replicas do not have all changes up to `wanted`."""
        return len(self._unheard()) + sum(
            any(has < change for has, change in zip(copied, wanted, strict=True))
            for copied in self._awaited()
        )

    def _unheard(self) -> Set[int]:
        """Replicas in sync that may be about to ask."""
        return self._master.expected - self._copied.keys()

    def _awaited(self) -> list[Counts]:
        return [
            counts
            for broker_id, (counts, channel) in self._copied.items()
            if self._master.wants_tables_at(broker_id, is_watching=channel.is_open and counts[0] >= 0)
        ]
