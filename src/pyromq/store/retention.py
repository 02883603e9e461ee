"""Retention: which log files to delete. The oldest go first, and never one that is being read or written.
What was set aside under `damaged/` is kept as long, and goes before messages if space is short.

The age of a file is its modification time compared with a time that ignores jumps of the clock. A file that
was completed while the store was open is not older than that, even if its date says so.
"""

import time
from dataclasses import dataclass
from math import inf
from typing import Protocol

from pyromq.clock import Clock
from pyromq.filesystem import Space
from pyromq.store.log.epoch_file import EpochFile
from pyromq.store.parts import StoreParts
from pyromq.store.settings import StoreSettings

_HOUR_MS = 3_600_000


class Holder(Protocol):
    """Keeps files of the log until it has taken over what it needs of them."""

    def held_from(self) -> int | None:
        """From which log offset on; None if it needs nothing."""
        ...

    def want(self, log_offset: int) -> None:
        """Files up to here are to go: take over soon what they have."""
        ...


@dataclass(slots=True)
class CleaningReport:
    """A report of one round of cleaning: what it did, and why."""

    log_start: int = 0
    """Where the log began before."""
    used_percent: float = 0.0
    is_forced: bool = False
    """Files had to go before they expired."""
    is_kept_for_tier: bool = False
    """Nothing more goes, because there is no copy of it elsewhere yet."""
    is_kept_for_groups: bool = False
    """Nothing more goes, because a group has not read it."""
    is_kept_for_compaction: bool = False
    """Nothing more goes, because it has messages of compacted topics that are in no snapshot yet."""
    segments_removed: int = 0
    queue_files_removed: int = 0
    index_files_removed: int = 0
    held_by_readers: bool = False
    """The next file to go is still being read; another round will ask again."""
    problem: str = ""
    """Why a file could not be removed; another round will try again."""


