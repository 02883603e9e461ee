"""The context: one value with everything that nearly every part of a broker is built from."""

from dataclasses import dataclass

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    live: LiveSettings[BrokerSettings]
    store: MessageStore
    tables: Tables
    clock: Clock
    slices: Slices
