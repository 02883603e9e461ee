"""Requests about the broker as a whole: its settings, its runtime information, cleaning on demand."""

import logging
import shutil
from collections.abc import Callable, Sequence

from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock, elapsed_ms
from pyromq.config.live import LiveSettings
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import Refused
from pyromq.protocol import json_body
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import CURRENT_VERSION, ResponseCode, version_name
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.kv import KVTable
from pyromq.protocol.requests.settings import (
    ChangedSettingsAnswer,
    GetBrokerConfig,
    GetBrokerConfigAnswer,
    UpdateBrokerConfig,
)
from pyromq.protocol.requests.upkeep import (
    CleanExpiredConsumeQueues,
    DeleteExpiredCommitLog,
    SetCommitLogReadMode,
    SetCommitLogReadModeAnswer,
)
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.settings_requests import change_settings, settings_text
from pyromq.store.message_store import MessageStore
from pyromq.version import version

_log = logging.getLogger(__name__)

Figures = Callable[[], dict[str, str]]
"""One component's part of the runtime information."""

_READ_AHEAD = {0: "true", 1: "false"}
"""The numbers of madvise: normal reads, and random ones."""

_POOLS = ("send", "pull", "litePull", "query", "ack")
_APPEND_TIMES = (
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
)


class Brokers:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        figures: Sequence[Figures],
        settings_file: SettingsFile,
        clock: Clock,
    ) -> None:
        """`figures`: runtime information of other components."""
        self._live = live
        self._store = store
        self._topics = tables.topics
        self._figures = figures
        self._settings_file = settings_file
        self._clock = clock
        self._started_ms = elapsed_ms(clock)
        self._version = version()  # reading it takes some 20 ms

    # Settings

    @property
    def _configuration(self) -> BrokerConfiguration:
        return BrokerConfiguration(self._live.now, self._store.settings)

    @handles(GetBrokerConfig)
    def get_config(self, request: GetBrokerConfig, caller: Caller) -> GetBrokerConfigAnswer:
        return GetBrokerConfigAnswer(
            version=json_body.encode(self._topics.data_version).decode(),
            body=settings_text(self._configuration),
        )

    @handles(UpdateBrokerConfig)
    async def update_config(self, request: UpdateBrokerConfig, caller: Caller) -> ChangedSettingsAnswer:
        now, file = self._configuration, self._settings_file
        return await change_settings(now, self._apply_settings, file, request.body, caller)

    def _apply_settings(self, changed: BrokerConfiguration) -> None:
        self._store.apply_settings(changed.store)
        self._live.replace(changed.broker)

    @handles(SetCommitLogReadMode)
    def set_read_mode(self, request: SetCommitLogReadMode, caller: Caller) -> SetCommitLogReadModeAnswer:
        if request.mode not in _READ_AHEAD:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"READ_AHEAD_MODE {request.mode} is neither 0 nor 1"
            )
        value = _READ_AHEAD[request.mode]
        # java: until the next start only; the file keeps its value
        self._store.apply_settings(self._store.settings.updated({"dataReadAheadEnable": value}))
        _log.info("reading ahead in the log changed peer=%s dataReadAheadEnable=%s", caller.address, value)
        return SetCommitLogReadModeAnswer(remark=f"dataReadAheadEnable is {value}")

    # Runtime information

    @handles(GetBrokerRuntimeInfo)
    def runtime_info(self, request: GetBrokerRuntimeInfo, caller: Caller) -> BodyAnswer[KVTable]:
        return BodyAnswer(body=KVTable(table=self.all_figures()))

    def all_figures(self) -> dict[str, str]:
        table = self._own_figures()
        for figures in self._figures:
            table |= figures()
        return table

    def _own_figures(self) -> dict[str, str]:
        store = self._store.statistics()
        disk = shutil.disk_usage(self._store.paths.root)
        table = {
            "brokerActive": "true",
            "brokerPermission": str(self._live.now.broker_permission),
            "brokerVersionDesc": version_name(CURRENT_VERSION),
            "brokerVersion": str(CURRENT_VERSION),
            "pyromqVersion": self._version,
            "runtime": _duration(elapsed_ms(self._clock) - self._started_ms),
            "startAcceptSendRequestTimeStamp": str(self._live.now.start_accept_send_ms),
            "commitLogMinOffset": str(store.log_start_offset),
            "commitLogMaxOffset": str(store.log_end_offset),
            "commitLogDiskRatio": f"{store.disk_used_ratio:.4f}",
            "consumeQueueDiskRatio": f"{store.disk_used_ratio:.4f}",
            "commitLogDirCapacity": f"Total : {_size(disk.total)}, Free : {_size(disk.free)}.",
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._store.log.earliest_time()),
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "remainHowManyDataToFlush": _size(store.flush_behind_bytes),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
            # java: exporters fail without these; single appends are not timed here
            "putMessageDistributeTime": " ".join(f"[{times}]:0" for times in _APPEND_TIMES),
            "putMessageEntireTimeMax": "0",
            "getMessageEntireTimeMax": "0",
            "putLatency99": "0.0",
            "putLatency999": "0.0",
        }
        # java: tools expect these; there are no thread pools here, so nothing waits for one
        for pool in _POOLS:
            table[f"{pool}ThreadPoolQueueSize"] = "0"
            table[f"{pool}ThreadPoolQueueCapacity"] = "0"
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return table

    # Cleaning

    @handles(DeleteExpiredCommitLog)
    def delete_expired(self, request: DeleteExpiredCommitLog, caller: Caller) -> None:
        report = self._store.clean(on_demand=True)
        _log.info("expired files deleted by=%s segments=%d", caller.address, report.segments_removed)

    @handles(CleanExpiredConsumeQueues)
    def clean_queues(self, request: CleanExpiredConsumeQueues, caller: Caller) -> None:
        self._store.clean()


def _duration(milliseconds: int) -> str:
    """java: tools parse this text."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} PiB"
