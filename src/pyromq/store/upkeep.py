"""Upkeep: decides when to flush, when to check the disk and when to delete old files.

It never waits: it requests flushes, and the flusher does them.
"""

import errno
from typing import Final

from pyromq.store.faults import Fault, StoreFaults
from pyromq.store.flushing import Flusher
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.queue_flushing import QueueFlushing
from pyromq.store.retention import CleaningReport, Retention
from pyromq.store.settings import StoreSettings

_PAGE_BYTES: Final = 4096
_UNITS_PER_PAGE: Final = 205
_DISK_CHECK_SECONDS: Final = 1.0
_FILES_PER_FLUSH: Final = 1000
"""After a flush of more queue files the next one waits longer: each of them costs a sync."""


class StoreUpkeep:
    def __init__(
        self,
        settings: StoreSettings,
        log: CommitLog,
        flusher: Flusher,
        queue_flushing: QueueFlushing,
        retention: Retention,
        faults: StoreFaults,
        now: float,
    ) -> None:
        self._settings = settings
        self._log = log
        self._flusher = flusher
        self._queue_flushing = queue_flushing
        self._retention = retention
        self._faults = faults
        self._next_log_flush = self._next_thorough_log_flush = now
        self._next_queue_flush = self._next_thorough_queue_flush = now
        self._next_disk_check = self._next_cleaning = now
        self.disk_used_ratio = 0.0
        self.removed_segments = 0

    def apply_settings(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._retention.apply_settings(settings)

    def run(self, now: float) -> CleaningReport | None:
        """Do everything that is due. Returns a report if cleaning ran."""
        self._flush_log_when_due(now)
        self._flush_queues_when_due(now)
        if now >= self._next_disk_check:
            self._next_disk_check = now + _DISK_CHECK_SECONDS
            self.check_disk()
            self._check_log_files()
        if now < self._next_cleaning:
            return None
        self._next_cleaning = now + self._settings.clean_interval_ms / 1000
        return self.clean()

    def clean(self, *, on_demand: bool = False) -> CleaningReport:
        report = self._retention.clean(self._flusher.checkpoint.safe_offset, on_demand=on_demand)
        self.removed_segments += report.segments_removed
        if report.queue_files_removed:
            self._queue_flushing.request()  # the checkpoint says how many units there are
        return report

    def check_disk(self) -> None:
        try:
            log_space, root_space = self._retention.spaces()
        except OSError as error:
            self._faults.refuse(Fault.DISK_FULL, f"the disk usage cannot be read: {error}")
            return
        self.disk_used_ratio = max(log_space.used_ratio, root_space.used_ratio)
        warning_percent = self._settings.disk_warning_percent
        has_room = not self._log.lacks_room or log_space.free_bytes >= self._log.segment_bytes
        if has_room or not self._faults.present & Fault.DISK_FULL:
            self._faults.check_disk(Fault.DISK_FULL, log_space, warning_percent)
        self._faults.check_disk(Fault.QUEUE_DISK_FULL, root_space, warning_percent)

    def _check_log_files(self) -> None:
        """Find truncated log files: an access to their missing pages would kill the process."""
        for segment in self._log.segments.row:
            lost_bytes = segment.bytes_cut_off() if segment.is_mapped else 0
            if not lost_bytes:
                continue
            reason = (
                f"{segment.path} was truncated while in use and lost its last {lost_bytes} bytes: stop the"
                " program that changes the store's files, then restart the broker; it keeps complete messages"
            )
            self._faults.refuse(Fault.NOT_WRITEABLE, reason)
            try:
                segment.restore_size()
                self._flusher.distrust(segment.start, OSError(errno.EIO, reason))
            except OSError as error:
                self._faults.replace(self._faults.present, f"{reason} ({error})")

    def _flush_log_when_due(self, now: float) -> None:
        settings, sweep_ms = self._settings, self._settings.flush_policy.sweep_ms
        end, flushed = self._log.end_offset, self._flusher.flushed_offset
        if now < self._next_log_flush or end <= flushed:
            return
        dirty_pages = end // _PAGE_BYTES - flushed // _PAGE_BYTES
        is_thorough = sweep_ms is not None or now >= self._next_thorough_log_flush
        if is_thorough or dirty_pages >= settings.flush_least_pages:
            self._flusher.request_log()
        if is_thorough:
            self._next_thorough_log_flush = now + settings.flush_thorough_interval_ms / 1000
        self._next_log_flush = now + (sweep_ms or settings.flush_interval_ms) / 1000

    def _flush_queues_when_due(self, now: float) -> None:
        settings = self._settings
        if self._flusher.has_queue_work:
            self._flusher.wake()  # it may have been short of descriptors
        elif now >= self._next_queue_flush:
            self._next_queue_flush = now + settings.queue_flush_interval_ms / 1000
            is_thorough = now >= self._next_thorough_queue_flush
            units = self._queue_flushing.unrequested_units
            dirty_pages = units // _UNITS_PER_PAGE
            if units and (is_thorough or dirty_pages >= settings.queue_flush_least_pages):
                files = self._queue_flushing.request()
                self._next_thorough_queue_flush = now + settings.queue_flush_thorough_interval_ms / 1000
                wait_s = settings.queue_flush_interval_ms / 1000 * files / _FILES_PER_FLUSH
                longest = max(self._next_queue_flush, self._next_thorough_queue_flush)
                self._next_queue_flush = min(max(self._next_queue_flush, now + wait_s), longest)
