"""Brokers register, send heartbeats and unregister."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.nameserver.consequences import Consequences
from pyromq.nameserver.departures import Departures
from pyromq.nameserver.inventory_reading import (
    InventoryLimits,
    InventoryReading,
    UnreadRegistration,
    read_inventory,
    unread_registration,
)
from pyromq.nameserver.kv_table import ORDER_TOPIC_CONFIG, KvTable
from pyromq.nameserver.registration import Announcement, Registered
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.settings import NameServerSettings
from pyromq.nameserver.tables import BrokerKey
from pyromq.nameserver.unregistration import Unregistration
from pyromq.protocol import registration
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import (
    AddWritePermission,
    AddWritePermissionAnswer,
    BrokerMemberGroup,
    GetBrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    RegisterBrokerAnswer,
    SendBrokerHeartbeat,
    UnregisterBroker,
    WipeWritePermission,
    WipeWritePermissionAnswer,
)
from pyromq.protocol.requests.kv import KVTable
from pyromq.remoting.channel import Channel
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

T = TypeVar("T")


class BrokerRequests:
    def __init__(
        self,
        table: RouteTable,
        kv: KvTable,
        consequences: Consequences,
        settings: LiveSettings[NameServerSettings],
        clock: Clock,
        departures: Departures,
        reading: InventoryReading,
    ) -> None:
        self._table = table
        self._kv = kv
        self._consequences = consequences
        self._settings = settings
        self._clock = clock
        self._departures = departures
        self._reading = reading

    def __repr__(self) -> str:
        return f"<BrokerRequests {self._table!r}>"

    @handles(RegisterBroker, may_wait=True)
    def register(
        self, request: RegisterBroker, caller: Caller
    ) -> RegisterBrokerAnswer | asyncio.Future[RegisterBrokerAnswer]:
        body = request.body
        if request.body_crc32 and registration.body_crc32(body) != request.body_crc32:
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        self._require_newest(request.cluster_name, request.broker_addr, caller)
        who = Announcement(
            request.cluster_name,
            request.broker_addr,
            request.broker_name,
            request.broker_id,
            request.ha_server_addr,
            request.zone_name,
            request.heartbeat_timeout_millis,
            request.enable_acting_master,
        )
        unread = unread_registration(body, compressed=request.compressed, version=caller.version)
        if self._reading.is_busy_with(who.name):
            return self._later(who.name, self._register_later(who, unread, caller))
        repeated = self._repeat(who, unread, caller)
        if repeated is not None:
            return self._registered(who, caller, repeated)
        if not unread.is_short:
            return self._later(who.name, self._register_later(who, unread, caller))
        limits = self._limits()
        registered = self._table.register(
            who,
            lambda: read_inventory(unread, limits, who.name),
            digest=unread.digest,
            connection=caller.channel,
            origin=_host(caller),
            now_ms=self._now_ms(),
        )
        return self._registered(who, caller, registered)

    def _later(self, broker: str, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run `work` after all earlier requests about the same broker name."""
        turn = self._reading.take_turn(broker)

        async def in_turn() -> T:
            async with turn:
                return await work

        return asyncio.create_task(in_turn())

    def _repeat(self, who: Announcement, unread: UnreadRegistration, caller: Caller) -> Registered | None:
        return self._table.repeat(
            who,
            digest=unread.digest,
            connection=caller.channel,
            origin=_host(caller),
            now_ms=self._now_ms(),
        )

    async def _register_later(
        self, who: Announcement, unread: UnreadRegistration, caller: Caller
    ) -> RegisterBrokerAnswer:
        registered = self._repeat(who, unread, caller)
        if registered is not None:
            return self._registered(who, caller, registered)
        inventory = await self._reading.read(unread, self._limits(), who.name, _host(caller))
        if not caller.channel.is_open:
            raise Refused(ResponseCode.SYSTEM_ERROR, "RegisterBroker: the broker's connection is closed")
        parts = self._table.register_in_parts(
            who,
            inventory,
            digest=unread.digest,
            connection=caller.channel,
            origin=_host(caller),
            now_ms=self._now_ms(),
        )
        for registered in parts:
            if registered.is_complete:
                return self._registered(who, caller, registered)
            self._consequences.act(registered.changes)
            await asyncio.sleep(0)
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"RegisterBroker: {who.name} at {who.address} was replaced before all topics were registered",
        )

    def _registered(self, who: Announcement, caller: Caller, registered: Registered) -> RegisterBrokerAnswer:
        if registered.is_new:
            _log.info(
                "broker registered cluster=%s name=%s id=%d address=%s peer=%s",
                *(who.cluster, who.name, who.id, who.address, caller.address),
            )
        self._consequences.act(registered.changes)
        self._departures.wake_before(self._table.next_expiry_check_ms())
        ordered = None
        if self._settings.now.return_order_topic_config_to_broker:
            ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return RegisterBrokerAnswer(
            ha_server_addr=registered.master_ha_address,
            master_addr=registered.master_address,
            body=None if ordered is None else KVTable(table=dict(ordered)),
        )

    def _require_newest(self, cluster: str, address: str, caller: Caller) -> None:
        """Raises Refused for what a broker said on a connection that it has replaced: if it counted, the
        end of that connection would be the end of the broker."""
        newest = cast(Channel | None, self._table.connection_of(BrokerKey(cluster, address)))
        if newest is not None and caller.channel.number < newest.number:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the broker at {address} has registered on a later connection"
            )

    @handles(UnregisterBroker, may_wait=True)
    def unregister(self, request: UnregisterBroker, caller: Caller) -> asyncio.Future[None] | None:
        # java: 5.x queues this and answers before it is done, because it walks over all topics under a lock.
        # Here it is fast, so a client that has the answer also gets the new routes.
        broker = Unregistration(
            request.cluster_name, request.broker_addr, request.broker_name, request.broker_id
        )
        if self._reading.is_busy_with(broker.name):
            return self._later(broker.name, self._unregister_later(broker, caller))
        self._unregister(broker, caller)
        return None

    async def _unregister_later(self, broker: Unregistration, caller: Caller) -> None:
        self._unregister(broker, caller)

    def _unregister(self, broker: Unregistration, caller: Caller) -> None:
        self._require_newest(broker.cluster, broker.address, caller)
        changes = self._table.unregister(broker, connection=caller.channel, origin=_host(caller))
        self._departures.count_unregistration()
        _log.info(
            "broker unregistered cluster=%s name=%s id=%s address=%s",
            *(broker.cluster, broker.name, broker.id, broker.address),
        )
        self._consequences.act(changes)
        self._departures.sweep_soon()

    @handles(SendBrokerHeartbeat)
    def heartbeat(self, request: SendBrokerHeartbeat, caller: Caller) -> None:
        self._table.heartbeat(request.cluster_name, request.broker_addr, self._now_ms())

    @handles(QueryDataVersion)
    def query_data_version(self, request: QueryDataVersion, caller: Caller) -> QueryDataVersionAnswer:
        stored = self._table.data_version(request.cluster_name, request.broker_addr, self._now_ms())
        return QueryDataVersionAnswer(changed=stored is None or stored != request.body, body=stored)

    @handles(GetBrokerMemberGroup)
    def member_group(
        self, request: GetBrokerMemberGroup, caller: Caller
    ) -> BodyAnswer[GetBrokerMemberGroupResponseBody]:
        group = BrokerMemberGroup(
            cluster=request.cluster_name,
            broker_name=request.broker_name,
            broker_addrs=self._table.member_addresses(request.broker_name),
        )
        return BodyAnswer(body=GetBrokerMemberGroupResponseBody(broker_member_group=group))

    @handles(WipeWritePermission)
    def wipe_write_permission(
        self, request: WipeWritePermission, caller: Caller
    ) -> WipeWritePermissionAnswer:
        topics, changes = self._table.wipe_write_permission(request.broker_name)
        self._consequences.act(changes)
        self._departures.sweep_soon()
        _log.info("write permission wiped broker=%s topics=%d", request.broker_name, topics)
        return WipeWritePermissionAnswer(wipe_topic_count=topics)

    @handles(AddWritePermission)
    def add_write_permission(self, request: AddWritePermission, caller: Caller) -> AddWritePermissionAnswer:
        topics, changes = self._table.add_write_permission(request.broker_name)
        self._consequences.act(changes)
        self._departures.sweep_soon()
        _log.info("write permission added broker=%s topics=%d", request.broker_name, topics)
        return AddWritePermissionAnswer(add_topic_count=topics)

    def _limits(self) -> InventoryLimits:
        settings = self._settings.now
        return InventoryLimits(settings.max_topics_per_broker, settings.max_queues_per_topic)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000


def _host(caller: Caller) -> str:
    return caller.address.rpartition(":")[0]
