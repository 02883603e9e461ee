"""How replication stands, for operators: `mqadmin haStatus` and the runtime information."""

from pyromq.broker.replication.master import Master
from pyromq.broker.replication.mirror import Mirror
from pyromq.broker.replication.replica import Replica
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import RoleTable
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.replication import (
    EpochEntry,
    EpochEntryCache,
    GetEpochs,
    GetHaStatus,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.store.log.epochs import end_of
from pyromq.store.message_store import MessageStore

_WITHOUT_END = (1 << 63) - 1
"""java: where the newest epoch ends"""


class HaStatus:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        role: RoleTable,
        master: Master,
        replica: Replica,
        mirror: Mirror | None,
        clock: Clock,
    ) -> None:
        self._is_controlled = live.now.controller_mode
        self._cluster, self._name = live.now.broker_cluster_name, live.now.broker_name
        self._store = store
        self._role = role
        self._master = master
        self._replica = replica
        self._mirror = mirror
        self._clock = clock

    @handles(GetHaStatus)
    def get(self, request: GetHaStatus, caller: Caller) -> BodyAnswer[HARuntimeInfo]:
        return BodyAnswer(body=self._of_master() if self._role.now.is_master else self._of_replica())

    @handles(GetEpochs)
    def epochs(self, request: GetEpochs, caller: Caller) -> BodyAnswer[EpochEntryCache]:
        if not self._is_controlled:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "enableControllerMode is false: a broker has epochs only under a controller",
            )
        epochs, end = self._store.epochs.epochs, self._store.log.end
        return BodyAnswer(
            body=EpochEntryCache(
                cluster_name=self._cluster,
                broker_name=self._name,
                broker_id=self._role.now.broker_id,
                epoch_list=[
                    EpochEntry(
                        epoch=each.number,
                        start_offset=each.start,
                        end_offset=end_of(epochs, index, _WITHOUT_END),
                    )
                    for index, each in enumerate(epochs)
                ],
                max_offset=end,
            )
        )

    def _of_master(self) -> HARuntimeInfo:
        end, links = self._store.log.end, self._master.links
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(map(self._master.is_in_sync, links)),
            ha_connection_info=[
                HAConnectionRuntimeInfo(
                    addr=link.address,
                    broker_id=link.broker_id if link.broker_id >= 0 else None,
                    slave_ack_offset=link.acknowledged,
                    diff=end - link.acknowledged,
                    in_sync=self._master.is_in_sync(link),
                    transferred_byte_in_second=link.speed.bytes_per_s,
                    transfer_from_where=link.next_offset,
                )
                for link in links
            ],
        )

    def _of_replica(self) -> HARuntimeInfo:
        link = self._replica.link
        mirror = self._mirror if self._mirror is not None and self._mirror.is_on else None
        return HARuntimeInfo(
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr=self._replica.ha_address,
                max_offset=self._store.log.end,
                mirror_of=mirror.of if mirror is not None else None,
                mirror_behind=mirror.behind_bytes if mirror is not None else None,
                master_flush_offset=self._replica.master_flush_offset,
                last_read_timestamp=self._time_of(link.last_read) if link is not None else 0,
                last_write_timestamp=self._time_of(link.last_write) if link is not None else 0,
                transferred_byte_in_second=link.speed.bytes_per_s if link is not None else 0,
            )
        )

    def _time_of(self, monotonic: float) -> int:
        return self._clock.now_ms() - round((self._clock.monotonic() - monotonic) * 1000)
