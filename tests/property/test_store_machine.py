"""The store against a plain list, through crashes that forget and tear whatever was not synced."""

import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.chance import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.scratch import IN_MEMORY
from tests.support.small_stores import (
    BORN_HOST,
    STORE_HOST,
    TOPIC,
    append,
    dispatch_all,
    interpreted,
    read_queue,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.store.message_store import MessageStore

pytestmark = pytest.mark.timeout(600)  # many stores on disk, and a disk may be slow

QUEUES = 3


class Sent:
    """A message as the list remembers it."""

    def __init__(self, number: int, queue_id: int, queue_offset: int, body: bytes, end: int) -> None:
        self.number = number
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.body = body
        self.end = end

    @property
    def key(self) -> str:
        return f"unique-{self.number}"

    def is_told_by(self, message: StoredMessage) -> bool:
        return (
            message.body == self.body
            and message.queue_offset == self.queue_offset
            and message.get("UNIQ_KEY") == self.key
            and message.topic == TOPIC
        )


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-machine-", dir=IN_MEMORY))
        self.clock = ManualClock()
        self.sent: list[Sent] = []
        self.number = 0
        self.safe_end = 0

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.files = FaultyFiles(self.root)
        self.store = MessageStore.open(
            small_settings(self.root), files=self.files, clock=self.clock, start_flusher=False
        )

    def teardown(self) -> None:
        self.store.abandon()
        shutil.rmtree(self.root)

    # What happens to a store

    @rule(queue_id=st.integers(0, QUEUES - 1), size=st.integers(0, 1500), padding=st.integers(0, 1200))
    def append(self, queue_id: int, size: int, padding: int) -> None:
        body, properties = self.make(size, padding)
        result = append(self.store, body, queue_id=queue_id, properties=properties)
        assert result.is_ok, result
        self.sent.append(Sent(self.number, queue_id, result.queue_offset, body, result.end_offset))

    @rule(queue_id=st.integers(0, QUEUES - 1), sizes=st.lists(st.integers(0, 400), min_size=1, max_size=5))
    def append_batch(self, queue_id: int, sizes: list[int]) -> None:
        entries, numbers = [], []
        for size in sizes:
            entries.append(BatchEntry(*self.make(size, 10)))
            numbers.append(self.number)
        result = self.store.append_batch(
            TOPIC, queue_id, entries, born_timestamp=0, born_host=BORN_HOST, store_host=STORE_HOST
        )
        assert result.is_ok, result
        for index, (entry, number) in enumerate(zip(entries, numbers, strict=True)):
            offset = result.queue_offset + index
            end = (*result.record_offsets, result.end_offset)[index + 1]
            self.sent.append(Sent(number, queue_id, offset, entry.body, end))

    def make(self, size: int, padding: int) -> tuple[bytes, bytes]:
        self.number += 1
        body = Random(self.number).randbytes(size)
        properties = f"UNIQ_KEY\x01unique-{self.number}\x02TAGS\x01t{self.number % 3}\x02"
        if padding:
            properties += f"PADDING\x01{'p' * padding}\x02"
        return body, properties.encode()

    @rule(count=st.integers(1, 20))
    def dispatch(self, count: int) -> None:
        self.store.dispatch(count)

    @rule()
    def flush_the_log(self) -> None:
        self.safe_end = self.store.flushes.flush_log()

    @rule()
    def flush_everything(self) -> None:
        self.safe_end = self.store.flushes.flush()

    @rule(seconds=st.integers(0, 100))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: len(self.sent) > 10)
    @rule(count=st.integers(1, 2), is_flushed=st.booleans())
    def clean(self, count: int, is_flushed: bool) -> None:
        dispatch_all(self.store)
        if is_flushed:
            self.flush_everything()
        for path in sorted((self.root / "commitlog").iterdir())[:count]:
            os.utime(path, (1, 1))
        self.store.clean(on_demand=True)

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.open()
        assert self.store.recovery.was_clean
        assert not self.store.recovery.remarks
        self.safe_end = self.store.flushes.offset
        self.check_survivors(self.sent)

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        flushed = [each for each in self.sent if each.end <= self.safe_end]
        self.store.abandon()
        self.files.crash(Random(seed))
        self.open()
        self.safe_end = self.store.flushes.offset
        self.check_survivors(flushed)

    # What must be true

    def check_survivors(self, flushed: list[Sent]) -> None:
        """Everything that was flushed is left, and of the rest whatever reached the disk."""
        log_start = self.store.statistics().log_start_offset
        found = [self.offsets_in(queue_id) for queue_id in range(QUEUES)]
        kept = [
            each for each in self.sent if each.end <= log_start or each.queue_offset in found[each.queue_id]
        ]
        assert set(flushed) <= set(kept)
        assert sum(map(len, found)) == sum(1 for each in kept if each.end > log_start)
        self.sent = kept
        for queue_id in range(QUEUES):
            last = max((each.queue_offset for each in kept if each.queue_id == queue_id), default=-1)
            assert self.store.queues.next_offset(TOPIC, queue_id) > last

    def offsets_in(self, queue_id: int) -> set[int]:
        return {message.queue_offset for message in read_queue(self.store, queue_id=queue_id)}

    @invariant()
    def reads_what_was_sent(self) -> None:
        for queue_id in range(QUEUES):
            low, high = (
                self.store.queues.min_offset(TOPIC, queue_id),
                self.store.queues.max_offset(TOPIC, queue_id),
            )
            expected = [
                each for each in self.sent if each.queue_id == queue_id and low <= each.queue_offset < high
            ]
            found = read_queue(self.store, queue_id=queue_id)
            assert len(found) == len(expected)
            for each, message in zip(expected, found, strict=True):
                assert each.is_told_by(message)

    @invariant()
    def finds_what_is_dispatched_by_key(self) -> None:
        statistics = self.store.statistics()
        for each in self.sent[-5:]:
            is_there = statistics.log_start_offset < each.end <= statistics.dispatched_offset
            found = self.store.log.query(TOPIC, each.key, 64)
            hits = [record for record in found if each.is_told_by(decode_record(record))]
            assert len(hits) == (1 if is_there else 0)


class InterpretedMachine(StoreMachine):
    """The same without compiled twins; where there are none, both are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.without_twins = interpreted()
        self.without_twins.__enter__()

    def teardown(self) -> None:
        super().teardown()
        self.without_twins.__exit__(None, None, None)


TestStoreMachine: Any = StoreMachine.TestCase
TestInterpretedMachine: Any = InterpretedMachine.TestCase
TestStoreMachine.settings = TestInterpretedMachine.settings = settings(
    max_examples=examples(75),
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
