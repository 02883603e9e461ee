"""Requests between a master and its replicas, and about them."""

from pyromq.protocol.bodies.brokers import EpochEntryCache, HARuntimeInfo
from pyromq.protocol.bodies.replicated_tables import ReplicatedTables
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Int64, Request, request
from pyromq.protocol.needs import GET, UPDATE, cluster


@request(902, to=BROKER, needs=(cluster(UPDATE),))
class AddBroker(Request[Answer]):
    """Start one more broker inside a process that holds several."""

    config_path: str | None = None


@request(903, to=BROKER, needs=(cluster(UPDATE),))
class RemoveBroker(Request[Answer]):
    """Stop one of the brokers of a process that holds several."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ExchangeHaInfoAnswer(Answer):
    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(906, to=BROKER, needs=(cluster(UPDATE),), java_name="exchange_broker_ha_info")
class ExchangeHaInfo(Request[ExchangeHaInfoAnswer]):
    """Tell a broker its master's address, or ask a master for its replication address and flushed offset."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(907, to=BROKER, needs=(cluster(GET),), java_name="get_broker_ha_status")
class GetHaStatus(Request[BodyAnswer[HARuntimeInfo]]):
    """Read the state of replication."""


@request(908, to=BROKER, needs=(cluster(UPDATE),))
class ResetMasterFlushOffset(Request[Answer]):
    """Tell a replica the flushed offset of its master."""

    master_flush_offset: Int64


class WatchTablesAnswer(Answer):
    seen: str
    # Where the master's log ended when it had read the tables: they are for replicas that have it.
    log_end: Int64 | None = None
    body: ReplicatedTables


@request(30907, to=BROKER, needs=(cluster(UPDATE),), extension=True)
class WatchTables(Request[WatchTablesAnswer]):
    """Read the tables that changed since the last answer, as a replica copies them; waits for a change."""

    # What the last answer said; absent or unknown asks for all tables.
    seen: str | None = None
    wait_millis: Int64 = 0
    # Of the replica: what it has seen is on its disk.
    broker_id: Int64 | None = None


@request(1007, to=BROKER, needs=(cluster(GET),), java_name="get_broker_epoch_cache")
class GetEpochs(Request[BodyAnswer[EpochEntryCache]]):
    """Read the epochs: which master has written which part of the log."""
