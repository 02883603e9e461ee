"""The message store: the public interface of this package.

It takes and gives messages. The rest is asked of its four faces: `log`, `queues`, `flushes` and `topics`.

One thread owns it and makes every call; the flusher is the only other thread, and only syncs files. Only
`open`, `close` and some of `flushes` block. Long work is done in steps: `dispatch` and `upkeep`.
"""

from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from pyromq.chance import process_id
from pyromq.clock import Clock, SystemClock
from pyromq.errors import StateError, StoreError
from pyromq.filesystem import FileLock, Files
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.protocol.record import peek_log_offset, scan_record
from pyromq.store.appending import LogAppending, compiled_appender
from pyromq.store.checkpoint import read_checkpoint
from pyromq.store.compacted.snapshots import Snapshots
from pyromq.store.compacted_copying import SnapshotCopy
from pyromq.store.compacted_reading import CompactedReader
from pyromq.store.compacting import Compacting
from pyromq.store.copying import Copying
from pyromq.store.cutting import Cutting
from pyromq.store.deletions import Deletions
from pyromq.store.dispatch import Dispatcher
from pyromq.store.erasing import LogErasing
from pyromq.store.expiry import Expiry
from pyromq.store.faults import Fault, StoreFaults
from pyromq.store.filenames import StorePaths
from pyromq.store.flushes import Flushes
from pyromq.store.flushing import Flusher, FlushWaiters
from pyromq.store.index.key_index import Index
from pyromq.store.json_table import JsonTable
from pyromq.store.light.light_queues import LightQueues
from pyromq.store.light_reading import LightReader
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.epoch_file import EpochFile
from pyromq.store.log.log_time import LogTime
from pyromq.store.log_reading import LogReading
from pyromq.store.older_messages import WantedRead
from pyromq.store.parts import StoreParts
from pyromq.store.queue_flushing import QueueFlushing
from pyromq.store.queue_reading import QueueReading
from pyromq.store.queues.all_queues import Queues
from pyromq.store.queues.mending import Mending
from pyromq.store.queues.queue_files import QueueFiles
from pyromq.store.queues.tags_codes import TagsCodes
from pyromq.store.reading import RecordFilter, StoreReader
from pyromq.store.recovery import Recovery, RecoveryReport, write_first_checkpoint
from pyromq.store.results import QueueAdvance, ReadResult, ReadStatus
from pyromq.store.retention import CleaningReport, Retention
from pyromq.store.scrubbing import Scrubbing
from pyromq.store.settings import StoreSettings
from pyromq.store.statistics import StoreStatistics
from pyromq.store.timers.timer_files import TimerFiles
from pyromq.store.timers.timer_log import TimerUnit
from pyromq.store.topics import StoredTopics
from pyromq.store.upkeep import StoreUpkeep

