"""What consumers ask of brokers, and what they make of the answers."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import QUEUE

from pyromq.client.consumer.assignment import Average
from pyromq.client.consumer.brokers import Brokers
from pyromq.client.consumer.fetching import Fetching
from pyromq.client.consumer.locks import QueueLocks
from pyromq.client.consumer.offsets import LocalOffsets, RemoteOffsets, StartFrom, StartPositions
from pyromq.client.consumer.rebalancing import Rebalancing
from pyromq.client.consumer.retries import Retries
from pyromq.client.consumer.subscriptions import Subscription
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.clock import ManualClock
from pyromq.cluster.routes import Route
from pyromq.config.durable_file import DurableFile
from pyromq.errors import CallTimeout, ConnectFailed, NoRoute, PyroError, Refused, StateError
from pyromq.protocol.bodies.groups import GetConsumerListByGroupResponseBody
from pyromq.protocol.bodies.locks import LockBatchResponseBody
from pyromq.protocol.catalogue import Answer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import decode_properties, encode_properties
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.protocol.requests.membership import GetConsumerIds, GetConsumerIdsAnswer
from pyromq.protocol.requests.offsets import (
    GetMaxOffset,
    OffsetAnswer,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.ordering import LockQueues, LockQueuesAnswer, UnlockQueues
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage, PullMessageAnswer
from pyromq.protocol.requests.sending import SendMessageAnswer, SendMessageBack, SendMessageV2

RETRY_QUEUE = MessageQueue("%RETRY%billing", "broker-a", 0)
BROKERS = {"broker-a": {0: "a:1", 1: "a:2"}}
ORDERS = Route("Orders", (QUEUE,), (QUEUE,), BROKERS)
RETRIES = Route(RETRY_QUEUE.topic, (RETRY_QUEUE,), (RETRY_QUEUE,), BROKERS)


@pytest.fixture
def network() -> FakeNetwork:
    return FakeNetwork(ORDERS, RETRIES)


# Offsets


async def test_a_stored_offset_is_told_from_none_and_from_not_knowing(network: FakeNetwork) -> None:
    offsets = RemoteOffsets(Brokers(network), "billing")
    network.answers[QueryConsumerOffset] = OffsetAnswer(offset=7)
    assert await offsets.read(QUEUE) == 7
    network.answers[QueryConsumerOffset] = Refused(ResponseCode.QUERY_NOT_FOUND)
    assert await offsets.read(QUEUE) is None
    network.answers[QueryConsumerOffset] = Refused(ResponseCode.SYSTEM_ERROR)
    with pytest.raises(Refused):
        await offsets.read(QUEUE)


async def test_offsets_are_sent_without_waiting_unless_they_must_be_safe(network: FakeNetwork) -> None:
    offsets = RemoteOffsets(Brokers(network), "billing")
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
        (datetime(2024, 1, 1, tzinfo=UTC), RETRY_QUEUE, 100),
    ],
)
async def test_a_new_group_starts_where_it_wants(
    network: FakeNetwork, start_from: StartFrom, queue: MessageQueue, expected: int
) -> None:
    network.answers[GetMaxOffset] = OffsetAnswer(offset=100)
    network.answers[SearchOffset] = OffsetAnswer(offset=50)
    network.answers[QueryConsumerOffset] = Refused(ResponseCode.QUERY_NOT_FOUND)
    positions, offsets = (
        StartPositions(Brokers(network), start_from),
        RemoteOffsets(Brokers(network), "billing"),
    )
    assert await positions.find(queue, offsets) == expected
    network.answers[QueryConsumerOffset] = OffsetAnswer(offset=3)
    assert await positions.find(queue, offsets) == 3


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


# Pulling


def pull_answer(*records: StoredMessage, code: int = 0, broker_id: int = 0) -> PullMessageAnswer:
    return PullMessageAnswer(
        code=code,
        suggest_which_broker_id=broker_id,
        next_begin_offset=9,
        min_offset=1,
        max_offset=10,
        body=b"".join(map(encode_record, records)),
    )


def tagged(offset: int, tag: str | None, topic: str = "Orders", **properties: str) -> StoredMessage:
    text = encode_properties({"TAGS": tag, **properties})
    return StoredMessage(topic, b"x", text.encode(), queue_offset=offset)


EVERYTHING = Subscription.of("Orders", "*", 5)


async def test_a_pull_says_what_is_done_and_waits_at_the_broker(network: FakeNetwork) -> None:
    network.answers[PullMessage] = pull_answer(tagged(8, None))
    pulled = await Fetching(network, "billing").pull(QUEUE, EVERYTHING, 8, commit_offset=6)
    ((address, request),) = network.calls
    assert isinstance(request, PullMessage)
    assert address == "a:1"
    assert (request.sys_flag, request.commit_offset, request.sub_version) == (3, 6, 5)
    assert request.subscription is None
    assert (pulled.next_offset, len(pulled.messages), pulled.is_moved) == (9, 1, False)


async def test_a_replica_is_asked_where_the_broker_wishes_and_is_told_no_offsets(
    network: FakeNetwork,
) -> None:
    network.answers[PullMessage] = pull_answer(broker_id=1, code=ResponseCode.PULL_NOT_FOUND)
    fetching = Fetching(network, "billing")
    pulled = await fetching.pull(QUEUE, EVERYTHING, 8, commit_offset=6)
    await fetching.pull(QUEUE, EVERYTHING, 8, commit_offset=6, broker_id=pulled.next_broker_id)
    address, request = network.calls[1]
    assert isinstance(request, PullMessage)
    assert (address, request.sys_flag) == ("a:2", 2)


@pytest.mark.parametrize(
    ("code", "is_moved"),
    [
        (ResponseCode.PULL_NOT_FOUND, False),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, False),
        (ResponseCode.PULL_OFFSET_MOVED, True),
    ],
)
async def test_answers_without_messages_say_where_to_go_on(
    network: FakeNetwork, code: int, is_moved: bool
) -> None:
    network.answers[PullMessage] = pull_answer(code=code)
    pulled = await Fetching(network, "billing").pull(QUEUE, EVERYTHING, 8)
    assert (pulled.messages, pulled.next_offset, pulled.is_moved) == ([], 9, is_moved)


async def test_messages_with_other_tags_are_sorted_out(network: FakeNetwork) -> None:
    network.answers[PullMessage] = pull_answer(tagged(1, "Aa"), tagged(2, "BB"), tagged(3, None))
    pulled = await Fetching(network, "billing").pull(QUEUE, Subscription.of("Orders", "Aa", 0), 1)
    assert [message.queue_offset for message in pulled.messages] == [1]


async def test_retried_messages_come_under_their_first_topic(network: FakeNetwork) -> None:
    network.answers[PullMessage] = pull_answer(
        tagged(1, None, RETRY_QUEUE.topic, RETRY_TOPIC="shop%Orders"), tagged(2, None, RETRY_QUEUE.topic)
    )
    fetching = Fetching(network, "billing", namespace="shop")
    pulled = await fetching.pull(RETRY_QUEUE, Subscription.of(RETRY_QUEUE.topic, "*", 0), 1)
    assert [message.topic for message in pulled.messages] == ["Orders", "%RETRY%billing"]


async def test_a_lite_pull_brings_its_subscription_and_falls_back_on_old_brokers(
    network: FakeNetwork,
) -> None:
    network.answers[LitePullMessage] = Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    network.answers[PullMessage] = pull_answer()
    fetching = Fetching(network, "reports", is_lite=True)
    for _ in range(2):
        await fetching.pull(QUEUE, EVERYTHING, 8)
    requests = [request for _, request in network.calls]
    assert [type(request) for request in requests] == [LitePullMessage, PullMessage, PullMessage]
    assert isinstance(requests[2], PullMessage)
    assert (requests[2].sys_flag, requests[2].subscription, requests[2].sub_version) == (22, "*", 0)


async def test_a_broker_that_nobody_knows_is_an_error_that_passes(network: FakeNetwork) -> None:
    unknown = MessageQueue("Orders", "broker-z", 0)
    with pytest.raises((NoRoute, ConnectFailed)):
        await Fetching(network, "billing").pull(unknown, EVERYTHING, 0)


# Giving back


def failed_message() -> ReceivedMessage:
    stored = tagged(1, "a", UNIQ_KEY="the id", RECONSUME_TIME="x", TRAN_MSG="true")
    stored.log_offset, stored.reconsume_times, stored.flag = 77, 2, 5
    return ReceivedMessage(stored, QUEUE)


async def test_a_message_is_given_back_by_its_place_in_the_log(network: FakeNetwork) -> None:
    network.answers[SendMessageBack] = Answer()
    await Retries(network, "billing", ManualClock(), max_times=4).give_back(failed_message(), 3)
    ((_, request),) = network.calls
    assert isinstance(request, SendMessageBack)
    assert (request.offset, request.delay_level, request.max_reconsume_times) == (77, 3, 4)
    assert (request.origin_topic, request.origin_msg_id, request.group) == ("Orders", "the id", "billing")


@pytest.mark.parametrize(("delay_level", "limit"), [(0, 4), (-1, -1)])
async def test_what_cannot_be_given_back_is_sent_again(
    network: FakeNetwork, delay_level: int, limit: int
) -> None:
    network.answers[SendMessageBack] = CallTimeout("no answer")
    network.answers[SendMessageV2] = SendMessageAnswer(msg_id="1", queue_id=0, queue_offset=0)
    await Retries(network, "billing", ManualClock(), max_times=4).give_back(failed_message(), delay_level)
    _, request = network.calls[1]
    assert isinstance(request, SendMessageV2)
    assert (request.topic, request.body, request.flag) == ("%RETRY%billing", b"x", 5)
    assert (request.reconsume_times, request.max_reconsume_times) == (3, limit)
    assert decode_properties(request.properties or "") == {
        "TAGS": "a",
        "UNIQ_KEY": "the id",
        "ORIGIN_MESSAGE_ID": "the id",
        "RETRY_TOPIC": "Orders",
        "DELAY": "5",
    }


async def test_a_message_that_nobody_takes_is_an_error(network: FakeNetwork) -> None:
    network.answers[SendMessageBack] = network.answers[SendMessageV2] = CallTimeout("no answer")
    with pytest.raises(CallTimeout):
        await Retries(network, "billing", ManualClock(), max_times=None).give_back(failed_message(), 0)


# Locks


async def test_only_granted_locks_count_and_a_broker_that_is_away_grants_none(network: FakeNetwork) -> None:
    locks = QueueLocks(network, "billing", "me")
    network.answers[LockQueues] = LockQueuesAnswer(body=LockBatchResponseBody(lock_ok_mq_set={QUEUE}))
    assert await locks.acquire([QUEUE, RETRY_QUEUE]) == {QUEUE}
    network.answers[LockQueues] = network.answers[UnlockQueues] = CallTimeout("away")
    assert not await locks.acquire_one(QUEUE)
    await locks.release([QUEUE])


# Dividing


class Held:
    def __init__(self) -> None:
        self.queues: dict[str, set[MessageQueue]] = {}
        self.is_enough = True

    async def hold(self, topic: str, queues: set[MessageQueue]) -> bool:
        self.queues[topic] = queues
        return self.is_enough


def members(*ids: str) -> GetConsumerIdsAnswer:
    return GetConsumerIdsAnswer(body=GetConsumerListByGroupResponseBody(consumer_id_list=list(ids)))


async def test_each_member_takes_its_share(network: FakeNetwork) -> None:
    queues = tuple(MessageQueue("Orders", "broker-a", number) for number in range(4))
    network.routes._take(Route("Orders", queues, queues, BROKERS))
    network.answers[GetConsumerIds] = members("you", "me")
    held = Held()
    assert await Rebalancing(network, "g", "me", Average(), lambda: ["Orders"], held.hold).once()
    assert held.queues == {"Orders": set(queues[:2])}


async def test_broadcasting_members_take_all_and_ask_nobody(network: FakeNetwork) -> None:
    held = Held()
    assert await Rebalancing(network, "g", "me", None, lambda: ["Orders"], held.hold).once()
    assert held.queues == {"Orders": {QUEUE}}
    assert network.calls == []


async def test_who_is_not_known_as_a_member_holds_nothing(network: FakeNetwork) -> None:
    network.answers[GetConsumerIds] = members("you")
    held = Held()
    assert not await Rebalancing(network, "g", "me", Average(), lambda: ["Orders"], held.hold).once()
    assert held.queues == {"Orders": set()}


@pytest.mark.parametrize("problem", [CallTimeout("away"), Refused(ResponseCode.SYSTEM_ERROR)])
async def test_nothing_changes_while_the_members_are_unknown(
    network: FakeNetwork, problem: PyroError
) -> None:
    network.answers[GetConsumerIds] = problem
    held = Held()
    topics = ["Orders", "Nowhere"]
    assert not await Rebalancing(network, "g", "me", Average(), lambda: topics, held.hold).once()
    assert held.queues == {}


async def test_a_change_is_acted_on_at_once_and_a_failure_tried_again_soon(network: FakeNetwork) -> None:
    network.answers[GetConsumerIds] = members("me")
    held = Held()
    rounds = 0
    many = asyncio.Event()

    async def hold(topic: str, queues: set[MessageQueue]) -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            many.set()
        return await held.hold(topic, queues)

    rebalancing = Rebalancing(network, "g", "me", Average(), lambda: ["Orders"], hold, interval_s=3600)
    held.is_enough = False
    await rebalancing.once()
    held.is_enough = True
    running = asyncio.create_task(rebalancing.run())
    async with asyncio.timeout(60):
        await many.wait()  # it was not balanced: nobody had to ask for the second round
        rebalancing.soon()
        await rebalancing.wait_until(lambda: rounds == 3)
    running.cancel()
    await asyncio.wait([running])
    assert "balanced" in repr(rebalancing)
