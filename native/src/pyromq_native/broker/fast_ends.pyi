from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.store.message_store import MessageStore
from pyromq_native.broker.counting import Touched
from pyromq_native.broker.known_queues import KnownQueues

class FastEnds:
    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        transactions: OpenTransactions,
        queues: KnownQueues,
        touched: Touched,
    ) -> None: ...
