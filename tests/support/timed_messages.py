"""A broker's timers over real parts: messages are parked, time passes, and what was delivered is read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_parts import BrokerParts, broker_parts
from tests.support.small_stores import BORN_HOST, dispatch_all

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.timing import recall_key
from pyromq.broker.services.timers import Timers
from pyromq.clock import ManualClock
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import StoredMessage
from pyromq.remoting.slices import Slices
from pyromq.store.results import AppendResult

TOPIC = "Orders"


class TimerBench:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.clock = parts.clock
        self.store = parts.store
        self.files = parts.store.timers
        self.timers = Timers(parts.store, parts.appending, parts.tables, parts.clock, Slices(parts.clock))
        self.start_ms = parts.clock.now_ms()

    def send(
        self,
        body: bytes,
        asking: Mapping[str, str] | None = None,
        *,
        topic: str = TOPIC,
        queue_id: int = 2,
        **properties: str,
    ) -> AppendResult:
        """The body is the unique key as well."""
        pairs = {"UNIQ_KEY": body.decode()} | properties | dict(asking or {})
        raw = encode_properties(pairs).encode()
        draft = Draft(topic, queue_id, body, raw, 1_600_000_000_000, BORN_HOST, flag=5)
        return self.parts.appending.append(draft)

    def send_at(self, body: bytes, in_ms: int, **more: Any) -> AppendResult:
        result = self.send(body, TIMER_DELIVER_MS=str(self.clock.now_ms() + in_ms), **more)
        assert result.is_ok, result
        return result

    def recall(self, body: bytes, in_slot_ms: int, topic: str = TOPIC) -> AppendResult:
        key = recall_key(topic, body.decode())
        return self.send(body, TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=str(in_slot_ms))

    def work(self) -> float:
        """Until there is nothing to do at this moment; the seconds until there is."""
        while True:
            dispatch_all(self.store)
            wait_s = self.timers.step()
            if wait_s and not self.store.has_dispatch_work:
                return wait_s

    def pass_time(self, ms: int, step_ms: int = 1000) -> None:
        self.work()
        while ms > 0:
            self.clock.advance(min(step_ms, ms) / 1000)
            ms -= step_ms
            self.work()

    def save(self) -> None:
        """Write a checkpoint now, if there is anything new."""
        self.store.flushes.flush()
        self.clock.advance(0.001)
        self.timers._next_save = 0
        taken = self.timers.take_if_due()
        if taken is not None:
            self.files.save(taken[0])
            self.timers._saved = taken[1]

    def messages(self, topic: str = TOPIC, queue_id: int = 2) -> list[StoredMessage]:
        return self.parts.messages(topic, queue_id)

    def delivered(self, topic: str = TOPIC, queue_id: int = 2) -> list[bytes]:
        return [message.body for message in self.messages(topic, queue_id)]

    def delivery_times(self) -> dict[bytes, int]:
        """When each message was delivered, in ms since the start."""
        return {each.body: each.store_timestamp - self.start_ms for each in self.messages()}


@contextmanager
def timer_bench(root: Path, clock: ManualClock | None = None, **store: Any) -> Iterator[TimerBench]:
    """The same root again is a restart."""
    settings = {"timer_log_file_bytes": 1024} | store
    with broker_parts(root, clock=clock, store=settings) as parts:
        yield TimerBench(parts)


@contextmanager
def crashing_bench(root: Path, clock: ManualClock | None = None, **store: Any) -> Iterator[TimerBench]:
    """The same, but at the end the store is abandoned, as by `kill -9`."""
    settings = {"timer_log_file_bytes": 1024} | store
    with broker_parts(root, clock=clock, store=settings) as parts:
        yield TimerBench(parts)
        parts.store.abandon()
