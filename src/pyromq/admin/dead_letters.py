"""Dead letters: messages that a group gave up on, sent again to their topic or to the group alone."""

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.messages import Receipt
from pyromq.protocol import names
from pyromq.protocol.properties import (
    CONSUME_START_TIME,
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    KEYS,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RECORD_CRC,
    RETRY_TOPIC,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from pyromq.protocol.record import StoredMessage

_OF_ITS_LIFE = frozenset(
    (
        CONSUME_START_TIME,
        DELAY,
        DLQ_ORIGIN_MESSAGE_ID,
        DLQ_ORIGIN_TOPIC,
        KEYS,
        MAX_OFFSET,
        MAX_RECONSUME_TIMES,
        MIN_OFFSET,
        ORIGIN_MESSAGE_ID,
        REAL_QUEUE_ID,
        REAL_TOPIC,
        RECONSUME_TIME,
        RECORD_CRC,
        RETRY_TOPIC,
        TAGS,
        UNIQ_KEY,
        WAIT,
    )
)
"""Properties that tell of the letter's way here; the new message gets its own."""


def origin_topic(letter: StoredMessage) -> str:
    """The topic that the message was sent to first; empty if the letter does not say."""
    return letter.get(DLQ_ORIGIN_TOPIC) or letter.get(RETRY_TOPIC) or ""


def origin_id(letter: StoredMessage) -> str:
    return letter.get(DLQ_ORIGIN_MESSAGE_ID) or letter.get(ORIGIN_MESSAGE_ID) or ""


async def resend(cluster: Cluster, group: str, letter: StoredMessage, *, to_group: bool) -> Receipt:
    """Send a dead letter again as a new message: to its topic, which all groups read, or to this group
    alone."""
    topic = origin_topic(letter)
    if not topic:
        raise NotFound(
            f"the dead letter at offset {letter.queue_offset} does not say which topic it was sent to"
        )
    properties = {name: value for name, value in letter.property_map().items() if name not in _OF_ITS_LIFE}
    if to_group:
        properties |= {RETRY_TOPIC: topic, ORIGIN_MESSAGE_ID: origin_id(letter)}
    return await messages.send(
        cluster,
        names.retry_topic(group) if to_group else topic,
        letter.body,
        tags=letter.get(TAGS),
        keys=letter.get(KEYS),
        properties=properties,
    )
