"""How large messages are that a query has yet to read: a small sample now and then, where it is behind."""

import logging
from collections.abc import Callable, Mapping

from pyromq.clock import Clock
from pyromq.errors import PyroError
from pyromq.spark.queues import Queue

_log = logging.getLogger(__name__)

FRESH_S = 10.0
"""A sample costs a request; sizes change slowly."""


class RecordSizes:
    """The mean size by topic, as last measured."""

    def __init__(self, measure: Callable[[Queue, int], int], clock: Clock) -> None:
        self._measure = measure
        self._clock = clock
        self._sizes: dict[str, int] = {}
        self._measured_at: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<RecordSizes {self._sizes}>"

    def behind(self, reached: Mapping[Queue, int], ends: Mapping[Queue, int]) -> dict[str, int]:
        """The sizes in topics that are not read up to their ends."""
        gaps = {queue: end - reached.get(queue, 0) for queue, end in ends.items()}
        # The last one of a topic wins: its queue with most to read.
        furthest = {queue.topic: queue for queue in sorted(gaps, key=gaps.__getitem__) if gaps[queue] > 0}
        for topic, queue in furthest.items():
            if self._clock.monotonic() - self._measured_at.get(topic, -FRESH_S) >= FRESH_S:
                self._measured_at[topic] = self._clock.monotonic()
                self._sample(queue, reached.get(queue, 0))
        return {topic: self._sizes[topic] for topic in furthest if topic in self._sizes}

    def _sample(self, queue: Queue, offset: int) -> None:
        try:
            self._sizes[queue.topic] = self._measure(queue, offset)
        except PyroError as problem:
            _log.debug("no sample of %s: %s", queue, problem)
