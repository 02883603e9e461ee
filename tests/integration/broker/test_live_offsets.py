"""Positions over real sockets, in both header forms: committed, kept, reset, cloned and cleaned away."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import BROKER_NAME, GROUP, TOPIC, Bench, consumer, message, pull
from tests.support.loop import turn_until

from pyromq.clock import ManualClock
from pyromq.protocol import json_body
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.groups import DeleteGroup
from pyromq.protocol.requests.inspection import GetConsumerStatus
from pyromq.protocol.requests.membership import MessageModel
from pyromq.protocol.requests.offsets import (
    CloneGroupOffset,
    GetAllConsumerOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    ResetOffset,
    ResetOffsetBody,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.pushes import ResetConsumerOffset

QUEUE = MessageQueue(TOPIC, BROKER_NAME, 0)


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param) as running:
        await running.client.create_topic()
        for number in range(10):
            await running.client.send(b"%d" % number)
        await running.client.heartbeat(consumer())
        yield running


def query(group: str = GROUP, queue_id: int = 0, topic: str = TOPIC) -> QueryConsumerOffset:
    return QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id)


def commit(offset: int, group: str = GROUP, queue_id: int = 0, topic: str = TOPIC) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset)


def reset(timestamp: int = 0, **fields: Any) -> ResetOffset:
    return ResetOffset(group=GROUP, topic=TOPIC, timestamp=timestamp, is_force=True, **fields)


async def stands_at(bench: Bench, group: str = GROUP, queue_id: int = 0) -> int:
    return (await bench.client.call(query(group, queue_id))).offset


async def test_a_committed_offset_is_found_again(bench: Bench) -> None:
    await bench.client.call(commit(7))
    assert await stands_at(bench) == 7
    await bench.client.send_oneway(commit(8))
    assert await stands_at(bench) == 8
    await bench.client.call(commit(3))
    assert await stands_at(bench) == 3, "a group may go back"


async def test_a_group_that_never_read_a_queue_starts_at_its_first_message(bench: Bench) -> None:
    assert await stands_at(bench, "newcomer") == 0
    request = query("newcomer")
    request.set_zero_if_not_found = False
    assert (await bench.client.refusal(request)).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (commit(1, group="nobody"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (commit(1, topic="Nowhere"), ResponseCode.TOPIC_NOT_EXIST),
        (commit(-1), ResponseCode.INVALID_PARAMETER),
        (commit(1, queue_id=99), ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_a_commit_that_makes_no_sense_is_refused(
    bench: Bench, request_: UpdateConsumerOffset, code: int
) -> None:
    assert (await bench.client.refusal(request_)).code == code


async def test_members_of_a_broadcasting_group_keep_their_offsets_themselves(bench: Bench) -> None:
    await bench.client.heartbeat(consumer("everyone", model=MessageModel.BROADCASTING))
    answer = await bench.client.call(commit(5, "everyone"))
    assert answer.remark
    assert await stands_at(bench, "everyone") == 0


async def test_offsets_survive_a_restart(bench: Bench) -> None:
    await bench.client.call(commit(6))
    await bench.restart()
    assert await stands_at(bench) == 6
    assert (await bench.client.pull(6)).bodies == [b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("form", HeaderForm)
async def test_offsets_are_written_now_and_then(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(tmp_path, form, flush_offsets_ms=20) as bench:
        await bench.client.create_topic()
        await bench.client.heartbeat(consumer())
        await bench.client.call(commit(4))
        file = tmp_path / "config" / "consumerOffset.json"

        def is_written() -> bool:
            return file.exists() and b'"Orders@shop"' in file.read_bytes()

        await turn_until(is_written)
        assert json.loads(file.read_text().replace("{0:", '{"0":'))["offsetTable"]["Orders@shop"] == {"0": 4}


async def test_all_offsets_are_read_as_a_replica_does(bench: Bench) -> None:
    await bench.client.call(commit(4))
    await bench.client.call(commit(2, queue_id=1))
    table = (await bench.client.call(GetAllConsumerOffsets())).body.offset_table
    assert table[f"{TOPIC}@{GROUP}"] == {0: 4, 1: 2}


async def test_the_ends_of_a_queue(bench: Bench) -> None:
    assert (await bench.client.call(GetMaxOffset(topic=TOPIC, queue_id=0))).offset == 10
    assert (await bench.client.call(GetMinOffset(topic=TOPIC, queue_id=0))).offset == 0
    assert (await bench.client.call(GetMaxOffset(topic=TOPIC, queue_id=1))).offset == 0
    (first,) = (await bench.client.pull(0, max_msg_nums=1)).messages
    earliest = await bench.client.call(GetEarliestStoreTime(topic=TOPIC, queue_id=0))
    assert earliest.timestamp == first.store_timestamp
    assert (await bench.client.call(GetEarliestStoreTime(topic=TOPIC, queue_id=1))).timestamp == -1


@pytest.mark.parametrize("form", HeaderForm)
async def test_offsets_are_found_by_time(tmp_path: Path, form: HeaderForm) -> None:
    clock = ManualClock()
    async with Bench(tmp_path, form, clock) as bench:
        begin_ms = clock.now_ms()
        for _ in range(5):
            await bench.client.send(b"x")
            await bench.client.send(b"y")
            clock.advance(10)

        async def at(timestamp: int, boundary: str | None = None) -> int:
            request = SearchOffset(topic=TOPIC, queue_id=0, timestamp=timestamp, boundary_type=boundary)
            return (await bench.client.call(request)).offset

        assert await at(begin_ms) == 0
        assert await at(begin_ms + 20_000) == 4
        assert await at(begin_ms + 20_000, "UPPER") == 5
        assert await at(begin_ms + 15_000) == 4
        assert await at(begin_ms + 100_000) == 10


# Sending groups elsewhere


async def test_a_reset_takes_effect_at_the_next_pull(bench: Bench) -> None:
    await bench.client.call(commit(10))
    answer = await bench.client.call(reset())
    assert answer.body is not None
    assert answer.body.offset_table[QUEUE] == 0
    moved = (await bench.client.pull(10)).answer
    assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert (await bench.client.pull(0)).bodies[0] == b"0"
    assert await stands_at(bench) == 0


async def test_a_commit_made_before_a_reset_was_seen_does_not_undo_it(bench: Bench) -> None:
    await bench.client.call(reset(queue_id=0, offset=3))
    assert (await bench.client.call(commit(10))).remark
    assert (await bench.client.pull(10)).answer.next_begin_offset == 3


async def test_a_pull_that_waits_hears_of_a_reset(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.client.pull(10, hold_ms=60_000))
    await turn_until(lambda: bench.broker.statistics().held_pulls == 1)
    await bench.client.call(reset())
    assert (await waiting).answer.code == ResponseCode.PULL_NOT_FOUND
    assert (await bench.client.pull(10)).answer.next_begin_offset == 0


@pytest.mark.parametrize(("offset", "code"), [(10, None), (99, ResponseCode.SYSTEM_ERROR)])
async def test_a_reset_stays_within_the_queue(bench: Bench, offset: int, code: int | None) -> None:
    request = reset(queue_id=0, offset=offset)
    if code is None:
        await bench.client.call(request)
    else:
        assert (await bench.client.refusal(request)).code == code


async def test_a_reset_of_what_is_not_there_is_refused(bench: Bench) -> None:
    request = reset()
    request.topic = "Nowhere"
    assert (await bench.client.refusal(request)).code == ResponseCode.TOPIC_NOT_EXIST
    request = reset()
    request.group = "nobody"
    assert (await bench.client.refusal(request)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("form", HeaderForm)
async def test_members_are_told_of_a_reset_where_brokers_do_not_do_it(
    tmp_path: Path, form: HeaderForm
) -> None:
    async with Bench(tmp_path, form, server_side_reset=False) as bench:
        await bench.client.create_topic(queues=1)
        await bench.client.send(b"x")
        await bench.client.heartbeat(consumer())
        await bench.client.next_push()  # somebody has joined: itself
        await bench.client.call(commit(1))
        await bench.client.call(reset())
        told = await bench.client.next_push()
        assert isinstance(told, ResetConsumerOffset)
        assert json_body.decode(told.body, ResetOffsetBody).offset_table == {QUEUE: 0}
        await bench.client.close()
        await turn_until(lambda: not bench.broker.statistics().traffic.connections)
        operator = await bench.new_client("operator")
        assert (await operator.refusal(reset())).code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_members_are_asked_where_they_stand(bench: Bench) -> None:
    answer = await bench.client.call(GetConsumerStatus(topic=TOPIC, group=GROUP))
    assert answer.body.consumer_table == {"c1": {QUEUE: 7}}
    refusal = await bench.client.refusal(GetConsumerStatus(topic=TOPIC, group="nobody"))
    assert refusal.code == ResponseCode.SYSTEM_ERROR


async def test_one_group_takes_over_the_offsets_of_another(bench: Bench) -> None:
    await bench.client.call(commit(4))
    await bench.client.call(commit(2, queue_id=1))
    await bench.client.call(CloneGroupOffset(src_group=GROUP, dest_group="heir", topic=TOPIC))
    assert [await stands_at(bench, "heir", queue_id) for queue_id in (0, 1)] == [4, 2]


async def test_the_least_of_all_groups(bench: Bench) -> None:
    for group, offset in (("first", 3), ("second", 6), (GROUP, 5)):
        await bench.client.heartbeat(consumer(group))
        await bench.client.call(commit(offset, group))
    request = QueryCorrectionOffsets(compare_group=GROUP, topic=TOPIC, filter_groups="first")
    assert (await bench.client.call(request)).body.correction_offsets == {0: 5}


async def test_a_deleted_group_may_take_its_offsets_along(bench: Bench) -> None:
    await bench.client.call(commit(5))
    await bench.client.call(DeleteGroup(group_name=GROUP, clean_offset=True))
    assert await stands_at(bench) == 0


@pytest.mark.parametrize("form", HeaderForm)
async def test_offsets_of_dead_groups_are_cleaned_once_their_messages_are_gone(
    tmp_path: Path, form: HeaderForm
) -> None:
    async with Bench(
        tmp_path,
        form,
        flush_offsets_ms=1,
        store={"log_segment_bytes": 8192, "queue_file_bytes": 200},
    ) as bench:
        await bench.client.create_topic()
        await bench.client.send(b"x" * 2000)
        for group in ("dead", "alive"):
            await bench.client.pull(group=group)
            await bench.client.call(commit(1, group))
        await bench.client.call(DeleteGroup(group_name="dead"))
        for _ in range(20):
            await bench.client.send(b"x" * 2000)
        table = (await bench.client.call(GetAllConsumerOffsets())).body.offset_table
        assert {f"{TOPIC}@dead", f"{TOPIC}@alive"} <= set(table), "its messages are still there"
        await bench.restart(
            store={"log_segment_bytes": 8192, "queue_file_bytes": 200, "file_reserved_hours": 0}
        )
        bench.broker.store.clean(on_demand=True)
        assert bench.broker.store.queues.min_offset(TOPIC, 0) > 1

        async def known() -> set[str]:
            return set((await bench.client.call(GetAllConsumerOffsets())).body.offset_table)

        while f"{TOPIC}@dead" in await known():  # each round of writing is one closer to a round of cleaning
            await bench.client.call(commit(2, "alive"))
        assert f"{TOPIC}@alive" in await known()


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_group_far_behind_is_sent_to_the_first_message_left(tmp_path: Path, form: HeaderForm) -> None:
    small = {"log_segment_bytes": 8192, "queue_file_bytes": 200, "file_reserved_hours": 0}
    async with Bench(tmp_path, form, store=small) as bench:
        await bench.client.create_topic()
        for _ in range(20):
            await bench.client.call(message(b"x" * 2000))
        bench.broker.store.flushes.flush()
        bench.broker.store.clean(on_demand=True)
        first = (await bench.client.call(GetMinOffset(topic=TOPIC, queue_id=0))).offset
        assert first > 0
        answer = (await bench.client.pull(0)).answer
        assert (answer.code, answer.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, first)
        assert len((await bench.client.pull(first)).bodies) > 0
        assert (await bench.client.refusal(query("newcomer"))).code == ResponseCode.QUERY_NOT_FOUND
        assert (await bench.client.call(pull(first))).min_offset == first
