"""Offsets asked of brokers, kept in files, and where a new group starts."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import QUEUE, RETRY_QUEUE

from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.offsets import LocalOffsets, RemoteOffsets, StartFrom, StartPositions
from pyromq.client.values import MessageQueue
from pyromq.clock import ManualClock
from pyromq.config.durable_file import DurableFile
from pyromq.errors import ConnectFailed, Refused, StateError
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import GetTopicsOfGroup
from pyromq.protocol.requests.inspection import ConsumeStats, GetConsumeStats, OffsetWrapper
from pyromq.protocol.requests.offsets import (
    GetMaxOffset,
    OffsetAnswer,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.topics import TopicList, TopicListAnswer


async def test_a_stored_offset_is_told_from_none_and_from_not_knowing(network: FakeNetwork) -> None:
    offsets = RemoteOffsets(QueueBrokers(network), "billing")
    network.answers[QueryConsumerOffset] = OffsetAnswer(offset=7)
    assert await offsets.read(QUEUE) == 7
    network.answers[QueryConsumerOffset] = Refused(ResponseCode.QUERY_NOT_FOUND)
    assert await offsets.read(QUEUE) is None
    network.answers[QueryConsumerOffset] = Refused(ResponseCode.SYSTEM_ERROR)
    with pytest.raises(Refused):
        await offsets.read(QUEUE)


async def test_offsets_are_sent_without_waiting_unless_they_must_be_safe(network: FakeNetwork) -> None:
    offsets = RemoteOffsets(QueueBrokers(network), "billing")
    await offsets.store({QUEUE: 7})
    ((address, request),) = network.oneways
    assert (address, request.commit_offset) == ("a:1", 7)  # type: ignore[attr-defined]
    network.answers[UpdateConsumerOffset] = ConnectFailed("away")
    await offsets.store({QUEUE: 8}, confirmed=True)
    assert len(network.calls) == 1


@pytest.mark.parametrize(
    ("start_from", "queue", "expected"),
    [
        ("first", QUEUE, 0),
        ("first", RETRY_QUEUE, 0),
        ("last", QUEUE, 100),
        ("last", RETRY_QUEUE, 0),
        (datetime(2024, 1, 1, tzinfo=UTC), QUEUE, 50),
        (datetime(2024, 1, 1, tzinfo=UTC), RETRY_QUEUE, 0),
    ],
)
async def test_a_new_group_starts_where_it_wants(
    network: FakeNetwork, start_from: StartFrom, queue: MessageQueue, expected: int
) -> None:
    network.answers[GetMaxOffset] = OffsetAnswer(offset=100)
    network.answers[SearchOffset] = OffsetAnswer(offset=50)
    network.answers[QueryConsumerOffset] = Refused(ResponseCode.QUERY_NOT_FOUND)
    positions, offsets = (
        StartPositions(QueueBrokers(network), start_from, ManualClock()),
        RemoteOffsets(QueueBrokers(network), "billing"),
    )
    assert await positions.find(queue, offsets) == expected
    network.answers[QueryConsumerOffset] = OffsetAnswer(offset=3)
    assert await positions.find(queue, offsets) == 3


async def test_a_guess_of_the_broker_is_no_offset(network: FakeNetwork) -> None:
    def not_found(request: QueryConsumerOffset) -> OffsetAnswer:
        if request.set_zero_if_not_found is False:
            raise Refused(ResponseCode.QUERY_NOT_FOUND)
        return OffsetAnswer(offset=0)

    offsets = RemoteOffsets(QueueBrokers(network), "billing")
    network.answers[QueryConsumerOffset] = not_found
    assert await offsets.read(QUEUE) is None
    network.answers[QueryConsumerOffset] = OffsetAnswer(offset=0)
    network.answers[GetTopicsOfGroup] = TopicListAnswer(body=TopicList(topic_list=[]))
    assert await offsets.read(QUEUE) == 0, "a broker that knows this request does as it is asked"
    network.answers[GetTopicsOfGroup] = Refused(ResponseCode.NO_PERMISSION)
    assert await offsets.read(QUEUE) == 0
    network.answers[GetTopicsOfGroup] = Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    network.answers[GetConsumeStats] = BodyAnswer(body=ConsumeStats())
    assert await offsets.read(QUEUE) is None
    stored = ConsumeStats(offset_table={QUEUE: OffsetWrapper()})
    network.answers[GetConsumeStats] = BodyAnswer(body=stored)
    assert await offsets.read(QUEUE) == 0


async def test_what_was_stored_since_the_subscription_is_not_skipped(network: FakeNetwork) -> None:
    clock = ManualClock()
    network.answers[GetMaxOffset] = OffsetAnswer(offset=100)
    network.answers[SearchOffset] = OffsetAnswer(offset=50)
    positions = StartPositions(QueueBrokers(network), "last", clock)
    positions.subscribing("Orders", is_awaited=True)
    positions.subscribed("Orders", [QUEUE])
    assert await positions.beginning(QUEUE) == 100
    assert await positions.beginning(MessageQueue("Orders", "broker-a", 1)) == 50, "it appeared later"
    clock.advance(11)
    assert await positions.beginning(QUEUE) == 50, "another member may have read it without a commit"
    _, request = network.calls[-1]
    assert isinstance(request, SearchOffset)
    assert request.timestamp == clock.now_ms() - 71_000
    positions.subscribing("Orders", is_awaited=False)
    assert await positions.beginning(QUEUE) == 50, (
        "the application does not wait, and may have sent meanwhile"
    )


async def test_local_offsets_survive_in_the_file_of_javas_clients(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "screens")
    assert await offsets.read(QUEUE) is None
    await offsets.store({QUEUE: 7})
    await offsets.store({MessageQueue("Orders", "broker-a", 1): 9})
    file = tmp_path / "1.2.3.4@DEFAULT" / "screens" / "offsets.json"
    assert file.read_text() == (
        '{\n\t"offsetTable":{\n'
        '\t\t{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:7,\n'
        '\t\t{"brokerName":"broker-a","queueId":1,"topic":"Orders"}:9\n'
        "\t}\n}"
    )
    assert await LocalOffsets(tmp_path, "1.2.3.4@DEFAULT", "screens").read(QUEUE) == 7


JAVAS_FILE = (
    '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n'
    '\t\t\t"topic":"Orders"\n\t\t}:42\n\t}\n}'
)


@pytest.mark.parametrize("damage", ["", "{"])
async def test_a_damaged_file_of_offsets_is_read_from_its_backup(tmp_path: Path, damage: str) -> None:
    directory = tmp_path / "client" / "screens"
    directory.mkdir(parents=True)
    (directory / "offsets.json").write_text(damage)
    (directory / "offsets.json.bak").write_text(JAVAS_FILE)
    assert await LocalOffsets(tmp_path, "client", "screens").read(QUEUE) == 42


async def test_offsets_that_cannot_be_read_are_not_guessed(tmp_path: Path) -> None:
    directory = tmp_path / "client" / "screens"
    directory.mkdir(parents=True)
    (directory / "offsets.json").write_text("{")
    with pytest.raises(StateError, match="remove it"):
        await LocalOffsets(tmp_path, "client", "screens").read(QUEUE)


async def test_a_write_that_nobody_waits_for_any_more_is_not_met_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = LocalOffsets(tmp_path, "client", "screens")
    is_writing, may_write, steps, save = threading.Event(), threading.Event(), list[str](), DurableFile.save

    def save_slowly(file: DurableFile, content: bytes) -> None:
        steps.append("begin")
        is_writing.set()
        assert may_write.wait(60)
        save(file, content)
        steps.append("end")

    monkeypatch.setattr(DurableFile, "save", save_slowly)
    first = asyncio.create_task(offsets.store({QUEUE: 1}))
    await asyncio.to_thread(is_writing.wait)
    first.cancel()
    second = asyncio.create_task(offsets.store({QUEUE: 2}))
    for _ in range(100):  # so much may happen before
        await asyncio.sleep(0)
    may_write.set()
    assert await second == {}
    await asyncio.gather(first, return_exceptions=True)
    assert steps == ["begin", "end"] * 2
    assert await LocalOffsets(tmp_path, "client", "screens").read(QUEUE) == 2
