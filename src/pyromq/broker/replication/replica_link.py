"""One replica, seen from its master: what it was sent, and what it has acknowledged.

The log is sent straight from its mapped files. A thread sends old parts of it (`file_sending`), or reads them
from the disk first: the event loop does not wait for the disk. A replica that reports something impossible is
disconnected.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol, cast

from pyromq.broker.replication.file_sending import FileSender, Frame, file_sender
from pyromq.broker.replication.speed import Speed
from pyromq.clock import Clock
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.replication import ReportReader, encode_header
from pyromq.remoting.addresses import format_address
from pyromq.remoting.tls import certificate_names
from pyromq.security.replica_hello import HelloReader, encode_refusal
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_MAX_BYTES_PER_TURN = 1024 * 1024
_HIGH_WATER_BYTES = 2 * 1024 * 1024
_WARM_BYTES = 64 * 1024 * 1024
"""Number of bytes at the log's end that are assumed to be in memory."""
_FLOW_TICK_S = 0.01
_LOAD_BYTES = 4 * 1024 * 1024
_FAR_BYTES = 8 * 1024 * 1024
"""A replica that is further behind gets the log from its files."""
_FAR_FRAME_BYTES = 1024 * 1024
"""The frames for it; Apache's replicas take up to 4 MiB."""
_FAR_FRAMES = 4


class LinkedMaster(Protocol):
    """The master, as its links see it."""

    batch_bytes: int
    from_last_file: bool
    max_bytes_per_s: int | None
    """None sends as fast as the replica takes it."""

    def opened(self, link: "ReplicaLink") -> str:
        """Why the replica is not served; empty if it is."""
        ...

    def begins_at(self, offset: int) -> None:
        """A replica is sent the log from here on."""
        ...

    def acknowledged(self, link: "ReplicaLink") -> None: ...

    def lost(self, link: "ReplicaLink") -> None: ...


