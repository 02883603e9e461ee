"""How far groups have popped, although the saved offsets do not say so.

Offsets are written every few seconds, and checkpoints are in the log at once. With the offsets the broker
saves up to where they contain the checkpoints. After a crash, or as a new master, it applies the checkpoints
behind that: messages that were popped are not popped again, but revived if nobody acknowledges them.
"""

import logging
from typing import Final

from pyromq.broker.flow.popping.checkpoints import Checkpoint
from pyromq.broker.flow.popping.revive_log import CHECKPOINT_TAG
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import json_body, names
from pyromq.protocol import properties as props
from pyromq.protocol.bodies.popping import PopCheckPoint
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_MAX_RECORDS: Final = 100_000
"""Some seconds of pops; with more of them messages are delivered twice."""


class PoppedOffsets:
    def __init__(self, store: MessageStore, offsets: OffsetTable, revive_topic: str) -> None:
        self._store = store
        self._offsets = offsets
        self._revive_topic = revive_topic

    def note(self) -> None:
        """The offsets are about to be saved."""
        end = self._store.next_offset(names.TIMER_TOPIC, 0)
        self._offsets.commit(names.REVIVE_GROUP, names.TIMER_TOPIC, 0, end)

    def restore(self) -> int:
        """Apply the checkpoints that the offsets do not contain; returns how many offsets moved."""
        begin = self._offsets.query(names.REVIVE_GROUP, names.TIMER_TOPIC, 0)
        end = self._store.max_offset(names.TIMER_TOPIC, 0)
        if begin < 0:
            return 0
        moved = 0
        for offset in range(max(begin, end - _MAX_RECORDS), end):
            checkpoint = self._checkpoint_at(offset)
            if checkpoint is None or not checkpoint.offsets:
                continue
            info = checkpoint.info
            topic, group = info.topic or "", info.consumer_group or ""
            popped = checkpoint.offsets[-1] + 1
            if self._offsets.query(group, topic, info.queue_id) < popped:
                self._offsets.commit(group, topic, info.queue_id, popped)
                moved += 1
        if moved:
            _log.info("offsets moved to where groups had popped count=%d", moved)
        return moved

    def _checkpoint_at(self, offset: int) -> Checkpoint | None:
        place = self._store.log_offset(names.TIMER_TOPIC, 0, offset)
        record = None if place is None else self._store.record_at(place)
        if record is None:
            return None
        try:
            message = decode_record(record)
            if (
                message.get(props.REAL_TOPIC) != self._revive_topic
                or message.get(props.TAGS) != CHECKPOINT_TAG
            ):
                return None
            return Checkpoint(offset, json_body.decode(bytes(message.body), PopCheckPoint))
        except RemoteProtocolError:
            return None
