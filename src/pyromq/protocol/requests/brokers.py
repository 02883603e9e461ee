"""Registration of brokers with name servers, and what brokers learn there about each other."""

from pyromq.protocol.body import Body, DataVersion
from pyromq.protocol.catalogue import (
    BROKER,
    CONTROLLER,
    NAMESERVER,
    Answer,
    BodyAnswer,
    Int32,
    Int64,
    Request,
    request,
    wire,
)
from pyromq.protocol.needs import GET, UPDATE, cluster
from pyromq.protocol.requests.kv import KVTable


class BrokerMemberGroup(Body):
    """The brokers that share one name; broker id 0 is the master."""

    broker_addrs: dict[Int64, str] = {}
    broker_name: str | None = None
    cluster: str | None = None


class GetBrokerMemberGroupResponseBody(Body):
    """A member group as name servers send it."""

    broker_member_group: BrokerMemberGroup | None = None


class RegisterBrokerAnswer(Answer):
    # Filled for replicas whose master is alive.
    ha_server_addr: str | None = None
    master_addr: str | None = None
    body: KVTable | None = None


@request(103, to=NAMESERVER, needs=(cluster(UPDATE),))
class RegisterBroker(Request[RegisterBrokerAnswer]):
    """Register a broker with all its topics; the broker repeats it before the registration expires."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = 0
    zone_name: str | None = wire(name="__ZONE_NAME", default=None)
    # How it is written depends on `compressed` and on the sender's version: see protocol/registration.
    body: bytes = b""


@request(104, to=NAMESERVER, needs=(cluster(UPDATE),))
class UnregisterBroker(Request[Answer]):
    """Remove a broker and its topics from all routes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class WipeWritePermissionAnswer(Answer):
    wipe_topic_count: Int32


@request(205, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="wipe_write_perm_of_broker")
class WipeWritePermission(Request[WipeWritePermissionAnswer]):
    """Make all queues of a broker read-only in all routes."""

    broker_name: str


class AddWritePermissionAnswer(Answer):
    add_topic_count: Int32


@request(327, to=NAMESERVER, needs=(cluster(UPDATE),), java_name="add_write_perm_of_broker")
class AddWritePermission(Request[AddWritePermissionAnswer]):
    """Make all queues of a broker writable again in all routes."""

    broker_name: str


class QueryDataVersionAnswer(Answer):
    changed: bool
    body: DataVersion | None = None


@request(322, to=NAMESERVER, needs=(cluster(GET),))
class QueryDataVersion(Request[QueryDataVersionAnswer]):
    """Ask whether the name server's copy of a broker's topics is out of date; counts as a heartbeat."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    body: DataVersion


@request(901, to=NAMESERVER, needs=(cluster(GET),))
class GetBrokerMemberGroup(Request[BodyAnswer[GetBrokerMemberGroupResponseBody]]):
    """List the master and the replicas that share a broker name."""

    cluster_name: str
    broker_name: str


@request(904, to=NAMESERVER | CONTROLLER, needs=(cluster(UPDATE),), oneway=True, java_name="broker_heartbeat")
class SendBrokerHeartbeat(Request[Answer]):
    """Report that a broker is alive, between two registrations."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_millis: Int64 | None = wire(name="heartbeatTimeoutMills", default=None)  # java: sic
    election_priority: Int32 | None = None


@request(905, to=BROKER, needs=(cluster(UPDATE),), oneway=True)
class NotifyMinBrokerIdChange(Request[Answer]):
    """Tell the members of a broker group which of them now has the lowest id."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
