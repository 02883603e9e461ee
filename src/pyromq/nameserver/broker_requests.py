"""Brokers come, say that they are alive, and leave."""

import logging

from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.nameserver.consequences import Consequences
from pyromq.nameserver.departures import Departures
from pyromq.nameserver.kv_table import ORDER_TOPIC_CONFIG, KvTable
from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.nameserver.registration import Announcement, Inventory
from pyromq.nameserver.route_table import RouteTable
from pyromq.nameserver.settings import NameServerSettings
from pyromq.nameserver.unregistration import Farewell
from pyromq.protocol.bodies import registration
from pyromq.protocol.bodies.brokers import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from pyromq.protocol.bodies.kv import KVTable
from pyromq.protocol.codes import V3_0_11, ResponseCode
from pyromq.protocol.requests.brokers import (
    AddWritePermission,
    AddWritePermissionAnswer,
    GetBrokerMemberGroup,
    GetBrokerMemberGroupAnswer,
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    RegisterBrokerAnswer,
    SendBrokerHeartbeat,
    UnregisterBroker,
    WipeWritePermission,
    WipeWritePermissionAnswer,
)
from pyromq.remoting.routing import Caller, handles

_log = logging.getLogger(__name__)

_MAX_UNPACKED_BYTES = 64 * 1024 * 1024
"""What a packed registration may become; a hundred thousand topics are ten times less."""


class BrokerRequests:
    def __init__(
        self,
        table: RouteTable,
        kv: KvTable,
        consequences: Consequences,
        settings: LiveSettings[NameServerSettings],
        clock: Clock,
        departures: Departures,
    ) -> None:
        self._table = table
        self._kv = kv
        self._consequences = consequences
        self._settings = settings
        self._clock = clock
        self._departures = departures

    def __repr__(self) -> str:
        return f"<BrokerRequests {self._table!r}>"

    @handles(RegisterBroker)
    def register(self, request: RegisterBroker, caller: Caller) -> RegisterBrokerAnswer:
        body = request.body
        if request.body_crc32 and registration.body_crc32(body) != request.body_crc32:
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
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
        version = caller.version
        registered = self._table.register(
            who,
            lambda: _inventory(body, compressed=request.compressed, version=version),
            # Python's own hash is the fastest good one at hand. It guards against chance, not against malice:
            # with a forged body a broker would deceive the name server about nobody but itself.
            digest=(len(body), hash(body), request.compressed, version),
            connection=caller.channel,
            now_ms=self._now_ms(),
        )
        if registered.is_newcomer:
            _log.info(
                "broker registered cluster=%s name=%s id=%d address=%s peer=%s",
                *(who.cluster, who.name, who.id, who.address, caller.address),
            )
        self._consequences.act(registered.changes)
        self._departures.expect_no_later_than(self._table.next_expiry_check_ms())
        ordered = None
        if self._settings.now.return_order_topic_config_to_broker:
            ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return RegisterBrokerAnswer(
            ha_server_addr=registered.master_ha_address,
            master_addr=registered.master_address,
            body=None if ordered is None else KVTable(table=dict(ordered)),
        )

    @handles(UnregisterBroker)
    def unregister(self, request: UnregisterBroker, caller: Caller) -> None:
        # java: 5.x queues this and answers before it is done, because it walks over all topics under a lock.
        # Here it takes no time, so whoever has the answer also gets the new routes.
        farewell = Farewell(request.cluster_name, request.broker_addr, request.broker_name, request.broker_id)
        changes = self._table.unregister(farewell)
        self._departures.count_farewell()
        _log.info(
            "broker unregistered cluster=%s name=%s id=%s address=%s",
            *(farewell.cluster, farewell.name, farewell.id, farewell.address),
        )
        self._consequences.act(changes)

    @handles(SendBrokerHeartbeat)
    def heartbeat(self, request: SendBrokerHeartbeat, caller: Caller) -> None:
        self._table.heartbeat(request.cluster_name, request.broker_addr, self._now_ms())

    @handles(QueryDataVersion)
    def query_data_version(self, request: QueryDataVersion, caller: Caller) -> QueryDataVersionAnswer:
        stored = self._table.data_version(request.cluster_name, request.broker_addr, self._now_ms())
        return QueryDataVersionAnswer(changed=stored is None or stored != request.body, body=stored)

    @handles(GetBrokerMemberGroup)
    def member_group(self, request: GetBrokerMemberGroup, caller: Caller) -> GetBrokerMemberGroupAnswer:
        group = BrokerMemberGroup(
            cluster=request.cluster_name,
            broker_name=request.broker_name,
            broker_addrs=self._table.member_addresses(request.broker_name),
        )
        return GetBrokerMemberGroupAnswer(body=GetBrokerMemberGroupResponseBody(broker_member_group=group))

    @handles(WipeWritePermission)
    def wipe_write_permission(
        self, request: WipeWritePermission, caller: Caller
    ) -> WipeWritePermissionAnswer:
        topics, changes = self._table.wipe_write_permission(request.broker_name)
        self._consequences.act(changes)
        _log.info("write permission wiped broker=%s topics=%d", request.broker_name, topics)
        return WipeWritePermissionAnswer(wipe_topic_count=topics)

    @handles(AddWritePermission)
    def add_write_permission(self, request: AddWritePermission, caller: Caller) -> AddWritePermissionAnswer:
        topics, changes = self._table.add_write_permission(request.broker_name)
        self._consequences.act(changes)
        _log.info("write permission added broker=%s topics=%d", request.broker_name, topics)
        return AddWritePermissionAnswer(add_topic_count=topics)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000


def _inventory(body: bytes, *, compressed: bool, version: int) -> Inventory:
    try:
        read = registration.decode(
            body, compressed=compressed, version=version, max_bytes=_MAX_UNPACKED_BYTES
        )
    except RemoteProtocolError as problem:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"RegisterBroker: {problem}") from None
    content = read.topic_config_serialize_wrapper
    # Thousands of topics, few different shapes: one object each.
    known: dict[tuple[int, int, int, int], QueueShape] = {}
    shapes: dict[str, QueueShape] = {}
    for topic in content.topic_config_table.values():
        numbers = (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
        shape = known.get(numbers)
        if shape is None:
            shape = known[numbers] = QueueShape(*numbers)
        shapes[topic.topic_name] = shape
    return Inventory(
        content.data_version,
        shapes,
        content.topic_queue_mapping_info_map,
        read.filter_server_list if version >= V3_0_11 else None,
    )
