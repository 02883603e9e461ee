"""A cluster with what tests ask for: let time pass, wait for a group, see its dead letters.

All clusters and clients of the process share one clock while a cluster runs. For them time passes as if the
machine had been suspended: messages become due, and no connection, member or lease of a client is lost.
The rest is read from the brokers' memory, so access control does not matter.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from pyromq.broker.broker import Broker
from pyromq.broker.flow.popping.earlier_revivals import message_at
from pyromq.broker.tables.clients import ConsumerGroup
from pyromq.client.dead_letters import DeadLetter, letter_of
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.clock import SystemClock, TravellingClock, use_in_process
from pyromq.errors import ConfigError, PyroError, StateError
from pyromq.protocol import names
from pyromq.protocol.dead_letters import is_open
from pyromq.protocol.requests.inspection import ConsumerRunningInfo, GetConsumerRunningInfo
from pyromq.protocol.requests.membership import ConsumeType
from pyromq.standalone import Standalone, StandaloneSettings

_LOOK_S = 0.005
_EMPTY_LOOKS = 2
"""A message is on its way for a moment between the broker, which has given it away, and the member."""
_MEMBER_TIMEOUT_S = 3.0


class AioCluster(Standalone):
    """A cluster on the event loop of a test; brokers are numbered from 0."""

    def __init__(self, settings: StandaloneSettings, clock: TravellingClock) -> None:
        super().__init__(settings, clock=clock)
        self._time = clock

    def now(self) -> datetime:
        """The time of the cluster and its clients, in UTC."""
        return datetime.fromtimestamp(self._time.now_ms() / 1000, UTC)

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass at once. Retries, delayed and timed messages, and popped ones that were not
        acknowledged, are in their queues when this returns, if they are due. Producers are asked about
        transactions that have been open for too long."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span <= timedelta():
            raise ConfigError("advance", span, "a time above 0")
        self._time.advance(span.total_seconds())
        for broker in self.brokers:
            await broker.catch_up()

    async def wait_until_consumed(
        self, group: str, topic: str | None = None, *, timeout_s: float = 30
    ) -> None:
        """Return when a group has nothing left to do: in its topics or in one, retries included.

        Retries that wait for their time are not counted: `advance` makes them due. Raises StateError, with
        what is left, after `timeout_s`.
        """
        left: dict[str, int] | None = None
        empty_looks = 0
        try:
            async with asyncio.timeout(timeout_s):
                while empty_looks < _EMPTY_LOOKS:
                    left = await self._unconsumed(group, topic)
                    empty_looks = empty_looks + 1 if left is not None and not left else 0
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            what = "it has no topic" if left is None else ", ".join(f"{n} of {t}" for t, n in left.items())
            raise StateError(f"{group} has not consumed everything after {timeout_s} s: {what}") from None

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """The messages that the group gave up, without those sent again or dropped, in the order of time."""
        found = [
            letter_of(message)
            for broker in self._master_brokers()
            for message in _open_letters(broker, names.dlq_topic(group))
        ]
        return sorted(found, key=lambda letter: letter.message.stored_ms)

    def _master_brokers(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker.role.now.is_master]

    async def _unconsumed(self, group: str, topic: str | None) -> dict[str, int] | None:
        """How many messages a group has left in its topics; None if it has no topic."""
        found: Counter[str] = Counter()
        is_known = topic is not None
        for broker in self._master_brokers():
            tables = broker.tables
            members = tables.consumers.group(group)
            subscribed = {} if members is None else members.subscriptions
            topics = {*tables.offsets.topics_of(group), *subscribed} if topic is None else {topic}
            is_known = is_known or bool(topics)
            retries = {each for topic in topics for each in names.pop_retry_topics(topic, group)}
            found += await _left_at(broker, group, topics | retries | {names.retry_topic(group)})
        return dict(found) if is_known else None


def _open_letters(broker: Broker, topic: str) -> Iterator[ReceivedMessage]:
    store = broker.store
    for queue_id in store.queues.ids(topic):
        queue = MessageQueue(topic, broker.settings.broker_name, queue_id)
        settled: set[int] = set()
        for offset in reversed(
            range(store.queues.min_offset(topic, queue_id), store.queues.max_offset(topic, queue_id))
        ):
            stored = message_at(store, topic, queue_id, offset)
            if stored is not None and is_open(stored, settled):
                yield ReceivedMessage(stored, queue)


async def _left_at(broker: Broker, group: str, topics: set[str]) -> "Counter[str]":
    store, tables = broker.store, broker.tables
    members = tables.consumers.group(group)
    reports = [] if members is None else await _reports(members)
    places = [(queue, place) for report in reports for queue, place in report.mq_table.items()]
    # Members commit now and then. If all of them read all queues, the slowest counts.
    slowest_or_only = min if members is not None and members.is_broadcasting else max
    found: Counter[str] = Counter()
    for topic in topics:
        for queue_id in store.queues.ids(topic):
            queue = MessageQueue(topic, broker.settings.broker_name, queue_id)
            reported = [place.commit_offset for of, place in places if of == queue]
            done = max(
                store.queues.min_offset(topic, queue_id),
                tables.offsets.query(group, topic, queue_id),
                slowest_or_only(reported, default=0),
            )
            found[topic] += store.queues.next_offset(topic, queue_id) - done
            if not places:  # the application itself has what it popped
                found[topic] += tables.pop_counts.in_flight[topic, group, queue_id]
    if members is not None and members.consume_type is ConsumeType.CONSUME_POP:
        for queue, place in places:
            if queue.topic in topics:
                found[queue.topic] += place.cached_msg_count
    return +found


async def _reports(members: ConsumerGroup) -> list[ConsumerRunningInfo]:
    found = []
    for client in list(members.members.values()):
        question = GetConsumerRunningInfo(consumer_group=members.name, client_id=client.client_id)
        with suppress(PyroError):  # it is leaving
            found.append((await client.channel.call(question, _MEMBER_TIMEOUT_S)).body)
    return found


_lock = threading.Lock()
_clocks: list[TravellingClock] = []
"""An entry for each running cluster; all are the same clock."""


@contextmanager
def shared_clock() -> Iterator[TravellingClock]:
    """The clock of all clusters that run now. The first of them begins with the machine's time."""
    with _lock:
        clock = _clocks[0] if _clocks else TravellingClock()
        _clocks.append(clock)
        use_in_process(clock)
    try:
        yield clock
    finally:
        with _lock:
            _clocks.pop()
            if not _clocks:
                use_in_process(SystemClock())
