"""Static topics on real brokers: a fixed number of queues that move, and messages that stay in order."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.client_cluster import ClientCluster, client_cluster
from tests.support.replicas import broker_group, until

from pyromq import aio
from pyromq.admin import static_topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import BadPlan
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    ResetOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.popping import PopMessage
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, GetTopicConfig, TopicRemappingDetailWrapper
from pyromq.protocol.static_topics import ROOM

TOPIC, GROUP = "Orders", "shop"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        yield running


async def create(admin: Cluster, queues: int, *brokers: str) -> TopicRemappingDetailWrapper:
    known = await static_topics.holders(admin, TOPIC)
    plan = static_topics.grown(TOPIC, queues, brokers, known, admin.clock.now_ms())
    await static_topics.carry_out(admin, plan)
    return plan


async def move(admin: Cluster, *brokers: str) -> TopicRemappingDetailWrapper:
    known = await static_topics.holders(admin, TOPIC)
    plan = static_topics.moved(TOPIC, brokers, known, admin.clock.now_ms())
    await static_topics.carry_out(admin, plan)
    return plan


async def drained(client: BrokerClient, queue_id: int, offset: int = 0) -> tuple[list[bytes], int]:
    """Every body of a global queue from an offset on, by the offsets that the broker says."""
    found: list[bytes] = []
    last = -1
    while True:
        pulled = await client.pull(offset, TOPIC, queue_id, max_msg_nums=3)
        answer = pulled.answer
        if answer.code == ResponseCode.SUCCESS:
            for message in pulled.messages:
                place = message.queue_offset + (answer.offset_delta or 0)
                assert place > last
                last = place
                found.append(message.body)
        elif answer.next_begin_offset == offset:
            return found, offset
        offset = answer.next_begin_offset


async def test_queues_are_numbered_over_all_brokers_and_answers_use_these_numbers(
    cluster: ClientCluster,
) -> None:
    brokers = {name: await cluster.add_broker(name) for name in ("a", "b")}
    async with Cluster(cluster.namesrv) as admin:
        plan = await create(admin, 4, "a", "b")
        led = {
            number: name
            for name, each in plan.broker_config_map.items()
            for number in (each.mapping_detail.hosted_queues if each.mapping_detail else {})
        }
        assert sorted(led) == [0, 1, 2, 3]
        for number, name in led.items():
            other = "b" if name == "a" else "a"
            async with BrokerClient(brokers[name].address) as there:
                sent = await there.send(b"%d" % number, TOPIC, number)
                assert (sent.queue_id, sent.queue_offset) == (number, 0)
                assert (await there.send(b"more", TOPIC, number)).queue_offset == 1
                assert (await drained(there, number))[0] == [b"%d" % number, b"more"]
                assert (await there.call(GetMaxOffset(topic=TOPIC, queue_id=number))).offset == 2
            async with BrokerClient(brokers[other].address) as elsewhere:
                for request in (
                    GetMaxOffset(topic=TOPIC, queue_id=number),
                    QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=number),
                ):
                    refusal = await elsewhere.refusal(request)
                    assert refusal.code == ResponseCode.NOT_LEADER_FOR_QUEUE
                with pytest.raises(Refused) as refused:
                    await elsewhere.send(b"x", TOPIC, number)
                assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_a_queue_that_moves_keeps_its_messages_its_offsets_and_their_order(
    cluster: ClientCluster,
) -> None:
    a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
    async with (
        Cluster(cluster.namesrv) as admin,
        BrokerClient(a.address) as at_a,
        BrokerClient(b.address) as at_b,
    ):
        await create(admin, 2, "a")
        for number in range(7):
            await at_a.send(b"%d" % number, TOPIC, 1)
        assert len((await drained(at_a, 1))[0]) == 7  # which creates the group
        await at_a.call(UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=1, commit_offset=4))
        await move(admin, "b")
        with pytest.raises(Refused) as refused:
            await at_a.send(b"late", TOPIC, 1)
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE

        question = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=1)
        assert (await at_b.call(question)).offset == 4
        assert (await at_b.call(GetMinOffset(topic=TOPIC, queue_id=1))).offset == 0
        assert (await at_b.call(GetMaxOffset(topic=TOPIC, queue_id=1))).offset == ROOM
        sent = await at_b.send(b"7", TOPIC, 1)
        assert (sent.queue_id, sent.queue_offset) == (1, ROOM)
        for number in range(8, 11):
            await at_b.send(b"%d" % number, TOPIC, 1)
        assert await drained(at_b, 1) == ([b"%d" % number for number in range(11)], ROOM + 4)
        assert (await drained(at_b, 1, 4))[0] == [b"%d" % number for number in range(4, 11)]

        # A commit before the move goes to the old broker, one after it stays here.
        for offset in (6, ROOM + 1):
            commit = UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=1, commit_offset=offset)
            await at_b.call(commit)
            assert (await at_b.call(question)).offset == offset
        await at_b.pull(ROOM + 2, TOPIC, 1, commit=ROOM + 2)
        assert (await at_b.call(question)).offset == ROOM + 2

        # And back: the third part is another queue of the first broker.
        await move(admin, "a")
        assert (await at_a.send(b"11", TOPIC, 1)).queue_offset == 2 * ROOM
        assert (await drained(at_a, 1))[0] == [b"%d" % number for number in range(12)]
        assert (await at_a.call(question)).offset == ROOM + 2


async def test_times_are_searched_over_all_parts_of_a_queue(cluster: ClientCluster) -> None:
    a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
    async with (
        Cluster(cluster.namesrv) as admin,
        BrokerClient(a.address) as at_a,
        BrokerClient(b.address) as at_b,
    ):
        await create(admin, 1, "a")
        empty = GetEarliestStoreTime(topic=TOPIC, queue_id=0)
        assert (await at_a.call(empty)).timestamp == -1
        for _ in range(3):
            await at_a.send(b"x", TOPIC, 0)
        first = (await at_a.call(empty)).timestamp
        await move(admin, "b")
        assert (await at_b.call(empty)).timestamp == first

        async def at(timestamp: int) -> int:
            found = await at_b.call(SearchOffset(topic=TOPIC, queue_id=0, timestamp=timestamp))
            return found.offset

        assert await at(0) == 0
        assert await at(first) == 0
        assert await at(first + 3_600_000) == ROOM
        await at_b.send(b"y", TOPIC, 0)
        assert await at(first - 1) == 0


async def test_what_was_given_away_stays_given_away_after_a_restart(tmp_path: Path) -> None:
    async with client_cluster(tmp_path) as cluster:
        a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
        async with Cluster(cluster.namesrv) as admin:
            await create(admin, 1, "a")
            async with BrokerClient(a.address) as at_a:
                for number in range(3):
                    await at_a.send(b"%d" % number, TOPIC, 0)
            await move(admin, "b")
            await a.abandon()  # like a crash
            await b.abandon()
            a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
            async with BrokerClient(a.address) as at_a, BrokerClient(b.address) as at_b:
                with pytest.raises(Refused) as refused:
                    await at_a.send(b"late", TOPIC, 0)
                assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
                assert (await at_b.send(b"3", TOPIC, 0)).queue_offset == ROOM
                assert (await drained(at_b, 0))[0] == [b"0", b"1", b"2", b"3"]


async def test_a_mapping_that_comes_from_its_backup_waits_for_its_plan(tmp_path: Path) -> None:
    """The backup still says that the queue is the broker's own."""
    async with client_cluster(tmp_path) as cluster:
        a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
        async with Cluster(cluster.namesrv) as admin:
            await create(admin, 1, "a")
            async with BrokerClient(a.address) as at_a:
                await at_a.send(b"0", TOPIC, 0)
            plan = await move(admin, "b")
            async with BrokerClient(b.address) as at_b:
                await at_b.send(b"1", TOPIC, 0)
            mapping = a.store.settings.root / "config" / "topicQueueMapping.json"
            await a.abandon()
            mapping.write_bytes(mapping.read_bytes()[:100])
            for _ in range(2):  # the damaged file is put aside by the first start
                a = await cluster.add_broker("a")
                async with BrokerClient(a.address) as at_a:
                    with pytest.raises(Refused) as refused:
                        await at_a.send(b"into the wrong place", TOPIC, 0)
                    assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
                    with pytest.raises(BadPlan, match="marked as dirty"):
                        await move(admin, "a")
                await a.abandon()
            a = await cluster.add_broker("a")
            await static_topics.carry_out(admin, plan)
            async with BrokerClient(b.address) as at_b:
                assert (await at_b.send(b"2", TOPIC, 0)).queue_offset == ROOM + 1
                assert (await drained(at_b, 0))[0] == [b"0", b"1", b"2"]


