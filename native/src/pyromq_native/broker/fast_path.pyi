from pyromq.broker.fast_path import GatheredAcks, SafeAnswers
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.broker_properties import BrokerProperties
from pyromq.broker.flow.open_transactions import OpenTransactions
from pyromq.broker.flow.read_grants import ReadGrants
from pyromq.broker.flow.send_throttle import SendThrottle
from pyromq.broker.flow.writable_queues import WritableQueues
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.remoting.connection import Connection
from pyromq.store.message_store import MessageStore

class FastPath:
    pulls_taken: int
    ends_taken: int
    acks_taken: int
    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        appending: Appending,
        writable_queues: WritableQueues,
        send_throttle: SendThrottle,
        broker_properties: BrokerProperties,
        born_hosts: BornHosts,
        statistics: Statistics,
        transactions: OpenTransactions,
        read_grants: ReadGrants | None,
        offsets: OffsetTable,
        acks: GatheredAcks,
        *,
        max_frame_bytes: int,
        high_water_bytes: int,
        answer_when_safe: SafeAnswers,
    ) -> None: ...
    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...
