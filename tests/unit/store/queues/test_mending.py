"""Damaged units: found where they are read, made again from the log, and never the end of a queue."""

import errno
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import TOPIC, append, dispatch_all, interpreted, messages_in, small_settings

from pyromq.clock import ManualClock
from pyromq.protocol.java_hash import tag_code
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.store.queues import mending
from pyromq.store.queues.consume_queue import ConsumeQueue
from pyromq.store.results import Boundary, ReadStatus

OTHER = "Payments"


def open_store(root: Path, **changes: Any) -> MessageStore:
    files = changes.pop("files", None)
    settings = small_settings(root, **({"queue_file_bytes": 4000} | changes))
    return MessageStore.open(settings, clock=ManualClock(), start_flusher=False, files=files)


def filled(root: Path, count: int = 100, **changes: Any) -> MessageStore:
    """Messages of two topics by turns."""
    store = open_store(root, **changes)
    for number in range(count):
        for topic in (TOPIC, OTHER):
            append(store, b"%s %d" % (topic.encode(), number), topic=topic, properties=tags(number))
    dispatch_all(store)
    return store


def tags(number: int) -> bytes:
    return b"TAGS\x01t%d\x02" % (number % 3)


def queue_of(store: MessageStore, topic: str = TOPIC) -> ConsumeQueue:
    queue = store.queues.find(topic, 0)
    assert queue is not None
    return queue


def damage(queue: ConsumeQueue, offset: int, unit: bytes) -> None:
    buffer, position = queue.place(offset)
    buffer[position : position + 20] = unit


def read_all(store: MessageStore, **wanted: Any) -> list[bytes]:
    """The bodies of a queue, read as a client does that asks again when it is told so."""
    bodies: list[bytes] = []
    offset, steps = store.queues.min_offset(TOPIC, 0), 0
    while offset < store.queues.max_offset(TOPIC, 0):
        result = store.read(TOPIC, 0, offset, **wanted)
        for message in messages_in(result):
            assert message.topic == TOPIC
            bodies.append(message.body)
        assert result.next_offset > offset or result.status is ReadStatus.QUEUE_IS_MENDED
        offset = result.next_offset
        store.dispatch()
        steps += 1
        assert steps < 10_000
    return bodies


def expected(numbers: range) -> list[bytes]:
    return [b"%s %d" % (TOPIC.encode(), number) for number in numbers]


@pytest.fixture(params=[nullcontext, interpreted])
def how(request: pytest.FixtureRequest) -> Iterator[None]:
    way: Callable[[], AbstractContextManager[None]] = request.param
    with way():
        yield


