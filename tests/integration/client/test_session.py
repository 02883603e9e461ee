"""Sessions: shared, known to brokers, told of changes, and gone when nobody uses them."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.client_cluster import ClientCluster, client_cluster
from tests.support.loop import turn_until
from tests.support.name_servers import name_server
from tests.support.scripted_broker import ScriptedBroker
from tests.support.tcp_proxy import TcpProxy

from pyromq import aio
from pyromq.client import session as session_module
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings, Credentials, TlsOptions
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.errors import NoRoute, Refused, SendFailed, StateError
from pyromq.protocol import json_body
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.record import StoredMessage, encode_record
from pyromq.protocol.requests.inspection import (
    CMResult,
    ConsumeMessageDirectly,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerRunningInfo,
)
from pyromq.protocol.requests.membership import ConsumerData, SubscriptionData
from pyromq.protocol.requests.offsets import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from pyromq.protocol.requests.pushes import (
    GetConsumerStatusFromClient,
    NotifyConsumerIdsChanged,
    NotifyRoutesChanged,
    PushReply,
    ResetConsumerOffset,
)
from pyromq.remoting.addresses import format_address, parse_address
from pyromq.remoting.tls import TlsServer
from pyromq.security.signature import is_signed


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders") as running:
        yield running


@asynccontextmanager
async def session_for(namesrv: str, **options: Any) -> AsyncIterator[Session]:
    session = await Session.obtain(ClientSettings.of(namesrv, **options))
    try:
        yield session
    finally:
        await session.release()


class Member:
    """A consumer that remembers what it was asked."""

    def __init__(self, group: str = "billing") -> None:
        self.group = group
        self.divided = asyncio.Event()
        self.resets: asyncio.Queue[tuple[str, dict[MessageQueue, int]]] = asyncio.Queue()

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group, subscription_data_set=[SubscriptionData(topic="Orders", sub_string="*")]
        )

    def topics(self) -> set[str]:
        return {"Orders"}

    def members_changed(self) -> None:
        self.divided.set()

    def offsets_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.resets.put_nowait((topic, offsets))

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {MessageQueue(topic, "scripted", 0): 7}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_X": "y"})

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS, remark=message.topic)


# Sharing


async def test_equal_settings_share_a_session(broker: ScriptedBroker) -> None:
    async with (
        session_for(broker.address) as first,
        session_for(broker.address) as second,
        session_for(broker.address, instance_name="own") as third,
        session_for(broker.address, unit_name="u") as fourth,
    ):
        assert first is second
        assert len({first.client_id, third.client_id, fourth.client_id}) == 3
        assert third.client_id.endswith("@own")
        assert fourth.client_id.endswith("@u")
    async with session_for(broker.address) as fifth:
        assert fifth is not first, "the last one that left closed it"


async def test_a_thousand_producers_share_one_connection(broker: ScriptedBroker) -> None:
    producers = [aio.Producer(f"group-{number}", broker.address, send_timeout_s=30) for number in range(1000)]
    for producer in producers:
        await producer.start()
    await asyncio.gather(*(producer.send(Message("Orders", b"x")) for producer in producers))
    assert len(broker.connections) == 1
    await asyncio.gather(*(producer.close() for producer in producers))


async def test_consumers_of_one_group_have_different_ids(broker: ScriptedBroker) -> None:
    settings = ClientSettings.of(broker.address)
    first = await Session.obtain(settings, consumer_group="billing")
    second = await Session.obtain(settings, consumer_group="billing")
    other = await Session.obtain(settings, consumer_group="shipping")
    assert first.client_id != second.client_id
    assert other is first
    for session in (first, second, other):
        await session.release()


async def test_a_chosen_name_holds_one_consumer_of_a_group(broker: ScriptedBroker) -> None:
    async with session_for(broker.address, instance_name="one") as session:
        member = Member()
        session.add_consumer("billing", member)
        with pytest.raises(StateError, match="another instance_name"):
            session.add_consumer("billing", Member())
        await session.remove_consumer("billing", member)


async def test_a_stable_id_says_nothing_of_the_process(broker: ScriptedBroker) -> None:
    settings = ClientSettings.of(broker.address, client_ip="10.0.0.1")
    session = await Session.obtain(settings, stable_id=True)
    assert session.client_id == "10.0.0.1@DEFAULT"
    await session.release()


# Heartbeats


async def test_a_broker_learns_at_once_who_is_here_and_who_leaves(broker: ScriptedBroker) -> None:
    async with aio.Producer("orders", broker.address) as producer:
        await producer.send(Message("Orders", b"x"))
        beat = (await broker.heartbeats.get()).body
        session = producer._started().session
        assert beat.client_id == session.client_id
        assert [data.group_name for data in beat.producer_data_set] == ["orders"]
        member = Member()
        session.add_consumer("billing", member)
        await session.heartbeat_now()
        while not (beat := (await broker.heartbeats.get()).body).consumer_data_set:
            pass  # a regular one came in between
        assert [data.group_name for data in beat.consumer_data_set] == ["billing"]
        await session.remove_consumer("billing", member)
        assert (await broker.goodbyes.get()).consumer_group == "billing"
    goodbye = await broker.goodbyes.get()
    assert (goodbye.producer_group, goodbye.client_id) == ("orders", beat.client_id)


async def test_who_leaves_while_a_broker_is_being_told_of_him_says_goodbye(broker: ScriptedBroker) -> None:
    async with session_for(broker.address) as session:
        await session.routes.get("Orders")
        member = Member()
        session.add_consumer("billing", member)
        telling = asyncio.create_task(session.heartbeat_now())
        assert (await broker.heartbeats.get()).body.consumer_data_set
        await session.remove_consumer("billing", member)
        assert broker.goodbyes.get_nowait().consumer_group == "billing"
        await telling


async def test_who_left_while_a_broker_was_connected_to_is_not_told_of(broker: ScriptedBroker) -> None:
    async with ScriptedBroker() as other, session_for(broker.address) as session:
        broker.other_brokers["other"] = other.address
        await session.routes.get("Orders")
        leaving, staying = Member("billing"), Member("shipping")
        session.add_consumer("billing", leaving)
        session.add_consumer("shipping", staying)
        telling = asyncio.create_task(session.heartbeat_now())
        await turn_until(lambda: session.statistics().heartbeats >= 2)
        await session.remove_consumer("billing", leaving)
        await telling
        while not other.heartbeats.empty():
            assert [data.group_name for data in other.heartbeats.get_nowait().body.consumer_data_set] == [
                "shipping"
            ]
        await session.remove_consumer("shipping", staying)


async def test_a_consumer_comes_back_to_a_broker_that_lost_it(broker: ScriptedBroker) -> None:
    async with session_for(broker.address) as session:
        member = Member()
        session.add_consumer("billing", member)
        await session.routes.get("Orders")
        await broker.heartbeats.get()
        await member.divided.wait()
        member.divided.clear()
        for connection in broker.connections:
            connection.abort()
        assert (await broker.heartbeats.get()).body.consumer_data_set
        await member.divided.wait()
        await session.remove_consumer("billing", member)


async def test_a_failed_heartbeat_harms_nobody(broker: ScriptedBroker) -> None:
    broker.other_brokers["dead"] = "127.0.0.1:1"
    async with session_for(broker.address) as session:
        member = Member()
        session.add_consumer("billing", member)
        await session.routes.get("Orders")
        await session.heartbeat_now()
        assert session.statistics().failed_heartbeats >= 1
        assert (await broker.heartbeats.get()).body.consumer_data_set
        await session.remove_consumer("billing", member)


async def test_a_broker_that_stays_away_is_logged_when_it_goes_and_when_it_is_back(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyromq")
    async with TcpProxy(parse_address(broker.address)) as proxy:
        await proxy.cut()
        broker.other_brokers["away"] = proxy.address
        async with session_for(broker.address) as session:
            member = Member()
            session.add_consumer("billing", member)
            await session.routes.get("Orders")
            for _ in range(5):
                session._dialer.reset_backoff(proxy.address)
                await session.heartbeat_now()
            await proxy.start()
            session._dialer.reset_backoff(proxy.address)
            await session.heartbeat_now()
            await session.remove_consumer("billing", member)
    said = [line.partition(": ")[0] for line in caplog.messages if proxy.address in line]
    assert [line for line in said if not line.startswith("route changed")] == [
        f"could not connect address={proxy.address}",
        f"heartbeat failed broker={proxy.address}",
        f"connected again address={proxy.address}",
        f"heartbeat succeeded broker={proxy.address}",
    ]


# What brokers ask


@pytest.fixture
async def known(broker: ScriptedBroker) -> AsyncIterator[tuple[ScriptedBroker, Member]]:
    async with session_for(broker.address) as session:
        member = Member()
        session.add_consumer("billing", member)
        await session.routes.get("Orders")
        await broker.heartbeats.get()
        await member.divided.wait()
        member.divided.clear()
        yield broker, member
        await session.remove_consumer("billing", member)


async def test_members_are_told_to_divide_anew(known: tuple[ScriptedBroker, Member]) -> None:
    broker, member = known
    broker.push(NotifyConsumerIdsChanged(consumer_group="strangers"))
    broker.push(NotifyConsumerIdsChanged(consumer_group="billing"))
    await member.divided.wait()


@pytest.mark.parametrize(
    "body",
    [
        ResetOffsetBody(offset_table={MessageQueue("Orders", "scripted", 1): 9}),
        ResetOffsetBodyForC(
            offset_table=[MessageQueueForC(topic="Orders", broker_name="scripted", queue_id=1, offset=9)]
        ),
    ],
    ids=["as objects", "as a list"],
)
async def test_offsets_are_reset(known: tuple[ScriptedBroker, Member], body: Any) -> None:
    broker, member = known
    encoded = json_body.encode(body)
    broker.push(
        ResetConsumerOffset(group="billing", topic="Orders", timestamp=1, is_force=True, body=encoded)
    )
    assert await member.resets.get() == ("Orders", {MessageQueue("Orders", "scripted", 1): 9})


async def test_a_reset_that_cannot_be_read_changes_nothing(
    known: tuple[ScriptedBroker, Member], caplog: pytest.LogCaptureFixture
) -> None:
    broker, member = known
    broker.push(ResetConsumerOffset(group="billing", topic="Orders", timestamp=1, is_force=True, body=b"["))
    broker.push(NotifyConsumerIdsChanged(consumer_group="billing"))
    await member.divided.wait()
    assert member.resets.empty()
    assert "offset reset cannot be read" in caplog.text


async def test_consumers_answer_questions(known: tuple[ScriptedBroker, Member]) -> None:
    broker, _ = known
    [connection] = broker.clients.values()
    status = await connection.call(GetConsumerStatusFromClient(topic="Orders", group="billing"), 60)
    assert status.body.message_queue_table == {MessageQueue("Orders", "scripted", 0): 7}
    info = await connection.call(GetConsumerRunningInfo(consumer_group="billing", client_id="c"), 60)
    assert info.body.properties == {"PROP_X": "y"}
    record = encode_record(StoredMessage("Orders", b"x"))
    consumed = await connection.call(ConsumeMessageDirectly(consumer_group="billing", body=record), 60)
    assert (consumed.body.consume_result, consumed.body.remark) == (CMResult.CR_SUCCESS, "Orders")
    with pytest.raises(Refused, match="no consumer of group strangers"):
        await connection.call(GetConsumerRunningInfo(consumer_group="strangers", client_id="c"), 60)
    with pytest.raises(Refused, match="cannot be read"):
        await connection.call(ConsumeMessageDirectly(consumer_group="billing", body=b"junk"), 60)


async def test_a_reply_that_is_not_compressed_as_it_says_is_taken_as_it_is(
    known: tuple[ScriptedBroker, Member],
) -> None:
    broker, _ = known
    [connection] = broker.clients.values()
    reply = PushReply(
        producer_group="g",
        topic="t",
        default_topic="d",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=1,
        born_timestamp=0,
        flag=0,
        born_host="/127.0.0.1:1",
        store_host="nowhere",
        store_timestamp=0,
        body=b"not zlib",
    )
    await connection.call(reply, 5)


# Routes


async def test_a_changed_route_is_told_at_once(cluster: ClientCluster) -> None:
    await cluster.add_broker("broker-a")
    async with session_for(cluster.namesrv) as session:
        route = await session.routes.get("TBW102")
        assert set(route.brokers) == {"broker-a"}
        changed: asyncio.Queue[set[str]] = asyncio.Queue()
        session.routes.on_change("TBW102", lambda new: changed.put_nowait(set(new.brokers)))
        second = await cluster.add_broker("broker-b")
        assert await changed.get() == {"broker-a", "broker-b"}
        assert session.broker_address("broker-b") == second.advertised_address
        await second.stop()
        assert await changed.get() == {"broker-a"}
        assert session.broker_address("broker-b") is None


async def test_a_missing_topic_that_someone_waits_for_is_told_of(cluster: ClientCluster) -> None:
    async with session_for(cluster.namesrv) as session:
        with pytest.raises(NoRoute):
            await session.routes.get("TBW102")
        found = asyncio.Event()
        session.routes.on_change("TBW102", lambda _: found.set())
        await cluster.add_broker("broker-a")
        await found.wait()


async def test_a_name_server_without_watches_is_asked_again(broker: ScriptedBroker) -> None:
    async with session_for(broker.address, route_interval_s=0.01) as session:
        await session.routes.get("Orders")
        broker.queues = 5
        changed = asyncio.Event()
        session.routes.on_change("Orders", lambda _: changed.set())
        await changed.wait()
        route = session.routes.cached("Orders")
        assert route is not None
        assert len(route.publish_queues) == 5


async def test_watched_routes_are_asked_for_in_turns_and_seldom_all_at_once(broker: ScriptedBroker) -> None:
    broker.watches = True
    topics = broker.topics = ["Orders", "Payments", "Stock"]
    async with session_for(broker.address) as session:
        for topic in topics:
            await session.routes.get(topic)
        broker.route_questions.clear()
        for _ in range(9):
            await session.routes.poll()
        assert sorted(question.topic for question in broker.route_questions) == sorted(3 * topics)
        await session.routes.poll()
        assert len(broker.route_questions) == 12
        assert all(question.watch for question in broker.route_questions)


async def test_a_lost_watch_is_taken_up_again(broker: ScriptedBroker) -> None:
    broker.watches = True
    async with session_for(broker.address) as session:
        await session.routes.get("Orders")
        broker.queues = 7
        changed = asyncio.Event()
        session.routes.on_change("Orders", lambda _: changed.set())
        for connection in broker.connections:
            connection.abort()
        await changed.wait()
        broker.queues = 8
        changed.clear()
        for connection in broker.connections:
            connection.send_oneway(NotifyRoutesChanged(body=["Orders", "Strangers"]))
        await changed.wait()
        assert "Strangers" not in [question.topic for question in broker.route_questions]


async def test_another_name_server_takes_over(cluster: ClientCluster, tmp_path: Path) -> None:
    async with name_server(tmp_path / "second") as second, TcpProxy(cluster.name_server.address) as proxy:
        both = f"{proxy.address};{format_address(*second.address)}"
        await cluster.add_broker(
            "broker-a", namesrv_addr=f"{cluster.namesrv};{format_address(*second.address)}"
        )
        async with aio.Producer("orders", both) as producer:
            await producer.send(Message("Orders", b"x"))
            await proxy.cut()
            session = producer._started().session
            assert (await session.routes.refresh("TBW102")).publish_queues
            assert session.name_servers.current == format_address(*second.address)
            await producer.send(Message("Bills", b"x"))


async def test_a_name_server_that_hangs_leaves_time_for_another(
    cluster: ClientCluster, tmp_path: Path
) -> None:
    async with name_server(tmp_path / "second") as second, TcpProxy(cluster.name_server.address) as proxy:
        proxy.stall()
        await cluster.add_broker("broker-a", namesrv_addr=format_address(*second.address))
        both = [proxy.address, format_address(*second.address)]
        async with session_for(";".join(both), call_timeout_s=5.0) as session:
            for _ in range(2):
                assert (await session.routes.refresh("TBW102")).publish_queues
            assert session.name_servers.current == format_address(*second.address)
        proxy.flow()


# What every request carries


@pytest.mark.parametrize("form", HeaderForm, ids=lambda form: form.name)
async def test_requests_are_signed(broker: ScriptedBroker, form: HeaderForm) -> None:
    credentials = Credentials("someone", "secret")
    async with aio.Producer("orders", broker.address, credentials=credentials, form=form) as producer:
        await producer.send(Message("Orders", b"x"))
        await producer.send([Message("Orders", b"y"), Message("Orders", b"z")])
    assert len(broker.frames) == 3
    for frame in broker.frames:
        assert frame.ext["AccessKey"] == "someone"
        assert is_signed(frame.ext, frame.body, "secret")


async def test_everything_can_be_said_in_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("broker")
    server = TlsServer(mode="enforcing", certificate_path=files.certificate, key_path=files.key)
    async with ScriptedBroker("Orders", tls=server) as broker:
        trusting = TlsOptions(verify=True, trust_path=authority.trust)
        async with aio.Producer("orders", broker.address, tls=trusting) as producer:
            assert (await producer.send(Message("Orders", b"secret"))).is_ok
        (tmp_path / "other").mkdir()
        wary = TlsOptions(verify=True, trust_path=Authority(tmp_path / "other").trust)
        async with aio.Producer("orders", broker.address, tls=wary, send_timeout_s=60) as producer:
            with pytest.raises(SendFailed, match=r"(?i)certificate verify failed"):
                await producer.send(Message("Orders", b"secret"))


async def test_the_second_kind_of_namespace_is_told_with_every_request(broker: ScriptedBroker) -> None:
    async with aio.Producer("orders", broker.address, namespace_v2="blue") as producer:
        await producer.send(Message("Orders", b"x"))
    assert [(frame.ext["nsd"], frame.ext["ns"]) for frame in broker.frames] == [("true", "blue")] * 2


async def test_name_servers_come_from_a_url(broker: ScriptedBroker, tmp_path: Path) -> None:
    (tmp_path / "nsaddr").write_text(f"{broker.address}\n")
    session = await Session.obtain(ClientSettings.of(namesrv_url=(tmp_path / "nsaddr").as_uri()))
    assert session.name_servers.addresses == (broker.address,)
    assert (await session.routes.get("Orders")).publish_queues
    await session.release()


async def test_whoever_shares_a_session_waits_for_its_name_servers_too(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def answer_late(url: str) -> str:
        asked.set()
        assert may_answer.wait(60)
        return broker.address

    monkeypatch.setattr(session_module, "_read_first_line", answer_late)
    settings = ClientSettings.of(namesrv_url="http://127.0.0.1:1/nsaddr", route_interval_s=0.01)
    first, second = (asyncio.create_task(Session.obtain(settings)) for _ in range(2))
    await asyncio.to_thread(asked.wait)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not second.done()
    may_answer.set()
    session = await second
    await session.routes.get("Orders")
    questions = len(broker.route_questions)
    # It keeps up with its routes, though the one that began it is gone.
    await turn_until(lambda: len(broker.route_questions) > questions)
    await session.release()