async def test_an_interrupted_move_is_finished_by_its_plan(cluster: ClientCluster) -> None:
    a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
    async with (
        Cluster(cluster.namesrv) as admin,
        BrokerClient(a.address) as at_a,
        BrokerClient(b.address) as at_b,
    ):
        await create(admin, 1, "a")
        await at_a.send(b"0", TOPIC, 0)
        known = await static_topics.holders(admin, TOPIC)
        plan = static_topics.moved(TOPIC, ["b"], known, admin.clock.now_ms())
        given_up = static_topics._request(plan.broker_config_map["a"], force=False)
        await at_a.call(given_up)  # and then the tool died
        for client in (at_a, at_b):
            with pytest.raises(Refused):
                await client.send(b"nobody takes it", TOPIC, 0)
        with pytest.raises(BadPlan, match="-mf"):
            await move(admin, "b")
        await static_topics.carry_out(admin, plan)
        assert (await at_b.send(b"1", TOPIC, 0)).queue_offset == ROOM
        await static_topics.carry_out(admin, plan)  # once more changes nothing
        assert (await at_b.send(b"2", TOPIC, 0)).queue_offset == ROOM + 1
        assert (await drained(at_b, 0))[0] == [b"0", b"1", b"2"]


async def test_a_queue_that_arrives_takes_no_messages_before_its_place_is_known(
    cluster: ClientCluster,
) -> None:
    a, b = await cluster.add_broker("a"), await cluster.add_broker("b")
    async with (
        Cluster(cluster.namesrv) as admin,
        BrokerClient(a.address) as at_a,
        BrokerClient(b.address) as at_b,
    ):
        await create(admin, 1, "a")
        await at_a.send(b"0", TOPIC, 0)
        known = await static_topics.holders(admin, TOPIC)
        plan = static_topics.moved(TOPIC, ["b"], known, admin.clock.now_ms())
        # java: Apache's tool begins with the new leader
        await at_b.call(static_topics._request(plan.broker_config_map["b"], force=False))
        await at_a.send(b"1", TOPIC, 0)
        with pytest.raises(Refused) as refused:
            await at_b.send(b"too early", TOPIC, 0)
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        assert (await drained(at_b, 0))[0] == [b"0", b"1"]
        assert (await at_b.call(GetMaxOffset(topic=TOPIC, queue_id=0))).offset == 2


