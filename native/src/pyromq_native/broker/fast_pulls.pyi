from pyromq.broker.flow.read_grants import ReadGrants
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.store.message_store import MessageStore
from pyromq_native.broker.counting import Touched

class ReadGrant: ...

class FastPulls:
    def __init__(
        self,
        store: MessageStore,
        read_grants: ReadGrants,
        offsets: OffsetTable,
        statistics: Statistics,
        touched: Touched,
        max_frame_bytes: int,
    ) -> None: ...
    def __len__(self) -> int: ...
