"""Everything that the services need to accept a message, as one value."""

from dataclasses import dataclass
from typing import Self

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.broker_properties import BrokerProperties
from pyromq.broker.flow.lite.fences import Fences
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.send_throttle import SendThrottle
from pyromq.broker.flow.writable_queues import WritableQueues
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.chance import getrandbits, process_id
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.record import Host


@dataclass(frozen=True, slots=True, eq=False)
class Inbound:
    writable_queues: WritableQueues
    send_throttle: SendThrottle
    quotas: Quotas
    broker_properties: BrokerProperties
    born_hosts: BornHosts
    unique_keys: UniqueKeys
    appending: Appending
    fences: Fences

    @classmethod
    def build(
        cls,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        appending: Appending,
        store_host: Host,
        clock: Clock,
        quotas: Quotas,
    ) -> Self:
        return cls(
            writable_queues=WritableQueues(live, tables, clock),
            send_throttle=SendThrottle(live, clock, appending.at_turn_end),
            quotas=quotas,
            broker_properties=BrokerProperties(live),
            born_hosts=BornHosts(),
            unique_keys=UniqueKeys(store_host.ip, process_id(), getrandbits(32)),
            appending=appending,
            fences=Fences(appending.store, tables.role),
        )
