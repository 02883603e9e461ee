from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.store.message_store import MessageStore
from pyromq_native.counting import Touched
from pyromq_native.known_queues import KnownQueues

class FastEnds:
    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        transactions: OpenTransactions,
        queues: KnownQueues,
        touched: Touched,
    ) -> None: ...
