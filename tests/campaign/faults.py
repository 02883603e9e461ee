"""Carries out what a plan says, and undoes it when its time has come."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tests.campaign.disks import Disk, flip_bit, lose_power, remove_tables
from tests.campaign.network import Network
from tests.campaign.parties import Party
from tests.campaign.plans import ALONE, LEADER, MASTER, Planned

_HA_PORT = 1
"""The second port of a broker sends its log to replicas."""


class Faults:
    def __init__(
        self,
        parties: Mapping[str, Party],
        disks: Mapping[str, Disk],
        network: Network,
        find_master: Callable[[], Awaitable[str]],
        find_leader: Callable[[], Awaitable[str]],
        wait_whole: Callable[[], Awaitable[None]],
    ) -> None:
        self._parties = parties
        self._disks = disks
        self._network = network
        self._wait_whole = wait_whole
        self._finders = {MASTER: find_master, LEADER: find_leader}
        self._starting = {name: asyncio.Lock() for name in parties}
        """Two faults may hit the same server: it is started again once, after both."""

    async def inflict(self, planned: Planned) -> None:
        """Returns when it is over."""
        if planned.kind in ALONE:
            await self._wait_whole()
        targets = tuple([await self._found(each) for each in planned.targets])
        if len(set(targets)) < len(targets):  # nobody can be parted from itself
            return
        await getattr(self, f"_{planned.kind}")(planned, targets)

    async def _found(self, target: str) -> str:
        find = self._finders.get(target)
        return target if find is None else await find()

    async def heal(self) -> None:
        """All is as it was in the beginning; whoever is down is started."""
        self._network.heal()
        for disk in self._disks.values():
            disk.free()
        for party in self._parties.values():
            party.resume()
            party.tell("clock 0")
            party.tell("disk 0")
            party.tell("sync 0")
        await asyncio.gather(*(party.start() for party in self._parties.values() if not party.is_up))

    # Processes

    async def _kill(self, planned: Planned, targets: Sequence[str]) -> None:
        party = self._parties[targets[0]]
        async with self._starting[party.name]:
            await party.kill()
            await asyncio.sleep(planned.for_s)
            await party.start()

    async def _hang(self, planned: Planned, targets: Sequence[str]) -> None:
        party = self._parties[targets[0]]
        party.hang()
        await asyncio.sleep(planned.for_s)
        party.resume()

    async def _restart(self, planned: Planned, targets: Sequence[str]) -> None:
        for target in targets:
            async with self._starting[target]:
                await self._parties[target].stop()
                await self._parties[target].start()

    _rolling_restart = _restart

    # Network

    async def _partition(self, planned: Planned, targets: Sequence[str]) -> None:
        one, other = targets
        self._network.cut(one, other)
        self._network.cut(other, one)
        await asyncio.sleep(planned.for_s)
        self._network.heal(*targets)

    async def _one_way_cut(self, planned: Planned, targets: Sequence[str]) -> None:
        self._network.cut(*targets)
        await asyncio.sleep(planned.for_s)
        self._network.heal(*targets)

    async def _reset(self, planned: Planned, targets: Sequence[str]) -> None:
        self._network.reset(*targets)

    async def _slow_link(self, planned: Planned, targets: Sequence[str]) -> None:
        one, other = targets
        self._network.slow(one, other, planned.amount)
        self._network.slow(other, one, planned.amount)
        await asyncio.sleep(planned.for_s)
        self._network.heal(*targets)

    async def _hold_stream(self, planned: Planned, targets: Sequence[str]) -> None:
        self._network.hold(targets[0], _HA_PORT)
        await asyncio.sleep(planned.for_s)
        self._network.hold(targets[0], _HA_PORT, is_held=False)

    async def _kill_behind_held_stream(self, planned: Planned, targets: Sequence[str]) -> None:
        """The master goes on without its replicas for a while, and dies before they have its log."""
        party = self._parties[targets[0]]
        self._network.hold(party.name, _HA_PORT)
        await asyncio.sleep(planned.for_s)
        async with self._starting[party.name]:
            await party.kill()
            self._network.hold(party.name, _HA_PORT, is_held=False)
            await party.start()

    async def _flip_on_the_way(self, planned: Planned, targets: Sequence[str]) -> None:
        self._network.flip(targets[0], _HA_PORT, int(planned.amount))

    # Disks and clocks

    async def _damage(self, planned: Planned, target: str, damage: Callable[[Path], object]) -> None:
        """A broker is killed, and its files are others when it returns."""
        party = self._parties[target]
        async with self._starting[party.name]:
            await party.kill()
            await asyncio.to_thread(damage, party.directory)
            await asyncio.sleep(planned.for_s)
            await party.start()

    async def _lose_power(self, planned: Planned, targets: Sequence[str]) -> None:
        chance = random.Random(planned.amount)
        await self._damage(planned, targets[0], lambda directory: lose_power(directory, chance))

    async def _flip_at_rest(self, planned: Planned, targets: Sequence[str]) -> None:
        chance = random.Random(planned.amount)
        await self._damage(planned, targets[0], lambda directory: flip_bit(directory, chance))

    async def _remove_tables(self, planned: Planned, targets: Sequence[str]) -> None:
        await self._damage(planned, targets[0], remove_tables)

    async def _fail_sync(self, planned: Planned, targets: Sequence[str]) -> None:
        """Every sync fails until the machine is replaced by one with a sound disk and the same files."""
        party = self._parties[targets[0]]
        party.tell("sync 1")
        await asyncio.sleep(planned.for_s)
        async with self._starting[party.name]:
            await party.kill()
            await party.start()

    async def _slow_disk(self, planned: Planned, targets: Sequence[str]) -> None:
        party = self._parties[targets[0]]
        party.tell(f"disk {planned.amount * 1000:.0f}")
        await asyncio.sleep(planned.for_s)
        party.tell("disk 0")

    async def _full_disk(self, planned: Planned, targets: Sequence[str]) -> None:
        disk = self._disks[targets[0]]
        disk.fill()
        await asyncio.sleep(planned.for_s)
        disk.free()

    async def _clock_jump(self, planned: Planned, targets: Sequence[str]) -> None:
        """The wall clock jumps, and back when the time is over, as when somebody sets it right."""
        party = self._parties[targets[0]]
        party.tell(f"clock {planned.amount * 1000:.0f}")
        await asyncio.sleep(planned.for_s)
        party.tell("clock 0")
