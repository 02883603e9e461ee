from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.broker_properties import BrokerProperties
from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.send_throttle import SendThrottle
from pyromq.broker.flow.writable_queues import WritableQueues
from pyromq.broker.tables.statistics import Statistics
from pyromq.store.message_store import MessageStore
from pyromq_native.broker.counting import Touched
from pyromq_native.broker.known_queues import KnownQueues

class Account:
    def __init__(self, quotas: Quotas) -> None: ...

class FastSends:
    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        appending: Appending,
        queues: KnownQueues,
        writable_queues: WritableQueues,
        send_throttle: SendThrottle,
        broker_properties: BrokerProperties,
        born_hosts: BornHosts,
        statistics: Statistics,
        transactions: OpenTransactions,
        touched: Touched,
        quotas: Quotas,
    ) -> None: ...