@pytest.mark.usefixtures("how")
class TestReading:
    def test_a_unit_that_leads_to_another_topic_is_mended(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            damage(queue_of(store), 40, queue_of(store, OTHER).units(40, 1))
            assert read_all(store) == expected(range(100))
            (remark,) = store.queues.mending_remarks()
            assert remark.startswith(f"queue {TOPIC}/0: unit 40 points to log offset ")
            assert remark.endswith(
                "the record there belongs to another topic; unit 40 was rebuilt from the log"
            )

    def test_a_wrong_size_hides_no_neighbour(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            place, size, code = queue_of(store).unit(3)
            damage(queue_of(store), 3, struct.pack(">qiq", place, size + 1, code))
            first = store.read(TOPIC, 0, 0)
            assert [message.queue_offset for message in messages_in(first)] == [0, 1, 2]
            assert read_all(store) == expected(range(100))
            assert "the record there has" in store.queues.mending_remarks()[0]

    def test_a_whole_queue_of_zeros_is_mended(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            for number in range(100):
                damage(queue_of(store), number, bytes(20))
            assert read_all(store) == expected(range(100))

    def test_units_that_were_swapped_are_mended_for_readers_of_a_tag(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            queue = queue_of(store)
            one, two = queue.units(31, 1), queue.units(32, 1)
            damage(queue, 31, two)
            damage(queue, 32, one)
            assert read_all(store, tag_codes={tag_code("t0")}) == expected(range(0, 100, 3))

    def test_a_tags_code_that_no_tag_has_is_mended_for_readers_of_a_tag(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            queue = queue_of(store)
            place, size, code = queue.unit(33)
            damage(queue, 33, struct.pack(">qiq", place, size, code ^ 1 << 40))
            assert read_all(store, tag_codes={tag_code("t0")}) == expected(range(0, 100, 3))

    def test_a_sector_of_another_queue_is_mended_for_readers_of_a_tag(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            for number in range(26):
                damage(queue_of(store), 30 + number, queue_of(store, OTHER).units(60 + number, 1))
            assert read_all(store, tag_codes={tag_code("t1")}) == expected(range(1, 100, 3))

    def test_units_of_messages_that_left_the_log_are_not_damaged(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            store._log.segments.remove_first()
            least = store.queues.min_offset(TOPIC, 0)
            assert 0 < least < 100
            assert read_all(store) == expected(range(least, 100))
            assert store.queues.mending_remarks() == []

    def test_damage_at_the_first_message_of_the_log_does_not_move_the_first_message(
        self, tmp_path: Path
    ) -> None:
        with filled(tmp_path) as store:
            store._log.segments.remove_first()
            least = store.queues.min_offset(TOPIC, 0)
            queue = queue_of(store)
            for number in range(least, least + 40):
                damage(queue, number, bytes(20))
            queue.forget_min_offset()
            assert read_all(store) == expected(range(least, 100))
            assert store.queues.min_offset(TOPIC, 0) == least

    def test_a_stale_unit_does_not_move_the_first_message(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            store._log.segments.remove_first()
            least = store.queues.min_offset(TOPIC, 0)
            queue = queue_of(store)
            for number in range(100):
                stale = number == (least + 100) // 2 or (number >= 60 and number % 3 == 0)
                if stale:
                    damage(queue, number, queue.units(0, 1))
            queue.forget_min_offset()
            assert read_all(store) == expected(range(least, 100))

    def test_a_message_that_the_log_lost_costs_only_itself(self, tmp_path: Path) -> None:
        with filled(tmp_path) as store:
            queue = queue_of(store)
            place, _, _ = queue.unit(50)
            segment = store._log.segments.find(place)
            assert segment is not None
            segment.map_for_writing().buffer[place - segment.start + 20] ^= 1  # it says another queue offset
            assert read_all(store) == [*expected(range(50)), *expected(range(51, 100))]
            (remark,) = store.queues.mending_remarks()
            assert "the log has lost 1 of these messages" in remark
            assert read_all(store) == [*expected(range(50)), *expected(range(51, 100))]
            assert store.queues.mending_remarks() == [], "nothing is mended twice"
            assert store.queues.min_offset(TOPIC, 0) == 0


def test_much_damage_is_mended_in_pieces_and_told_when_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mending, "_PIECE", 10)
    with filled(tmp_path) as store:
        for number in range(100):
            damage(queue_of(store), number, bytes(20))
        result = store.read(TOPIC, 0, 0)
        assert (result.status, result.next_offset, result.views) == (ReadStatus.QUEUE_IS_MENDED, 0, [])
        assert store.queues.mending_remarks()[0].endswith("searching the log for its messages")
        steps = 0
        while not (advances := store.dispatch()):
            assert store.has_dispatch_work
            meanwhile = [message.body for message in messages_in(store.read(TOPIC, 0, 0))]
            assert meanwhile == expected(range(len(meanwhile)))
            steps += 1
        assert steps > 20
        assert [(each.topic, each.queue_id, each.max_offset) for each in advances] == [(TOPIC, 0, 100)]
        assert not store.has_dispatch_work
        assert read_all(store) == expected(range(100))


def test_messages_that_arrive_meanwhile_are_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mending, "_PIECE", 10)
    with filled(tmp_path) as store:
        for number in range(60, 100):
            damage(queue_of(store), number, bytes(20))
        assert store.read(TOPIC, 0, 60).status is ReadStatus.QUEUE_IS_MENDED
        for number in range(100, 130):
            append(store, b"%s %d" % (TOPIC.encode(), number), properties=tags(number))
            store.dispatch()
        assert read_all(store) == expected(range(130))


def test_the_messages_of_a_deleted_topic_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mending, "_PIECE", 10)
    with open_store(tmp_path) as store:
        for number in range(40):
            append(store, b"old %d" % number)
        dispatch_all(store)
        store.topics.delete(TOPIC)
        for number in range(20):
            append(store, b"%s %d" % (TOPIC.encode(), number))
        dispatch_all(store)
        for number in range(20):
            damage(queue_of(store), number, bytes(20))
        assert read_all(store) == expected(range(20))


def test_a_topic_may_be_deleted_while_its_queue_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mending, "_PIECE", 10)
    with filled(tmp_path) as store:
        for number in range(100):
            damage(queue_of(store), number, bytes(20))
        store.read(TOPIC, 0, 0)
        store.topics.delete(TOPIC)
        for _ in range(100):
            assert store.dispatch() == []
        assert not store.has_dispatch_work
        assert not (tmp_path / "consumequeue" / TOPIC).exists()


def test_what_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    with filled(tmp_path, files=files) as store:
        damage(queue_of(store), 5, bytes(20))
        files.failures["allocate"] = errno.ENOSPC
        for _ in range(3):
            assert store.read(TOPIC, 0, 5).status is ReadStatus.QUEUE_IS_MENDED
            store.upkeep()
        (remark,) = store.queues.mending_remarks()
        assert "cannot be mended yet" in remark
        assert "No space left" in remark
        files.failures.clear()
        assert isinstance(store._clock, ManualClock)
        store._clock.advance(1)
        store.upkeep()
        assert read_all(store) == expected(range(100))


def test_times_are_found_in_a_damaged_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    with store:
        assert isinstance(store._clock, ManualClock)
        start = store._clock.now_ms()
        for _ in range(64):
            append(store, b"x")
            store._clock.advance(1)
        dispatch_all(store)
        for number in (31, 32, 40, 47):
            damage(queue_of(store), number, bytes(20))
        assert store.queues.offset_by_time(TOPIC, 0, start + 40_000) == 40
        assert store.queues.offset_by_time(TOPIC, 0, start + 47_500, Boundary.UPPER) == 47
        damage(queue_of(store), 20, bytes(20))
        assert store.queues.store_time(TOPIC, 0, 20) == start + 20_000
        damage(queue_of(store), 32, bytes(20))
        monkeypatch.setattr(mending.Mending, "mend", lambda *_: False)
        assert store.queues.store_time(TOPIC, 0, 32) == -1
        assert store.queues.offset_by_time(TOPIC, 0, start + 50_000) == 50, "the next good one serves as well"


def test_a_file_whose_units_only_pretend_to_be_gone_is_not_removed(tmp_path: Path) -> None:
    with filled(tmp_path, queue_file_bytes=200) as store:
        store._log.segments.remove_first()
        least = store.queues.min_offset(TOPIC, 0)
        queue = queue_of(store)
        for last in range(9, 100, 10):
            damage(queue, last, struct.pack(">qiq", 0, 200, 0))
        store._queues.clean(store._log.start_offset)
        queue.forget_min_offset()
        assert read_all(store) == expected(range(least, 100))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("first", "count"), [(0, 1), (31, 1), (63, 1), (64, 5), (99, 1), (97, 3), (0, 100)])
def test_damage_between_two_runs_costs_nothing(
    tmp_path: Path, is_clean: bool, first: int, count: int
) -> None:
    store = filled(tmp_path)
    store.flushes.flush()
    if is_clean:
        store.close()
    else:
        store.abandon()
    path = next((tmp_path / "consumequeue" / TOPIC / "0").iterdir())
    content = bytearray(path.read_bytes())
    content[first * 20 : (first + count) * 20] = bytes(count * 20)
    path.write_bytes(content)
    with open_store(tmp_path) as store:
        assert read_all(store) == expected(range(100))
        assert append(store, b"next").queue_offset == 100


def test_verification_tells_which_units_are_damaged(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        queue = queue_of(store)
        for number in (3, 4, 5, 9, 20, 21):
            damage(queue, number, queue_of(store, OTHER).units(number, 1))
        place, size, code = queue.unit(30)
        damage(queue, 30, struct.pack(">qiq", place, size + 1, code))
        damage(queue, 31, struct.pack(">qiq", *queue.unit(31)[:2], code ^ 4))
        damage(queue, 32, struct.pack(">qiq", 7, 0x7FFFFFFF, 0))
    with OfflineStore(tmp_path) as offline:
        assert offline.verify().damage == [
            f"queue {TOPIC}/0: 7 units (3 to 5, 9, 20 to 21, 30) do not point to their messages",
            f"queue {TOPIC}/0: 1 units (31) have a wrong tags code",
            f"queue {TOPIC}/0: 1 messages (32) have no unit",
        ]
        assert {message.topic for message in offline.messages(TOPIC)} == {TOPIC}
        assert f"queue {TOPIC}/0: unit 3 points to another queue's message" in offline.remarks[0]
