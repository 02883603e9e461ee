"""The parts of a broker for tests of one service: a real store with small files, real tables, fake peers."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.support.small_stores import STORE_HOST, read_queue, small_settings

from pyromq.broker.context import Context
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.inbound import Inbound
from pyromq.broker.flow.quotas import Quotas
from pyromq.broker.flow.writable_queues import WritableQueues
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.clients import ConsumerTable, ProducerTable
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.broker.tables.statistics import Statistics
from pyromq.broker.tables.topics import TopicTable
from pyromq.clock import ManualClock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.filesystem import Files
from pyromq.protocol.catalogue import Answer, RawAnswer, Request
from pyromq.protocol.codes import CURRENT_VERSION
from pyromq.protocol.frame import Frame
from pyromq.protocol.message_id import UniqueKeys
from pyromq.protocol.record import Host, StoredMessage
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.routing import Caller
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore

A = TypeVar("A", bound=Answer)

CLUSTER = "TestCluster"
BROKER_NAME = "broker-a"
PEER = "10.1.2.3:40001"


class FakeChannel:
    """A channel to nowhere; `answers` is what the peer does with our calls."""

    def __init__(self, address: str = PEER) -> None:
        self.peer_address = address
        self.number = 0
        self.is_open = True
        self.is_blocked = False
        """Whether the peer does not read."""
        self.calls: list[Request[Any]] = []
        self.oneways: list[Request[Any]] = []
        self.answers: Callable[[Request[Any]], Answer] = lambda _: Answer()
        self._close_callbacks: list[Callable[[Any], None]] = []

    @property
    def is_writable(self) -> bool:
        return self.is_open and not self.is_blocked

    async def call(self, request: Request[A], timeout_s: float) -> A:
        self.calls.append(request)
        return cast(A, self.answers(request))

    def send_oneway(self, request: Request[Any]) -> None:
        self.oneways.append(request)

    def on_close(self, callback: Callable[[Any], None]) -> None:
        self._close_callbacks.append(callback)

    def close(self) -> None:
        self.is_open = False
        for callback in self._close_callbacks:
            callback(self)


def caller_on(fake: FakeChannel | None = None, *, code: int = 0, version: int = CURRENT_VERSION) -> Caller:
    return Caller(fake or FakeChannel(), Frame(code, version=version))


@dataclass
class BrokerParts:
    """What services are made of; what needs a running loop is made when it is asked for."""

    clock: ManualClock
    live: LiveSettings[BrokerSettings]
    store: MessageStore
    tables: Tables
    users: dict[str, dict[str, str]] = field(default_factory=dict)
    """The attributes of users."""
    later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    @cached_property
    def context(self) -> Context:
        return Context(self.live, self.store, self.tables, self.clock, Slices(self.clock))

    @property
    def topics(self) -> TopicTable:
        return self.tables.topics

    @property
    def groups(self) -> GroupTable:
        return self.tables.groups

    @property
    def offsets(self) -> OffsetTable:
        return self.tables.offsets

    @property
    def consumers(self) -> ConsumerTable:
        return self.tables.consumers

    @property
    def producers(self) -> ProducerTable:
        return self.tables.producers

    @property
    def locks(self) -> QueueLocks:
        return self.tables.locks

    @property
    def statistics(self) -> Statistics:
        return self.tables.statistics

    @cached_property
    def quotas(self) -> Quotas:
        return Quotas(self.live, self.tables, self.clock, self.user_attributes, self.call_later)

    def user_attributes(self, user: str) -> dict[str, str]:
        return self.users.get(user, {})

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        heappush(self.later, (self.clock.monotonic() + delay_s, len(self.later), call))

    def pass_time(self, seconds: float) -> None:
        """Everything that waits for the clock is called in its order."""
        end = self.clock.monotonic() + seconds
        while self.later and self.later[0][0] <= end:
            at_s, _, call = heappop(self.later)
            self.clock.advance(max(at_s - self.clock.monotonic(), 0))
            call()
        self.clock.advance(end - self.clock.monotonic())

    @cached_property
    def inbound(self) -> Inbound:
        host = Host.of("10.9.8.7", 10911)
        made = Inbound.build(self.live, self.tables, self.appending, host, self.clock, self.quotas)
        return replace(
            made,
            writable_queues=WritableQueues(
                self.live, self.tables, self.clock, random_below=lambda count: count - 1
            ),
            unique_keys=UniqueKeys(host.ip, 1, 2),
        )

    @cached_property
    def appending(self) -> Appending:
        return Appending(self.store, STORE_HOST, self.durability, self.tables.role, self.clock)

    @cached_property
    def durability(self) -> Durability:
        return Durability(self.store, self.clock)

    def add_topic(self, name: str, queues: int = 4, **changes: Any) -> TopicConfig:
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **changes)
        self.topics.update(config)
        return config

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """Every message of a queue, those just appended included."""
        while self.store.dispatch():
            pass
        return read_queue(self.store, topic, queue_id)

    def change(self, **keys: str) -> None:
        """Change settings by their names in broker.conf."""
        self.live.update(keys)


@contextmanager
def broker_parts(
    root: Path,
    *,
    clock: ManualClock | None = None,
    broker: dict[str, Any] | None = None,
    store: dict[str, Any] | None = None,
    files: Files | None = None,
) -> Iterator[BrokerParts]:
    """`broker` and `store` are settings by their names in Python. The same root again is a restart.

    With `files` of the test's own no thread flushes: the test does.
    """
    clock = clock or ManualClock()
    settings = BrokerSettings(
        **{"broker_name": BROKER_NAME, "broker_cluster_name": CLUSTER, "broker_ip1": "10.9.8.7"}
        | (broker or {})
    )
    store_settings = small_settings(
        root,
        **{"log_segment_bytes": 262_144, "queue_file_bytes": 2000} | (store or {}),
    )
    live = LiveSettings(settings)
    with MessageStore.open(store_settings, clock=clock, files=files, start_flusher=files is None) as opened:
        yield BrokerParts(clock, live, opened, Tables.open(live, opened, clock))


def refusal(call: Callable[[], object]) -> Refused:
    """How a handler says no."""
    try:
        answer = call()
    except Refused as refused:
        return refused
    raise AssertionError(f"expected a refusal, got {answer!r}")


def at_once(answer: "RawAnswer | asyncio.Future[RawAnswer]") -> RawAnswer:
    """The answer of a handler that did not have to wait."""
    assert isinstance(answer, RawAnswer), answer
    return answer
