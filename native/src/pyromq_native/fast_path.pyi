from pyromq.broker.fast_path import SafeAnswers
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.born_hosts import BornHosts
from pyromq.broker.flow.lanes import Lanes
from pyromq.broker.flow.outlets import Outlets
from pyromq.broker.flow.pressure import Pressure
from pyromq.broker.flow.stamping import Stamp
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.remoting.connection import Connection
from pyromq.store.message_store import MessageStore

class FastPath:
    pulls_taken: int
    def __init__(
        self,
        store: MessageStore,
        store_host: bytes,
        appending: Appending,
        lanes: Lanes,
        pressure: Pressure,
        stamp: Stamp,
        born_hosts: BornHosts,
        statistics: Statistics,
        outlets: Outlets | None,
        offsets: OffsetTable,
        *,
        max_frame_bytes: int,
        high_water_bytes: int,
        answer_when_safe: SafeAnswers,
    ) -> None: ...
    def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]: ...
