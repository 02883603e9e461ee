"""Which queue a message goes to: that of its sharding key, or each in turn. Brokers that were slow or failed
are avoided for a while, longer the slower they were.

Pure: callers pass the time, in milliseconds.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyromq.chance import randrange
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.java_hash import java_string_hash

LATENCIES_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
PAUSES_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
"""java: a broker with this latency is avoided for the time at the same index."""

FAILURE_COUNTS_AS_MS: Final = 10000

_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = 2**64 - 1


def pause_ms(latency_ms: float) -> int:
    """How long a broker with this latency is avoided."""
    index = bisect_right(LATENCIES_MS, latency_ms) - 1
    return PAUSES_MS[index] if index >= 0 else 0


@dataclass(slots=True)
class _Fault:
    until_ms: float
    is_reachable: bool


class BrokerFaults:
    def __init__(self) -> None:
        self.known: dict[str, _Fault] = {}

    def __repr__(self) -> str:
        return f"<BrokerFaults {sorted(self.known)}>"

    @property
    def is_empty(self) -> bool:
        return not self.known

    def answered(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        if latency_ms < LATENCIES_MS[0] and not self.known:
            return
        self._note(broker_name, pause_ms(latency_ms), now_ms, is_reachable=True)

    def failed(self, broker_name: str, now_ms: float, *, is_reachable: bool) -> None:
        self._note(broker_name, pause_ms(FAILURE_COUNTS_AS_MS), now_ms, is_reachable=is_reachable)

    def _note(self, broker_name: str, for_ms: int, now_ms: float, *, is_reachable: bool) -> None:
        # A broker that is gone never answers again, and would keep quick sends off for good.
        for name in [name for name, fault in self.known.items() if fault.until_ms <= now_ms]:
            del self.known[name]
        fault = self.known.get(broker_name)
        if fault is None:
            if for_ms > 0:
                self.known[broker_name] = _Fault(now_ms + for_ms, is_reachable)
            return
        # java: a quick answer does not shorten a pause
        fault.until_ms = max(fault.until_ms, now_ms + for_ms)
        fault.is_reachable = is_reachable

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        fault = self.known.get(broker_name)
        return fault is None or fault.until_ms <= now_ms

    def is_reachable(self, broker_name: str) -> bool:
        fault = self.known.get(broker_name)
        return fault is None or fault.is_reachable


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of a sharding key; the same as long as the number of queues is."""
    # java: the remainder has the sign of the hash, and its absolute value is taken
    return queues[abs(java_string_hash(key)) % len(queues)]


def jump_hash(key: int, buckets: int) -> int:
    """Lamping and Veach's consistent hash: a new bucket takes over its share of keys and moves no other."""
    state = key & _MASK
    bucket, jump = 0, 0
    while jump < buckets:
        bucket = jump
        state = (state * _MULTIPLIER + 1) & _MASK
        jump = int((bucket + 1) / (((state >> 33) + 1) / 2**31))
    return bucket


def queue_of_lite_topic(queues: Sequence[MessageQueue], lite_topic: str) -> MessageQueue:
    """java: the queue by Apache's rule; so a lite topic is on one broker while the queues are the same"""
    return queues[jump_hash(java_string_hash(lite_topic), len(queues))]


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
        """The turn that `choose` takes modulo the queues; None while it must look at the brokers."""
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
