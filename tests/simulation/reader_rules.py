"""No reader gets a message that the next master may lack, a half message, or one of a deleted topic.

It looks at the answers of brokers as they are written. So it covers every reader: push and pull consumers,
pops, queries, the gRPC front, Spark.
"""

from collections.abc import Callable
from contextlib import suppress

from tests.simulation.cluster import BROKER_PORT, Server, SimulatedCluster
from tests.simulation.network import End
from tests.simulation.recording import Recorder

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, RecordOutline, SysFlag, scan_record

_MAGICS = frozenset(magic.to_bytes(4, signed=True) for magic in (MAGIC_V1, MAGIC_V2))


class ReaderRules:
    """`confirmed` says up to where any master has confirmed the log; None if that is not promised."""

    def __init__(
        self, cluster: SimulatedCluster, recorder: Recorder, confirmed: Callable[[], int] | None
    ) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._confirmed = confirmed
        self._servers = {each.host.name: each for each in cluster.brokers}
        cluster.network.watchers[BROKER_PORT] = self._watch

    def _watch(self, end: End) -> Callable[[bytes], None] | None:
        server = self._servers.get(end.host.name)
        return _Answers(lambda body: self.check(server, body)).add if server is not None else None

    def check(self, server: Server, body: bytes) -> None:
        """The records in an answer of a broker."""
        position = 0
        with suppress(RemoteProtocolError):
            while position < len(body) and (outline := scan_record(body, position)) is not None:
                self._check(server, outline)
                position = outline.end

    def _check(self, server: Server, record: RecordOutline) -> None:
        broker = self._cluster.broker(server)
        where = f"{server.host.name}: {record.topic} {record.queue_id} at {record.queue_offset}"
        # The answer to a pop has its own size: what was parked gets back its topic and properties.
        if self._confirmed is not None and record.log_offset >= self._confirmed():
            text = f"{where} begins at {record.log_offset}, confirmed is {self._confirmed()}"
            self._recorder.violation("shown, but not confirmed", text)
        if record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_PREPARED:
            self._recorder.violation("a half message was shown", where)
        if broker is not None and broker.store.topics.is_deleted(record.topic, record.log_offset):
            self._recorder.violation("a message of a deleted topic was shown", where)


class _Answers:
    """Finds the answers with records in what a broker writes to one connection."""

    def __init__(self, found: Callable[[bytes], None]) -> None:
        self._found = found
        self._rest = b""

    def add(self, data: bytes) -> None:
        data = self._rest + data
        start = 0
        while len(data) >= start + 8:
            end = start + 4 + int.from_bytes(data[start : start + 4])
            if end > len(data):
                break
            body_at = start + 8 + int.from_bytes(data[start + 5 : start + 8])
            # A broker also asks: who sent a half message gets it with the question what became of it.
            if data[body_at + 4 : body_at + 8] in _MAGICS and body_at + 8 <= end:
                (frame,) = FrameReader().feed(data[start:end])
                if frame.is_response:
                    self._found(frame.body)
            start = end
        self._rest = data[start:]
