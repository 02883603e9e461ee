"""Changes of receipts, found again in the log after a restart or by a new master.

A change writes two records side by side: the checkpoint of the new receipt, and the acknowledgement of the
old one, which waits among the timers until that would have ended. java: other brokers see a pop and an
acknowledgement like any other
"""

import logging
from collections.abc import Iterator
from typing import Final

from pyromq.broker.flow.popping.changed_receipts import ChangedReceipts
from pyromq.broker.flow.popping.revive_log import ACK_TAG, CHECKPOINT_TAG
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import json_body, names
from pyromq.protocol import properties as props
from pyromq.protocol.pop_receipt import PopReceipt, retry_mark_of
from pyromq.protocol.pop_records import AckMsg, PopCheckPoint
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_MAX_WAITING: Final = 50_000
_MAX_DELIVERED: Final = 5_000
"""How many records of the timers' topic, and of each queue of the revive log, are looked at."""
_MAX_BYTES: Final = 8192
"""Other timers may be large."""
_CHECKPOINT: Final = f"\x01{CHECKPOINT_TAG}\x02".encode()
_ACK: Final = f"\x01{ACK_TAG}\x02".encode()


def find_changes(store: MessageStore, revive_topic: str, changed: ChangedReceipts) -> None:
    """Put the changes of receipts whose time is not over into the table."""
    now_ms = store.time.now_ms()
    checkpoints: dict[int, StoredMessage] = {}
    """By the place in the log behind them."""
    acks: list[StoredMessage] = []
    for message, size in _records(store, revive_topic):
        if message.get(props.TAGS) == CHECKPOINT_TAG:
            checkpoints[message.log_offset + size] = message
        else:
            acks.append(message)
    for ack in sorted(acks, key=lambda each: each.log_offset):
        checkpoint = checkpoints.get(ack.log_offset)
        if checkpoint is not None:
            _apply(checkpoint, ack, changed, now_ms)
    if changed:
        _log.info("receipts that were replaced are known again count=%d", len(changed))


def _records(store: MessageStore, revive_topic: str) -> Iterator[tuple[StoredMessage, int]]:
    """Checkpoints and single acknowledgements; a checkpoint that is due soon does not wait."""
    queues = [(names.TIMER_TOPIC, 0, _MAX_WAITING)]
    queues += [(revive_topic, queue_id, _MAX_DELIVERED) for queue_id in store.queues.ids(revive_topic)]
    for topic, queue_id, limit in queues:
        end = store.queues.max_offset(topic, queue_id)
        for offset in range(max(store.queues.min_offset(topic, queue_id), end - limit), end):
            place = store.queues.log_offset(topic, queue_id, offset)
            record = None if place is None else store.log.record_at(place)
            if record is None or len(record) > _MAX_BYTES:
                continue
            raw = bytes(record)
            if _CHECKPOINT in raw or (_ACK in raw and topic == names.TIMER_TOPIC):
                try:
                    yield decode_record(record), len(raw)
                except RemoteProtocolError:
                    continue


def _time_of(message: StoredMessage) -> int:
    value = message.get(props.TIMER_DELIVER_MS) or ""
    return int(value) if value.isdecimal() else 0


def _apply(checkpoint: StoredMessage, ack: StoredMessage, changed: ChangedReceipts, now_ms: int) -> None:
    try:
        new = json_body.decode(bytes(checkpoint.body), PopCheckPoint)
        old = json_body.decode(bytes(ack.body), AckMsg)
    except RemoteProtocolError:
        return
    topic, group, offset = new.topic or "", new.consumer_group or "", new.start_offset
    of_new = new.topic, new.consumer_group, new.queue_id, offset, new.num
    if of_new != (old.topic, old.consumer_group, old.queue_id, old.ack_offset, 1):
        return
    revive_queue_id = int(ack.get(props.REAL_QUEUE_ID) or 0)
    mark, broker = retry_mark_of(topic), new.broker_name or ""
    invisible_ms = _time_of(ack) - old.pop_time
    before = PopReceipt(
        old.start_offset, old.pop_time, invisible_ms, revive_queue_id, mark, broker, new.queue_id
    )
    after = PopReceipt(
        offset, new.pop_time, new.invisible_time, revive_queue_id, mark, broker, new.queue_id, offset
    )
    changed.replace(topic, group, offset, before, after, now_ms)
