"""Cutting: take back the end of the log while the store is in use, and all that was derived from it.

A replica does so when its log has records that its master does not have. A cut may be interrupted anywhere.
Before the log is cut, the checkpoints are set back: whatever is found after a crash, recovery trusts nothing
behind the cut. When it is done, the bytes are gone from the log, and their units from the queues: neither can
come back with the power, when other records have taken their place. A copy is kept under `damaged/`, for
operators.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pyromq.disk_steps import DiskSteps, Steps, Wait
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.protocol.properties import TIMER_DEQUEUE_MS, TIMER_OUT_MS, get_property
from pyromq.store.copying import Copying
from pyromq.store.flushing import Flusher, FlushWaiters
from pyromq.store.log.damage import Damage, DamagedBytes
from pyromq.store.log.epoch_file import EpochFile
from pyromq.store.parts import StoreParts
from pyromq.store.queues.mending import Mending
from pyromq.store.timers.timer_files import TimerFiles

_MAX_KEPT_BYTES: Final = 1 << 30


class Cutting:
    def __init__(
        self,
        parts: StoreParts,
        epochs: EpochFile,
        mending: Mending,
        flusher: Flusher,
        timers: TimerFiles,
        copying: Copying,
        waiters: FlushWaiters,
    ) -> None:
        self._files = parts.files
        self._log = parts.log
        self._epochs = epochs
        self._queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._mending = mending
        self._flusher = flusher
        self._marks = parts.deletions, parts.purges, parts.erasures
        self._timers = timers
        self._copying = copying
        self._time = parts.time
        self._snapshots = parts.snapshots
        self._waiters = waiters
        self._damaged = DamagedBytes(parts.files, parts.log, parts.paths.damaged)
        self.kept_as: tuple[Path, ...] = ()
        """The files with what the last cut took away; empty if that was nothing, or too much to keep."""
        self.is_unfinished = False
        """Whether a cut has failed halfway: what follows the end of the log may be there after a restart."""
        self.cuts = 0
        """Changes when the end of the log is about to be taken back, and again when it was: what was read of
        the log before, or meanwhile, may not be in it."""
        self.on_cut: Callable[[], None] = lambda: None
        self._under_way: DiskSteps[int] | None = None
        self._cut_files: list[Path] = []
        """Files of queues that were cut, and not synced yet."""

    def __repr__(self) -> str:
        return f"<Cutting {self._log!r}>"

    def cut(self, end: int) -> int:
        """Take back the end of a replica's log, which its master does not have; how many bytes that were.

        Raises StoreError if no record ends there, or if the disk does not take it.
        """
        cut = self.begin(end)
        self.finish()
        return cut.result or 0

    def begin(self, end: int) -> DiskSteps[int]:
        """The same, step by step: a loop may leave what waits for the disk to threads."""
        self.finish()
        self._waiters.fail()
        self.cuts += 1
        self._under_way = DiskSteps(self._told_of_cut(end))
        return self._under_way

    def finish(self) -> None:
        """Do the rest of a cut that is under way now. Raises StoreError."""
        if self._under_way is not None:
            cut, self._under_way = self._under_way, None
            cut.finish()

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None and not self._under_way.is_over

    def _told_of_cut(self, end: int) -> Steps[int]:
        try:
            cut_bytes = yield from self._steps(end)
            self.on_cut()
            return cut_bytes
        except OSError as error:
            raise StoreError(f"the log cannot be cut at {end}: {error}") from error
        finally:
            self.cuts += 1

    def _steps(self, end: int) -> Steps[int]:
        """Make `end` the end of the log, which must be where a record ends; how many bytes were cut off.

        Raises StoreError if no record ends there, OSError if a file cannot be changed. Then the next attempt,
        or the next start, continues. Readers find what stays all the time.
        """
        log = self._log
        self._copying.drop_part()
        cut_bytes = log.end_offset - end
        if cut_bytes < 0:
            raise StoreError(f"the log ends at {log.end_offset}: it cannot be cut at {end}")
        if cut_bytes or self.is_unfinished:
            last = self.last_record_before(end)
            stored_ms = 0 if last is None else self._log.store_timestamp(last) or 0
            self.kept_as = ()
            if 0 < cut_bytes <= _MAX_KEPT_BYTES:
                taken = Damage(end, log.end_offset, "cut off", is_tail=True)
                yield partial(self._damaged.set_aside, taken)
                self.kept_as = taken.kept_as
            self.is_unfinished = True
            yield partial(self._cut_snapshots, end)
            self._mending.close()
            if self._timers.wheel.is_made:
                # What was delivered after the last record that stays is to be delivered again.
                slots_ms = [stored_ms]
                yield partial(self._find_deliveries, end, slots_ms)
                if (save_timers := self._cut_timers(end, min(slots_ms))) is not None:
                    yield save_timers
            self._flusher.pause()
            try:
                yield partial(self._flusher.set_back, end, stored_ms)
                # In one go: whoever reads meanwhile finds no unit of a record that is gone.
                is_emptied = end <= log.start_offset
                cut_log = log.cut_steps(end)
                sync = next(cut_log)
                log.last_store_timestamp = stored_ms
                self._cut_queues(end, is_emptied)
                if self._index is not None:
                    self._index.drop_from(end)
                self._dispatcher.cut(end)
                yield sync
                yield from cut_log
                yield self._sync_queues
            finally:
                self._flusher.go_on(log.end_offset)
            for marks in self._marks:
                yield partial(marks.fit_to_log, log.start_offset, end)
            self.is_unfinished = False
        if any(each.start >= end for each in self._epochs.epochs):
            yield partial(self._epochs.cut, end)
        return cut_bytes

    def last_record_before(self, end: int) -> int | None:
        """Where the last record before a cut begins; None if there is none in that file. Raises StoreError if
        no record ends there."""
        log = self._log
        if end <= log.start_offset:
            return None
        segment_bytes, last = log.segment_bytes, None
        offset = max((end - 1) // segment_bytes * segment_bytes, self._last_known_before(end))
        try:
            for _, outline in log.outlines(offset, end):
                last = outline.log_offset
                offset = last + outline.size
        except RemoteProtocolError:
            last = None
        if offset != end and end % segment_bytes:
            raise StoreError(
                f"no record ends at log offset {end}: the log cannot be cut there; the last one before it"
                f" ends at {offset}"
            )
        return last

    def _last_known_before(self, end: int) -> int:
        """The last record that a queue leads to: the walk to the cut need not begin with its file."""
        places = [queue.last_place_before(end) for queue in self._queues]
        return max([self._log.start_offset, *places])

    def _find_deliveries(self, end: int, slots_ms: list[int]) -> None:
        """The slots of timed messages whose deliveries are cut off. Some may have been late."""
        for _, properties in self._log.records_from(end):
            if get_property(properties, TIMER_DEQUEUE_MS) is not None:
                slot_ms = get_property(properties, TIMER_OUT_MS) or ""
                if slot_ms.isdecimal():
                    slots_ms.append(int(slot_ms))

    def _cut_timers(self, end: int, first_ms: int) -> Wait | None:
        queue = self._queues.find(TIMER_TOPIC, 0)
        queue_offset = 0 if queue is None else queue.units_before(end)
        return self._timers.cut(end, queue_offset, first_ms, self._time.now_ms())

    def _cut_snapshots(self, end: int) -> None:
        self._snapshots.cut(end)

    def _cut_queues(self, end: int, is_emptied: bool) -> None:
        if is_emptied:
            for queue in list(self._queues):
                self._queues.drop_files(queue)
                self._queues.discard(queue)
            return
        for queue in self._queues:
            if queue.last_place >= end:
                units = queue.units_before(end)
                queue.cut(units)
                self._cut_files.append(self._queues.queue_files.path_of(queue, units))
            queue.next_offset = queue.end_offset

    def _sync_queues(self) -> None:
        for path in self._cut_files:
            with suppress(FileNotFoundError):  # it was cut between two files
                self._files.sync(path)
        self._files.sync_all_directories()
        self._cut_files.clear()
