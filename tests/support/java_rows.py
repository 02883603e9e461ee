"""Messages as Java's client prints them, beside the same messages as our store reads them."""

from __future__ import annotations

from typing import Any

from tests.support.small_stores import read_queue

from pyromq.protocol.message import open_message
from pyromq.protocol.record import StoredMessage, SysFlag
from pyromq.store.message_store import MessageStore

Row = dict[str, Any]


def row_of(stored: StoredMessage) -> Row:
    """What Java's client would print of this record."""
    [message] = open_message(stored)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.log_offset,
        "storeSize": stored.size_bytes,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "body": message.body,
        "properties": message.property_map(),
    }


def java_row(row: Row) -> Row:
    """The row without what differs between Java's clients: 4.9 leaves the flag of a body it has unpacked."""
    return {**row, "sysFlag": row["sysFlag"] & ~SysFlag.COMPRESSED}


def rows_of(store: MessageStore, topic: str) -> list[Row]:
    """Every message of a topic, queue after queue."""
    return [row_of(stored) for queue in store.queues.ids(topic) for stored in read_queue(store, topic, queue)]