class Retention:
    def __init__(
        self,
        parts: StoreParts,
        epochs: EpochFile,
        compacting: Holder,
        settings: StoreSettings,
        clock: Clock,
    ) -> None:
        self._files = parts.files
        self._paths = parts.paths
        self._clock = clock
        self._time = parts.time
        self._settings = settings
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._deletions, self._purges, self._erasures = parts.deletions, parts.purges, parts.erasures
        self._dispatcher = parts.dispatcher
        self._epochs = epochs
        self._compacting = compacting
        self.unread_from = 0
        """A group has not read the message at this log offset; with `keep_unread` space does not cost it."""
        self.uploaded_to: int | None = None
        """Files that end behind this log offset stay; None if that does not matter."""
        self._held_since: float | None = None
        self._cleaned_up_to = parts.log.start_offset
        self._looked = clock.monotonic()
        self._watched_from = parts.log.end_offset
        """Files that end before this were complete when we came."""
        self._complete_since: dict[int, float] = {}
        """When the others were seen incomplete for the last time, by the offset they end at."""

    def apply_settings(self, settings: StoreSettings) -> None:
        self._settings = settings

    def keep_until_uploaded(self, log_offset: int) -> None:
        """No file goes that ends behind this log offset: there is no copy of it elsewhere yet."""
        self.uploaded_to = log_offset

    def spaces(self) -> tuple[Space, Space]:
        """The partitions of the log and of everything else."""
        return self._files.space(self._paths.commit_log), self._files.space(self._paths.root)

    def clean(self, safe_offset: int, *, on_demand: bool = False) -> CleaningReport:
        """One round: remove expired files if it is time or space is short, others only if it is very short.

        Nothing goes before its queues and index entries are on disk: they remember where its queues end.
        """
        settings = self._settings
        spaces = self.spaces()
        used_percent = max(space.used_ratio for space in spaces) * 100
        excess_bytes = self._excess_bytes(*spaces) if settings.clean_forcibly else 0.0
        is_due = on_demand or self._is_hour_to_delete() or used_percent > settings.disk_max_used_percent
        report = CleaningReport(self._log.start_offset, used_percent)
        self._notice_complete_segments()
        try:
            self._forget_lost_segments(report)
            if is_due or excess_bytes > 0:
                excess_bytes -= self._remove_damaged(excess_bytes)
                self._remove_segments(excess_bytes, safe_offset, report)
            self._follow_log(report)
            if (light := self._dispatcher.light) is not None:
                light.clean(self._log.start_offset, safe_offset, self._dispatcher.offset)
        except OSError as error:
            report.problem = str(error)
        if not report.held_by_readers:
            self._held_since = None
        return report

    def _excess_bytes(self, log_space: Space, root_space: Space) -> float:
        """How many bytes must go even if they have not expired."""
        forced_ratio = self._settings.disk_clean_forcibly_percent / 100
        excess = max((each.used_ratio - forced_ratio) * each.total_bytes for each in (log_space, root_space))
        if self._log.needs_room:
            excess = max(excess, self._log.segment_bytes - log_space.free_bytes)
        return excess

    def _follow_log(self, report: CleaningReport) -> None:
        """Remove queue and index files that lead only to what the log no longer has."""
        log_start = self._log.start_offset
        if log_start != self._cleaned_up_to:
            report.queue_files_removed = self._queues.clean(log_start)
            if self._index is not None:
                report.index_files_removed = self._index.clean(log_start)
            if self.uploaded_to is None:  # else there are older messages elsewhere
                self._deletions.forget_before(log_start)
                self._purges.forget_before(log_start)
            self._erasures.forget_before(log_start)
            self._epochs.forget_before(log_start)
            self._cleaned_up_to = log_start

    def _forget_lost_segments(self, report: CleaningReport) -> None:
        """Notice that an operator has deleted the oldest files."""
        for segment in self._log.segments.row[:-1]:
            if self._files.size(segment.path) is not None:
                return
            self._log.segments.remove_first()
            report.segments_removed += 1

    def _is_hour_to_delete(self) -> bool:
        hour = time.localtime(self._time.now_ms() // 1000).tm_hour
        return any(int(each) == hour for each in self._settings.delete_when.split(";"))

    @property
    def _reserved_ms(self) -> int:
        return self._settings.file_reserved_hours * _HOUR_MS

    def _remove_damaged(self, excess_bytes: float) -> int:
        """Remove copies of damaged bytes that have expired, or as many as are in the way; how many bytes."""
        directory, removed_bytes = self._paths.damaged, 0
        paths = [directory / name for name in self._files.names(directory)[0]]
        oldest_kept_ms = self._time.cautious_ms() - self._reserved_ms
        for path in sorted(paths, key=self._files.modified_ms):
            if self._files.modified_ms(path) >= oldest_kept_ms and removed_bytes >= excess_bytes:
                break
            removed_bytes += self._files.size(path) or 0
            self._files.remove(path)
        return removed_bytes

    def _remove_segments(self, excess_bytes: float, safe_offset: int, report: CleaningReport) -> None:
        oldest_kept_ms = self._time.cautious_ms() - self._reserved_ms
        while report.segments_removed < self._settings.delete_batch_max:
            segment = self._log.segments.row[0] if len(self._log.segments) else None
            if segment is None or segment.end > safe_offset or segment.end >= self._log.end_offset:
                return
            if self.uploaded_to is not None and segment.end > self.uploaded_to:
                report.is_kept_for_tier = True
                return
            if (
                self._files.modified_ms(segment.path) >= oldest_kept_ms
                or self._watched_ms(segment.end) < self._reserved_ms
            ):
                # The blocks of removed files are given back a little later.
                if report.segments_removed * self._log.segment_bytes >= excess_bytes:
                    return
                # A file that is elsewhere as well can be read there.
                if self._settings.keep_unread and self.uploaded_to is None and segment.end > self.unread_from:
                    report.is_kept_for_groups = True
                    return
                report.is_forced = True
            if (held_from := self._compacting.held_from()) is not None and segment.end > held_from:
                self._compacting.want(segment.end)
                report.is_kept_for_compaction = True
                return
            if not segment.try_unmap() and not self._has_waited_enough():
                report.held_by_readers = True
                return
            self._held_since = None
            self._log.segments.remove_first()
            report.segments_removed += 1

    def _notice_complete_segments(self) -> None:
        log = self._log
        known = self._complete_since
        self._complete_since = {
            each.end: known.get(each.end, self._looked)
            for each in log.segments.row
            if self._watched_from < each.end <= log.end_offset
        }
        self._looked = self._clock.monotonic()

    def _watched_ms(self, end: int) -> float:
        """How long a file has been complete at most; no limit for those that were when we came."""
        since = self._complete_since.get(end)
        return inf if since is None else (self._clock.monotonic() - since) * 1000

    def _has_waited_enough(self) -> bool:
        """java: after two minutes a file loses its name even if someone still reads it."""
        now = self._clock.monotonic()
        if self._held_since is None:
            self._held_since = now
        return now - self._held_since >= self._settings.force_delete_after_ms / 1000
