"""The log of a replica: bytes of the master's log, appended as they came.

Bytes arrive in pieces that may begin and end inside a record. They go to their place in the log at once, but
the log ends with its last whole record: dispatch, flushes and reports to the master see nothing of a part.
Every record is checked before that, as recovery would check it: bytes from the wrong place and bytes that
changed on their way are refused, and the master is asked for them again.
"""

from typing import Final

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    peek_log_offset,
    peek_size_and_magic,
    peek_store_timestamp,
)
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.record_checks import sound_outline

_native = twin("protocol.records")

_RECORD_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_HINT: Final = "do master and replica have the same mappedFileSizeCommitLog, and one history?"


class ReplicatedLog:
    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._part_bytes = 0
        """Bytes behind the end of the log: the begin of a record whose rest is still to come."""

    def __repr__(self) -> str:
        return f"<ReplicatedLog ..{self._log.end_offset} and {self._part_bytes} bytes of a record>"

    @property
    def wanted_offset(self) -> int:
        """The log offset of the next byte."""
        return self._log.end_offset + self._part_bytes

    def append(self, offset: int, piece: memoryview) -> None:
        """Add bytes of the master's log, or none if it only says where it is.

        An empty log begins wherever the master begins.

        Raises StoreError if they do not continue the log, OSError if a file cannot be made or written. Then
        the log ends with what went well; call `drop_part` before bytes from another connection come.
        """
        log = self._log
        if not self.wanted_offset:
            if not piece:
                return  # a heartbeat, and the master has not begun
            log.begin_at(offset)
        if offset != self.wanted_offset:
            raise StoreError(
                f"the master sent bytes of log offset {offset}, the replica needs {self.wanted_offset}"
            )
        position, size_bytes = 0, len(piece)
        while position < size_bytes:
            place = self.wanted_offset
            room_bytes = log.enter(place) - place
            written_bytes = log.write(place, piece[position : position + room_bytes])
            self._part_bytes += written_bytes
            position += written_bytes
            self._take_whole_records()

    def drop_part(self) -> None:
        """Forget the begin of a record whose rest does not come any more."""
        if self._part_bytes:
            self._log.wipe(self._log.end_offset, self._part_bytes)
            self._part_bytes = 0

    def _take_whole_records(self) -> None:
        log = self._log
        buffer, start, file_end = log.buffer, log.buffer_start, log.buffer_end
        here, there = log.end_offset, self.wanted_offset
        last, count = -1, 0
        if _native is not None:  # the usual ones; the rest is looked at here
            passed, last, count = _native.whole_records(
                buffer, here - start, there - start, file_end - BLANK_SIZE - start, here
            )
            here = start + passed
        try:
            while there - here >= BLANK_SIZE and (size_bytes := self._whole_size(here, there)):
                if peek_size_and_magic(buffer, here - start)[1] != BLANK_MAGIC:
                    last = here - start
                    count += 1
                here += size_bytes
        finally:
            if last >= 0:
                log.last_store_timestamp = max(log.last_store_timestamp, peek_store_timestamp(buffer, last))
                log.appended_messages += count
            # The end comes last: the flusher's thread reads the time before the offset that covers it.
            self._part_bytes = there - here
            log.end_offset = here

    def _whole_size(self, here: int, there: int) -> int:
        """The size of the sound record or blank at an offset; 0 if its rest is still to come.

        Raises StoreError for anything else.
        """
        log = self._log
        buffer, position, file_end = log.buffer, here - log.buffer_start, log.buffer_end
        size_bytes, magic = peek_size_and_magic(buffer, position)
        if magic in _RECORD_MAGICS:
            if size_bytes < MIN_RECORD_SIZE or here + size_bytes > file_end - BLANK_SIZE:
                raise StoreError(
                    f"the master's record at {here} has {size_bytes} bytes, expected {MIN_RECORD_SIZE}"
                    f" to {file_end - BLANK_SIZE - here}: {_HINT}"
                )
            if there - here >= MIN_RECORD_SIZE and peek_log_offset(buffer, position) != here:
                raise StoreError(
                    f"the master's record at {here} gives {peek_log_offset(buffer, position)} as its"
                    f" log offset: {_HINT}"
                )
            if there - here < size_bytes:
                return 0
            try:
                sound_outline(log, here)
            except RemoteProtocolError as damage:
                raise StoreError(f"the master's bytes at {here} are damaged: {damage}") from damage
        elif magic != BLANK_MAGIC or size_bytes != file_end - here:
            raise StoreError(
                f"the master's bytes at {here} are not a record: size {size_bytes}, magic"
                f" {magic & 0xFFFFFFFF:#010x}: {_HINT}"
            )
        return size_bytes if there - here >= size_bytes else 0
