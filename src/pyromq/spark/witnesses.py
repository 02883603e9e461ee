"""Whether a queue is still the one that was read: a topic deleted and created again has the same name.

Of each queue one message is remembered, with the time at which its broker stored it. If another one has its
place, the queue is a new one. A message that is gone, as old ones are some day, says nothing.
"""

from collections.abc import Mapping

from pyromq.clock import Clock
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.offsets import Seen
from pyromq.spark.queues import Queue

RENEWED_MS = 600_000
"""A younger message takes the place of one that is older: old messages are deleted."""


class Witnesses:
    def __init__(self, cluster: SparkCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    def denied(self, seen: Mapping[Queue, Seen]) -> dict[Queue, str]:
        """The queues that are new ones, and how that was found out."""
        found = self._cluster.stored_ms({queue: message.offset for queue, message in seen.items()})
        return {
            queue: f"message {message.offset} of {queue} was stored at {message.stored_ms} ms,"
            f" and now there is one of {found[queue]} ms"
            for queue, message in seen.items()
            if found.get(queue, message.stored_ms) != message.stored_ms
        }

    def after(
        self, end: Mapping[Queue, int], begins: Mapping[Queue, int], seen: Mapping[Queue, Seen]
    ) -> dict[Queue, Seen]:
        """The witnesses to remember when these messages have been read."""
        oldest_ms = self._clock.now_ms() - RENEWED_MS
        kept = {queue: message for queue, message in seen.items() if message.offset < begins.get(queue, 0)}
        asked = {
            queue: to - 1
            for queue, to in end.items()
            if to > 0 and (queue not in kept or (to > begins[queue] and kept[queue].stored_ms < oldest_ms))
        }
        stored = self._cluster.stored_ms(asked, patient=False)
        return kept | {
            queue: Seen(offset, stored[queue]) for queue, offset in asked.items() if queue in stored
        }
