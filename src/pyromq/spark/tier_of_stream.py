"""The part of a stream that tasks read from the tier. The journal has offsets only, so where a message comes
from is decided anew for each batch, also for one that is repeated: it has the same messages from either side.

A stream that reads new messages looks only now and then for what has come to the tier: brokers have what it
needs.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pyromq.clock import Clock, SystemClock
from pyromq.errors import TransportError
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Queue, Span
from pyromq.spark.tier_parts import TierPart
from pyromq.spark.tiers import Tiers, nothing_there, wanted

_log = logging.getLogger(__name__)

FRESH_S: Final = 60.0
"""As long as a batch begins behind all that is known, the tier is not asked more often."""


class TierOfStream:
    def __init__(self, cluster: SparkCluster, options: ReadOptions, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._options = options
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._tiers = Tiers(cluster, options, {}, wanted(options.selection))
        self._loaded_at: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<TierOfStream {self._tiers!r}>"

    def split(
        self, spans: Sequence[Span], from_first: Collection[Queue] = ()
    ) -> tuple[list[TierPart], list[Span]]:
        """The parts of the spans that the tier has, and the rest, for brokers. `from_first`: the queues of
        which a span begins at the first message."""
        self._add(span.queue for span in spans)
        spans = [span for span in spans if span.size]
        needed = {each.queue.broker for each in spans if self._tiers.reaches(each.queue, each.start)}
        for broker in sorted({span.queue.broker for span in spans}):
            self._load(broker, is_needed=broker in needed)
        parts: list[TierPart] = []
        rest: list[Span] = []
        for span in spans:
            found, others = self._tiers.split(span, is_from_first=span.queue in from_first)
            parts += found
            rest += others
        return parts, rest

    def record_bytes(self, queue: Queue, offset: int) -> int:
        """How large the messages from an offset on are, on average."""
        self._add([queue])
        found = self._tiers.record_bytes(queue, offset)
        return self._cluster.record_bytes(queue, offset) if found is None else found

    def _add(self, queues: Iterable[Queue]) -> None:
        """Find out what the tiers of new brokers have."""
        for broker, queue in {queue.broker: queue for queue in queues}.items():
            # A static topic has queues without a broker that could be named.
            if broker not in self._loaded_at and (name := self._cluster.cluster_of(queue)):
                self._tiers.add(broker, name)
                self._loaded_at[broker] = self._clock.monotonic()
        if self._loaded_at and not self._tiers:
            raise nothing_there(self._options, ", ".join(sorted(self._loaded_at)))

    def _load(self, broker: str, *, is_needed: bool) -> None:
        """If the tier is needed, its newest manifest decides: a topic may have been deleted and made anew."""
        now = self._clock.monotonic()
        if not is_needed and now - self._loaded_at.get(broker, now) < FRESH_S:
            return
        self._loaded_at[broker] = now
        try:
            self._tiers.load(broker, patient=is_needed)
        except TransportError as problem:
            if is_needed:
                raise
            _log.warning("the tier is away, brokers are asked for all messages: %s", problem)