class ReplicaLink(asyncio.Protocol):
    def __init__(
        self, master: LinkedMaster, store: MessageStore, clock: Clock, hello: HelloReader | None = None
    ) -> None:
        """`hello`: how the replica has to prove who it is."""
        self._master = master
        self._hello = hello
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_due = False
        self._loaded = 0
        """Up to here a thread has read the log from the disk."""
        self._loading: asyncio.Future[None] | None = None
        self._files: FileSender | None = None
        """Sends old parts of the log, unless they must be encrypted."""
        self.address = ""
        self.certificate_names: tuple[str, ...] = ()
        self.next_offset = -1
        """Where the next frame begins; -1 before the first report."""
        self.acknowledged = -1
        self.opened_at = self.last_read = self.last_write = clock.monotonic()
        self.speed = Speed()
        self._flow_since = clock.monotonic()
        self._flow_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<ReplicaLink {self.address} sent ..{self.next_offset} acknowledged ..{self.acknowledged}>"

    @property
    def name(self) -> str:
        """The same after it has connected again: its host, for a replica does not say its id."""
        return self.address.rpartition(":")[0]

    @property
    def broker_id(self) -> int:
        """The id that a controller gave the replica; -1 if it has said none."""
        return -1

    @property
    def is_started(self) -> bool:
        return self.next_offset >= 0

    @property
    def is_proven(self) -> bool:
        """Whether it is known to be a replica, or need not be."""
        return self._hello is None

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = format_address(*peer[:2]) if peer else "?"
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            self.certificate_names = certificate_names(tls)
        else:
            self._files = file_sender(transport, self._were_sent)
        self._transport.set_write_buffer_limits(_HIGH_WATER_BYTES)
        self.opened_at = self._clock.monotonic()
        if refusal := self._master.opened(self):
            self.close(refusal)
        elif self._hello is not None:
            self._transport.write(self._hello.challenge)

    def connection_lost(self, problem: Exception | None) -> None:
        if self._files is not None:
            self._files.close()
        if self._transport is not None:
            self._transport = None
            self._master.lost(self)

    def close(self, reason: str, level: int = logging.WARNING, farewell: bytes = b"") -> None:
        if self._transport is not None:
            _log.log(level, "replica disconnected replica=%s address=%s: %s", self.name, self.address, reason)
            if farewell:
                self._transport.write(farewell)
                self._transport.close()
            else:
                self._transport.abort()
            self.connection_lost(None)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.send_more()

    # Reports

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        if self._hello is not None and not (data := self._proven(self._hello, data)):
            return
        try:
            for offset in self._heard(data):
                if self.is_started:
                    self._take_report(offset)
                else:
                    self._start_at(offset)
        except RemoteProtocolError as problem:
            self.close(str(problem))
            return
        if self._transport is not None:
            self._master.acknowledged(self)
            self.send_more()

    def _proven(self, hello: HelloReader, data: bytes) -> bytes:
        """The replica's bytes, once it has proved who it is."""
        try:
            heard = hello.feed(data)
        except RemoteProtocolError as problem:
            self.close(str(problem), farewell=encode_refusal(str(problem)))
            return b""
        if heard is None:
            return b""
        self._hello = None
        return heard

    def _heard(self, data: bytes) -> Iterable[int]:
        """The reports in what the replica has sent."""
        return self._reports.feed(data)

    @property
    def _begins_with_last_file(self) -> bool:
        return self._master.from_last_file

    def _start_at(self, offset: int) -> None:
        start, end = self._store.log.start, self._store.log.end
        if offset > end:
            raise RemoteProtocolError(
                f"it reports the log offset {offset}, but this master's log ends at {end}: it is not a"
                " replica of this log, or it has messages that this master has lost"
            )
        if 0 < offset < start:
            raise RemoteProtocolError(
                f"it has the log up to {offset}, but this master's oldest file begins at {start}: files in"
                " between are deleted; empty the replica's store, and it copies the log again"
            )
        self.acknowledged = offset
        if not offset:  # an empty replica
            segment_bytes = self._store.settings.log_segment_bytes
            offset = max(start, end - end % segment_bytes) if self._begins_with_last_file else start
        self.next_offset = self._loaded = offset
        self._master.begins_at(offset)
        _log.info(
            "replica connected replica=%s address=%s from=%d behind=%d",
            self.name,
            self.address,
            offset,
            end - offset,
        )

    def _take_report(self, offset: int) -> None:
        if offset > self.next_offset:
            raise RemoteProtocolError(
                f"it acknowledges the log up to {offset}, but was sent only up to {self.next_offset}"
            )
        self.acknowledged = max(self.acknowledged, offset)

    # Sending

    def send_more(self) -> None:
        """Send what the log has and the socket takes; the rest follows in later turns of the loop."""
        self._is_due = False
        transport, store = self._transport, self._store
        if transport is None or self._is_paused or not self.is_started or self._sends_files():
            return
        frames: list[bytes | memoryview] = []
        budget = allowed = self._allowed_bytes()
        while budget > 0 and self._is_in_memory():
            view = store.log.bytes_at(
                self.next_offset, min(self._frame_bytes(self._master.batch_bytes), budget)
            )
            if not view:
                break
            frames += (self._header(len(view)), view)
            self.next_offset += len(view)
            self.speed.total_bytes += len(view)
            budget -= len(view)
        if self.next_offset < store.log.start:
            self.close(f"it was to get the log from {self.next_offset} on, which is deleted by now")
            return
        if frames:
            transport.writelines(frames)
            self.last_write = self._clock.monotonic()
        if budget <= 0 and not self._is_due:
            self._is_due = True
            if allowed:
                self._loop.call_soon(self.send_more)
            else:
                self._flow_soon()

    def _flow_soon(self) -> None:
        if self._flow_timer is None:
            self._flow_timer = self._loop.call_later(_FLOW_TICK_S, self._flow_on)

    def _flow_on(self) -> None:
        self._flow_timer = None
        self.send_more()

    def _allowed_bytes(self) -> int:
        """How much may be sent in this turn; with a limit, it becomes more with the time that passes."""
        limit = self._master.max_bytes_per_s
        if limit is None:
            return _MAX_BYTES_PER_TURN
        now = self._clock.monotonic()
        since = min(now - self._flow_since, 1.0)
        if since < _FLOW_TICK_S:
            return 0
        self._flow_since = now
        return max(1, min(round(limit * since), _MAX_BYTES_PER_TURN))

    def _frame_bytes(self, most: int) -> int:
        """How many bytes the next frame may have."""
        return most

    def _header(self, size_bytes: int) -> bytes:
        """The header of a frame with the next bytes."""
        return encode_header(self.next_offset, size_bytes)

    def _is_in_memory(self) -> bool:
        """Whether the next bytes can be sent without waiting for the disk; if not, a thread reads them."""
        behind = self._store.log.end - self.next_offset
        if behind <= _WARM_BYTES:
            return True
        if self._loading is None and self._loaded - self.next_offset < _LOAD_BYTES:
            begin = max(self._loaded, self.next_offset)
            self._loading = self._loop.run_in_executor(None, self._store.log.load, begin, _LOAD_BYTES)
            self._loading.add_done_callback(lambda done: self._was_loaded(done, begin + _LOAD_BYTES))
        return self.next_offset < self._loaded

    def _was_loaded(self, done: "asyncio.Future[None]", end: int) -> None:
        self._loading = None
        if not done.cancelled() and (problem := done.exception()) is not None:
            self.close(f"the log cannot be read: {problem}", logging.ERROR)
            return
        self._loaded = end
        self.send_more()

    # Old parts of the log

    def _sends_files(self) -> bool:
        """Whether a thread sends, or is to send, from the files of the log."""
        files, transport, end = self._files, self._transport, self._fixed_end - _FAR_BYTES
        if files is None or transport is None:
            return False
        if files.is_busy:
            return True
        if self.next_offset >= end or self._master.max_bytes_per_s is not None:
            return False
        if transport.get_write_buffer_size():
            self._flow_soon()  # what was written before comes first
            return True
        if (found := self._store.log.open_file(self.next_offset)) is None:
            return False
        file, position, file_end = found
        frames: list[Frame] = []
        most = max(_FAR_FRAME_BYTES, self._master.batch_bytes)
        while len(frames) < _FAR_FRAMES and self.next_offset < min(end, file_end):
            size_bytes = self._frame_bytes(min(most, min(end, file_end) - self.next_offset))
            frames.append((self._header(size_bytes), position, size_bytes))
            position += size_bytes
            self.next_offset += size_bytes
            self.speed.total_bytes += size_bytes
        files.send(file, frames)
        return True

    @property
    def _fixed_end(self) -> int:
        """The log before this offset is never cut off."""
        return self._store.log.end

    def _were_sent(self, problem: BaseException | None) -> None:
        if problem is not None:
            self.close(f"the log cannot be sent: {problem}")
            return
        self.last_write = self._clock.monotonic()
        self.send_more()

    def beat(self) -> None:
        """Send a heartbeat."""
        if self._files is not None and self._files.is_busy:
            return
        if self._transport is not None and self.is_started and not self._is_paused:
            self._transport.write(self._header(0))
            self.last_write = self._clock.monotonic()
