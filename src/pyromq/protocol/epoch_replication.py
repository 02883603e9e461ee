"""The stream on the HA port under a controller: with a greeting, epochs and a confirm offset.

    replica's greeting, 16 bytes   state 1 (4), from the last file (2), learner (2), broker id (8)
    replica's report, 12 bytes     state 2 (4), log offset (8)
    master's greeting, 20 + 12 n   state 1 (4), 12 n (4), end of its log (8), newest epoch (4); n times an
                                   epoch (4) and the log offset where it began (8)
    master's frame, 36 + n         state 2 (4), n (4), log offset (8), epoch of these bytes (4), its start
                                   (8), confirm offset (8); n bytes of the log. n = 0 is a heartbeat

The replica greets first. It compares the master's epochs with its own, cuts its log where they part, and
reports where it ends.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.replication import MAX_FRAME_BYTES

_GREETING: Final = 1
_TRANSFER: Final = 2

_STATE: Final = struct.Struct(">i")
_REPLICA_GREETING: Final = struct.Struct(">ihhq")
_REPORT: Final = struct.Struct(">iq")
_MASTER_GREETING: Final = struct.Struct(">iiqi")
_EPOCH: Final = struct.Struct(">iq")
_FRAME: Final = struct.Struct(">iiqiqq")

FRAME_HEADER_BYTES: Final = _FRAME.size
MAX_EPOCHS: Final = 100_000


class ReplicaGreeting(NamedTuple):
    broker_id: int
    from_last_file: bool = False
    is_learner: bool = False

    def encode(self) -> bytes:
        return _REPLICA_GREETING.pack(_GREETING, self.from_last_file, self.is_learner, self.broker_id)


class MasterGreeting(NamedTuple):
    log_end: int
    epochs: tuple[tuple[int, int], ...]
    """Numbers and starts."""

    def encode(self) -> bytes:
        newest = self.epochs[-1][0] if self.epochs else -1
        head = _MASTER_GREETING.pack(_GREETING, _EPOCH.size * len(self.epochs), self.log_end, newest)
        return head + b"".join(_EPOCH.pack(*each) for each in self.epochs)


class LogFrame(NamedTuple):
    """A piece of the log that one master wrote."""

    offset: int
    epoch: int
    epoch_start: int
    confirmed: int
    """Every replica in sync has the log up to here, the master says."""

    def encode(self, size_bytes: int) -> bytes:
        return _FRAME.pack(_TRANSFER, size_bytes, *self)


def encode_report(offset: int) -> bytes:
    return _REPORT.pack(_TRANSFER, offset)


class ReplicaReader:
    """Reads what a replica sends, however the stream was split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[ReplicaGreeting | int]:
        """Greetings and reports. Raises RemoteProtocolError if the bytes are none."""
        self._rest += data
        while len(self._rest) >= _STATE.size:
            (state,) = _STATE.unpack_from(self._rest)
            if state not in (_GREETING, _TRANSFER):
                raise RemoteProtocolError(
                    f"a replica under a controller begins with state 1 or 2, not {state}: is it one without?"
                )
            form = _REPLICA_GREETING if state == _GREETING else _REPORT
            if len(self._rest) < form.size:
                return
            _, *fields = form.unpack_from(self._rest)
            self._rest = self._rest[form.size :]
            if fields[-1] < 0:
                raise RemoteProtocolError(
                    f"a replica cannot report log offset or id {fields[-1]}: it is negative"
                )
            if state == _GREETING:
                from_last_file, is_learner, broker_id = fields
                yield ReplicaGreeting(broker_id, from_last_file == 1, is_learner == 1)
            else:
                yield fields[0]


class MasterReader:
    """Reads what a master sends, however the stream was split. Bytes of the log are passed on in pieces."""

    def __init__(self) -> None:
        self._head = b""
        self._frame = LogFrame(0, 0, 0, 0)
        self._missing = 0
        """Bytes of the current frame that have not arrived."""

    def __repr__(self) -> str:
        return f"<MasterReader {self._frame}, {self._missing} bytes of it missing>"

    def feed(self, data: bytes | memoryview) -> Iterator[MasterGreeting | tuple[LogFrame, memoryview]]:
        """Greetings, and frames with bytes; none for a heartbeat. Raises RemoteProtocolError if the bytes
        are neither."""
        view = memoryview(data)
        while view:
            if self._missing:
                piece = view[: self._missing]
                view = view[len(piece) :]
                frame = self._frame
                self._frame = frame._replace(offset=frame.offset + len(piece))
                self._missing -= len(piece)
                yield frame, piece
                continue
            wanted = self._head_bytes() - len(self._head)
            self._head += bytes(view[:wanted])
            view = view[wanted:]
            if len(self._head) < self._head_bytes():
                continue
            head, self._head = self._head, b""
            if _STATE.unpack_from(head)[0] == _GREETING:
                _, _, log_end, _ = _MASTER_GREETING.unpack_from(head)
                yield MasterGreeting(log_end, tuple(_EPOCH.iter_unpack(head[_MASTER_GREETING.size :])))
                continue
            _, self._missing, *fields = _FRAME.unpack(head)
            self._frame = LogFrame(*fields)
            self._check_frame()
            if not self._missing:
                yield self._frame, view[:0]

    def _head_bytes(self) -> int:
        """How long the head is, as far as that is known."""
        if len(self._head) < _MASTER_GREETING.size:
            return _MASTER_GREETING.size  # every head has as many
        state: int
        size_bytes: int
        state, size_bytes, _, _ = _MASTER_GREETING.unpack_from(self._head)
        if state == _TRANSFER:
            return _FRAME.size
        if state != _GREETING or size_bytes % _EPOCH.size or not 0 <= size_bytes <= MAX_EPOCHS * _EPOCH.size:
            raise RemoteProtocolError(
                f"a master under a controller begins with state 1 or 2, not {state}, and greets with whole"
                f" epochs, not {size_bytes} bytes: is this the HA port of one?"
            )
        return _MASTER_GREETING.size + size_bytes

    def _check_frame(self) -> None:
        # java: a master with an empty log sends heartbeats at offset -1
        is_possible = self._frame.offset >= 0 or (self._frame.offset == -1 and not self._missing)
        if not is_possible or not 0 <= self._missing <= MAX_FRAME_BYTES:
            raise RemoteProtocolError(
                f"a frame of {self._missing} bytes at log offset {self._frame.offset}: the offset must not be"
                f" negative, the size must be between 0 and {MAX_FRAME_BYTES}"
            )
