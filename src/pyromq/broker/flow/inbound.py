"""The way in, as one value: which queues are open, how much may come, what is written on it, and the door."""

import os
import random
from dataclasses import dataclass
from typing import Self

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.lanes import Lanes
from pyromq.broker.flow.pressure import Pressure
from pyromq.broker.flow.stamping import Stamp
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.record import Host


@dataclass(frozen=True, slots=True, eq=False)
class Inbound:
    lanes: Lanes
    pressure: Pressure
    stamp: Stamp
    born_hosts: BornHosts
    unique_keys: UniqueKeys
    appending: Appending

    @classmethod
    def build(
        cls,
        live: LiveSettings[BrokerSettings],
        tables: Tables,
        appending: Appending,
        store_host: Host,
        clock: Clock,
    ) -> Self:
        return cls(
            lanes=Lanes(live, tables, clock),
            pressure=Pressure(live, clock, appending.at_turn_end),
            stamp=Stamp(live),
            born_hosts=BornHosts(),
            unique_keys=UniqueKeys(store_host.ip, os.getpid(), random.getrandbits(32)),
            appending=appending,
        )
