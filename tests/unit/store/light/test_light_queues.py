"""Light queues: one record in several queues, found again after every kind of stop."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.dying_files import DyingFiles, Killed
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import (
    append,
    bodies_of,
    dispatch_all,
    interpreted,
    messages_in,
    small_settings,
)

from pyromq.filesystem import Files
from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.properties import INNER_MULTI_QUEUE_OFFSET, get_property
from pyromq.store.dispatch import Dispatcher
from pyromq.store.expiry import QueueLimit
from pyromq.store.light.entries import ENTRY
from pyromq.store.light.light_queues import LightQueues, LightRecord, light_names
from pyromq.store.light.names import NamedQueue, decode_names, encode_name
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, Boundary, ReadStatus

A, B, C = "%LMQ%a", "%LMQ%b", "%LMQ%$parent$c"


@pytest.fixture(params=[False, True], ids=["compiled", "interpreted"])
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.param:
        yield
        return
    with interpreted():
        yield


def open_store(root: Path, files: Files | None = None, **changes: Any) -> MessageStore:
    changes = {"light_queues": True, "multi_dispatch": True} | changes
    # In a group nothing is kept that follows damage.
    return MessageStore.open(
        small_settings(root, **changes), files=files, start_flusher=False, has_group=files is not None
    )


def send(
    store: MessageStore, body: bytes, *names: str, topic: str = "Parent", more: bytes = b""
) -> AppendResult:
    """As a broker does."""
    assert store.light is not None
    properties = store.light.numbered(_naming(*names) + more, list(names))
    result = append(store, body, topic=topic, properties=properties)
    if result.is_ok:
        store.light.appended(list(names))
    return result


def cut(store: MessageStore, end: int) -> None:
    store.flushes.flush()
    store.copying.begin()
    store.cutting.cut(end)
    store.copying.end()


def _naming(*names: str) -> bytes:
    return f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02".encode()


def contents(store: MessageStore, *names: str) -> list[list[bytes]]:
    return [bodies_of(store, name) for name in names]


@pytest.mark.usefixtures("_both_ways")
def test_a_message_is_in_every_light_queue_that_it_names_and_in_its_own(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, b"one", A, B)
        send(store, b"two", B, C, more=b"TAGS\x01red\x02")
        append(store, b"three", topic="Parent")
        assert store.queues.max_offset(A, 0) == 0
        assert store.queues.next_offset(B, 0) == 2
        advances = store.dispatch()
        assert {each.topic: each.max_offset for each in advances} == {"Parent": 3}
        assert store.queues.take_light_advances() == {A: 1, B: 2, C: 1}
        assert not store.queues.take_light_advances()
        assert contents(store, A, B, C) == [[b"one"], [b"one", b"two"], [b"two"]]
        assert bodies_of(store, "Parent") == [b"one", b"two", b"three"]
        [first, second] = messages_in(store.read(B, 0, 0))
        assert (first.queue_offset, second.queue_offset) == (0, 1)  # of the parent's queue
        assert get_property(second.properties, INNER_MULTI_QUEUE_OFFSET) == "1,0"
        assert messages_in(store.read(B, 0, 0, tag_codes={tag_code("red")}))[0].body == b"two"
        assert store.read(B, 0, 0, tag_codes={5}).status is ReadStatus.NO_MATCHED_MESSAGE
        assert store.read(B, 0, 2).status is ReadStatus.OFFSET_OVERFLOW_ONE
        assert store.read(B, 0, 9).status is ReadStatus.OFFSET_OVERFLOW_BADLY
        assert store.read("%LMQ%none", 0, 0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE


@pytest.mark.usefixtures("_both_ways")
def test_many_light_queues_are_kept_apart_while_some_go_and_others_get_their_numbers(tmp_path: Path) -> None:
    expected = {f"%LMQ%$parent${number}": [b"1", b"2"] for number in range(900)}
    gone, new = list(expected)[::3], [f"%LMQ%$other${number}" for number in range(400)]
    with open_store(tmp_path) as store:
        for body in (b"1", b"2"):
            for name in expected:
                send(store, body, name)
            dispatch_all(store)
        assert store.light is not None
        for name in gone:
            store.light.remove(name)
        for name in gone:
            expected[name] = []
        for name in new + gone[:200]:
            send(store, b"3", name)
            expected[name] = [b"3"]
        dispatch_all(store)
        assert store.light.capacity == 900 + 300
        assert [(name, *contents(store, name)) for name in expected] == list(expected.items())


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("stop", ["close", "abandon", "lost files", "no names", "saved"])
def test_light_queues_are_the_same_after_every_stop(tmp_path: Path, stop: str) -> None:
    chance, model, names = Random(7), dict[str, list[bytes]](), [f"%LMQ%{number}" for number in range(9)]
    store = open_store(tmp_path)
    for number in range(300):
        if number % 3:
            chosen = chance.sample(names, chance.randrange(1, 4))
            assert send(store, b"%d" % number, *chosen).is_ok
            for name in chosen:
                model.setdefault(name, []).append(b"%d" % number)
        else:
            append(store, b"%d" % number, topic="Parent")
        if number in (100, 200):
            dispatch_all(store)
            store.flushes.flush()
            if stop == "saved":
                assert store.light is not None
                store.light.save()
    if stop == "close":
        store.close()
    else:
        dispatch_all(store)
        store.abandon()
    for path in (tmp_path / "lightqueues").glob("*") if stop == "lost files" else ():
        path.unlink()
    if stop == "no names":
        (tmp_path / "lightqueues" / "names").write_bytes(b"junk")
    with open_store(tmp_path) as store:
        assert contents(store, *sorted(model)) == [model[name] for name in sorted(model)]
        assert [store.queues.next_offset(name, 0) for name in sorted(model)] == [
            len(model[name]) for name in sorted(model)
        ]
        is_rebuilt = any("light queues" in each for each in store.recovery.remarks)
        assert is_rebuilt == (stop in ("lost files", "no names"))
        send(store, b"more", names[0])
        dispatch_all(store)
        assert contents(store, names[0])[0][-1] == b"more"


@pytest.mark.parametrize("lost", ["entries", "last entries", "checkpoint", "checkpoint of ours"])
def test_light_queues_are_built_from_the_log_if_a_file_of_theirs_is_missing(
    tmp_path: Path, lost: str
) -> None:
    with open_store(tmp_path, queue_file_bytes=20 * 20) as store:
        for number in range(50):
            send(store, b"%d" % number, A, *([B] if number % 3 else []))
        dispatch_all(store)
    entries = sorted(each for each in (tmp_path / "lightqueues").iterdir() if each.name.isdecimal())
    assert len(entries) > 2
    if lost == "entries":
        for each in entries:
            each.unlink()
    elif lost == "last entries":
        entries[-1].unlink()
    elif lost == "checkpoint":
        (tmp_path / "checkpoint").unlink()
    else:  # Apache's broker has written it, and perhaps messages
        content = bytearray((tmp_path / "checkpoint").read_bytes())
        content[40:72] = bytes(32)
        (tmp_path / "checkpoint").write_bytes(content)
    with open_store(tmp_path, queue_file_bytes=20 * 20) as store:
        assert [len(each) for each in contents(store, A, B)] == [50, 33]
        assert any("light queues" in each for each in store.recovery.remarks)


def test_light_queues_keep_apart_if_the_checkpoint_is_lost_between_two_kills(tmp_path: Path) -> None:
    """Their numbers are given out anew, and the ends that were saved before are of other queues."""
    with open_store(tmp_path) as store:
        for name, count in ((A, 6), (B, 3), (C, 1)):
            for _ in range(count):
                send(store, name.encode(), name)
        dispatch_all(store)
    store = open_store(tmp_path)
    store.abandon()
    (tmp_path / "checkpoint").unlink()
    for _ in range(2):
        store = open_store(tmp_path)
        assert contents(store, A, B, C) == [[A.encode()] * 6, [B.encode()] * 3, [C.encode()]]
        assert [store.queues.next_offset(name, 0) for name in (A, B, C)] == [6, 3, 1]
        store.flushes.flush()
        store.abandon()


def test_light_queues_that_are_built_from_the_log_may_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        for number in range(10):
            send(store, b"%d" % number, A)
        dispatch_all(store)
    (tmp_path / "lightqueues" / "names").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "put_light", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            open_store(tmp_path)
    with open_store(tmp_path) as store:
        assert len(bodies_of(store, A)) == store.queues.next_offset(A, 0) == 10


def test_a_queue_whose_older_entries_are_cleaned_goes_on_after_a_cut(tmp_path: Path) -> None:
    light = LightQueues(Files(), tmp_path, 8)
    assert light.load(0) is not None
    light.begin_anew()

    def put(name: str, queue_offset: int, log_offset: int) -> None:
        light.put(LightRecord("P", log_offset, 100, 0, name.encode(), b"%d" % queue_offset))

    for number in range(10):
        put(A, number, 100 + 100 * number)
    for number in range(20):
        put(B, number, 1100 + 100 * number)
    light.take_dirty()
    for _ in range(3):
        light.clean(2500, 3100, 3100)
    assert light.chain.first > 10
    put(A, 10, 3100)
    light.cut(3100)
    assert light.next_offset(A) == 10
    light.close()


@settings(max_examples=examples(50))
@given(st.sets(st.integers(0, 40)))
@example({0})
def test_removals_behind_a_lost_page_hide_no_queue(lost: set[int]) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        light = LightQueues(Files(), root, 2048)
        light.load(0)
        light.begin_anew()
        for number in range(20):
            light.put(LightRecord("P", 100 + 100 * number, 100, 0, A.encode(), b"%d" % number))
        for number in range(200):
            light.put(LightRecord("P", 2100 + 100 * number, 100, 0, b"%%LMQ%%d%d" % number, b"0"))
        _, entries = light.take_dirty()
        safe = light.chain.end
        for number in range(200):
            light.remove(f"%LMQ%d{number}")
        light.close()
        content = bytearray(entries.read_bytes())
        for sector in lost:
            begin = safe * ENTRY.size + sector * 512
            content[begin : begin + 512] = bytes(512)
        entries.write_bytes(content)
        light = LightQueues(Files(), root, 2048)
        assert light.load(100 * (22 + 200)) is None
        assert (light.next_offset(A), len(light.entries(A, 0, 99))) == (20, 20)
        light.close()


@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_what_was_flushed_is_there_after_a_kill_and_a_loss_of_power(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("light")
    chance, model = Random(data.draw(st.integers(0, 1 << 16))), dict[str, list[bytes]]()
    disk = FaultyFiles(root).disk
    for _ in range(3):
        files = DyingFiles(root, disk)
        files.dies_at = data.draw(st.integers(10, 150))
        flushed = {name: len(bodies) for name, bodies in model.items()}
        try:
            store = open_store(root, files)
            for number in range(60):
                chosen = chance.sample([A, B, C], chance.randrange(1, 4))
                send(store, b"%d" % number, *chosen)
                for name in chosen:
                    model.setdefault(name, []).append(b"%d" % number)
                if chance.random() < 0.3:
                    dispatch_all(store)
                if chance.random() < 0.2:
                    store.flushes.flush()
                    flushed = {name: len(bodies) for name, bodies in model.items()}
        except Killed:
            pass
        files.crash(chance)
        store = open_store(root, FaultyFiles(root, disk))
        for name, bodies in model.items():
            found = bodies_of(store, name)
            assert found == bodies[: len(found)]
            assert len(found) >= flushed.get(name, 0)
            assert store.queues.next_offset(name, 0) == len(found)
            del bodies[len(found) :]
        store.abandon()
        FaultyFiles(root, disk).crash(chance)


def test_any_message_of_a_long_queue_is_found_by_offset_and_by_time(tmp_path: Path) -> None:
    with open_store(tmp_path, log_segment_bytes=1 << 20, queue_file_bytes=2000) as store:
        places = [send(store, b"%d" % number, A).store_timestamp for number in range(1000)]
        dispatch_all(store)
        for number in (0, 1, 2, 63, 64, 511, 512, 998, 999):
            assert messages_in(store.read(A, 0, number, 1))[0].body == b"%d" % number
            assert store.queues.store_time(A, 0, number) == places[number]
        assert [each.body for each in messages_in(store.read(A, 0, 700, 3))] == [b"700", b"701", b"702"]
        assert store.queues.offset_by_time(A, 0, places[0]) == 0
        assert store.queues.offset_by_time(A, 0, places[-1] + 1) == 1000
        assert store.queues.offset_by_time(A, 0, places[-1], Boundary.UPPER) == 999
        assert store.queues.log_offset(A, 0, 1000) is None


def test_what_is_cut_from_the_log_is_gone_from_light_queues(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ends = [send(store, b"%d" % number, A, *([B] if number % 2 else [])).end_offset for number in range(30)]
    dispatch_all(store)
    store.flushes.flush()
    store.copying.begin()
    store.cutting.cut(ends[14])
    assert [store.queues.max_offset(name, 0) for name in (A, B)] == [15, 7]
    store.copying.end()
    send(store, b"new", B)
    dispatch_all(store)
    assert contents(store, B) == [[b"1", b"3", b"5", b"7", b"9", b"11", b"13", b"new"]]
    store.abandon()
    with open_store(tmp_path) as store:
        assert contents(store, B) == [[b"1", b"3", b"5", b"7", b"9", b"11", b"13", b"new"]]
        assert bodies_of(store, A) == [b"%d" % number for number in range(15)]


def test_a_copy_of_the_log_has_the_same_light_queues_and_numbers_on(tmp_path: Path) -> None:
    with open_store(tmp_path / "master") as master, open_store(tmp_path / "replica") as replica:
        for number in range(30):
            send(master, b"%d" % number, A if number % 2 else B)
        replica.copying.begin()
        offset = 0
        while offset < master.log.end:
            piece = master.log.bytes_at(offset, 1000)
            replica.copying.append(offset, piece)
            offset += len(piece)
        replica.copying.end()
        assert contents(replica, A) == [[b"%d" % number for number in range(1, 30, 2)]]
        assert send(replica, b"own", A).is_ok
        dispatch_all(replica)
        assert bodies_of(replica, A)[-1] == b"own"
        assert replica.queues.max_offset(A, 0) == 16


@pytest.mark.parametrize("stop", ["close", "abandon", "nothing"])
def test_a_deleted_light_queue_begins_again_at_0(tmp_path: Path, stop: str) -> None:
    store = open_store(tmp_path)
    send(store, b"old", A, B)
    dispatch_all(store)
    send(store, b"not dispatched", A)
    assert store.topics.delete(A) == 1
    if stop == "close":
        store.close()
    elif stop == "abandon":
        store.abandon()
    if stop != "nothing":
        store = open_store(tmp_path)
    dispatch_all(store)
    assert (store.queues.max_offset(A, 0), contents(store, A, B)) == (0, [[], [b"old"]])
    send(store, b"new", A)
    store.close()
    with open_store(tmp_path) as store:
        assert contents(store, A, B) == [[b"new"], [b"old"]]


def test_expired_messages_leave_light_queues_whose_offsets_go_on(tmp_path: Path) -> None:
    store = open_store(tmp_path, log_segment_bytes=2048)
    send(store, b"first", B)
    for number in range(100):
        send(store, b"%d" % number, A)
    dispatch_all(store)
    store.flushes.flush()
    store.clean(on_demand=True)
    for _ in range(3):
        store.flushes.flush()
        store.clean(on_demand=True)
    least = store.queues.min_offset(A, 0)
    assert 0 < least < 100
    assert bodies_of(store, A) == [b"%d" % number for number in range(least, 100)]
    assert (store.queues.min_offset(B, 0), store.queues.max_offset(B, 0)) == (1, 1)
    assert not (tmp_path / "lightqueues" / f"{0:020d}").exists()
    store.abandon()
    with open_store(tmp_path, log_segment_bytes=2048) as store:
        assert (
            store.queues.min_offset(B, 0),
            store.queues.max_offset(B, 0),
            store.queues.min_offset(A, 0),
        ) == (1, 1, least)
        assert store.read(A, 0, 0).status is ReadStatus.OFFSET_TOO_SMALL


def test_light_queues_that_were_switched_off_are_built_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, b"one", A)
        raw = store.light.numbered(_naming(A), [A]) if store.light else b""
    with open_store(tmp_path, light_queues=False) as store:
        assert store.light is None
        assert not (tmp_path / "lightqueues").exists()
        append(store, b"two", topic="Parent", properties=raw.replace(b"\x010\x02", b"\x011\x02"))
        assert store.queues.max_offset(A, 0) == 0
    with open_store(tmp_path) as store:
        assert contents(store, A) == [[b"one", b"two"]]
        assert "light queues: there was none: built from the log" in store.recovery.remarks


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_copies_of_a_message_enter_no_light_queue(tmp_path: Path, topic: str) -> None:
    with open_store(tmp_path) as store:
        send(store, b"one", A)
        append(
            store,
            b"copy",
            topic=topic,
            properties=f"INNER_MULTI_DISPATCH\x01{A}\x02INNER_MULTI_QUEUE_OFFSET\x010\x02".encode(),
        )
        dispatch_all(store)
        assert contents(store, A) == [[b"one"]]


@pytest.mark.parametrize("names", ["a", "%LMQ%", "%LMQ%a,b", "%LMQ%a,"])
def test_only_light_queues_can_be_named(names: str) -> None:
    with pytest.raises(ValueError, match="expected light queues"):
        light_names(_naming(names))


def test_records_with_impossible_offsets_enter_no_light_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for offsets in (b"x", b"1,2", b"-1", b"9" * 30, b""):
            properties = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x01" + offsets + b"\x02"
            append(store, b"body", topic="Parent", properties=properties)
        dispatch_all(store)
        assert store.queues.max_offset(A, 0) == 0


_NAMED = st.builds(NamedQueue, st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 1 << 62))


def encoded(number: int, queue: NamedQueue) -> bytes:
    return encode_name(number, queue.name.encode(), queue.first)


@given(st.lists(_NAMED, max_size=5), st.binary(max_size=20))
def test_names_are_read_back_up_to_the_first_damage(queues: list[NamedQueue], tail: bytes) -> None:
    content = b"".join(encoded(number, queue) for number, queue in enumerate(queues))
    assert decode_names(content) == (queues, len(content))
    found, position = decode_names(content + tail)
    assert found[: len(queues)] == queues
    assert position >= len(content)
    for length in range(len(content)):
        found, position = decode_names(content[:length])
        assert found == queues[: len(found)]
        assert position <= length


def test_the_last_name_with_a_number_counts() -> None:
    first, second, third = NamedQueue("a", 0), NamedQueue("b", 1), NamedQueue("c", 7)
    content = encoded(0, first) + encoded(1, second) + encoded(0, third)
    assert decode_names(content)[0] == [third, second]
    assert decode_names(content + encoded(3, first)) == ([third, second], len(content))


def test_queues_that_were_removed_cost_no_memory_and_a_start_makes_their_file_small(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        light = store.light
        assert light is not None
        send(store, b"kept", A)
        for number in range(200):
            for each in range(10):
                send(store, b"gone", f"%LMQ%{number}-{each}-{'x' * 1000}")
            dispatch_all(store)
            for name in list(light.names("%LMQ%")):
                if name != A:
                    assert light.remove(name)
        assert (len(light), light.capacity) == (1, 11)
        store.flushes.flush()
    names = tmp_path / "lightqueues" / "names"
    assert names.stat().st_size > 2_000_000
    with open_store(tmp_path) as store:
        assert names.stat().st_size < 1000
        assert contents(store, A) == [[b"kept"]]
        send(store, b"new", B)
        dispatch_all(store)
        assert store.light is not None
        assert store.light.capacity == 11
    with open_store(tmp_path) as store:
        assert contents(store, A, B) == [[b"kept"], [b"new"]]


@pytest.mark.parametrize("seed", range(8))
def test_a_queue_never_shows_what_its_number_had_before_even_if_the_removal_is_lost(
    tmp_path: Path, seed: int
) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files)
    append(store, b"first", topic="Parent")
    send(store, b"old", A)
    append(store, b"next", topic="Parent")
    dispatch_all(store)
    store.flushes.flush()
    light = store.light
    assert light is not None
    if seed % 2:
        light.save()
    assert light.remove(A)
    send(store, b"new", B)
    dispatch_all(store)
    assert light.capacity == 1
    [names, *_] = light.take_dirty()
    files.sync(names)
    store.abandon()
    files.crash(Random(seed))
    store = open_store(tmp_path, FaultyFiles(tmp_path, files.disk))
    assert contents(store, B) in ([[]], [[b"new"]])
    assert contents(store, A) in ([[]], [[b"old"]])
    store.abandon()


def test_a_removal_outlives_a_cut(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    end = send(store, b"one", A).end_offset
    send(store, b"cut off", B)
    dispatch_all(store)
    assert store.light is not None
    assert store.light.remove(A)
    cut(store, end)
    append(store, b"next", topic="Parent")
    dispatch_all(store)
    store.flushes.flush()
    store.abandon()
    with open_store(tmp_path) as store:
        assert contents(store, A, B) == [[], []]


def test_what_enters_a_queue_after_a_cut_is_there_after_a_kill(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    end = send(store, b"one", A).end_offset
    for name in (A, A, B):
        send(store, b"cut off", name)
        dispatch_all(store)
    cut(store, end)
    send(store, b"two", B)
    append(store, b"next", topic="Parent")
    dispatch_all(store)
    store.flushes.flush()
    store.abandon()
    with open_store(tmp_path) as store:
        assert contents(store, A, B) == [[b"one"], [b"two"]]


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_queues_that_come_and_go_never_show_the_messages_of_others(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("light")
    names = [f"%LMQ%{number}" for number in range(8)]
    model: dict[str, list[bytes]] = {name: [] for name in names}
    settled = True  # nothing has brought removed messages back
    store = open_store(root)
    steps = st.sampled_from(["send", "send", "send", "remove", "flush", "save", "close", "kill", "cut"])
    for number, step in enumerate(data.draw(st.lists(steps, max_size=40))):
        assert store.light is not None
        name = data.draw(st.sampled_from(names))
        if step == "send":
            body = f"{name} {number}".encode()
            assert send(store, body, name).is_ok
            model[name].append(body)
            if data.draw(st.booleans()):
                dispatch_all(store)
        elif step == "remove":
            dispatch_all(store)
            assert store.light.remove(name) == bool(model[name])
            model[name].clear()
        elif step == "flush":
            store.flushes.flush()
        elif step == "save":
            dispatch_all(store)
            store.flushes.flush()
            store.light.save()
        elif step == "cut":
            end = store.log.end
            for each in data.draw(st.lists(st.sampled_from(names), max_size=4)):
                send(store, b"cut off", each)
            dispatch_all(store)
            removed = data.draw(st.sampled_from(names))
            if store.light.remove(removed):
                model[removed].clear()
            cut(store, end)
        else:
            if step == "close":
                store.close()
            else:
                dispatch_all(store)
                store.abandon()
                settled = False
            store = open_store(root)
        dispatch_all(store)
        for each, bodies in model.items():
            found = bodies_of(store, each)
            if settled:
                assert found == bodies
            else:
                assert found[len(found) - len(bodies) :] == bodies
                assert all(body.startswith(each.encode() + b" ") for body in found)
                model[each] = found
        settled = True
    store.abandon()


@pytest.mark.usefixtures("_both_ways")
def test_light_queues_still_have_what_the_limits_and_purges_of_a_topic_hide(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(6)]
    with open_store(tmp_path) as store:
        for body in bodies:
            assert send(store, body, A, B).is_ok
        dispatch_all(store)
        store.expiry.limit("Parent", QueueLimit(max_bytes=1))
        assert store.queues.min_offset("Parent", 0) == 5
        assert contents(store, "Parent", A, B) == [bodies[5:], bodies, bodies]
        store.expiry.limit("Parent", None)
        assert store.expiry.purge("Parent", 0, 4, 1) == 4
        assert contents(store, "Parent", A, B) == [bodies[4:], bodies, bodies]
        store.flushes.flush()
    with open_store(tmp_path) as store:
        assert contents(store, "Parent", A, B) == [bodies[4:], bodies, bodies]
        assert store.expiry.purge("Parent", 0, -1, 2) == 6
        assert contents(store, "Parent", A) == [[], bodies]
