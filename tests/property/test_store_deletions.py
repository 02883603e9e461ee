"""Topics that come and go, against a dict of lists, through kills, lost power and queues built again."""

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
from tests.support.small_stores import append, bodies_of, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore

pytestmark = pytest.mark.timeout(600)  # many stores on disk, and a disk may be slow

TOPICS = st.sampled_from(["A", "B", "C"])
QUEUES = 2
Sent = tuple[int, bytes, int]
"""Queue offset, body, and where its record ends in the log."""
EVERYTHING = 1 << 62


class Killed(BaseException):
    """The process dies in the middle of a deletion."""


class DeletionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="deletion-machine-", dir=IN_MEMORY))
        self.clock = ManualClock()
        self.model: dict[tuple[str, int], list[Sent]] = {}
        """Messages of the newest generation of each topic, by topic and queue."""
        self.has_gaps: set[tuple[str, int]] = set()
        """Queues that have lost messages with the power: their numbers may be kept."""
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
        for topic in self.store.topics.unfinished_deletions():
            self.store.topics.finish_deletion(topic)
        self.safe_end = self.store.flushes.offset

    def teardown(self) -> None:
        self.store.abandon()
        shutil.rmtree(self.root)

    # What happens to a store

    @rule(topic=TOPICS, queue_id=st.integers(0, QUEUES - 1), size=st.integers(0, 900))
    def send(self, topic: str, queue_id: int, size: int) -> None:
        self.number += 1
        body = b"%d %s" % (self.number, b"x" * size)
        properties = b"KEYS\x01key\x02UNIQ_KEY\x01%d\x02" % self.number
        result = append(self.store, body, topic=topic, queue_id=queue_id, properties=properties)
        messages = self.model.setdefault((topic, queue_id), [])
        if not messages and (topic, queue_id) not in self.has_gaps:
            assert result.queue_offset == 0, "a topic that was made again begins at 0"
        assert all(result.queue_offset > each[0] for each in messages)
        messages.append((result.queue_offset, body, result.end_offset))

    @rule(count=st.integers(1, 10))
    def dispatch(self, count: int) -> None:
        self.store.dispatch(count)

    @rule(is_log_only=st.booleans())
    def flush(self, is_log_only: bool) -> None:
        self.safe_end = self.store.flushes.flush_log() if is_log_only else self.store.flushes.flush()

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.store.topics.delete(topic)
        self.forget(topic)

    def forget(self, topic: str) -> None:
        for key in [key for key in self.model if key[0] == topic]:
            del self.model[key]
        self.has_gaps = {key for key in self.has_gaps if key[0] != topic}

    @rule(topic=TOPICS, seed=st.none() | st.integers(0, 1 << 32))
    def die_deleting(self, topic: str, seed: int | None) -> None:
        def die() -> None:
            raise Killed

        with pytest.raises(Killed):
            self.store.topics.delete(topic, die)
        self.forget(topic)
        self.lose_power(seed) if seed is not None else self.kill()

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        with OfflineStore(self.root) as store:
            assert not store.verify().damage
        self.open()
        assert self.store.recovery.was_clean
        self.check_survivors(EVERYTHING)

    @rule(topic=st.none() | TOPICS)
    def stop_and_build_queues_again(self, topic: str | None) -> None:
        self.store.close()
        directory = self.root / "consumequeue"
        shutil.rmtree(directory / topic if topic else directory, ignore_errors=True)
        self.open()
        self.check_survivors(EVERYTHING)

    @rule()
    def kill(self) -> None:
        """The process dies; what it has written is there."""
        self.store.abandon()
        self.open()
        self.check_survivors(EVERYTHING)

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        safe_end = self.safe_end
        self.store.abandon()
        self.files.crash(Random(seed))
        self.open()
        self.check_survivors(safe_end)

    @precondition(lambda self: self.number > 10)
    @rule(seed=st.integers(0, 1 << 32))
    def lose_power_and_queues(self, seed: int) -> None:
        safe_end = self.safe_end
        self.store.abandon()
        self.files.crash(Random(seed))
        shutil.rmtree(self.root / "consumequeue", ignore_errors=True)
        self.open()
        self.check_survivors(safe_end)

    # What must be true

    def check_survivors(self, safe_end: int) -> None:
        """Everything that was flushed is left, and of the rest whatever reached the disk."""
        for key, messages in self.model.items():
            found = set(bodies_of(self.store, *key))
            kept = [each for each in messages if each[1] in found]
            assert {each for each in messages if each[2] <= safe_end} <= set(kept)
            if len(kept) < len(messages):
                self.has_gaps.add(key)
            self.model[key] = kept
            assert all(self.store.queues.next_offset(*key) > each[0] for each in kept)
        self.model = {key: messages for key, messages in self.model.items() if messages}

    @invariant()
    def reads_what_was_sent_since_the_topic_was_made(self) -> None:
        dispatched = self.store.statistics().dispatched_offset
        for topic in ("A", "B", "C"):
            expected_by_key = []
            for queue_id in range(QUEUES):
                messages = self.model.get((topic, queue_id), [])
                expected = [body for _, body, end in messages if end <= dispatched]
                assert bodies_of(self.store, topic, queue_id) == expected
                expected_by_key += expected
            found = [decode_record(record).body for record in self.store.log.query(topic, "key", 64)]
            assert len(found) == len(set(found))
            assert set(found) <= set(expected_by_key)
            if len(expected_by_key) < 60:
                assert set(found) == set(expected_by_key)

    @invariant()
    def no_queue_is_ahead_of_what_was_sent(self) -> None:
        for topic in ("A", "B", "C"):
            for queue_id in range(QUEUES):
                key = (topic, queue_id)
                sent = self.model.get(key, [])
                end = sent[-1][0] + 1 if sent else 0
                assert self.store.queues.next_offset(*key) == end or key in self.has_gaps


class InterpretedMachine(DeletionMachine):
    """The same without compiled twins; where there are none, both are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.without_twins = interpreted()
        self.without_twins.__enter__()

    def teardown(self) -> None:
        super().teardown()
        self.without_twins.__exit__(None, None, None)


TestDeletionMachine: Any = DeletionMachine.TestCase
TestInterpretedMachine: Any = InterpretedMachine.TestCase
TestDeletionMachine.settings = TestInterpretedMachine.settings = settings(
    max_examples=examples(15),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