async def test_an_older_epoch_and_an_ordinary_topic_are_refused(cluster: ClientCluster) -> None:
    a = await cluster.add_broker("a")
    async with Cluster(cluster.namesrv) as admin, BrokerClient(a.address) as client:
        first = await create(admin, 1, "a")
        await create(admin, 2, "a")
        stale = static_topics._request(first.broker_config_map["a"], force=False)
        stale.write_queue_nums = stale.read_queue_nums = 2
        with pytest.raises(Refused, match=r"epoch \d+ is older"):
            await client.call(stale)
        with pytest.raises(Refused, match="only updateStaticTopic"):
            await client.create_topic(TOPIC, 7)
        await client.create_topic("Plain", 2)
        request = static_topics._request(first.broker_config_map["a"], force=True)
        request.topic = request.body.topic = "Plain"
        refusal = await client.refusal(request)
        assert (refusal.code, "is not static" in str(refusal)) == (ResponseCode.INVALID_PARAMETER, True)


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "3"},
        {"TIMER_DELAY_SEC": "5"},
        {"TRAN_MSG": "true", "PGROUP": "p"},
        {"_SYS_MSG_PRIORITY_": "1"},
    ],
)
async def test_messages_that_wait_are_refused_in_words(
    cluster: ClientCluster, properties: dict[str, str]
) -> None:
    a = await cluster.add_broker("a")
    async with Cluster(cluster.namesrv) as admin, BrokerClient(a.address) as client:
        await create(admin, 1, "a")
        with pytest.raises(Refused, match="static") as refused:
            await client.send(b"x", TOPIC, 0, properties=properties)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_deleted_static_topic_is_forgotten(cluster: ClientCluster) -> None:
    a = await cluster.add_broker("a")
    async with Cluster(cluster.namesrv) as admin, BrokerClient(a.address) as client:
        await create(admin, 1, "a")
        assert (await client.call(GetTopicConfig(topic=TOPIC))).body.mapping_detail is not None
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        await client.create_topic(TOPIC, 1)
        assert (await client.call(GetTopicConfig(topic=TOPIC))).body.mapping_detail is None
        assert (await client.send(b"x", TOPIC, 0)).queue_offset == 0


