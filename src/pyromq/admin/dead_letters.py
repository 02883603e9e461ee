"""Dead letters: messages that a group gave up on, sent again to their topic or to the group alone."""

from pyromq.admin import messages
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.messages import Receipt
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.dead_letters import origin_id, origin_topic, sent_again
from pyromq.protocol.record import StoredMessage

__all__ = ["origin_id", "origin_topic", "resend"]


async def resend(cluster: Cluster, group: str, letter: StoredMessage, *, to_group: bool) -> Receipt:
    """Send a dead letter again as a new message: to its topic, which all groups read, or to this group
    alone."""
    topic = origin_topic(letter)
    if not topic:
        raise NotFound(
            f"the dead letter at offset {letter.queue_offset} does not say which topic it was sent to"
        )
    own = {props.TAGS: letter.get(props.TAGS), props.KEYS: letter.get(props.KEYS)}
    properties = {**sent_again(letter, letter.property_map(), to_group=to_group), **own}
    to = names.retry_topic(group) if to_group else topic
    return await messages.send_with(cluster, to, letter.body, properties)
