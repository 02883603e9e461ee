"""How far the log is safe on disk, and who waits for that.

Only `flush`, `flush_log`, `flush_log_to` and `wait` block.
"""

from collections.abc import Callable

from pyromq.clock import Clock
from pyromq.store.checkpoint import Checkpoint
from pyromq.store.faults import Fault, StoreFaults
from pyromq.store.flushing import Flusher, FlushWaiters, OnFlushed
from pyromq.store.queue_flushing import QueueFlushing
from pyromq.store.results import AppendResult, AppendStatus
from pyromq.store.settings import StoreSettings


class Flushes:
    def __init__(
        self,
        flusher: Flusher,
        waiters: FlushWaiters,
        queue_flushing: QueueFlushing,
        faults: StoreFaults,
        clock: Clock,
        settings: StoreSettings,
    ) -> None:
        self._flusher = flusher
        self._waiters = waiters
        self._queue_flushing = queue_flushing
        self._faults = faults
        self._clock = clock
        self._settings = settings
        # Bound here: a method in between would cost a call.
        self.request = flusher.request_log
        """Have the log flushed soon; `on_progress` is called then."""
        self.fail_waiters = waiters.fail
        """Answer everyone who waits for a flush with a time-out: what they wrote may be taken back."""

    def apply_settings(self, settings: StoreSettings) -> None:
        self._settings = settings

    @property
    def offset(self) -> int:
        """Everything before this log offset is safe on disk."""
        return self._flusher.flushed_offset

    @property
    def checkpoint(self) -> Checkpoint:
        return self._flusher.checkpoint

    def on_progress(self, callback: Callable[[], None] | None) -> None:
        """Called on the flusher's thread whenever `settle` may have something to do."""
        self._flusher.on_progress = callback

    def when_flushed(self, result: AppendResult, callback: OnFlushed) -> None:
        """Have `settle` call `callback` once an append is flushed (PUT_OK) or its time is up.

        The flush itself is asked for by `request`, once for all appends of a turn.
        """
        self._waiters.add(
            result.end_offset,
            self._clock.monotonic() + self._settings.sync_flush_timeout_ms / 1000,
            callback,
        )

    def settle(self) -> int:
        """Call the callbacks of appends whose wait is over; return how many."""
        self._notice_flush_failure()
        return self._waiters.settle(self._clock.monotonic())

    def wait(self, result: AppendResult, timeout_seconds: float = 5.0) -> AppendStatus:
        """Block until an append is flushed; for callers without an event loop."""
        if self._flusher.flushed_offset < result.end_offset:
            self._flusher.request_log()
            if not self._flusher.wait(result.end_offset, timeout_seconds):
                self._notice_flush_failure()
                return AppendStatus.FLUSH_DISK_TIMEOUT
        return AppendStatus.PUT_OK

    def flush(self) -> int:
        """Flush log, queues and index now, on this thread; return the flushed offset."""
        self._flusher.request_log()
        self._queue_flushing.request()
        self._flusher.work()
        self._notice_flush_failure()
        return self._flusher.flushed_offset

    def flush_log(self) -> int:
        """Flush the log now, on this thread; return the flushed offset."""
        self._flusher.request_log()
        self._flusher.work()
        self._notice_flush_failure()
        return self._flusher.flushed_offset

    def flush_log_to(self, log_offset: int) -> bool:
        """Flush the log up to an offset now; whether that was possible. Any thread may call this."""
        if self._flusher.flushed_offset < log_offset:
            self._flusher.request_log()
            self._flusher.work()
        return self._flusher.flushed_offset >= log_offset

    def _notice_flush_failure(self) -> None:
        failure = self._flusher.failure
        if failure is not None:
            self._faults.refuse(Fault.NOT_WRITEABLE, f"a flush failed: {failure}")
