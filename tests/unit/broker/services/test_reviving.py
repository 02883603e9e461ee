"""Reviving after a stop: nothing that was popped is lost, and what was acknowledged or revived stays so."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.popped_messages import GROUP, TOPIC, PopBench, bodies, pop_bench

from pyromq.broker.flow.draft import Draft
from pyromq.broker.tables.role import Role
from pyromq.clock import ManualClock
from pyromq.protocol import json_body, names
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.store.results import AppendResult, AppendStatus

RETRIES, _ = names.pop_retry_topics(TOPIC, GROUP)


async def test_pops_survive_a_crash_before_the_offsets_are_saved(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"first")
        bench.pop()
        bench.tables.offsets.persist()  # from here on nothing but the log
        bench.send(b"kept")
        bench.send(b"done")
        _, done = bench.pop()
        bench.ack(done)
        clock = bench.clock
        bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        assert bench.pop() == [], "popped again although its pop is in the log"
        bench.pass_time(11_000)
        assert sorted(bodies(bench.pop())) == [b"first", b"kept"]
        bench.pass_time(2_000)
        assert bench.pop() == []


async def test_pops_survive_a_crash_before_offsets_were_ever_saved(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"done")
        bench.send(b"kept")
        done, _ = bench.pop()
        bench.ack(done)
        clock = bench.clock
        bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        assert bench.pop() == [], "popped again although its pop is in the log"
        bench.pass_time(11_000)
        assert bodies(bench.pop()) == [b"kept"]


async def test_a_reset_before_a_crash_is_not_undone_by_the_pops_before_it(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        for number in range(6):
            bench.send(b"m%d" % number)
        for each in bench.pop():
            bench.ack(each)
        bench.pass_time(9_500)  # its checkpoint has left the timers, and is not due
        bench.tables.offsets.assign_reset(GROUP, TOPIC, 0, 0)
        assert bodies(bench.pop(max_msg_nums=2)) == [b"m0", b"m1"]
        bench.tables.offsets.persist()
        clock = bench.clock
        bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        assert bodies(bench.pop()) == [b"m2", b"m3", b"m4", b"m5"]


async def test_pops_of_a_deleted_topic_skip_nothing_of_its_successor(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.tables.offsets.persist()  # a replica may have these when it becomes master
        for number in range(3):
            bench.send(b"old%d" % number)
        bench.pop()
        bench.store.topics.delete(TOPIC)
        for number in range(4):
            bench.send(b"new%d" % number)
        clock = bench.clock
        bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        assert bodies(bench.pop()) == [b"new0", b"new1", b"new2", b"new3"]


@pytest.mark.parametrize("is_written_since", [False, True])
async def test_offsets_of_another_broker_count_from_when_they_were_written(
    tmp_path: Path, is_written_since: bool
) -> None:
    clock = ManualClock()
    with pop_bench(tmp_path, clock) as bench:
        bench.send(b"m")
        bench.pop()
        bench.store.abandon()
    file = tmp_path / "config" / "consumerOffset.json"
    offsets = {f"{TOPIC}@{GROUP}": {0: 0, 1: 0}}  # by an operator who reset them, or before the pop
    file.write_bytes(json_body.encode(ConsumerOffsetSerializeWrapper(offset_table=offsets)))
    written_s = clock.now_ms() / 1000 + (5 if is_written_since else -5)
    os.utime(file, (written_s, written_s))
    with pop_bench(tmp_path, clock) as bench:
        assert bodies(bench.pop()) == ([b"m"] if is_written_since else [])


async def test_what_was_revived_before_a_crash_is_not_revived_again(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"a")
        bench.send(b"b")
        bench.pop(invisible_time=1000)
        bench.tables.offsets.persist()
        bench.pass_time(3000)
        assert len(bench.messages(RETRIES)) == 2
        clock = bench.clock
        bench.store.abandon()
    with pop_bench(tmp_path, clock) as bench:
        bench.pass_time(5000)
        assert len(bench.messages(RETRIES)) == 2


async def test_a_new_master_revives_what_the_old_one_handed_out(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"m")
        bench.pop(invisible_time=2000)
        bench.tables.role.change(Role(1, 1))
        bench.pass_time(5000)
        assert bench.messages(RETRIES) == []
        bench.tables.role.change(Role(0, 2))
        bench.pass_time(1000)
        assert bodies(bench.pop()) == [b"m"]


async def test_a_master_that_is_elected_again_revives_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"m")
        bench.pop(invisible_time=1000)
        # Its replicas have not confirmed anything yet: no progress is saved.
        monkeypatch.setattr(bench.reviving, "_durability", SimpleNamespace(readable_offset=0))
        bench.clock.advance(2.0)
        while not bench.store.queues.next_offset(RETRIES, 0):
            bench.dispatch()
            bench.timers.step()
            bench.reviving.step()
        assert not bench.store.queues.max_offset(RETRIES, 0), "what is not confirmed is in no queue"
        bench.tables.role.change(Role(0, 1))
        for _ in range(10):
            bench.clock.advance(0.1)
            bench.timers.step()
            bench.reviving.step()
        assert bench.store.queues.next_offset(RETRIES, 0) == 1
        bench.pass_time(1000)
        assert [bytes(each.body) for each in bench.messages(RETRIES)] == [b"m"]


async def test_a_store_that_refuses_delays_a_revival_and_loses_nothing(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"m")
        bench.pop(invisible_time=1000)
        append = bench.parts.appending.append
        refused = AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason="the disk is full")

        def refuse_retries(draft: Draft) -> AppendResult:
            return refused if draft.topic == RETRIES else append(draft)

        bench.parts.appending.append = refuse_retries  # type: ignore[method-assign]
        bench.pass_time(3000)
        assert _progress(bench) == -1
        bench.parts.appending.append = append  # type: ignore[method-assign]
        bench.pass_time(3000)
        assert bodies(bench.pop()) == [b"m"]


async def test_messages_of_a_deleted_topic_or_group_are_not_revived(tmp_path: Path) -> None:
    with pop_bench(tmp_path) as bench:
        bench.send(b"m")
        bench.pop(invisible_time=1000)
        bench.parts.groups.delete(GROUP)
        bench.pass_time(5000)
        assert RETRIES not in bench.parts.topics


async def test_progress_waits_for_the_oldest_pop_that_is_not_due(tmp_path: Path) -> None:
    clock = ManualClock()
    with pop_bench(tmp_path, clock, broker={"revive_queues": 1}) as bench:
        bench.send(b"slow")
        bench.send(b"fast")
        bench.pop(max_msg_nums=1, invisible_time=1500)
        bench.pop(max_msg_nums=1, invisible_time=2500)
        bench.pass_time(1600, 100)
        assert _progress(bench) == 0
        bench.pass_time(2000, 100)
        assert _progress(bench) == 1


async def test_progress_waits_until_the_next_master_has_what_was_revived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_bench(tmp_path, ManualClock(), broker={"revive_queues": 1}) as bench:
        bench.send(b"slow")
        bench.pop(max_msg_nums=1, invisible_time=1500)
        with monkeypatch.context() as patched:
            patched.setattr(bench.reviving, "_durability", SimpleNamespace(readable_offset=0))
            bench.pass_time(3000, 100)
            assert _progress(bench) == -1
        bench.pass_time(1000, 100)
        assert _progress(bench) == 0


def _progress(bench: PopBench) -> int:
    return bench.tables.offsets.query(names.REVIVE_GROUP, bench.revive_topic, 0)
