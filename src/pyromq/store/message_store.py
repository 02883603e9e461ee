"""The message store: the public interface of this package.

One thread owns it and makes every call; the flusher is the only other thread, and only syncs files. Only
`open`, `close`, `flush`, `flush_log`, `flush_log_to` and `wait_flushed` block. Long work is done in steps:
`dispatch` and `upkeep`.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from pyromq.chance import process_id
from pyromq.clock import Clock, SystemClock
from pyromq.disk_steps import DiskSteps, Steps
from pyromq.errors import StateError, StoreError
from pyromq.filesystem import FileLock, FileReader, Files
from pyromq.protocol import properties as props
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import RecordOutline, SysFlag, peek_log_offset, scan_record
from pyromq.store.appending import LogAppending, compiled_appender
from pyromq.store.checkpoint import Checkpoint, read_checkpoint
from pyromq.store.copying import Copying
from pyromq.store.cutting import Cutting
from pyromq.store.deletions import Deletion, Deletions
from pyromq.store.dispatch import Dispatcher
from pyromq.store.faults import Fault, StoreFaults
from pyromq.store.filenames import StorePaths, can_be_directory
from pyromq.store.flushing import Flusher, FlushWaiters, OnFlushed
from pyromq.store.index.key_index import Index
from pyromq.store.json_table import JsonTable
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.damage import Damage, is_filler
from pyromq.store.log.epoch_file import EpochFile
from pyromq.store.log.log_time import LogTime
from pyromq.store.parts import StoreParts
from pyromq.store.queue_flushing import QueueFlushing
from pyromq.store.queues.all_queues import Queues
from pyromq.store.queues.consume_queue import ConsumeQueue
from pyromq.store.queues.mending import Mending
from pyromq.store.queues.queue_files import QueueFiles
from pyromq.store.queues.tags_codes import TagsCodes
from pyromq.store.reading import RecordFilter, StoreReader
from pyromq.store.recovery import Recovery, RecoveryReport, write_first_checkpoint
from pyromq.store.results import AppendResult, AppendStatus, Boundary, QueueAdvance, ReadResult
from pyromq.store.retention import CleaningReport, Retention
from pyromq.store.scrubbing import Scrubbing
from pyromq.store.settings import StoreSettings
from pyromq.store.statistics import StoreStatistics
from pyromq.store.timers.timer_files import TimerFiles
from pyromq.store.timers.timer_log import TimerUnit
from pyromq.store.upkeep import StoreUpkeep

_UNITS_AT_ONCE = 1000
_LATEST_INTAKE_MS = 60_000
_MAX_EXAMINED = 4096
"""So many messages a query by key looks at; the index knows only hashes of keys."""
"""A timed message is in the wheel long before."""


class MessageStore:
    """`MessageStore.open(settings)` recovers and starts; use it as a context manager or `close` it."""

    def __init__(self, settings: StoreSettings, files: Files, clock: Clock) -> None:
        self.files = files
        self._clock = clock
        self._settings = settings
        self._is_sync_flush = settings.flush_policy.is_sync
        self.paths = StorePaths(settings.root, settings.log_directory)
        self._lock: FileLock | None = None
        self._cut: DiskSteps[int] | None = None
        self._log = CommitLog(
            files,
            self.paths.commit_log,
            settings.log_segment_bytes,
            preallocate=settings.preallocate,
            warm_up=settings.warm_up,
        )
        self._log.segments.set_read_ahead(settings.read_ahead)
        queue_files = QueueFiles(files, settings.queue_units_per_file, settings.mapped_queue_files)
        self._queues = Queues(files, self.paths, queue_files)
        self._index: Index | None = None
        if settings.index_enabled:
            self._index = Index(files, self.paths.index, clock, settings.index_slots, settings.index_units)
        tags_codes = TagsCodes(settings.delays_ms)
        self._dispatcher = dispatcher = Dispatcher(
            self._log, self._queues, self._index, tags_codes, settings.max_pending_dispatch
        )
        self._mending = Mending(files, self._log, self._queues, tags_codes, lambda: dispatcher.offset)
        self._reader = StoreReader(self._log, self._mending, settings)
        self.time = LogTime(clock, self._log)
        self.appender = compiled_appender(self._log, self._queues, self._dispatcher, self.time)
        """The compiled append, for other compiled code; call `append` for messages that it declines."""
        self._faults = StoreFaults(self.appender)
        self._appending = LogAppending(
            self._log, self._queues, self._dispatcher, self._faults, self.time, settings, self.appender
        )
        # Bound here: a method in between would cost every message a call.
        self.append = self._appending.append
        self.append_batch = self._appending.append_batch
        self.append_encoded_batch = self._appending.append_encoded_batch
        self._read_messages = self._read_bytes = 0
        self._asks_others = False
        self.timers = TimerFiles(
            files,
            self.paths,
            settings.timer_slot_ms,
            settings.timer_log_file_bytes,
            settings.timer_wheel_slots,
        )

    def __repr__(self) -> str:
        state = f" {self._faults.present!r}" if self._faults.is_refusing else ""
        return f"<MessageStore {self.paths.root.name} {self._log!r}{state}>"

    # Opening and closing

    @classmethod
    def open(
        cls,
        settings: StoreSettings,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        start_flusher: bool = True,
        has_group: bool = False,
    ) -> Self:
        """Recover what is on disk and get ready; `recovery` says what was found.

        `has_group`: other brokers have this log, too. Then nothing is kept that follows damage behind what
        was synced: it is copied from them again.

        Raises StoreError if the directory is in use or its files cannot be recovered.
        """
        store = cls(settings, files or Files(), clock or SystemClock())
        try:
            store._recover(has_group)
        except OSError as error:
            store._release()
            raise StoreError(f"cannot open the store in {settings.root}: {error}") from error
        except BaseException:
            store._release()
            raise
        if start_flusher:
            store._flusher.start()
        return store

    def _recover(self, has_group: bool) -> None:
        files, paths = self.files, self.paths
        files.make_directories(paths.root)
        files.make_directories(paths.commit_log)
        self._lock = files.lock(paths.lock)
        was_clean = files.size(paths.abort) is None
        # java: the process id, as text
        files.write(paths.abort, str(process_id()).encode())
        if not was_clean:
            for directory in (paths.root, paths.commit_log):
                files.distrust_names(directory)
        files.sync_all_directories()
        checkpoint = read_checkpoint(files, paths.checkpoint)
        self._deletions = Deletions(files, paths.deletions)
        parts = StoreParts(
            files, paths, self._log, self._queues, self._index, self._dispatcher, self._deletions
        )
        recovery = Recovery(parts, checkpoint, was_clean=was_clean, has_group=has_group)
        try:
            recovery.load_log()
        except StoreError:
            if was_clean:  # nothing was changed: the next start must find the same state
                files.remove(paths.abort)
                files.sync_all_directories()
            raise
        self.recovery: RecoveryReport = recovery.run()
        checkpoint = write_first_checkpoint(parts, checkpoint, self.recovery.began_at)
        self.epochs = EpochFile(files, paths.epochs, self._log.end_offset)
        """Which masters wrote the log, under a controller."""
        self.copying = Copying(self._log, self._queues, self._dispatcher, self._deletions, self._faults)
        self._flusher = Flusher(files, self._log, paths.checkpoint, checkpoint)
        self._waiters = FlushWaiters(self._flusher)
        self.scrubbing = Scrubbing(files, self._log)
        self._cutting = Cutting(
            parts, self.epochs, self._mending, self._flusher, self.timers, self.copying, self.time
        )
        self._queue_flushing = QueueFlushing(self._flusher, self._dispatcher, self._queues, self._index)
        self.time.begin()
        self._retention = Retention(parts, self.epochs, self._settings, self._clock, self.time)
        self._upkeep = StoreUpkeep(
            self._settings,
            self._log,
            self._flusher,
            self._queue_flushing,
            self._retention,
            self._faults,
            self._clock.monotonic(),
        )
        self._faults.replace(Fault.NONE, "")
        self._upkeep.check_disk()
        if self._settings.timer_wheel:
            self.timers.recover(self.time.now_ms(), self._timed_queue_offset)
            self._refuse_timers_in_rocksdb()

    def _refuse_timers_in_rocksdb(self) -> None:
        """Raises StoreError if Apache's broker left timed messages to RocksDB instead of the wheel.

        Nobody here could tell which of them it has delivered already.
        """
        first_ms = self.earliest_time(TIMER_TOPIC)
        latest_ms = self.timers.checkpoint.read_ms - _LATEST_INTAKE_MS
        if self.timers.is_unused_by_apache and 0 <= first_ms < latest_ms:
            raise StoreError(
                f"{self.paths.timer_checkpoint}: Apache's broker kept timed messages in RocksDB"
                " (timerRocksDBEnable=true), which is not supported. Let it move them to its wheel (Apache's"
                " mqadmin switchTimerEngine -e F), or delete this file to deliver all that are in the log,"
                " including those already delivered"
            )

    def _timed_queue_offset(self, unit: TimerUnit) -> int | None:
        """See `QueueOffsetOf`; -1 for a message that has expired or is damaged."""
        if unit.log_offset < self._log.start_offset:
            return -1
        if unit.log_offset + unit.size_bytes > self._log.end_offset:
            return None
        record = self._log.record(unit.log_offset)
        if record is None:
            return -1
        outline = scan_record(record)
        is_same = outline is not None and (outline.topic, outline.size) == (TIMER_TOPIC, unit.size_bytes)
        return outline.queue_offset if outline is not None and is_same else None

    def close(self) -> None:
        """Dispatch and flush everything, and mark the stop as clean."""
        if self._lock is None:
            return
        self._flusher.stop()
        try:
            self.finish_cut()
            self.dispatch(max_messages=1 << 62, limit=self._log.end_offset)
            self.flush()
        except (StoreError, OSError) as error:
            self._faults.refuse(Fault.NOT_WRITEABLE, f"closing: {error}")
        self._waiters.settle(self._clock.monotonic())
        is_complete = (
            self._flusher.failure is None
            and self._flusher.checkpoint.safe_offset == self._log.end_offset
            and self._dispatcher.safe_offset == self._log.end_offset
        )
        try:
            if is_complete:
                # java: only when everything is flushed and dispatched
                self.files.remove(self.paths.abort)
                self.files.sync_all_directories()
        finally:
            self._release()

    def abandon(self) -> None:
        """Stop at once, as a crash would: nothing is flushed, and the next start recovers."""
        if self._lock is not None:
            self._flusher.stop()
        self._release()

    def _release(self) -> None:
        self._faults.replace(Fault.NOT_WRITEABLE, "the store is closed")
        self._mending.close()
        self.timers.close()
        self._log.close()
        self._queues.close()
        if self._index is not None:
            self._index.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Replication

    cuts = 0
    """Changes when the end of the log is about to be taken back, and again when it was: what was read of the
    log before, or meanwhile, may not be in it."""

    def ask_others(self, is_awaited: Callable[[int], bool]) -> None:
        """Readers wait while `is_awaited` says that other brokers are asked for damage at a log offset."""
        self._mending.is_awaited = is_awaited
        self._asks_others = True

    def restore_units(self, damage: Damage) -> Iterator[None]:
        """Give units to messages that are back in the log; it yields now and then, so that the caller can
        pause. Raises OSError."""
        for count, (outline, _) in enumerate(self.records_from(damage.start)):
            if outline.log_offset >= damage.end:
                return
            if not is_filler(outline) and not self.is_deleted(outline.topic, outline.log_offset):
                self._mending.restore(outline)
            if count % _UNITS_AT_ONCE == _UNITS_AT_ONCE - 1:
                yield

    @property
    def log_start(self) -> int:
        return self._log.start_offset

    @property
    def log_end(self) -> int:
        return self._log.end_offset

    def log_bytes(self, offset: int, max_bytes: int) -> memoryview:
        """The log from an offset on as it is, at most to the end of a file; none at its end."""
        return self._log.view_from(offset, max_bytes)

    def open_log_file(self, offset: int) -> tuple[FileReader, int, int] | None:
        """The file of a log offset, where in it that is, and where in the log it ends; None without one."""
        try:
            return self._log.open_file(offset)
        except OSError:
            return None

    def load_log_bytes(self, offset: int, size_bytes: int) -> None:
        """Read a part of the log from the disk, in a thread: `log_bytes` of it do not wait then."""
        self._log.load(offset, size_bytes)

    def cut_log(self, end: int) -> int:
        """Take back the end of a replica's log, which its master does not have; how many bytes that were.

        Raises StoreError if no record ends there, or if the disk does not take it.
        """
        cut = self.begin_cut(end)
        self.finish_cut()
        return cut.result or 0

    def begin_cut(self, end: int) -> DiskSteps[int]:
        """The same, step by step: a loop may leave what waits for the disk to threads."""
        self.finish_cut()
        self.fail_waiters()
        self.cuts += 1
        self._cut = DiskSteps(self._told_of_cut(end))
        return self._cut

    def _told_of_cut(self, end: int) -> Steps[int]:
        try:
            return (yield from self._cutting.steps(end))
        except OSError as error:
            raise StoreError(f"the log cannot be cut at {end}: {error}") from error
        finally:
            self.cuts += 1

    @property
    def cut_kept_as(self) -> tuple[Path, ...]:
        """The files under `damaged/` with what the last cut took away; empty if it was too much to keep."""
        return self._cutting.kept_as

    def finish_cut(self) -> None:
        """Do the rest of a cut that is under way now. Raises StoreError."""
        if self._cut is not None:
            cut, self._cut = self._cut, None
            cut.finish()

    def begin_epoch(self, number: int) -> None:
        """From here on the log is that of a new master. Raises StoreError if it is not new, or if the disk
        does not take it."""
        try:
            self.finish_cut()
            if self._cutting.is_unfinished:
                raise StoreError("the log was not cut completely: finish the cut before a new master starts")
            # What this master appends is newer than any deletion, also of another log.
            self._deletions.fit_to_log(self._log.start_offset, self._log.end_offset)
            self._dispatcher.fit_to_log(self._log.end_offset)
            # A log from before the controller belongs to its first master as a whole.
            is_first = not self.epochs.epochs
            self.epochs.begin(number, self._log.start_offset if is_first else self._log.end_offset)
        except OSError as error:
            raise StoreError(f"epoch {number} cannot be written: {error}") from error

    def fail_waiters(self) -> None:
        """Answer everyone who waits for a flush with a time-out: what they wrote may be taken back."""
        self._waiters.fail()

    def deletions(self) -> list[Deletion]:
        """The deleted topics that still have records in the log."""
        return self._deletions.all()

    # Dispatching

    def dispatch(self, max_messages: int = 1024, limit: int | None = None) -> list[QueueAdvance]:
        """Add up to `max_messages` of the log to queues and index; return the queues with new messages.

        Messages beyond `limit` (`dispatch_limit` by default) do not become readable. If the disk is full,
        dispatch stops, and the store refuses messages until there is room again. Each call also continues
        mending one queue, which is returned when it is mended. A closed store does nothing.
        """
        if self._lock is None:
            return []
        if limit is None:
            limit = self.dispatch_limit
        advances: list[QueueAdvance] = []
        try:
            advances = self._dispatcher.step(limit, max_messages)
        except OSError as error:
            self._faults.refuse_after_dispatch(error)
        if self._mending.has_work:
            advances += self._mending.step()
        return advances

    @property
    def dispatched_offset(self) -> int:
        """Everything before this log offset is in its queue."""
        return self._dispatcher.offset

    @property
    def indexed_offset(self) -> int:
        """Everything before this log offset is in its queue and in the index."""
        return self._dispatcher.safe_offset

    @property
    def dispatch_limit(self) -> int:
        """How far the log may become readable: with synchronous flush, as far as it is flushed."""
        return self._flusher.flushed_offset if self._is_sync_flush else self._log.end_offset

    @property
    def has_dispatch_work(self) -> bool:
        """Whether `dispatch` has something to do and is able to do it.

        This may change when a full disk has room again: ask after each `upkeep`.
        """
        return self.can_dispatch_to(self.dispatch_limit)

    def can_dispatch_to(self, limit: int) -> bool:
        is_behind = self._dispatcher.offset < limit and self._faults.can_dispatch
        return is_behind or self._mending.has_work

    # Flushing

    @property
    def flushed_offset(self) -> int:
        """Everything before this log offset is safe on disk."""
        return self._flusher.flushed_offset

    def on_flush_progress(self, callback: Callable[[], None] | None) -> None:
        """Called on the flusher's thread whenever `settle` may have something to do."""
        self._flusher.on_progress = callback

    def when_flushed(self, result: AppendResult, callback: OnFlushed) -> None:
        """Have `settle` call `callback` once an append is flushed (PUT_OK) or its time is up.

        The flush itself is asked for by `request_flush`, once for all appends of a turn.
        """
        self._waiters.add(
            result.end_offset,
            self._clock.monotonic() + self._settings.sync_flush_timeout_ms / 1000,
            callback,
        )

    def request_flush(self) -> None:
        """Have the log flushed soon; `on_flush_progress` tells when."""
        self._flusher.request_log()

    def settle(self) -> int:
        """Call the callbacks of appends whose wait is over; return how many."""
        self._notice_flush_failure()
        return self._waiters.settle(self._clock.monotonic())

    def wait_flushed(self, result: AppendResult, timeout_seconds: float = 5.0) -> AppendStatus:
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

    # Upkeep

    def upkeep(self) -> CleaningReport | None:
        """Do periodic work: call this every 10 ms to 100 ms. Returns a report if cleaning ran."""
        self.settle()
        now = self._clock.monotonic()
        self.time.look()
        self._mending.retry(now)
        return self._upkeep.run(now)

    def mending_remarks(self) -> list[str]:
        """Log texts about queues mended since the last call."""
        return self._mending.take_remarks()

    @property
    def disk_used_ratio(self) -> float:
        """Of the fuller of its disks, at the last check."""
        return self._upkeep.disk_used_ratio

    def keep_unread_from(self, log_offset: int) -> None:
        """Consumer groups have read everything before this log offset; see the setting keepUnreadMessages."""
        self._retention.unread_from = log_offset

    def clean(self, *, on_demand: bool = False) -> CleaningReport:
        """Delete expired files, `on_demand` at any hour of the day."""
        return self._upkeep.clean(on_demand=on_demand)

    # Reading

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        max_bytes: int = 128 * 1024 * 1024,
        *,
        tag_codes: Collection[int] | None = None,
        only: RecordFilter | None = None,
    ) -> ReadResult:
        """Messages of a queue from an offset on.

        `tag_codes` (`tag_code` of each tag wanted) are compared with the queue alone, `only` with each
        record. The views stay valid as long as they are held.
        """
        queue = self._queues.find(topic, queue_id)
        result = self._reader.read(queue, offset, max_messages, max_bytes, tag_codes, only)
        if (
            self._asks_others
            and result.views
            and (result.suggest_replica or peek_log_offset(result.views[0]) < self.recovery.log_end)
        ):
            # It comes from the disk: this process did not write it, or not lately.
            result = self._reader.without_damaged(result, offset)
        self._read_messages += result.message_count
        self._read_bytes += result.size_bytes
        return result

    def record_at(self, log_offset: int) -> memoryview | None:
        """The record that begins at a log offset."""
        return self._log.record(log_offset)

    def committed_records(self, begin: int) -> Iterator[int | None]:
        """The log offsets of messages that a transaction committed, from the log offset `begin` to the end of
        the log as it is now. From time to time it yields None, so that the caller can pause."""
        mask, bits = SysFlag.TRANSACTION_MASK, SysFlag.TRANSACTION_COMMIT
        return self._log.flagged(begin, self._log.end_offset, mask, bits)

    def records_from(self, log_offset: int) -> Iterator[tuple[RecordOutline, bytes]]:
        """The records of the log from a record on, each with its properties; ends at damage."""
        return self._log.records_from(log_offset)

    def log_offset_at(self, timestamp_ms: int) -> int:
        """Where the first record is that was stored at or after a time; reads a file of the log at most."""
        offset = self._log.start_offset
        for segment in self._log.segments.row:
            if 0 < self._log.first_store_timestamp(segment) < timestamp_ms:
                offset = segment.start
        for outline, _ in self.records_from(offset):
            if outline.store_timestamp >= timestamp_ms:
                return outline.log_offset
        return self._log.end_offset

    def is_deleted(self, topic: str, log_offset: int) -> bool:
        """Whether the topic of a message was deleted after the message was stored."""
        return self._deletions.covers(topic, log_offset)

    def query(
        self, topic: str, key: str, max_messages: int, begin_ms: int = 0, end_ms: int = (1 << 63) - 1
    ) -> list[memoryview]:
        """The newest messages of a topic with a key, in the order of the log. Raises StoreError if too many
        other messages have keys with the same hash."""
        if self._index is None:
            return []
        limit = min(max_messages, self._settings.max_query_messages)
        first = self._deletions.offset_of(topic)
        found: dict[int, memoryview] = {}
        for examined, offset in enumerate(self._index.candidates(topic, key, begin_ms, end_ms)):
            if len(found) >= limit:
                break
            if examined >= _MAX_EXAMINED:
                raise StoreError(
                    f"over {_MAX_EXAMINED} messages have keys with the hash of {key}: choose a shorter time"
                )
            record = self._log.record(offset) if offset >= first else None
            if record is not None and _is_wanted(record, topic, key, begin_ms, end_ms):
                found[offset] = record
        return [record for _, record in sorted(found.items())]

    def latest_with_key(self, topic: str, key: str) -> Iterator[int]:
        """The log offsets of the latest messages of a topic that may have a key, newest first. The caller
        compares keys: the index knows only their hashes."""
        if self._index is not None:
            first = self._deletions.offset_of(topic)
            for offset in islice(self._index.latest(topic, key), _MAX_EXAMINED):
                if offset >= first:
                    yield offset

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.find(topic, queue_id)

    def topics(self) -> list[str]:
        return self._queues.topics

    def queue_ids(self, topic: str) -> list[int]:
        return sorted(self._queues.of_topic(topic))

    def queue_ends(self, topic: str, queues: int) -> list[int]:
        """The ends of the first queues of a topic; 0 for those that were never written."""
        ends = [0] * queues
        for queue_id, queue in self._queues.of_topic(topic).items():
            if queue_id < queues:
                ends[queue_id] = queue.end_offset
        return ends

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        return queue.min_offset(self._log.start_offset) if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message that can be read."""
        queue = self._queues.find(topic, queue_id)
        return queue.end_offset if queue is not None else 0

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset the next message will get."""
        queue = self._queues.find(topic, queue_id)
        return queue.next_offset if queue is not None else 0

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        queue = self._queues.find(topic, queue_id)
        return self._reader.offset_at(queue, timestamp_ms, boundary) if queue is not None else 0

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored; -1 if there is no such message."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.first_unit <= offset < queue.end_offset:
            return -1
        return self._reader.stored_at(queue, offset)

    def sound_units(self, queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int | None, int]]:
        """Log offset and tags code of the messages from `offset` on; None for one that the log has lost.

        The list ends before a damaged unit; it is empty while the first one is mended.
        """
        return self._reader.sound_units(queue, offset, count)

    def log_offset(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Where the log has a message; None for one it does not have."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else self._reader.place_of(queue, offset)

    def earliest_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """The store time of the oldest message, of a queue or of the whole log; -1 if there is none."""
        if topic is not None:
            return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))
        stored_ms = self._log.store_timestamp(self._log.start_offset)
        return -1 if stored_ms is None else stored_ms

    # The rest

    def delete_topic(self, topic: str, forget: Callable[[], None] = lambda: None) -> int:
        """Delete the queues of a topic; return how many. Its messages stay in the log until its files expire.

        Then `forget` is called to remove everything else of the topic and sync that. After a crash in
        between, `unfinished_deletions` names the topic. Raises StoreError if the deletion cannot be written;
        if `forget` was not called by then, nothing was deleted.
        """
        removed = self.begin_deletion(topic)
        try:
            forget()
            self.finish_deletion(topic)
        except OSError as error:
            raise StoreError(f"topic {topic} cannot be deleted: {error}") from error
        return removed

    def begin_deletion(self, topic: str) -> int:
        """Mark a topic as deleted and delete its queues; how many there were.

        What else there is of the topic shall go after this, and then `finish_deletion`. Raises StoreError if
        the disk does not take the deletion.
        """
        if not can_be_directory(topic):
            return 0  # no message was ever taken for it
        try:
            self._deletions.mark(topic, self._log.end_offset, self._clock.now_ms())
            self._dispatcher.forget_topic(topic)
            removed = self._queues.remove_topic(topic)
        except OSError as error:
            raise StoreError(f"topic {topic} cannot be deleted: {error}") from error
        if removed:
            self._queue_flushing.request()
            self._flusher.wake()
        return removed

    def unfinished_deletions(self) -> list[str]:
        """Topics whose deletion was interrupted by a crash, and that have no new messages.

        Their queues are removed already. Remove everything else of them, then call `finish_deletion`.
        """
        return [topic for topic in self._deletions.unfinished() if topic not in self._queues.by_topic]

    def finish_deletion(self, topic: str) -> None:
        """Nothing is left of a deleted topic; any thread may say so. Raises OSError."""
        self._queues.sync_removals()  # a deletion is finished only when no queue can come back
        self._deletions.finish(topic)

    def table(self, name: str) -> JsonTable:
        """A table under `config/`."""
        return JsonTable(self.files, self.paths.config / name)

    def apply_settings(self, settings: StoreSettings) -> None:
        """Apply changed settings; some take effect only after a restart."""
        if settings.root != self._settings.root:
            raise StateError("storePathRootDir cannot change while the store is open")
        self._settings = settings
        self._log.segments.set_read_ahead(settings.read_ahead)
        self._appending.apply_settings(settings)
        self._reader = StoreReader(self._log, self._mending, settings)
        self._upkeep.apply_settings(settings)

    @property
    def settings(self) -> StoreSettings:
        return self._settings

    @property
    def checkpoint(self) -> Checkpoint:
        return self._flusher.checkpoint

    @property
    def faults(self) -> Fault:
        """Why the store refuses messages; reads continue."""
        return self._faults.present

    @property
    def root(self) -> Path:
        return self.paths.root

    def statistics(self) -> StoreStatistics:
        log, index = self._log, self._index
        return StoreStatistics(
            log_start_offset=log.start_offset,
            log_end_offset=log.end_offset,
            flushed_offset=self._flusher.flushed_offset,
            dispatched_offset=self._dispatcher.offset,
            dispatch_behind_bytes=self._dispatcher.behind_bytes,
            flush_behind_bytes=log.end_offset - self._flusher.flushed_offset,
            appended_messages=log.appended_messages,
            appended_bytes=log.end_offset - self.recovery.log_end,
            refused_messages=self._appending.refused_messages,
            read_messages=self._read_messages,
            read_bytes=self._read_bytes,
            sync_count=self._flusher.sync_count,
            waiting_appends=len(self._waiters),
            segments=len(log.segments),
            topics=len(self._queues.topics),
            queues=self._queues.count,
            mapped_queue_files=self._queues.queue_files.mapped_count,
            index_files=index.file_count if index is not None else 0,
            index_entries=index.entry_count if index is not None else 0,
            removed_segments=self._upkeep.removed_segments,
            last_store_timestamp=log.last_store_timestamp,
            faults=self._faults.present,
            fault_reason=self._faults.reason,
            disk_used_ratio=self._upkeep.disk_used_ratio,
        )


def _is_wanted(record: memoryview, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    """Whether a message that the index found has the key, not only its hash, and was stored in that time."""
    outline = scan_record(record)
    if outline is None or outline.topic != topic or not begin_ms <= outline.store_timestamp <= end_ms:
        return False
    properties = bytes(record[outline.properties_start : outline.properties_end])
    return key == get_property(properties, props.UNIQ_KEY) or key in (
        get_property(properties, props.KEYS) or ""
    ).split(" ")
