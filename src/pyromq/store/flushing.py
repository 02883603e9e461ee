"""Flushing: one worker syncs files, and only it declares data safe on disk.

The owner of the store requests a flush; the worker syncs and then advances `flushed_offset`. Appends that
arrive during one sync share the next one. A failed sync is final: the store cannot know which pages reached
the disk, so nothing after it is declared safe. The work is in steps, one for each sync: anything may happen
between two of them.
"""

import errno
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from pyromq.disk_steps import Steps, finish
from pyromq.filesystem import Files
from pyromq.store.checkpoint import UNITS_UNKNOWN, Checkpoint, write_checkpoint
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.results import AppendStatus

TEMPORARY_ERRORS: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors on creating or extending a file that may go away, such as a full disk."""

_OPEN_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors on opening a file to sync it: the sync was not tried, and can be tried again."""

OnFlushed = Callable[[AppendStatus], None]


@dataclass(frozen=True, slots=True)
class QueueFlush:
    """Dispatched data to be made safe together: its files, and where that leaves the store."""

    paths: list[Path]
    safe_offset: int
    queue_timestamp: int
    index_timestamp: int
    queue_count: int
    unit_count: int

    def up_to(self, log_end: int, newest_ms: int) -> "QueueFlush":
        """The same files, after the log was cut."""
        return replace(
            self,
            safe_offset=min(self.safe_offset, log_end),
            queue_timestamp=min(self.queue_timestamp, newest_ms),
            queue_count=0,
            unit_count=UNITS_UNKNOWN,
        )


