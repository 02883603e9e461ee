"""A broker crashes in the middle of each thing it does: nothing told to be safe is lost, and it goes on.

Crashing is letting go of everything at once, on the test's own loop: nobody is told, nothing more is written.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree

import pytest
from tests.support.broker_cluster import GROUP, TOPIC, Bench, Pulled, consumer, message, pull
from tests.support.loop import turn_until
from tests.support.name_servers import Peer, name_server

from pyromq.broker.services import delays
from pyromq.clock import ManualClock
from pyromq.errors import Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.offsets import (
    CloneGroupOffset,
    GetMaxOffset,
    QueryConsumerOffset,
    ResetOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.pulling import QueryMessage, ViewMessage
from pyromq.protocol.requests.pushes import PushReply
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessageBack, SendReplyV2
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, GetTopicConfig
from pyromq.remoting.addresses import format_address

RETRY = f"%RETRY%{GROUP}"
LONG_MS = 60_000
OFFSETS_WRITTEN_MS = 5


@pytest.fixture(autouse=True)
def _frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "_MAX_SLEEP_S", 0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, clock: ManualClock, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(
        tmp_path, request.param, clock, trace_topic_enabled=True, flush_offsets_ms=OFFSETS_WRITTEN_MS
    ) as running:
        await running.client.create_topic()
        yield running


async def crash(bench: Bench) -> None:
    """Crash and come back on the same ports."""
    port = bench.broker.address[1]
    await bench.broker.abandon()
    await bench.restart(listen_port=port)
    assert not bench.broker.store.recovery.was_clean


async def end_of(bench: Bench, topic: str = TOPIC) -> int:
    return (await bench.client.call(GetMaxOffset(topic=topic, queue_id=0))).offset


async def stands_at(bench: Bench, group: str = GROUP) -> int:
    request = QueryConsumerOffset(consumer_group=group, topic=TOPIC, queue_id=0)
    return (await bench.client.call(request)).offset


def written_offsets(bench: Bench) -> str:
    """What the file says, without blanks; nothing in the moment in which it is replaced."""
    try:
        return "".join((bench.root / "config" / "consumerOffset.json").read_text().split())
    except FileNotFoundError:
        return ""


async def commit_and_wait_until_written(bench: Bench, offset: int) -> None:
    await bench.client.call(
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
    )
    text = f'"{TOPIC}@{GROUP}":{{0:{offset}'
    await turn_until(lambda: text in written_offsets(bench))


async def test_delayed_messages_outlive_a_crash(bench: Bench, clock: ManualClock) -> None:
    for level in ("1", "3"):
        await bench.client.send(level.encode(), properties={"DELAY": level})
    clock.advance(1.5)
    await turn_until(lambda: bench.broker.store.queues.max_offset(TOPIC, 0) == 1)
    await crash(bench)
    clock.advance(10)
    bodies: list[bytes] = []
    while b"3" not in bodies:
        pulled = await bench.client.pull(len(bodies), hold_ms=LONG_MS)
        bodies += pulled.bodies
    assert set(bodies) == {b"1", b"3"}, "what was delivered just before may come twice"


async def test_a_message_given_back_outlives_a_crash(bench: Bench, clock: ManualClock) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.send(b"hard")
    (stored,) = (await bench.client.pull()).messages
    await bench.client.call(SendMessageBack(offset=stored.log_offset, group=GROUP, delay_level=0))
    await crash(bench)
    clock.advance(11)
    again = (await bench.client.pull(0, RETRY, hold_ms=LONG_MS)).messages
    assert [(each.body, each.reconsume_times) for each in again] == [(b"hard", 1)]


async def test_dead_letters_outlive_a_crash(bench: Bench) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.send(b"hopeless")
    (stored,) = (await bench.client.pull()).messages
    await bench.client.call(SendMessageBack(offset=stored.log_offset, group=GROUP, delay_level=-1))
    await crash(bench)
    assert (await bench.client.pull(0, f"%DLQ%{GROUP}")).bodies == [b"hopeless"]


async def test_after_a_crash_a_group_reads_again_and_never_skips(bench: Bench) -> None:
    await bench.client.heartbeat(consumer())
    for number in range(4):
        await bench.client.send(b"%d" % number)
    await commit_and_wait_until_written(bench, 2)
    await crash(bench)
    assert await stands_at(bench) == 2
    assert (await bench.client.pull(2)).bodies == [b"2", b"3"]


@pytest.fixture
async def seldom_written(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    """Offsets are on disk only if somebody was promised that. The group has read three of four messages."""
    async with Bench(tmp_path, HeaderForm.JSON, clock, flush_offsets_ms=LONG_MS) as running:
        await running.client.create_topic()
        await running.client.heartbeat(consumer())
        for number in range(4):
            await running.client.send(b"%d" % number)
        await running.client.call(
            UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=3)
        )
        yield running


async def test_a_reset_outlives_a_crash(seldom_written: Bench) -> None:
    bench = seldom_written
    await bench.client.call(
        ResetOffset(group=GROUP, topic=TOPIC, queue_id=0, offset=2, timestamp=-1, is_force=True)
    )
    await crash(bench)
    assert await stands_at(bench) == 2


async def test_cloned_offsets_outlive_a_crash(seldom_written: Bench) -> None:
    bench = seldom_written
    await bench.client.call(CloneGroupOffset(src_group=GROUP, dest_group="copy", topic=TOPIC))
    await crash(bench)
    assert await stands_at(bench, "copy") == 3


async def test_topics_made_and_deleted_just_before_a_crash_are_so_afterwards(bench: Bench) -> None:
    await bench.client.create_topic("Fresh", 7)
    await bench.client.send(b"x", "Sent")
    await bench.client.call(DeleteTopicFromBroker(topic=TOPIC))
    await crash(bench)
    assert (await bench.client.call(GetTopicConfig(topic="Fresh"))).body.write_queue_nums == 7
    assert (await bench.client.pull(0, "Sent")).bodies == [b"x"]
    assert (await bench.client.refusal(GetTopicConfig(topic=TOPIC))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_messages_are_found_after_a_crash(bench: Bench) -> None:
    sent = await bench.client.send(b"mine", properties={"KEYS": "red"})
    await crash(bench)

    async def bodies(key: str | None, unique: bool) -> list[bytes]:
        request = QueryMessage(
            topic=TOPIC,
            key=key or "",
            max_num=32,
            begin_timestamp=0,
            end_timestamp=2**62,
            is_unique_key=unique,
        )
        return [stored.body for stored in decode_records((await bench.client.call(request)).body)]

    assert await bodies("red", False) == [b"mine"]
    assert await bodies(sent.transaction_id, True) == [b"mine"]
    offset = decode_offset_message_id(sent.msg_id).log_offset
    (stored,) = decode_records((await bench.client.call(ViewMessage(offset=offset))).body)
    assert stored.body == b"mine"


async def test_a_pull_that_waited_for_a_broker_that_crashed_is_asked_again(bench: Bench) -> None:
    async def persistent_pull() -> Pulled:
        while True:
            try:
                return await bench.client.pull(hold_ms=LONG_MS)
            except (TransportError, Refused):
                await asyncio.sleep(0)

    waiting = asyncio.create_task(persistent_pull())
    await turn_until(lambda: bench.broker.statistics().held_pulls == 1)
    await crash(bench)
    await turn_until(lambda: bench.broker.statistics().held_pulls == 1)
    await bench.client.send(b"at last")
    assert (await waiting).bodies == [b"at last"]


async def test_a_subscription_by_expression_is_told_again_after_a_crash(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(expression="price > 5", sql=True, version=3))
    await bench.client.send(b"cheap", properties={"price": "1"})
    await bench.client.send(b"dear", properties={"price": "9"})
    await crash(bench)
    request = pull(sys_flag=0, subscription=None, sub_version=3)
    assert (await bench.client.refusal(request)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await bench.client.heartbeat(consumer(expression="price > 5", sql=True, version=3))
    answer = await bench.client.call(request)
    assert [stored.body for stored in decode_records(answer.body)] == [b"dear"]


async def test_an_asker_gets_its_reply_after_a_crash_once_it_is_known_again(bench: Bench) -> None:
    asker = await bench.new_client("asker")
    await asker.heartbeat(producers=("askers",))
    await asker.send(b"ping", properties={"CORRELATION_ID": "42", "REPLY_TO_CLIENT": "asker"})
    await crash(bench)
    (question,) = (await bench.client.pull()).messages
    properties = {"REPLY_TO_CLIENT": question.get("REPLY_TO_CLIENT") or "", "CORRELATION_ID": "42"}
    sent = message(b"pong", "TestCluster_REPLY_TOPIC", properties=properties)
    reply = SendReplyV2(**{name: getattr(sent, name) for name in SendReplyV2.__struct_fields__})
    assert (await bench.client.refusal(reply)).code == ResponseCode.SYSTEM_ERROR
    await asker.heartbeat(producers=("askers",))
    await bench.client.call(reply)
    pushed = await asker.next_push()
    assert isinstance(pushed, PushReply)
    assert pushed.body == b"pong"


@pytest.mark.parametrize("serialize_type", ["JSON", "ROCKETMQ"])
async def test_a_broker_that_crashed_is_in_the_routes_again_with_what_it_had(
    tmp_path: Path, serialize_type: str
) -> None:
    async with name_server(tmp_path / "ns") as server, Peer(server) as peer:
        address = format_address(*server.address)
        async with Bench(
            tmp_path / "store", HeaderForm.JSON, namesrv_addr=address, serialize_type=serialize_type
        ) as bench:
            await bench.client.send(b"x", "Fresh")
            await crash(bench)
            route = (await peer.call(GetRoute(topic="Fresh"))).body
            assert route.broker_datas[0].broker_addrs == {0: bench.broker.advertised_address}
            assert await end_of(bench, "Fresh") == 1
            with pytest.raises(Refused):
                await peer.watch("Later")
            await bench.client.send(b"y", "Later")
            assert await peer.wait_told() == ["Later"], "it is heard as before"


async def test_a_group_skips_nothing_if_files_of_the_log_are_gone_after_a_clean_stop(tmp_path: Path) -> None:
    small = {"log_segment_bytes": 8192}
    async with Bench(tmp_path, HeaderForm.JSON, store=small) as bench:
        await bench.client.create_topic()
        for _ in range(9):
            await bench.client.send(b"x" * 2000)
        await bench.client.pull(9, commit=9)
        port = bench.broker.address[1]
        await bench.broker.stop()
        for path in sorted((tmp_path / "commitlog").iterdir())[1:]:
            path.unlink()
        await bench._start({"listen_port": port})
        assert bench.broker.store.recovery.was_clean
        end = await end_of(bench)
        assert end < 9
        assert await stands_at(bench) == end
        for _ in range(9):
            await bench.client.send(b"new")
        told = (await bench.client.pull(9, commit=9)).answer
        assert (told.code, told.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, end)


async def test_a_group_skips_nothing_of_a_queue_that_begins_again_because_its_files_are_gone(
    tmp_path: Path,
) -> None:
    async with Bench(tmp_path, HeaderForm.JSON, store={"log_segment_bytes": 8192}) as bench:
        await bench.client.create_topic()
        await bench.client.create_topic("Other")
        for _ in range(3):
            await bench.client.send(b"old")
        await bench.client.pull(3, commit=3)
        for _ in range(9):
            await bench.client.send(b"x" * 2000, "Other")
        port = bench.broker.address[1]
        await bench.broker.stop()
        rmtree(tmp_path / "consumequeue" / TOPIC)
        min((tmp_path / "commitlog").iterdir()).unlink()  # it has expired
        await bench._start({"listen_port": port})
        assert bench.broker.store.recovery.was_clean
        assert await stands_at(bench) == 0
