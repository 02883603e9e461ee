"""The master, seen from its replica: bytes of its log go to the store as they come, and are acknowledged.

With SYNC_FLUSH a replica acknowledges only what is safe on its own disk.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from pyromq.broker.replication.speed import Speed
from pyromq.clock import Clock
from pyromq.errors import PyroError, TransportError
from pyromq.protocol.replication import FrameCutter, encode_report
from pyromq.store.message_store import MessageStore


class MasterLink(asyncio.Protocol):
    def __init__(self, store: MessageStore, clock: Clock, appended: Callable[[], None]) -> None:
        """`appended` is called when the log has grown."""
        self._store = store
        self._clock = clock
        self._appended = appended
        self._frames = FrameCutter()
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the error that ended the connection."""
        self.reported = -1
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

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self.last_read = self._clock.monotonic()
        self.speed.total_bytes += len(data)
        end = self._store.log_end
        try:
            self._take(data)
        except PyroError as problem:
            self.close(problem)
        if self._store.log_end != end:
            self._appended()
            self.report()

    def _greet(self) -> None:
        self.report(even_if_known=True)

    def _take(self, data: bytes) -> None:
        for offset, piece in self._frames.feed(data):
            self._store.copying.append(offset, piece)

    def report(self, *, even_if_known: bool = False) -> None:
        """Tell the master how far this replica has the log."""
        store = self._store
        offset = store.log_end
        if store.settings.flush_policy.is_sync and store.flushed_offset < offset:
            store.request_flush()
            offset = store.flushed_offset
        if self._transport is not None and (offset > self.reported or even_if_known):
            self._transport.write(self._encoded_report(offset))
            self.reported = offset
            self.last_write = self._clock.monotonic()

    def _encoded_report(self, offset: int) -> bytes:
        return encode_report(offset)