class Flusher:
    def __init__(self, files: Files, log: CommitLog, checkpoint_path: Path, checkpoint: Checkpoint) -> None:
        self._files = files
        self._log = log
        self._checkpoint_path = checkpoint_path
        self._worker = files.worker("pyromq-flusher")
        self.wake = self._worker.wake
        self._progress = threading.Condition()
        self._blocked = 0
        """Threads inside `wait`."""
        self._queue_flushes: deque[QueueFlush] = deque()
        self._is_paused = False
        self._log_wanted = False
        self.checkpoint = checkpoint
        self.flushed_offset = log.end_offset
        self.flushed_timestamp = log.last_store_timestamp
        self.failure: OSError | None = None
        self.sync_count = 0
        self.on_progress: Callable[[], None] | None = None
        """Called by the worker, on its thread, when `flushed_offset` or `failure` has changed."""

    def __repr__(self) -> str:
        return f"<Flusher flushed ..{self.flushed_offset}{' FAILED' if self.failure else ''}>"

    # Called by the owner

    def start(self) -> None:
        self._worker.start(self._steps)

    def stop(self) -> None:
        self._worker.stop()

    def request_log(self) -> None:
        """Flush the log up to its end as it is when the flusher gets to it."""
        self._log_wanted = True
        self.wake()

    def request_queues(self, flush: QueueFlush) -> None:
        self._queue_flushes.append(flush)
        self.wake()

    @property
    def has_queue_work(self) -> bool:
        return bool(self._queue_flushes)

    def work(self) -> None:
        """Do everything that was asked for, on the caller's thread."""
        with self._worker.alone():
            finish(self._steps())

    def wait(self, offset: int, timeout_seconds: float) -> bool:
        """Block until the log is flushed up to `offset`; False after the timeout or a failure."""
        with self._progress:
            self._blocked += 1
            try:
                self._progress.wait_for(
                    lambda: self.flushed_offset >= offset or self.failure, timeout_seconds
                )
            finally:
                self._blocked -= 1
        return self.flushed_offset >= offset

    def distrust(self, offset: int, error: OSError) -> None:
        """Data from a log offset on is lost although it was declared safe: declare nothing safe any more.

        The next recovery begins there or earlier. Raises OSError if the checkpoint cannot be written.
        """
        with self._worker.alone():
            self.failure = error
            self.checkpoint = replace(
                self.checkpoint,
                safe_offset=min(self.checkpoint.safe_offset, offset),
                queue_count=0,
                unit_count=UNITS_UNKNOWN,
            )
            write_checkpoint(self._files, self._checkpoint_path, self.checkpoint)
        self._notify()

    def pause(self) -> None:
        """Until `go_on`, nothing is flushed; `set_back` waits until what is under way has ended."""
        self._is_paused = True

    def set_back(self, log_end: int, stored_ms: int) -> None:
        """The log is about to be cut at `log_end`, behind a record of the time `stored_ms`: the next recovery
        trusts nothing behind it. Any thread may call this. Raises OSError."""
        with self._worker.alone():
            checkpoint = replace(
                self.checkpoint,
                log_timestamp=min(self.checkpoint.log_timestamp, stored_ms),
                queue_timestamp=min(self.checkpoint.queue_timestamp, stored_ms),
                confirm_offset=min(self.checkpoint.confirm_offset, log_end),
                safe_offset=min(self.checkpoint.safe_offset, log_end),
                queue_count=0,
                unit_count=UNITS_UNKNOWN,
            )
            write_checkpoint(self._files, self._checkpoint_path, checkpoint)
            self.checkpoint = checkpoint
            self.flushed_offset = min(self.flushed_offset, log_end)
            self.flushed_timestamp = min(self.flushed_timestamp, stored_ms)

    def go_on(self, log_end: int) -> None:
        """The log was cut at `log_end`."""
        newest_ms = self._log.last_store_timestamp
        self._queue_flushes = deque(each.up_to(log_end, newest_ms) for each in self._queue_flushes)
        self._is_paused = False
        self.wake()

    # The worker's

    def _steps(self) -> Steps[None]:
        """Do everything that was asked for. Short of descriptors it leaves the rest for the next time."""
        try:
            while not self._is_paused:
                if self._log_wanted:
                    yield from self._flush_log()
                elif self._queue_flushes:
                    if not (yield from self._flush_queues(self._queue_flushes[0])):
                        return
                    self._queue_flushes.popleft()
                elif self._log.wanted_segment is not None:
                    yield self._create_segment
                else:
                    return
        except Exception as error:
            # A bug, but waiting producers must be answered.
            self.failure = OSError(errno.EIO, f"the flusher stopped: {error!r}")
            self._notify()
            raise

    def _flush_log(self) -> Steps[bool]:
        """False if it must be tried again."""
        self._log_wanted = False
        if self.failure is not None:
            return True
        # The order matters: a time is read before the offset that covers it.
        timestamp = self._log.last_store_timestamp
        end = self._log.end_offset
        if end == self.flushed_offset:
            return True  # asked for once more while the last sync served it
        try:
            yield partial(self._log.sync, self.flushed_offset, end)
        except OSError as error:
            if error.errno in _OPEN_ERRORS:
                return False
            self.failure = error
        else:
            self.flushed_offset = end
            self.flushed_timestamp = timestamp
            self.sync_count += 1
        self._notify()
        return True

    def _flush_queues(self, flush: QueueFlush) -> Steps[bool]:
        """False if it must be tried again."""
        if not (yield from self._flush_log()):
            return False
        try:
            for path in flush.paths:
                if self.failure is not None:
                    return True
                try:
                    yield partial(self._files.sync, path)
                except FileNotFoundError:
                    continue  # deleted since: nothing to keep
                if self._log_wanted:
                    yield from self._flush_log()
            yield self._files.sync_all_directories
        except OSError as error:
            if error.errno in _OPEN_ERRORS:
                return False
            self.failure = error
            self._notify()
        if self.failure is None:
            yield from self._write_checkpoint(flush)
        return True

    def _write_checkpoint(self, flush: QueueFlush) -> Steps[None]:
        checkpoint = Checkpoint(
            log_timestamp=self.flushed_timestamp,
            queue_timestamp=flush.queue_timestamp,
            index_timestamp=flush.index_timestamp,
            master_flushed_offset=self.checkpoint.master_flushed_offset,
            confirm_offset=self.flushed_offset,
            safe_offset=min(flush.safe_offset, self.flushed_offset),
            queue_count=flush.queue_count,
            unit_count=flush.unit_count,
        )
        try:
            yield partial(write_checkpoint, self._files, self._checkpoint_path, checkpoint)
        except OSError as error:
            if error.errno not in TEMPORARY_ERRORS:
                self.failure = error
                self._notify()
            return  # an older checkpoint is still a true one
        self.checkpoint = checkpoint

    def _create_segment(self) -> None:
        with suppress(OSError):  # the owner meets it again when it needs the file
            self._log.create_wanted_segment()

    def _notify(self) -> None:
        if self._blocked:
            with self._progress:
                self._progress.notify_all()
        if self.on_progress is not None:
            self.on_progress()


class FlushWaiters:
    """Appends that wait to be safe, in log order. Belongs to the owner of the store."""

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher
        self._waiting: deque[tuple[int, float, OnFlushed]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, deadline: float, callback: OnFlushed) -> None:
        self._waiting.append((offset, deadline, callback))

    def fail(self) -> None:
        """The messages that they wait for may be cut off the log."""
        waiting, self._waiting = self._waiting, deque()
        for _, _, callback in waiting:
            callback(AppendStatus.FLUSH_DISK_TIMEOUT)

    def settle(self, now: float) -> int:
        """Answer those whose wait is over; how many there were."""
        waiting = self._waiting
        settled = 0
        while waiting:
            offset, deadline, callback = waiting[0]
            if offset <= self._flusher.flushed_offset:
                status = AppendStatus.PUT_OK
            elif self._flusher.failure is not None or deadline <= now:
                status = AppendStatus.FLUSH_DISK_TIMEOUT
            else:
                break
            waiting.popleft()
            settled += 1
            callback(status)
        return settled