_LATEST_INTAKE_MS = 60_000
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
        light = LightQueues(files, self.paths.light_queues, settings.queue_units_per_file)
        self.light = light if settings.has_light_queues else None
        """Queues that messages enter besides that of their topic; None if they are switched off."""
        self._light_reader = LightReader(self._log, light) if settings.has_light_queues else None
        self._dispatcher = dispatcher = Dispatcher(
            self._log, self._queues, self._index, tags_codes, settings.max_pending_dispatch, self.light
        )
        self._mending = Mending(files, self._log, self._queues, tags_codes, lambda: dispatcher.offset)
        self._reader = StoreReader(self._log, self._mending, settings)
        self._snapshots = Snapshots(files, self.paths)
        self._compacted_reader = CompactedReader(self._log, self._reader, settings)
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
        if files.size(paths.restoring) is not None:
            raise StoreError(
                f"{paths.root} is not restored completely: run `pyromq store restore` again until it succeeds"
            )
        was_clean = files.size(paths.abort) is None
        # java: the process id, as text
        files.write(paths.abort, str(process_id()).encode())
        if not was_clean:
            for directory in (paths.root, paths.commit_log):
                files.distrust_names(directory)
        files.sync_all_directories()
        checkpoint = read_checkpoint(files, paths.checkpoint)
        self._deletions = Deletions(files, paths.deletions)
        purges = Deletions(files, paths.purges)
        marks = self._deletions, self.time, purges, Deletions(files, paths.erasures)
        parts = StoreParts(
            files, paths, self._log, self._queues, self._index, self._dispatcher, *marks, self._snapshots
        )
        recovery = Recovery(parts, checkpoint, was_clean=was_clean, has_group=has_group)
        try:
            recovery.load_log()
        except StoreError:
            if was_clean:  # nothing was changed: the next start must find the same state
                files.remove(paths.abort)
                files.sync_all_directories()
            raise
        if self.light is None and any(files.names(paths.light_queues)):
            files.remove_tree(paths.light_queues)  # rebuilt from the log; no thread adds to them now
        self.recovery: RecoveryReport = recovery.run()
        self.recovery.remarks += self._snapshots.load(
            self._deletions.offset_of, self._log.end_offset, self._queues.begin_at
        )
        self.expiry = Expiry(parts, self._reader)
        self.expiry.fit()
        checkpoint = write_first_checkpoint(parts, checkpoint, self.recovery.began_at)
        self.epochs = EpochFile(files, paths.epochs, self._log.end_offset)
        """Which masters wrote the log, under a controller."""
        self.copying = Copying(
            self._log, self._queues, self._dispatcher, self._deletions, self._faults, self._snapshots
        )
        self._flusher = Flusher(files, self._log, paths.checkpoint, checkpoint)
        self._waiters = waiters = FlushWaiters(self._flusher)
        self.scrubbing = Scrubbing(files, self._log)
        self.erasing = LogErasing(parts, self._mending, self.scrubbing)
        self.cutting = Cutting(
            parts, self.epochs, self._mending, self._flusher, self.timers, self.copying, waiters
        )
        self.cutting.on_cut = self._was_cut
        self.compacting = Compacting(
            parts,
            self._reader,
            self.cutting,
            self.copying,
            self._settings,
            self._clock,
            lambda: self._flusher.flushed_offset,
        )
        queue_flushing = QueueFlushing(self._flusher, self._dispatcher, self._queues, self._index)
        self.log = LogReading(parts, self._settings.max_query_messages)
        self.queues = QueueReading(
            parts, self._reader, self._mending, self.expiry, self._compacted_reader, self._light_reader
        )
        self.flushes = Flushes(
            self._flusher, waiters, queue_flushing, self._faults, self._clock, self._settings
        )
        self.topics = StoredTopics(parts, self._clock, self._flusher, queue_flushing)
        self.time.begin()
        self._retention = Retention(parts, self.epochs, self.compacting, self._settings, self._clock)
        self.keep_until_uploaded = self._retention.keep_until_uploaded
        self._upkeep = StoreUpkeep(
            self._settings,
            self._log,
            self._flusher,
            queue_flushing,
            self._retention,
            self._faults,
            self._clock.monotonic(),
        )
        self._faults.replace(Fault.NONE, "")
        self._upkeep.check_disk()
        if self._settings.timer_wheel:
            self.timers.recover(self.time.now_ms(), self._timed_queue_offset)
            self._refuse_timers_in_rocksdb()

    def _was_cut(self) -> None:
        self._snapshots.reload()
        self.expiry.fit()

    def _refuse_timers_in_rocksdb(self) -> None:
        """Raises StoreError if Apache's broker left timed messages to RocksDB instead of the wheel.

        This broker cannot know which of them it has delivered already.
        """
        first_ms = self.queues.earliest_time(TIMER_TOPIC)
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
            self.cutting.finish()
            self.dispatch(max_messages=1 << 62, limit=self._log.end_offset)
            self.flushes.flush()
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
                if self.light is not None:
                    self.light.save()
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
        self._snapshots.close()
        self._log.close()
        self._queues.close()
        if self._index is not None:
            self._index.close()
        if self.light is not None:
            self.light.close()
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

    def ask_others(self, is_awaited: Callable[[int], bool]) -> None:
        """Readers wait while `is_awaited` says that other brokers are asked for damage at a log offset."""
        self._mending.is_awaited = is_awaited
        self._asks_others = True

    def begin_epoch(self, number: int) -> None:
        """From here on the log is that of a new master. Raises StoreError if it is not new, or if the disk
        does not take it."""
        try:
            self.cutting.finish()
            if self.cutting.is_unfinished:
                raise StoreError("the log was not cut completely: finish the cut before a new master starts")
            # What this master appends is newer than any deletion, also of another log.
            self._deletions.fit_to_log(self._log.start_offset, self._log.end_offset)
            self.expiry.fit()
            self._dispatcher.fit_to_log(self._log.end_offset)
            # A log from before the controller belongs to its first master as a whole.
            is_first = not self.epochs.epochs
            self.epochs.begin(number, self._log.start_offset if is_first else self._log.end_offset)
        except OSError as error:
            raise StoreError(f"epoch {number} cannot be written: {error}") from error

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

    # Upkeep

    def upkeep(self) -> CleaningReport | None:
        """Do periodic work: call this every 10 ms to 100 ms. Returns a report if cleaning ran."""
        self.flushes.settle()
        now = self._clock.monotonic()
        self.time.look()
        self._mending.retry(now)
        return self._upkeep.run(now)

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
        if queue is None and self._light_reader is not None and self._light_reader.has(topic, queue_id):
            result = self._light_reader.read(
                topic, offset, max_messages, max_bytes, self._settings, tag_codes, only
            )
        else:
            if self.expiry.limits and queue is not None:
                self.expiry.apply(queue)
            snapshot = self._snapshots.by_queue.get((topic, queue_id)) if self._snapshots.by_queue else None
            if queue is None or snapshot is None:
                result = self._reader.read(queue, offset, max_messages, max_bytes, tag_codes, only)
                if self.queues.older is not None and result.status is ReadStatus.OFFSET_TOO_SMALL:
                    wanted = WantedRead(topic, queue_id, offset, max_messages, max_bytes, tag_codes, only)
                    result = self.queues.older.read(wanted, result)
                    self._read_messages += result.message_count
                    self._read_bytes += result.size_bytes
                    return result
            else:
                limits = max_messages, max_bytes
                result = self._compacted_reader.read(queue, snapshot, offset, limits, tag_codes, only)
        if (
            queue is not None
            and self._asks_others
            and result.views
            and (result.suggest_replica or peek_log_offset(result.views[0]) < self.recovery.log_end)
        ):
            # It comes from the disk: this process did not write it, or not lately.
            result = self._reader.without_damaged(result, offset)
        self._read_messages += result.message_count
        self._read_bytes += result.size_bytes
        return result

    # The rest

    def copy_compacted(self, topic: str, queue_id: int) -> SnapshotCopy:
        """The part of a compacted queue that this store lacks, to be filled with a master's messages."""
        queue = self._queues.find(topic, queue_id)
        return SnapshotCopy(self.compacting, (topic, queue_id), queue, self._log.start_offset)

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
        self._reader.apply_settings(settings)
        self._compacted_reader.apply_settings(settings)
        self.log.max_query_messages = settings.max_query_messages
        self.flushes.apply_settings(settings)
        self._upkeep.apply_settings(settings)
        self.compacting.apply_settings(settings)

    @property
    def settings(self) -> StoreSettings:
        return self._settings

    @property
    def faults(self) -> Fault:
        """Why the store refuses messages; reads continue."""
        return self._faults.present

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
