"""Repair: damage in this broker's log is found, and replaced by what another broker of the group has.

All of the log is read once in `scrubIntervalHours`, by a thread and not too fast. A file in which a reader or
a replica met damage is read at once; readers of that message wait meanwhile. A replica with damage that
no broker has is not in sync: what it lacks must not be missing in the next master's log.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from pyromq.broker.context import Context
from pyromq.broker.flow.appending import Appending
from pyromq.broker.replication.members import group_members
from pyromq.broker.replication.replica import Replica
from pyromq.errors import PyroError, Refused, StateError
from pyromq.protocol.requests.pulling import ViewMessage
from pyromq.remoting.dialer import Dialer
from pyromq.store.log.damage import Damage
from pyromq.store.scrubbing import NotThere

_log = logging.getLogger(__name__)

_FIRST_S: Final = 10.0
"""A broker that has just started has other things to do."""
_RETRY_S: Final = 5.0
_HOUR_S: Final = 3600.0
_TIMEOUT_S: Final = 5.0


class Repair:
    def __init__(
        self,
        context: Context,
        appending: Appending,
        replica: Replica,
        dialer: Dialer,
        own_address: str,
    ) -> None:
        store = context.store
        self._live = context.live
        self._store = store
        self._appending = appending
        self._role = context.tables.role
        self._replica = replica
        self._dialer = dialer
        self._clock = context.clock
        self._own_address = own_address
        self._suspects: set[int] = set()
        """The starts of files in which somebody met damage."""
        self._begins: set[int] = set()
        """Where replicas begin to copy: one that refused a record of this broker's comes back there."""
        self._woken = asyncio.Event()
        self._cuts = store.cutting.cuts
        self._next_scrub = self._clock.monotonic() + _FIRST_S
        self._abandoned: set[int] = set()
        """Where damage begins that no broker of the group has."""
        self.damage: list[Damage] = [each for each in store.recovery.damage if each.is_left_in_place]
        """The damage that was not repaired yet."""
        self.repaired_ranges = self.repaired_bytes = 0
        self.scrubs = 0
        """How often all of the log was read."""
        store.ask_others(self._is_awaited)
        replica.is_damaged = lambda: bool(self.damage)

    def __repr__(self) -> str:
        return f"<Repair {len(self.damage)} damaged ranges, {self.repaired_ranges} repaired>"

    @property
    def summary(self) -> str:
        """The damage found since the start; empty if there was none."""
        parts = []
        if self.repaired_ranges:
            parts.append(
                f"{self.repaired_ranges} damaged ranges repaired from the group, {self.repaired_bytes} bytes"
            )
        if self.damage:
            parts.append(
                f"{len(self.damage)} damaged ranges could not be repaired, {self.damaged_bytes} bytes"
            )
        return "; ".join(parts)

    @property
    def damaged_bytes(self) -> int:
        return sum(each.end - each.start for each in self.damage)

    @property
    def problem(self) -> str:
        """On a replica: why it is not in sync; empty if that is not because of damage."""
        if not self.damage or self._role.now.is_master:
            return ""
        return (
            f"{self.damaged_bytes} bytes of the log are damaged, the first at {self.damage[0].start}, and no"
            " broker of the group could tell what was there: this broker is not in sync"
        )

    def suspect(self, offset: int) -> None:
        """Somebody met damage at a log offset: have its file read soon."""
        self._suspects.add(self._store.scrubbing.start_of_file(offset))
        self._woken.set()

    def look_at(self, offset: int) -> None:
        """A replica copies the log from here on: have the record looked at."""
        self._begins.add(offset)
        self._woken.set()

    def _is_awaited(self, offset: int) -> bool:
        """See `MessageStore.ask_others`."""
        for each in self.damage:
            if each.start <= offset < each.end:
                return each.start not in self._abandoned
        self.suspect(offset)
        return True

    async def run(self) -> None:
        while True:
            self._woken.clear()
            if self._store.cutting.cuts != self._cuts:
                self._cuts = self._store.cutting.cuts
                for each in self.damage:
                    self.suspect(each.start)  # other records may be there now
            while self._begins:
                await self._look_at(self._begins.pop())
            while self._suspects:
                start = self._suspects.pop()
                await self._scrub(start, start + self._store.settings.log_segment_bytes, None)
            interval_s = self._live.now.scrub_interval_hours * _HOUR_S
            if interval_s and self._clock.monotonic() >= self._next_scrub:
                self._next_scrub = self._clock.monotonic() + interval_s
                await self.scrub()
            elif self.damage:
                await self._repair_all(self.damage)
            pause_s = max(self._next_scrub - self._clock.monotonic(), 0) if interval_s else _HOUR_S
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, _RETRY_S) if self.damage else pause_s):
                    await self._woken.wait()

    async def _look_at(self, offset: int) -> None:
        with suppress(OSError):
            end = self._store.queues.dispatched_offset
            if offset < end and (await asyncio.to_thread(self._store.scrubbing.check, offset, end))[1]:
                self.suspect(offset)

    async def scrub(self) -> None:
        """Read all of the log, and repair what is damaged."""
        await self._scrub(self._store.log.start, 1 << 63, self._live.now.scrub_max_bytes_per_s)
        self.scrubs += 1

    async def _scrub(self, start: int, end: int, max_bytes_per_s: int | None) -> None:
        store, offset, found = self._store, start, list[Damage]()
        # What is not dispatched may be taken back.
        end = min(end, store.queues.dispatched_offset)
        while offset < end:
            before = offset
            try:
                offset, damage = await asyncio.to_thread(store.scrubbing.check, offset, end)
            except OSError as error:
                _log.error("the log cannot be read offset=%d: %s", offset, error)
                return
            if damage is not None:
                found.append(damage)
            if max_bytes_per_s is not None:
                await asyncio.sleep((offset - before) / max_bytes_per_s)
        others = [each for each in self.damage if not start <= each.start < end]
        await self._repair_all(others + found)

    async def _repair_all(self, damage: list[Damage]) -> None:
        was_damaged = bool(self.damage)
        self.damage = sorted(
            [each for each in damage if not await self._repair(each)], key=lambda each: each.start
        )
        if bool(self.damage) != was_damaged:
            self._replica.greet_again()

    async def _repair(self, damage: Damage) -> bool:
        """Whether it is gone: it was repaired, or the log does not have that part any more."""
        store = self._store
        if damage.end <= store.log.start or damage.start >= store.log.end:
            return True
        is_known = damage.start in self._abandoned
        peers, are_all_there = await self._peers()
        reasons = []
        for address in peers:
            try:
                await self._fetch(address, damage)
                store.erasing.repeat(damage.start)  # the other broker may not have erased it yet
                for _ in store.queues.restore_units(damage):
                    await asyncio.sleep(0)
            except (PyroError, OSError) as problem:
                are_all_there = are_all_there and isinstance(problem, NotThere)
                reasons.append(f"{address}: {problem}")
                continue
            self._abandoned.discard(damage.start)
            self.repaired_ranges += 1
            self.repaired_bytes += damage.end - damage.start
            self._appending.dispatch_soon()  # readers wait for it
            _log.warning(
                "damage in the log was repaired start=%d end=%d from=%s: %s",
                *(damage.start, damage.end, address, damage.reason),
            )
            return True
        if are_all_there:
            self._abandoned.add(damage.start)
        if not is_known and are_all_there:
            _log.log(
                logging.ERROR if peers else logging.WARNING,
                "damage in the log cannot be repaired start=%d end=%d (%s): %s",
                *(
                    damage.start,
                    damage.end,
                    damage.reason,
                    "; ".join(reasons) or "the group has no other broker",
                ),
            )
        return False

    async def _fetch(self, address: str, damage: Damage) -> None:
        """Raises NotThere if that broker does not have it; else PyroError or OSError."""
        cuts, steps, record = self._store.cutting.cuts, self._store.scrubbing.replacing(damage), None
        while True:
            try:
                wanted = steps.send(record)
            except StopIteration:
                return
            record = None
            if isinstance(wanted, int):
                with suppress(Refused):
                    record = (await self._dialer.call(address, ViewMessage(offset=wanted), _TIMEOUT_S)).body
            elif self._store.cutting.cuts == cuts:
                await asyncio.to_thread(wanted)
            else:
                raise StateError("the log was cut meanwhile")

    async def _peers(self) -> tuple[list[str], bool]:
        """The other brokers of the group, the master first; and whether these are surely all."""
        found = [] if self._role.now.is_master or self._replica.master is None else [self._replica.master]
        settings = self._live.now
        is_alone = not settings.name_servers and not found
        try:
            found += (await group_members(self._dialer, settings)).values()
        except PyroError:
            return found, is_alone
        return [each for each in dict.fromkeys(found) if each != self._own_address], True
