"""A group without its master: the replica with the lowest id acts as master for readers.

Name servers show it as the master (`supportActingMaster`), so consumers commit offsets and lock queues here.
It never takes messages, and what is delayed waits for the master. A master that comes back takes over the
offsets that were committed meanwhile before it registers. If it has lost the end of its log, they may be
beyond that: they are fitted to what it has.
"""

import asyncio
import logging
from typing import Final

from pyromq.broker.replication.master import Master
from pyromq.broker.replication.members import group_members
from pyromq.broker.replication.replica import Replica
from pyromq.broker.services.registration import Registration
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.table_fitting import fit_to_log
from pyromq.broker.tables.all_tables import Tables
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.brokers import NotifyMinBrokerIdChange
from pyromq.protocol.requests.offsets import GetAllConsumerOffsets, GetAllDelayOffsets
from pyromq.protocol.requests.replication import (
    ExchangeHaInfo,
    ExchangeHaInfoAnswer,
    ResetMasterFlushOffset,
)
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, handles
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_RETRY_S: Final = 1.0
_CONNECT_S: Final = 10.0
"""A returning master waits this long for a replica that has its address."""
_TICK_S: Final = 0.05


class ActingMaster:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        master: Master,
        replica: Replica,
        registration: Registration,
        dialer: Dialer,
    ) -> None:
        self._live = live
        self._store = store
        self._tables = tables
        self._role = tables.role
        self._master = master
        self._replica = replica
        self._registration = registration
        self._dialer = dialer
        self._log_end_at_start = store.log.end
        self._lowest_id: int | None = None
        registration.on_start(self._before_registration)

    def __repr__(self) -> str:
        return f"<ActingMaster lowest_id={self._lowest_id} is_acting={self.is_acting}>"

    @property
    def is_acting(self) -> bool:
        role = self._role.now
        return self._live.now.slave_acting_master and not role.is_master and self._lowest_id == role.broker_id

    # News from name servers and other brokers

    @handles(NotifyMinBrokerIdChange)
    def lowest_id_changed(self, request: NotifyMinBrokerIdChange, caller: Caller) -> None:
        if request.min_broker_id is not None:
            self._lowest_is(request.min_broker_id)
        if request.min_broker_id == MASTER_ID and not self._role.now.is_master:
            self._master_is_back(request.min_broker_addr, request.ha_broker_addr)

    @handles(ExchangeHaInfo)
    def exchange(self, request: ExchangeHaInfo, caller: Caller) -> ExchangeHaInfoAnswer:
        if request.master_ha_address:
            if not self._role.now.is_master:
                self._master_is_back(request.master_address, request.master_ha_address)
            return ExchangeHaInfoAnswer()
        if not self._role.now.is_master and not self._live.now.controller_mode:
            return ExchangeHaInfoAnswer()
        # Under a controller the replica knows whom it asks, sometimes before that knows it is the master.
        return ExchangeHaInfoAnswer(
            master_ha_address=self._registration.ha_address,
            master_flush_offset=self._log_end_at_start,
            master_address=self._registration.broker_address,
        )

    @handles(ResetMasterFlushOffset)
    def reset_flush_offset(self, request: ResetMasterFlushOffset, caller: Caller) -> Answer:
        # java: kept and shown, nothing else
        if not self._role.now.is_master:
            self._replica.master_flush_offset = request.master_flush_offset
        return Answer()

    def _master_is_back(self, address: str | None, ha_address: str | None) -> None:
        if address and ha_address:
            self._replica.master_is_at(address, ha_address)
        else:
            self._registration.register_soon()  # the answer says where it is

    def _lowest_is(self, broker_id: int) -> None:
        was_acting = self.is_acting
        self._lowest_id = broker_id
        if self.is_acting != was_acting:
            _log.info(
                "this replica %s as master: the lowest id of its group is %d",
                "acts" if self.is_acting else "no longer acts",
                broker_id,
            )

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._live.now.group_period_ms / 1000)
            if self._live.now.slave_acting_master and not self._role.now.is_master:
                await self.ask()

    async def ask(self) -> None:
        """Ask a name server who is in the group; no answer changes nothing."""
        try:
            members = await group_members(self._dialer, self._live.now)
        except PyroError:
            return  # registration logs what is wrong with name servers
        if members:
            self._lowest_is(min(members))
            if MASTER_ID in members and self._replica.master is None:
                self._registration.register_soon()

    # A master that comes back

    async def _before_registration(self) -> None:
        """While a replica acts as master, consumers commit there: have their offsets before they come."""
        settings = self._live.now
        is_needed = settings.slave_acting_master and settings.total_replicas > 1 and self._role.now.is_master
        told = ""
        while is_needed and not settings.skip_pre_online:
            try:
                for broker_id, address in sorted((await group_members(self._dialer, self._live.now)).items()):
                    if broker_id != MASTER_ID:
                        await self._take_over_from(address)
                fit_to_log(self._store, self._tables)
                return
            except PyroError as problem:
                if told != str(problem):
                    told = str(problem)
                    _log.warning("this master waits for its group before it registers: %s", problem)
                await asyncio.sleep(_RETRY_S)

    async def _take_over_from(self, address: str) -> None:
        here = ExchangeHaInfo(
            master_ha_address=self._registration.ha_address,
            master_flush_offset=self._log_end_at_start,
            master_address=self._registration.broker_address,
        )
        await self._dialer.call(address, here, _TIMEOUT_S)
        await self._wait_for_replica(address)
        offsets = (await self._dialer.call(address, GetAllConsumerOffsets(), _TIMEOUT_S)).body
        self._tables.offsets.take_over(offsets)
        delays = (await self._dialer.call(address, GetAllDelayOffsets(), _TIMEOUT_S)).body
        ours = self._tables.delay_offsets.data_version
        if delays.data_version is not None and delays.data_version.is_newer_than(ours):
            self._tables.delay_offsets.copy(delays)
        _log.info("offsets of the acting master taken over address=%s", address)

    async def _wait_for_replica(self, address: str) -> None:
        host, _ = parse_address(address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                while not any(parse_address(link.address)[0] == host for link in self._master.links):  # noqa: ASYNC110
                    await asyncio.sleep(_TICK_S)
        except TimeoutError:
            _log.warning("a replica did not connect within %d s address=%s", _CONNECT_S, address)
