"""How far groups have popped, although the saved offsets do not say so.

Offsets are written every few seconds, and checkpoints are in the log at once. With the offsets the broker
saves up to where they contain the checkpoints. After a crash, or as a new master, it applies the checkpoints
behind that: messages that were popped are not popped again, but revived unless a consumer acknowledges
them. Offsets that another broker wrote say nothing of this: there the times of the file and of the pops
decide. No group moves to where a group had popped in a topic that was deleted since.
"""

import logging
from collections.abc import Iterator
from typing import Final

from pyromq.broker.flow.popping.checkpoints import PopCheckpoint
from pyromq.broker.flow.popping.earlier_revivals import message_at
from pyromq.broker.flow.popping.revive_log import CHECKPOINT_TAG
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import json_body, names
from pyromq.protocol import properties as props
from pyromq.protocol.pop_records import PopCheckPoint
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_MAX_RECORDS: Final = 100_000
"""Some seconds of pops; with more of them messages are delivered twice."""
_WRITING_MS: Final = 1000
"""Pops made so shortly before a file was written may be missing in it."""


class PoppedOffsets:
    def __init__(self, store: MessageStore, offsets: OffsetTable, revive_topic: str) -> None:
        self._store = store
        self._offsets = offsets
        self._revive_topic = revive_topic

    @property
    def is_noted(self) -> bool:
        """Whether the offsets say which checkpoints they contain."""
        return self._offsets.query(names.REVIVE_GROUP, names.TIMER_TOPIC, 0) >= 0

    def note(self) -> None:
        """The offsets are about to be saved."""
        end = self._store.queues.next_offset(names.TIMER_TOPIC, 0)
        self._offsets.commit(names.REVIVE_GROUP, names.TIMER_TOPIC, 0, end)

    def restore(self) -> int:
        """Apply the checkpoints that the offsets do not contain; returns how many offsets moved."""
        moved = 0
        contained_ms = -1 if self.is_noted else self._offsets.loaded_from_ms - _WRITING_MS
        for checkpoint in self._checkpoints():
            info = checkpoint.info
            if info.pop_time < contained_ms:
                continue
            topic, group = info.topic or "", info.consumer_group or ""
            popped = checkpoint.offsets[-1] + 1 if checkpoint.offsets else 0
            if self._offsets.query(group, topic, info.queue_id) < popped:
                self._offsets.commit(group, topic, info.queue_id, popped)
                moved += 1
        if moved:
            _log.info("offsets moved to where groups had popped count=%d", moved)
        return moved

    def _checkpoints(self) -> Iterator[PopCheckpoint]:
        """Those that wait in the timers' topic, and those that did not have to wait or do so no longer."""
        store, offsets, timers = self._store, self._offsets, names.TIMER_TOPIC
        begins = {(timers, 0): max(offsets.query(names.REVIVE_GROUP, timers, 0), 0)}
        for queue_id in store.queues.ids(self._revive_topic):
            progress = offsets.query(names.REVIVE_GROUP, self._revive_topic, queue_id)
            begins[self._revive_topic, queue_id] = progress + 1
        for (topic, queue_id), begin in begins.items():
            end = store.queues.max_offset(topic, queue_id)
            for offset in range(max(begin, end - _MAX_RECORDS), end):
                checkpoint = self._checkpoint_at(topic, queue_id, offset)
                if checkpoint is not None:
                    yield checkpoint

    def _checkpoint_at(self, topic: str, queue_id: int, offset: int) -> PopCheckpoint | None:
        message = message_at(self._store, topic, queue_id, offset)
        if message is None or message.get(props.TAGS) != CHECKPOINT_TAG:
            return None
        if topic != self._revive_topic and message.get(props.REAL_TOPIC) != self._revive_topic:
            return None
        if self.is_noted and message.get(props.TIMER_DEQUEUE_MS) is not None:
            return None  # it waited among the timers: if it is not found there, the offsets contain it
        try:
            info = json_body.decode(bytes(message.body), PopCheckPoint)
        except RemoteProtocolError:
            return None
        if self._store.topics.is_deleted(info.topic or "", message.log_offset):
            return None
        return PopCheckpoint(offset, info)
