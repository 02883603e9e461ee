"""Which queue a message goes to: the next one, that of its sharding key, or one the application chose."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyromq.chance import randrange
from pyromq.client.fault_avoidance import BrokerFaults
from pyromq.client.values import Message
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.java_hash import java_string_hash

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses one of the queues of a topic for a message."""


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of a sharding key; the same as long as the number of queues is."""
    # java: the remainder has the sign of the hash, and its absolute value is taken
    return queues[abs(java_string_hash(key)) % len(queues)]


class RoundRobin:
    """One queue after the other, for each topic; avoids brokers with faults.

    Without `faults` it avoids only the broker that has just failed.
    """

    def __init__(self, faults: BrokerFaults | None, random_below: Callable[[int], int] = randrange) -> None:
        self._faults = faults
        self._random_below = random_below
        self.turns: dict[str, int] = {}
        """By topic: what `choose` takes modulo the number of queues next."""

    def __repr__(self) -> str:
        return f"<RoundRobin topics={len(self.turns)} {self._faults!r}>"

    def next_turn(self, topic: str) -> int | None:
        """What `choose` takes modulo the number of queues; None while it must look at the brokers."""
        if self._faults is not None and not self._faults.is_empty:
            return None
        turn = self.turns.get(topic)
        if turn is None:
            turn = self._random_below(1 << 16)
        self.turns[topic] = turn + 1
        return turn

    def choose(
        self, queues: Sequence[MessageQueue], now_ms: float, avoid_broker: str | None = None
    ) -> MessageQueue:
        topic = queues[0].topic
        start = self.turns.get(topic)
        if start is None:
            start = self._random_below(1 << 16)
        faults = self._faults
        count = len(queues)
        if avoid_broker is None and (faults is None or faults.is_empty):
            self.turns[topic] = start + 1
            return queues[start % count]
        for is_good in self._wishes(now_ms, avoid_broker):
            for step in range(count):
                queue = queues[(start + step) % count]
                if is_good(queue.broker_name):
                    self.turns[topic] = start + step + 1
                    return queue
        self.turns[topic] = start + 1
        return queues[start % count]

    def _wishes(self, now_ms: float, avoid_broker: str | None) -> list[Callable[[str], bool]]:
        """Conditions for a broker, the strictest first."""
        faults = self._faults
        wishes: list[Callable[[str], bool]] = []
        if faults is not None:
            wishes.append(lambda name: name != avoid_broker and faults.is_available(name, now_ms))
            wishes.append(lambda name: name != avoid_broker and faults.is_reachable(name))
        wishes.append(lambda name: name != avoid_broker)
        return wishes
