"""Which queue a message goes to: each in turn, or the one of its message group.

java: groups are mapped by Apache's rule, so that both proxies of a mixed fleet choose the same queue.
"""

from itertools import zip_longest

from pyromq.cluster.routes import Route
from pyromq.cluster.sending.choice import jump_hash
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.java_hash import java_string_hash
from pyromq.proxy.codes import Code, Rejected


class _Turns:
    """The queues of a route, one broker after the other: a second attempt goes to another broker."""

    __slots__ = ("queues", "route", "turn")

    def __init__(self, route: Route, turn: int) -> None:
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in route.publish_queues:
            by_broker.setdefault(route.broker_of(queue), []).append(queue)
        rounds = zip_longest(*by_broker.values())
        self.route = route
        self.queues = [queue for each in rounds for queue in each if queue is not None]
        self.turn = turn

    def next(self) -> MessageQueue:
        self.turn = (self.turn + 1) % len(self.queues)
        return self.queues[self.turn]


class QueueChoice:
    def __init__(self) -> None:
        self._turns: dict[str, _Turns] = {}

    def choose(self, route: Route, message_group: str) -> MessageQueue:
        """Raises Rejected if no queue of the topic can be written."""
        queues = route.publish_queues
        if not queues:
            raise Rejected(Code.FORBIDDEN, f"no queue of the topic {route.topic} can be written")
        if message_group:  # or a lite topic
            return queues[jump_hash(java_string_hash(message_group), len(queues))]
        turns = self._turns.get(route.topic)
        if turns is None or turns.route is not route:
            turns = self._turns[route.topic] = _Turns(route, turns.turn if turns is not None else -1)
        return turns.next()
