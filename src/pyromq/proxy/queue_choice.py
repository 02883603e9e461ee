"""Which queue a message goes to: each in turn, or the one of its message group.

java: groups are mapped by Apache's rule, so that both proxies of a mixed fleet choose the same queue.
"""

from pyromq.cluster.routes import Route
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.java_hash import java_string_hash
from pyromq.proxy.codes import Code, Rejected

_MULTIPLIER = 2862933555777941757
_MASK = 2**64 - 1


def jump_hash(key: int, buckets: int) -> int:
    """Lamping and Veach's consistent hash: a new bucket takes over its share of keys and moves no other."""
    state = key & _MASK
    bucket, jump = 0, 0
    while jump < buckets:
        bucket = jump
        state = (state * _MULTIPLIER + 1) & _MASK
        jump = int((bucket + 1) / (((state >> 33) + 1) / 2**31))
    return bucket


class QueueChoice:
    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def choose(self, route: Route, message_group: str) -> MessageQueue:
        """Raises Rejected if no queue of the topic can be written."""
        queues = route.publish_queues
        if not queues:
            raise Rejected(Code.FORBIDDEN, f"no queue of the topic {route.topic} can be written")
        if message_group:
            return queues[jump_hash(java_string_hash(message_group), len(queues))]
        turn = self._turns[route.topic] = (self._turns.get(route.topic, -1) + 1) % len(queues)
        return queues[turn]
