"""A compacted topic against a dict, through rounds that are killed at any step and disks that forget."""

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
from tests.support.small_stores import TOPIC, append, dispatch_all, read_queue, small_settings

from pyromq.clock import ManualClock
from pyromq.disk_steps import Steps, finish
from pyromq.store.message_store import MessageStore

pytestmark = pytest.mark.timeout(600)  # many stores on disk, and a disk may be slow

QUEUES, KEYS = 2, 6
OTHER = "Other"
A_DAY_MS = 86_400_000

Table = dict[str, tuple[int, bytes]]
"""Queue offset and body of the newest message of each key."""


class CompactedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="compacted-machine-", dir=IN_MEMORY))
        self.clock = ManualClock()
        self.sent: list[list[tuple[str, bytes, int]]] = [[] for _ in range(QUEUES)]
        """Key, body and end in the log of each message of a queue."""
        self.sent_at: list[dict[int, int]] = [{} for _ in range(QUEUES)]
        self.round: Steps[bool] | None = None
        self.number = self.safe_end = 0

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.round = None
        self.files = FaultyFiles(self.root)
        self.store = MessageStore.open(
            small_settings(self.root, log_segment_bytes=4096),
            files=self.files,
            clock=self.clock,
            start_flusher=False,
            has_group=True,  # then nothing is kept that follows damage
        )
        self.store.compacting.compact([TOPIC])

    def teardown(self) -> None:
        self.store.abandon()
        shutil.rmtree(self.root)

    # What happens to it

    @rule(
        queue_id=st.integers(0, QUEUES - 1),
        keys=st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=8),
        size=st.integers(0, 400),
    )
    def send(self, queue_id: int, keys: list[int], size: int) -> None:
        for key in keys:
            self.number += 1
            body = (b"%d " % self.number + bytes(size)) if size else b""
            result = append(self.store, body, queue_id=queue_id, properties=b"KEYS\x01key %d\x02" % key)
            assert result.is_ok, result
            assert result.queue_offset == len(self.sent[queue_id])
            self.sent_at[queue_id][result.queue_offset] = self.clock.now_ms()
            self.sent[queue_id].append((f"key {key}", body, result.end_offset))

    @rule(size=st.integers(1, 3000))
    def send_to_another_topic(self, size: int) -> None:
        assert append(self.store, bytes(size), topic=OTHER).is_ok

    @rule()
    def flush(self) -> None:
        dispatch_all(self.store)
        self.safe_end = self.store.flushes.flush()

    @rule(hours=st.integers(0, 40))
    def time_passes(self, hours: int) -> None:
        self.clock.advance(hours * 3600)

    @rule(queue_id=st.integers(0, QUEUES - 1))
    def compact(self, queue_id: int) -> None:
        self.round = None
        finish(self.store.compacting.round(TOPIC, queue_id))

    @rule(queue_id=st.integers(0, QUEUES - 1))
    def begin_to_compact(self, queue_id: int) -> None:
        self.round = self.store.compacting.round(TOPIC, queue_id)

    @precondition(lambda self: self.round is not None)
    @rule(steps=st.integers(1, 4))
    def compact_a_little(self, steps: int) -> None:
        assert self.round is not None
        for _ in range(steps):
            try:
                next(self.round)()
            except StopIteration:
                self.round = None
                return

    @rule()
    def clean(self) -> None:
        for path in sorted((self.root / "commitlog").iterdir()):
            os.utime(path, (1, 1))
        self.store.clean(on_demand=True)

    @rule(seed=st.none() | st.integers(0, 1 << 32))
    def clean_and_compact_what_is_in_the_way(self, seed: int | None) -> None:
        """With a seed the power goes right after it."""
        self.flush()
        self.clean()
        for topic, queue_id in self.store.compacting.due():
            finish(self.store.compacting.round(topic, queue_id))
        self.round = None
        self.clean()
        if seed is not None:
            self.lose_power(seed)

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.open()
        assert not self.store.recovery.remarks
        self.safe_end = self.store.flushes.offset

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power_now(self, seed: int) -> None:
        self.lose_power(seed)

    def lose_power(self, seed: int) -> None:
        self.store.abandon()
        self.files.crash(Random(seed))
        self.open()
        for queue_id, sent in enumerate(self.sent):
            end = self.store.queues.max_offset(TOPIC, queue_id)
            assert all(log_end > self.safe_end for *_, log_end in sent[end:])
            del sent[end:]
        self.safe_end = self.store.flushes.offset

    # What must be true

    def table(self, queue_id: int, end: int) -> Table:
        table: Table = {}
        for offset, (key, body, _) in enumerate(self.sent[queue_id][:end]):
            table[key] = offset, body
        return table

    @invariant()
    def readers_from_the_start_see_the_newest_of_each_key(self) -> None:
        for queue_id in range(QUEUES):
            end = self.store.queues.max_offset(TOPIC, queue_id)
            found: Table = {}
            last = -1
            for message in read_queue(self.store, queue_id=queue_id):
                assert message.queue_offset > last
                last = message.queue_offset
                key = message.get("KEYS") or ""
                assert self.sent[queue_id][last][:2] == (key, message.body)
                found[key] = last, message.body
            expected = self.table(queue_id, end)
            for key, (offset, body) in expected.items():
                if body:
                    assert found.pop(key) == (offset, body)
                else:  # a removal goes after a day, and no older value comes back
                    is_old = self.clock.now_ms() - self.sent_at[queue_id][offset] > A_DAY_MS
                    assert found.pop(key, (offset, b"") if is_old else None) == (offset, b"")
            assert not found

    @invariant()
    def a_snapshot_has_each_key_once(self) -> None:
        for (_, queue_id), snapshot in self.store.compacting.snapshots.by_queue.items():
            end = snapshot.end.queue_offset
            read = [each for each in read_queue(self.store, queue_id=queue_id) if each.queue_offset < end]
            assert len({each.get("KEYS") for each in read}) == len(read)

    @invariant()
    def offsets_and_times_agree_with_what_is_read(self) -> None:
        for queue_id in range(QUEUES):
            messages = read_queue(self.store, queue_id=queue_id)
            queues = self.store.queues
            first = queues.min_offset(TOPIC, queue_id)
            if messages:
                assert first == messages[0].queue_offset
                middle = messages[len(messages) // 2]
                assert queues.store_time(TOPIC, queue_id, middle.queue_offset) == middle.store_timestamp
                found = queues.offset_by_time(TOPIC, queue_id, middle.store_timestamp)
                assert found <= middle.queue_offset
                result = self.store.read(TOPIC, queue_id, max(middle.queue_offset, 0))
                assert result.message_count > 0


TestCompactedMachine: Any = CompactedMachine.TestCase
TestCompactedMachine.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
