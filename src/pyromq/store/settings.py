"""The settings of a message store: Apache's keys under Apache's names, and a few of ours."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyromq.config.kinds import NOT_NEGATIVE, POSITIVE, Millis, Seconds, SizeBytes, at_least, between
from pyromq.config.options import setting
from pyromq.config.settings import Settings
from pyromq.errors import ConfigError
from pyromq.store.flush_policy import FLUSH_POLICIES, FlushDiskType, FlushPolicy

_PERCENT = between(1, 100)
_KIB = 1024
_MIB = 1024 * _KIB
_HOURS = frozenset(text for hour in range(24) for text in (f"{hour}", f"{hour:02}"))
DEFAULT_DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class StoreSettings(Settings):
    PART: ClassVar[str] = "store"

    # Where
    root: Path = setting(Path("~/store"), "Directory of the store.", key="storePathRootDir")
    log_directory: Path | None = setting(None, "Directory of the commit log. Default: `commitlog` in the directory of the store.", key="storePathCommitLog")

    # Sizes
    log_segment_bytes: SizeBytes = setting(1024 * _MIB, "Size of one commit-log file.", key="mappedFileSizeCommitLog", check=at_least(1024))
    queue_file_bytes: SizeBytes = setting(6_000_000, "Size of one consume-queue file, rounded up to whole units of 20 bytes.", key="mappedFileSizeConsumeQueue", check=at_least(20))
    index_slots: int = setting(5_000_000, "Number of hash slots in one index file.", key="maxHashSlotNum", check=POSITIVE)
    index_units: int = setting(20_000_000, "Maximum number of entries in one index file.", key="maxIndexNum", check=at_least(2))
    index_enabled: bool = setting(True, "Keep an index, so that messages can be found by key.", key="messageIndexEnable")
    preallocate: bool = setting(True, "Reserve the disk blocks of a commit-log file when it is created.", key="preallocateCommitLog")
    warm_up: bool = setting(False, "Fill a new commit-log file with zeros before it is used.", key="warmMapedFileEnable")
    light_queues: bool = setting(False, "Allow light queues, whose names begin with `%LMQ%`. Both this and `enableMultiDispatch` must be true. The first start builds them from the whole commit log.", key="enableLmq")
    multi_dispatch: bool = setting(False, "Add a message with the property `INNER_MULTI_DISPATCH` to the light queues that it names.", key="enableMultiDispatch")
    light_queue_quota: bool = setting(False, "Refuse messages that would make more light queues than `maxLmqConsumeQueueNum`.", key="enableLmqQuota", mutable=True)
    max_light_queues: int = setting(20_000, "Maximum number of light queues, if `enableLmqQuota` is true.", key="maxLmqConsumeQueueNum", mutable=True, check=NOT_NEGATIVE)
    mapped_queue_files: int = setting(0, "Maximum number of consume-queue files mapped at the same time. 0 means half of the process's limit of open files.", check=NOT_NEGATIVE)

    # Limits
    max_message_bytes: SizeBytes = setting(4 * _MIB, "Maximum size of a message body.", key="maxMessageSize", mutable=True, check=at_least(10))
    max_pending_dispatch: int = setting(100_000, "Maximum number of appended messages that wait in memory for dispatch when the compiled core is missing. Above it, dispatch reads the log.", check=POSITIVE)

    # Flushing
    flush_disk_type: FlushDiskType = setting("ASYNC_FLUSH", "When a producer gets its answer. `ASYNC_FLUSH`: when the message is in the page cache. `SYNC_FLUSH`: when it is on disk.")
    flush_interval_ms: Millis = setting(500, "How often the commit log is flushed.", key="flushIntervalCommitLog", mutable=True, check=POSITIVE)
    flush_least_pages: int = setting(0, "Minimum number of dirty 4 KiB pages before the commit log is flushed. With Apache's default of 4, a slow log stays unflushed for up to `flushCommitLogThoroughInterval`.", key="flushCommitLogLeastPages", mutable=True, check=NOT_NEGATIVE)
    flush_thorough_interval_ms: Millis = setting(10_000, "How often the commit log is flushed regardless of `flushCommitLogLeastPages`.", key="flushCommitLogThoroughInterval", mutable=True, check=POSITIVE)
    queue_flush_interval_ms: Millis = setting(1000, "How often consume queues, index and checkpoint are flushed. Flushes are less frequent after one of more than 1,000 files.", key="flushIntervalConsumeQueue", mutable=True, check=POSITIVE)
    queue_flush_least_pages: int = setting(2, "Minimum number of dirty 4 KiB pages before the consume queues are flushed.", key="flushConsumeQueueLeastPages", mutable=True, check=NOT_NEGATIVE)
    queue_flush_thorough_interval_ms: Millis = setting(60_000, "How often the consume queues are flushed regardless of `flushConsumeQueueLeastPages`.", key="flushConsumeQueueThoroughInterval", mutable=True, check=POSITIVE)
    sync_flush_timeout_ms: Millis = setting(5000, "How long a producer waits for the flush of its message.", key="syncFlushTimeout", mutable=True, check=POSITIVE)

    # Reading
    max_batch_in_memory: int = setting(32, "Maximum number of messages in one read near the end of the log.", key="maxTransferCountOnMessageInMemory", mutable=True, check=POSITIVE)
    max_batch_bytes_in_memory: SizeBytes = setting(256 * _KIB, "Maximum number of bytes in one read near the end of the log.", key="maxTransferBytesOnMessageInMemory", mutable=True, check=POSITIVE)
    max_batch_on_disk: int = setting(8, "Maximum number of messages in one read far behind the end of the log.", key="maxTransferCountOnMessageInDisk", mutable=True, check=POSITIVE)
    max_batch_bytes_on_disk: SizeBytes = setting(64 * _KIB, "Maximum number of bytes in one read far behind the end of the log.", key="maxTransferBytesOnMessageInDisk", mutable=True, check=POSITIVE)
    in_memory_ratio: int = setting(40, "Percentage of the machine's memory that is assumed to hold the end of the log.", key="accessMessageInMemoryMaxRatio", mutable=True, check=_PERCENT)
    read_ahead: bool = setting(True, "Let the system read ahead in the commit log. Set it to false for scattered reads of old messages.", key="dataReadAheadEnable", mutable=True)
    max_filter_bytes: SizeBytes = setting(16_000, "Minimum number of bytes of consume-queue units that one filtered read examines.", key="maxFilterMessageSize", mutable=True, check=POSITIVE)
    max_query_messages: int = setting(64, "Maximum number of messages in the answer to a query by key.", key="maxMsgsNumBatch", mutable=True, check=POSITIVE)
    max_unique_key_messages: int = setting(32, "Maximum number of messages in the answer to a query by unique key.", key="defaultQueryMaxNum", mutable=True, check=POSITIVE)
    message_delay_levels: str = setting(DEFAULT_DELAYS, "Delay of each delay level, starting with level 1.", key="messageDelayLevel")

    # Compacted topics
    compaction_enabled: bool = setting(True, "Compact the topics with `cleanup.policy=COMPACTION`. If false, no such topic can be created, and messages of existing ones expire like all others.", key="enableCompaction")
    compaction_interval_ms: Millis = setting(900_000, "How often the broker looks for compacted queues with many new messages.", key="compactionScheduleInternal", mutable=True, check=POSITIVE)
    max_offset_map_bytes: SizeBytes = setting(100 * _MIB, "Memory for the keys of new messages while a queue is compacted, about 300 bytes each. A queue with more new keys is compacted in several rounds.", key="maxOffsetMapSize", mutable=True, check=POSITIVE)
    compaction_removals_kept_hours: int = setting(24, "How many hours a message without a body, which removes its key, is kept for readers in a compacted topic.", key="compactionRemovalReservedTime", mutable=True, check=NOT_NEGATIVE)

    # Timed messages
    timer_wheel: bool = setting(True, "Accept messages with a delivery time.", key="timerWheelEnable")
    timer_precision_ms: Millis = setting(1000, "Width of a slot of the timer wheel: 100, 200, 500 or 1000. Other values are rounded down. Delivery is exact to the millisecond in any case. Change it only when no timed message is waiting.", key="timerPrecisionMs", check=POSITIVE)
    timer_max_delay_seconds: Seconds = setting(3 * 86_400, "Maximum time between a send and the requested delivery.", key="timerMaxDelaySec", mutable=True, check=POSITIVE)
    timer_wheel_slots: int = setting(2 * 7 * 86_400, "Number of slots of the timer wheel, 32 bytes each. A store keeps the number it was created with. Apache's brokers support only the default.", key="timerWheelSlots", check=at_least(128))
    timer_roll_window_slots: int = setting(2 * 86_400, "A message that waits longer than this many slots is stored again on the way, so that its commit-log file can expire.", key="timerRollWindowSlot", check=POSITIVE)
    timer_log_file_bytes: SizeBytes = setting(100 * _MIB, "Size of one timer-log file.", key="mappedFileSizeTimerLog", check=at_least(1024))
    timer_flush_interval_ms: Millis = setting(1000, "How often the files of timed messages are flushed.", key="timerFlushIntervalMs", mutable=True, check=POSITIVE)
    timer_max_per_slot: int = setting(2**31 - 1, "Messages per slot above which the broker refuses some at random. Above twice this number, it refuses all.", key="timerCongestNumEachSlot", mutable=True, check=POSITIVE)
    timer_stop_enqueue: bool = setting(False, "Accept timed messages, but do not add them to the timer wheel.", key="timerStopEnqueue", mutable=True)
    timer_stop_dequeue: bool = setting(False, "Do not deliver timed messages.", key="timerStopDequeue", mutable=True)

    # Cleaning
    file_reserved_hours: int = setting(72, "Age in hours at which commit-log files are deleted.", key="fileReservedTime", mutable=True, check=NOT_NEGATIVE)
    delete_when: str = setting("04", "Hours of the day at which expired files are deleted, separated by semicolons.", mutable=True)
    delete_batch_max: int = setting(10, "Maximum number of commit-log files deleted in one round.", key="deleteFileBatchMax", mutable=True, check=POSITIVE)
    clean_interval_ms: Millis = setting(10_000, "How often the broker looks for files to delete.", key="cleanResourceInterval", mutable=True, check=POSITIVE)
    force_delete_after_ms: Millis = setting(120_000, "How long the deletion of a file waits for its readers.", key="destroyMapedFileIntervalForcibly", mutable=True, check=NOT_NEGATIVE)
    disk_max_used_percent: int = setting(75, "Disk usage in percent above which expired files are deleted at any hour.", key="diskMaxUsedSpaceRatio", mutable=True, check=between(10, 95))
    disk_clean_forcibly_percent: int = setting(85, "Disk usage in percent above which the oldest files are deleted even if they have not expired.", key="diskSpaceCleanForciblyRatio", mutable=True, check=_PERCENT)
    disk_warning_percent: int = setting(90, "Disk usage in percent above which the broker also refuses messages.", key="diskSpaceWarningLevelRatio", mutable=True, check=_PERCENT)
    clean_forcibly: bool = setting(True, "Allow files to be deleted before they expire when disk space is low.", key="cleanFileForciblyEnable", mutable=True)
    keep_unread: bool = setting(False, "Keep messages that a consumer group has not read when disk space is low. The broker then refuses new messages instead.", key="keepUnreadMessages", mutable=True)
    # fmt: on

    def verify_together(self) -> None:
        for hour in self.delete_when.split(";"):
            if hour.strip() not in _HOURS:
                raise ConfigError("deleteWhen", self.delete_when, "hours from 00 to 23, separated by ;")
        parse_delays(self.message_delay_levels)
        if self.log_directory is not None and "," in str(self.log_directory):
            # java: a comma separates several directories
            raise ConfigError("storePathCommitLog", str(self.log_directory), "one directory: the log is never in several")

    @property
    def has_light_queues(self) -> bool:
        # java: both
        return self.light_queues and self.multi_dispatch

    @property
    def queue_units_per_file(self) -> int:
        return -(-self.queue_file_bytes // 20)

    @property
    def flush_policy(self) -> FlushPolicy:
        return FLUSH_POLICIES[self.flush_disk_type]

    @property
    def timer_slot_ms(self) -> int:
        # java: rounded down to one of these
        return max((each for each in (200, 500, 1000) if each <= self.timer_precision_ms), default=100)

    @property
    def timer_window_slots(self) -> int:
        """How far ahead a message is put into the wheel at most."""
        # java: half of the wheel, less a minute
        limit = self.timer_wheel_slots // 2 - 60
        window = self.timer_roll_window_slots if 2 <= self.timer_roll_window_slots <= limit else limit
        # A message must be stored anew well before its log file expires.
        kept = self.file_reserved_hours * 3_600_000 // 2 // self.timer_slot_ms
        return min(window, kept) if kept else window

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delay of each level, level 1 first."""
        return parse_delays(self.message_delay_levels)


_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delays(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each[:-1]) * _UNIT_MS[each[-1]] for each in text.split())
    except (ValueError, KeyError):
        raise ConfigError("messageDelayLevel", text, "times like 1s 5s 10m 2h") from None
