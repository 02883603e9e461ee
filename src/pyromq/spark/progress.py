"""How far a stream goes next. The journal of Spark is the only memory: nothing is decided twice."""

import logging
from collections.abc import Callable, Collection, Mapping

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pyromq.clock import Clock, SystemClock
from pyromq.errors import TransportError
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import report
from pyromq.spark.group_progress import GroupProgress
from pyromq.spark.offsets import Offset, Seen, ends_of, is_first, make_offset, seen_of
from pyromq.spark.options import ReadOptions
from pyromq.spark.positions import resolve_late, resolve_start
from pyromq.spark.queues import Queue, Span
from pyromq.spark.record_sizes import RecordSizes
from pyromq.spark.witnesses import Witnesses

_log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.5
"""Spark asks again at once when nothing is new, so the answer may take its time."""
IDLE_POLL_S = 0.01
QUEUES_FRESH_S = 1.0

_UNLIMITED = 2**62


class StreamProgress:
    """The driver's side of one stream."""

    def __init__(
        self,
        options: ReadOptions,
        cluster: SparkCluster,
        clock: Clock | None = None,
        wait: Callable[[float], object] | None = None,
        record_bytes: Callable[[Queue, int], int] | None = None,
    ) -> None:
        """`record_bytes`: the mean size of messages from an offset on, if brokers are not asked."""
        self._options = options
        self._cluster = cluster
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._first: dict[Queue, int] | None = None
        self._since_ms: int | None = None
        self._target: dict[Queue, int] | None = None
        self._reached: Mapping[Queue, int] = {}
        self._ends: dict[Queue, int] = {}
        """Where queues ended when their brokers answered last."""
        self._deleted: set[Queue] = set()
        self._deleted_at = -1.0
        self._record_bytes = record_bytes if record_bytes is not None else cluster.record_bytes
        self._sizes = RecordSizes(cluster.record_bytes, self._clock)
        self._queues: list[Queue] = []
        self._queues_at = -1.0
        self._last_batch_at = self._clock.monotonic()
        self._wait = wait if wait is not None else cluster.links.wait
        self._witnesses = Witnesses(cluster, self._clock)
        self._group = GroupProgress(options, cluster, self._clock) if options.commit_offsets else None

    def __repr__(self) -> str:
        return f"<StreamProgress queues={len(self._queues)} target={self._target is not None}>"

    def default_limit(self) -> ReadLimit:
        options = self._options
        if options.max_per_trigger is not None:
            return ReadMaxRows(options.max_per_trigger)
        if options.min_per_trigger is None and options.max_bytes_per_trigger is None:
            return ReadAllAvailable()
        # Everything available would switch off the other limits too.
        return ReadMaxRows(_UNLIMITED)

    def fix_target(self) -> None:
        """Read up to the messages that exist now, and no further."""
        self._target = self._cluster.latest(self._known_queues(fresh=True))

    def latest(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends; `start` itself if there is nothing to do."""
        seen = seen_of(start)
        starts = is_first(start)
        if starts:
            if self._first is None:
                self._since_ms = self._clock.now_ms() if self._options.start.kind == "latest" else None
                self._first = resolve_start(self._cluster, self._options, self._known_queues(fresh=True))
            begins = self._first
        else:
            begins = ends_of(start)
            self._since_ms = start.get("since")  # journals of earlier releases do not say it
            self.finished(begins)
        deadline = self._clock.monotonic() + IDLE_WAIT_S
        while True:
            end, journal = self._plan(begins, seen, limit)
            self._reached = end
            # A queue that was made anew may end where the old one ended.
            if starts or end != begins or not begins.keys().isdisjoint(journal):
                self._last_batch_at = self._clock.monotonic()
                if starts:
                    journal = {**begins, **journal}
                seen = self._witnesses.after(end, {**begins, **journal}, seen)
                return make_offset(end, journal, seen, self._since_ms)
            if self._target is not None or self._clock.monotonic() >= deadline:
                return start
            self._wait(IDLE_POLL_S)

    def newest(self) -> Offset:
        """Where the queues end, and how large messages are in topics with a lag: `lag.py` reads it.

        A queue whose broker is away ends where it ended before, or where it was read to.
        """
        reachable = self._reachable()
        away = {*self._reached, *self._queues} - reachable.keys() - self._deleted
        ends = {queue: max(self._ends.get(queue, 0), self._reached.get(queue, 0)) for queue in away}
        ends |= reachable
        offset = make_offset(ends, {})
        if away:
            offset["away"] = [str(queue) for queue in sorted(away)]
        if sizes := self._sizes.behind(self._reached, ends):
            offset["bytes"] = sizes
        return offset

    def finished(self, positions: Mapping[Queue, int]) -> None:
        """Everything before these positions is done."""
        if self._group is not None:
            self._group.publish(positions)

    # Planning

    def _plan(
        self, begins: Mapping[Queue, int], seen: Mapping[Queue, Seen], limit: ReadLimit
    ) -> tuple[dict[Queue, int], dict[Queue, int]]:
        """Where each queue is read to, and where those begin that have not been read before."""
        available = self._available()
        self._notice_deleted(begins.keys() - available.keys())
        journal = self._begin_late({q: end for q, end in available.items() if q not in begins}, begins)
        shorter = [Span(q, begins[q], reach) for q, reach in available.items() if reach < begins.get(q, 0)]
        for span in self._rewound(shorter):
            journal[span.queue] = self._begin_again(span, is_given=begins is self._first)
        longer = [queue for queue, begin in begins.items() if available.get(queue, begin) > begin]
        for queue, what in self._witnesses.denied({q: seen[q] for q in longer if q in seen}).items():
            gone = f"what the old queue had from {begins[queue]} on was not read"
            report(f"{what}. The topic was created again: {gone}", fails=self._options.fail_on_data_loss)
            journal[queue] = self._cluster.earliest([queue])[queue]
        effective = {**begins, **journal}
        # A queue that no broker offers at the moment keeps its position until it comes back.
        sizes = {
            queue: available.get(queue, begin) - begin
            for queue, begin in effective.items()
            if available.get(queue, begin) > begin
        }
        taken = self._admit(sizes, effective, limit)
        if not taken and not any(queue in begins for queue in journal):
            # Queues that are new and empty do not cause a batch.
            return dict(begins), {}
        return {queue: begin + taken.get(queue, 0) for queue, begin in effective.items()}, journal

    def _begin_late(self, ends: Mapping[Queue, int], begins: Mapping[Queue, int]) -> dict[Queue, int]:
        """Where queues begin that come later than the start. On a broker that is known they are new."""
        brokers = {queue.broker for queue in begins}
        new = [queue for queue in ends if queue.broker in brokers]
        others = {queue: end for queue, end in ends.items() if queue.broker not in brokers}
        found = self._cluster.earliest(new)
        if others:
            found |= resolve_late(self._cluster, self._options, others, self._since_ms)
        return found

    def _available(self) -> dict[Queue, int]:
        if self._target is not None:
            return self._target
        return self._reachable()

    def _reachable(self) -> dict[Queue, int]:
        found = self._cluster.latest_of_reachable(self._known_queues())
        self._ends |= found
        return found

    def _notice_deleted(self, absent: Collection[Queue]) -> None:
        """Say so if queues are missing because their topics were deleted."""
        self._deleted &= set(absent)
        unknown = set(absent) - self._deleted
        now = self._clock.monotonic()
        if not unknown or (self._deleted_at >= 0 and now - self._deleted_at < QUEUES_FRESH_S):
            return
        self._deleted_at = now
        if found := self._cluster.deleted(sorted(unknown)):
            self._deleted.update(found)
            what = f"the topic of {', '.join(map(str, found))} was deleted"
            report(f"{what}, perhaps with messages that were not read", fails=self._options.fail_on_data_loss)

    def _rewound(self, spans: list[Span]) -> list[Span]:
        """Those of them that stay shorter than our position, however often their brokers are asked."""
        for left in range(self._options.access.retries, -1, -1):
            if not spans:
                break
            # A fixed target lies before what came later, and a replica may be a little behind its master.
            newest = self._cluster.latest([span.queue for span in spans])
            spans = [span for span in spans if newest[span.queue] < span.start]
            if spans and left:
                self._wait(self._options.access.retry_interval_ms / 1000)
        return spans

    def _begin_again(self, span: Span, *, is_given: bool) -> int:
        """Where to continue in a queue that has lost its end, or is a new one with an old name, or never had
        as many messages as the option says."""
        queue, fails = span.queue, self._options.fail_on_data_loss
        if is_given and self._options.start.kind == "offsets":
            what = f"{queue} ends at {span.end} now, before the start at {span.start}"
            gone = "messages are gone, or were never there"
            report(f"{what} that startingOffsets gives: {gone}", fails=fails)
            return span.end
        what = f"{queue} ends at {span.end} now and was read up to {span.start}"
        why = "The topic was deleted or created again, or the broker lost its end"
        report(f"{what}. {why}: what followed was not read", fails=fails)
        return self._cluster.earliest([queue])[queue]

    def _admit(
        self, sizes: dict[Queue, int], begins: Mapping[Queue, int], limit: ReadLimit
    ) -> dict[Queue, int]:
        """How many messages of each queue the next batch takes."""
        total = sum(sizes.values())
        if isinstance(limit, ReadAllAvailable) or not total:
            return sizes
        options = self._options
        if options.min_per_trigger is not None and self._target is None and total < options.min_per_trigger:
            waited_ms = (self._clock.monotonic() - self._last_batch_at) * 1000
            if waited_ms < options.max_trigger_delay_ms:
                return {}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else _UNLIMITED
        if options.max_bytes_per_trigger is not None:
            sampled = [(size, self._record_bytes(q, begins[q])) for q, size in sizes.items()]
            size_bytes = sum(size * each for size, each in sampled)
            most = min(most, max(total * options.max_bytes_per_trigger // max(size_bytes, 1), 1))
        return share_out(sizes, most)

    def _known_queues(self, *, fresh: bool = False) -> list[Queue]:
        now = self._clock.monotonic()
        if fresh or self._queues_at < 0:
            self._queues = self._cluster.queues(self._options.selection)
            self._queues_at = now
        elif now - self._queues_at >= QUEUES_FRESH_S:
            self._queues_at = now
            try:
                self._queues = self._cluster.queues(self._options.selection, patient=False)
            except TransportError as problem:
                # Brokers can be read without name servers; only what is new is not seen for a while.
                _log.warning("no name server answers, reading the known queues: %s", problem)
        return self._queues


def share_out(sizes: Mapping[Queue, int], most: int) -> dict[Queue, int]:
    """Exactly `most` messages, from each queue in proportion to what it has."""
    total = sum(sizes.values())
    if total <= most:
        return dict(sizes)
    shares = {queue: size * most // total for queue, size in sizes.items()}
    rest = most - sum(shares.values())
    by_remainder = sorted(sizes, key=lambda queue: (-(sizes[queue] * most % total), queue))
    for queue in by_remainder[:rest]:
        shares[queue] += 1
    return {queue: share for queue, share in shares.items() if share}
