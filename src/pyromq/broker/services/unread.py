"""Messages that consumer groups have not read when disk space is short: which must stay, and which were lost.

A group counts as long as it has offsets, with members or without. All offsets are looked at, in slices.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator

from pyromq.broker.tables.offsets import OffsetTable
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.retention import CleaningReport

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_MAX_NAMED = 10


class Unread:
    def __init__(self, store: MessageStore, offsets: OffsetTable, slices: Slices) -> None:
        self._store = store
        self._offsets = offsets
        self._slices = slices
        self._removals: asyncio.Queue[CleaningReport] = asyncio.Queue()
        self._told: dict[tuple[str, str, int], int] = {}
        """The first message that was left when a group's loss in a queue was last reported."""
        self._kept_because = ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(), name="unread messages")
            tasks.create_task(self._tell_losses(), name="lost messages")

    def cleaned(self, report: CleaningReport) -> None:
        """A round of cleaning is over."""
        if report.segments_removed:
            self._removals.put_nowait(report)
        settings = self._store.settings
        why = _why_kept(report, is_full=report.used_percent > settings.disk_clean_forcibly_percent)
        if why != self._kept_because:
            self._kept_because = why
            if why:
                _log.warning(
                    "the disk is %.0f %% full, and the oldest messages stay because %s: new messages are"
                    " refused above %d %%",
                    report.used_percent,
                    why,
                    settings.disk_warning_percent,
                )

    async def _keep(self) -> None:
        while True:
            settings = self._store.settings
            if settings.keep_unread and self._store.disk_used_ratio * 100 > settings.disk_max_used_percent:
                self._store.keep_unread_from(await self.first_place())
            await asyncio.sleep(_INTERVAL_S)

    async def first_place(self) -> int:
        """The log offset of the oldest message that a group has not read; the end of the log if none."""
        store = self._store
        first = store.log.end
        async for _, topic, queue_id, offset in self._positions():
            offset = max(offset, store.queues.min_offset(topic, queue_id))
            place = store.queues.log_offset(topic, queue_id, offset)
            if place is not None:
                first = min(first, place)
        return first

    async def _tell_losses(self) -> None:
        while True:
            report = await self._removals.get()
            if not report.is_forced:
                _log.info("expired log files removed count=%d", report.segments_removed)
                continue
            lost = await self._lost()
            named = ", ".join(f"{group} {count}" for group, count in lost.most_common(_MAX_NAMED))
            more = f" and {len(lost) - _MAX_NAMED} more groups" if len(lost) > _MAX_NAMED else ""
            _log.warning(
                "the disk is %.0f %% full: %d log files with messages that had not expired were deleted,"
                " log offsets %d to %d; messages lost by groups that had not read them: %s%s",
                report.used_percent,
                report.segments_removed,
                report.log_start,
                self._store.log.start,
                named or "none",
                more,
            )

    async def _lost(self) -> Counter[str]:
        """How many messages each group has lost since the last call."""
        lost: Counter[str] = Counter()
        async for group, topic, queue_id, offset in self._positions():
            first_left = self._store.queues.min_offset(topic, queue_id)
            where = group, topic, queue_id
            unread = max(offset, self._told.get(where, 0))
            if unread < first_left:
                lost[group] += first_left - unread
                self._told[where] = first_left
            elif offset > first_left:
                self._told.pop(where, None)
        return lost

    async def _positions(self) -> AsyncIterator[tuple[str, str, int, int]]:
        """Group, topic, queue and offset of everything that groups read."""
        for topic, group in self._offsets.pairs():
            await self._slices.wait_for_turn()
            for queue_id, offset in list(self._offsets.queues(group, topic).items()):
                yield group, topic, queue_id, offset


def _why_kept(report: CleaningReport, *, is_full: bool) -> str:
    if report.is_kept_for_groups:
        return (
            "a consumer group has not read them (keepUnreadMessages=true; `mqadmin consumerProgress` shows"
            " the lag of groups, and unused ones can be deleted)"
        )
    if is_full and report.is_kept_for_tier:
        return "the lake tier has no copy of them yet (tierRequired=true)"
    if is_full and report.is_kept_for_compaction:
        return "they are not in a snapshot of their compacted topic yet"
    return ""
