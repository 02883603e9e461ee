"""Dead letters: messages that a group gave up on, sent again to their topic or to the group alone."""

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.messages import Receipt
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.record import StoredMessage

_OF_ITS_LIFE = frozenset(
    (
        props.CONSUME_START_TIME,
        props.DELAY,
        props.DLQ_ORIGIN_MESSAGE_ID,
        props.DLQ_ORIGIN_TOPIC,
        props.KEYS,
        props.MAX_OFFSET,
        props.MAX_RECONSUME_TIMES,
        props.MIN_OFFSET,
        props.ORIGIN_MESSAGE_ID,
        props.REAL_QUEUE_ID,
        props.REAL_TOPIC,
        props.RECONSUME_TIME,
        props.RECORD_CRC,
        props.RETRY_TOPIC,
        props.TAGS,
        props.UNIQ_KEY,
        props.WAIT,
    )
)
"""Properties that tell of the letter's way here; the new message gets its own."""


def origin_topic(letter: StoredMessage) -> str:
    """The topic that the message was sent to first; empty if the letter does not say."""
    return letter.get(props.DLQ_ORIGIN_TOPIC) or letter.get(props.RETRY_TOPIC) or ""


def origin_id(letter: StoredMessage) -> str:
    return letter.get(props.DLQ_ORIGIN_MESSAGE_ID) or letter.get(props.ORIGIN_MESSAGE_ID) or ""


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
        properties |= {props.RETRY_TOPIC: topic, props.ORIGIN_MESSAGE_ID: origin_id(letter)}
    return await messages.send(
        cluster,
        names.retry_topic(group) if to_group else topic,
        letter.body,
        tags=letter.get(props.TAGS),
        keys=letter.get(props.KEYS),
        properties=properties,
    )
