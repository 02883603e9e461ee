"""Brokers: the members of a cluster, and the state of their replication."""

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.routes import BrokerData


class ClusterInfo(Body):
    """All brokers a name server knows, by name, and their names by cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMemberGroup(Body):
    """The brokers that share one name; broker id 0 is the master."""

    broker_addrs: dict[Int64, str] = {}
    broker_name: str | None = None
    cluster: str | None = None


class GetBrokerMemberGroupResponseBody(Body):
    """A member group as name servers send it."""

    broker_member_group: BrokerMemberGroup | None = None


class HAConnectionRuntimeInfo(Body):
    """A replica as its master sees it."""

    addr: str | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A replica as it sees itself."""

    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """The state of replication, as one broker sees it."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0


class EpochEntry(Body):
    """An epoch: the part of the log written under one master."""

    end_offset: Int64 = 2**63 - 1
    epoch: Int32 = 0
    start_offset: Int64 = 0


class EpochEntryCache(Body):
    """The epochs that a broker knows."""

    broker_id: Int64 = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = []
    max_offset: Int64 = 0