async def test_our_clients_send_and_consume_in_order_while_queues_move(cluster: ClientCluster) -> None:
    for name in ("a", "b"):
        await cluster.add_broker(name)
    seen: dict[int, list[int]] = {}

    async def handle(message: ReceivedMessage) -> None:
        seen.setdefault(message.queue.queue_id, []).append(int(message.body))

    def count() -> int:
        return sum(map(len, seen.values()))

    def consumer() -> aio.PushConsumer:
        made = aio.PushConsumer(GROUP, cluster.namesrv, start_from="first", ordered=True)
        made.subscribe(TOPIC, "*", handle)
        return made

    async with Cluster(cluster.namesrv) as admin, aio.Producer("tills", cluster.namesrv) as producer:

        async def send(first: int) -> None:
            for number in range(first, first + 30):
                await producer.send(Message(TOPIC, b"%d" % number), sharding_key=str(number % 3))

        await create(admin, 3, "a", "b")
        async with consumer():
            await send(0)
            await until(lambda: count() == 30)
            await move(admin, "b")
            await send(30)
            await until(lambda: count() == 60)
        await send(60)
        await move(admin, "a")
        await send(90)
        async with consumer():  # goes on where the first one ended
            await until(lambda: count() >= 120)
    assert sorted(number for each in seen.values() for number in each) == list(range(120))
    for each in seen.values():
        assert each == sorted(each)


async def test_replicas_have_the_mappings_and_serve_readers_with_them(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        Cluster(group.names) as admin,
        BrokerClient(master.address) as client,
        BrokerClient(replica.address) as reader,
    ):
        await create(admin, 2, master.settings.broker_name)
        await client.send(b"x", TOPIC, 1)
        detail = master.tables.static_topics.get(TOPIC)
        await until(lambda: replica.tables.static_topics.get(TOPIC) == detail)
        await until(lambda: replica.store.queues.max_offset(TOPIC, 1) == 1)
        pulled = await reader.pull(0, TOPIC, 1)
        assert [each.body for each in pulled.messages] == [b"x"]
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        await until(lambda: TOPIC not in replica.tables.static_topics)


async def test_what_is_not_served_for_static_topics_is_refused_in_words(cluster: ClientCluster) -> None:
    a = await cluster.add_broker("a")
    pop = PopMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=-1,
        max_msg_nums=1,
        invisible_time=1000,
        poll_time=0,
        born_time=0,
        init_mode=0,
    )
    reset = ResetOffset(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
    async with Cluster(cluster.namesrv) as admin, BrokerClient(a.address) as client:
        await create(admin, 1, "a")
        for request in (pop, reset):
            refusal = await client.refusal(request)
            assert refusal.code == ResponseCode.NO_PERMISSION
            assert "the topic Orders is static" in str(refusal)


async def test_the_compiled_paths_leave_static_topics_alone(cluster: ClientCluster) -> None:
    """Their tables would take the number of the global queue for that of the broker's."""
    await cluster.add_broker("a")
    b = await cluster.add_broker("b")
    async with Cluster(cluster.namesrv) as admin, BrokerClient(b.address) as client:
        await create(admin, 2, "a", "b")  # queue 1 is queue 0 of the second broker
        for number in range(2):
            sent = await client.send(b"x", TOPIC, 1, properties={"UNIQ_KEY": f"{number:032X}"})
            assert (sent.queue_id, sent.queue_offset) == (1, number)
            assert len((await client.pull(0, TOPIC, 1)).messages) == number + 1
        with pytest.raises(Refused) as refused:
            await client.send(b"x", TOPIC, 0, properties={"UNIQ_KEY": f"{9:032X}"})
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        with pytest.raises(Refused) as refused:
            await client.pull(0, TOPIC, 0)
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
