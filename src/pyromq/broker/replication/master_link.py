"""The master, seen from its replica: bytes of its log go to the store as they come, and are acknowledged.

With SYNC_FLUSH a replica acknowledges only what is safe on its own disk.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from pyromq.broker.replication.speed import Speed
from pyromq.clock import Clock
from pyromq.errors import PyroError, TransportError
from pyromq.protocol.replication import FrameCutter, encode_report
from pyromq.security.replica_hello import MasterOpening
from pyromq.store.message_store import MessageStore

_BUFFER_BYTES: Final = 512 * 1024
_FULL_READS: Final = 8
"""So often it may be filled in one turn of the loop: others want to be served, too."""


class MasterLink(asyncio.BufferedProtocol):
    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        appended: Callable[[], None],
        hello: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`appended` is called when the log has grown; `hello` answers a master that asks who this is."""
        self._opening = MasterOpening(hello) if hello is not None else None
        self._store = store
        self._clock = clock
        self._appended = appended
        self._frames = FrameCutter()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._full_reads = 0
        """In this turn of the loop: there is more to read."""
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the error that ended the connection."""
        self.reported = -1
        self.is_aligned = True
        """Whether the log is a prefix of the master's."""
        self.speed = Speed()
        self.last_read = self.last_write = clock.monotonic()

    def __repr__(self) -> str:
        return f"<MasterLink reported ..{self.reported}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._greet()

    def connection_lost(self, problem: Exception | None) -> None:
        self.close(TransportError(f"the master closed the connection{f': {problem}' if problem else ''}"))

    def close(self, problem: PyroError) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._store.copying.drop_part()
        if not self.ended.done():
            self.ended.set_exception(problem)
            self.ended.exception()  # seen: a replica that is stopped in this turn does not look

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size_bytes: int) -> None:
        if self._transport is None:
            return
        self.last_read = self._clock.monotonic()
        self.speed.total_bytes += size_bytes
        end = self._store.log.end
        try:
            data = self._buffer[:size_bytes]
            self._take(data if self._opening is None else self._open(self._opening, bytes(data)))
        except PyroError as problem:
            self.close(problem)
        if self._store.log.end != end:
            self._appended()
            if size_bytes < len(self._buffer):
                self.report()
        if size_bytes == len(self._buffer):
            self._read_full()

    def _read_full(self) -> None:
        self._full_reads += 1
        if self._full_reads == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)
        elif self._full_reads == _FULL_READS and self._transport is not None:
            self._transport.pause_reading()

    def _next_turn(self) -> None:
        if self._transport is not None:
            if self._full_reads >= _FULL_READS:
                self._transport.resume_reading()
            self._full_reads = 0
            self.report()

    def _open(self, opening: MasterOpening, data: bytes) -> memoryview:
        """Say hello if the master asks for it; returns what is of the stream."""
        answer, rest = opening.feed(data)
        if answer and self._transport is not None:
            self._transport.write(answer)
        if opening.is_over:
            self._opening = None
        return memoryview(rest)

    def _greet(self) -> None:
        self.report(even_if_known=True)

    def _take(self, data: memoryview) -> None:
        for offset, piece in self._frames.feed(data):
            self._store.copying.append(offset, piece)

    def report(self, *, even_if_known: bool = False) -> None:
        """Tell the master how far this replica has the log."""
        store = self._store
        offset = store.log.end
        if store.settings.flush_policy.is_sync and store.flushes.offset < offset:
            store.flushes.request()
            offset = store.flushes.offset
        if self._transport is not None and (offset > self.reported or even_if_known):
            self._transport.write(self._encoded_report(offset))
            self.reported = offset
            self.last_write = self._clock.monotonic()

    def _encoded_report(self, offset: int) -> bytes:
        return encode_report(offset)
