"""A broker registers with name servers: ours, and ones that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.loop import turn_until
from tests.support.name_servers import Peer, name_server

from pyromq.broker.services.registration import Registration
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.broker.tables.static_topics import StaticTopicTable
from pyromq.broker.tables.topics import TopicTable
from pyromq.clock import ManualClock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.filesystem import Files
from pyromq.protocol import registration
from pyromq.protocol.catalogue import NAMESERVER, Request
from pyromq.protocol.codes import CURRENT_VERSION, ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.brokers import (
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    RegisterBrokerAnswer,
    SendBrokerHeartbeat,
    UnregisterBroker,
)
from pyromq.protocol.requests.kv import KVTable
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Caller, Routes, handles
from pyromq.remoting.server import Server
from pyromq.store.json_table import JsonTable
from pyromq.testing.held_ports import held_port

TIMEOUT_S = 60.0
BROKER = "10.0.0.1:10911"


class FakeNameServer:
    """Collects what it is asked; `answer` and `is_silent` say how it behaves."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Request[Any]] = asyncio.Queue()
        self.beats: asyncio.Queue[SendBrokerHeartbeat] = asyncio.Queue()
        self.answer: Callable[[RegisterBroker], RegisterBrokerAnswer] = lambda _: RegisterBrokerAnswer()
        self.is_outdated = True
        self.is_silent = False
        self.server = Server(Routes(self, serving=NAMESERVER))
        self._never = asyncio.Event()

    async def start(self, port: int = 0) -> None:
        await self.server.start("127.0.0.1", port)
        self.address = format_address(*self.server.address)

    async def stop(self) -> None:
        self._never.set()
        await self.server.stop(grace_s=0)

    @handles(RegisterBroker)
    async def register(self, request: RegisterBroker, caller: Caller) -> RegisterBrokerAnswer:
        self.heard.put_nowait(request)
        if self.is_silent:
            await self._never.wait()
        return self.answer(request)

    @handles(QueryDataVersion)
    def query(self, request: QueryDataVersion, caller: Caller) -> QueryDataVersionAnswer:
        self.heard.put_nowait(request)
        return QueryDataVersionAnswer(changed=self.is_outdated)

    @handles(UnregisterBroker)
    def unregister(self, request: UnregisterBroker, caller: Caller) -> None:
        self.heard.put_nowait(request)

    @handles(SendBrokerHeartbeat)
    def beat(self, request: SendBrokerHeartbeat, caller: Caller) -> None:
        self.beats.put_nowait(request)

    async def next(self) -> Request[Any]:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.heard.get()

    async def next_registration(self) -> "Registered":
        request = await self.next()
        assert isinstance(request, RegisterBroker), request
        return Registered(request)


class Registered:
    def __init__(self, request: RegisterBroker) -> None:
        self.request = request
        assert registration.body_crc32(request.body) == request.body_crc32
        body = registration.decode(
            request.body, compressed=request.compressed, version=CURRENT_VERSION, max_bytes=1 << 24
        )
        self.wrapper = body.topic_config_serialize_wrapper

    @property
    def topics(self) -> list[str]:
        return sorted(self.wrapper.topic_config_table)


@asynccontextmanager
async def fake_name_server() -> AsyncIterator[FakeNameServer]:
    fake = FakeNameServer()
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


class Broker:
    """As much of a broker as registers."""

    form: int

    def __init__(self, directory: Path, *name_servers: str, **settings: Any) -> None:
        self.live = LiveSettings(
            BrokerSettings(
                **{
                    "broker_name": "broker-a",
                    "broker_cluster_name": "C",
                    "namesrv_addr": ";".join(name_servers),
                    "heartbeat_interval_ms": 0,
                    **settings,
                }
            )
        )
        self.topics = TopicTable(JsonTable(Files(), directory / "topics.json"), ManualClock())
        self.add("First", "Second")
        self.dialer = Dialer(ConnectionTerms(form=self.form))
        self.registration = Registration(
            self.live,
            self.topics,
            StaticTopicTable(JsonTable(Files(), directory / "topicQueueMapping.json"), ManualClock()),
            RoleTable(Role()),
            self.dialer,
            broker_address=BROKER,
            ha_address="10.0.0.1:10912",
        )

    def add(self, *topics: str) -> None:
        self.topics.update(*(TopicConfig(topic_name=topic) for topic in topics))

    async def __aenter__(self) -> "Broker":
        self._task = asyncio.create_task(self.registration.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.dialer.close()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name, autouse=True)
def _either_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is proved in both."""
    monkeypatch.setattr(Broker, "form", request.param, raising=False)


async def test_everything_is_registered_with_a_checksum(tmp_path: Path) -> None:
    async with fake_name_server() as fake, Broker(tmp_path, fake.address) as broker:
        registered = await fake.next_registration()
        request = registered.request
        assert (request.broker_name, request.broker_addr, request.cluster_name) == ("broker-a", BROKER, "C")
        assert (request.broker_id, request.ha_server_addr) == (0, "10.0.0.1:10912")
        assert request.heartbeat_timeout_millis is None
        assert registered.topics == ["First", "Second"]
        assert registered.wrapper.data_version == broker.topics.data_version
        await broker.registration.wait_tried()
        (state,) = broker.registration.statistics()
        assert (state.is_registered, state.registrations, state.failures) == (True, 1, 0)


async def test_our_name_server_routes_to_the_broker_until_it_leaves(tmp_path: Path) -> None:
    server = name_server(tmp_path)
    await server.start()
    try:
        address = format_address(*server.address)
        async with Peer(server) as client, Broker(tmp_path, address) as broker:
            await broker.registration.wait_tried()
            route = (await client.call(GetRoute(topic="First"))).body
            assert [data.broker_addrs for data in route.broker_datas] == [{0: BROKER}]
            await client.watch("First")
            await broker.stop()
            await broker.registration.unregister()
            assert await client.wait_told() == ["First"]
            with pytest.raises(Refused) as refused:
                await client.call(GetRoute(topic="First"))
            assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    finally:
        await server.stop()


async def test_a_dead_and_a_silent_name_server_delay_nobody(tmp_path: Path) -> None:
    async with fake_name_server() as dead, fake_name_server() as silent, fake_name_server() as good:
        await dead.server.stop(grace_s=0)
        silent.is_silent = True
        async with Broker(tmp_path, dead.address, silent.address, good.address) as broker:
            await good.next_registration()
            await turn_until(lambda: broker.registration.statistics()[2].is_registered)
            await turn_until(lambda: broker.registration.statistics()[0].failures)
            assert not broker.registration.statistics()[1].is_registered


async def test_a_start_does_not_wait_for_ever_for_a_silent_name_server(tmp_path: Path) -> None:
    async with fake_name_server() as silent:
        silent.is_silent = True
        async with Broker(tmp_path, silent.address) as broker:
            await broker.registration.wait_tried(timeout_s=0.01)
            assert not broker.registration.statistics()[0].is_registered


async def test_a_name_server_that_does_not_answer_in_time_is_tried_again(tmp_path: Path) -> None:
    async with fake_name_server() as slow:
        slow.is_silent = True
        async with Broker(tmp_path, slow.address, register_timeout_ms=50) as broker:
            await slow.next_registration()
            slow.is_silent = False
            await slow.next_registration()
            await turn_until(lambda: broker.registration.statistics()[0].is_registered)
            assert broker.registration.statistics()[0].failures >= 1


async def test_topics_that_change_together_are_registered_at_once_and_alone(tmp_path: Path) -> None:
    async with fake_name_server() as fake, Broker(tmp_path, fake.address) as broker:
        await fake.next_registration()
        await broker.registration.wait_tried()
        broker.add("Third")
        broker.add("Fourth")
        broker.add("Third")
        registered = await fake.next_registration()
        assert registered.topics == ["Fourth", "Third"]
        assert registered.wrapper.data_version == broker.topics.data_version
        assert fake.heard.empty()


async def test_a_deleted_topic_is_told_by_registering_everything_else(tmp_path: Path) -> None:
    async with fake_name_server() as fake, Broker(tmp_path, fake.address) as broker:
        await fake.next_registration()
        await broker.registration.wait_tried()
        broker.topics.delete("First")
        assert (await fake.next_registration()).topics == ["Second"]


async def test_a_topic_that_appears_during_a_registration_follows_it(tmp_path: Path) -> None:
    async with fake_name_server() as fake, Broker(tmp_path, fake.address) as broker:

        def answer(request: RegisterBroker) -> RegisterBrokerAnswer:
            if "Third" not in broker.topics:
                broker.add("Third")
            return RegisterBrokerAnswer()

        fake.answer = answer
        assert (await fake.next_registration()).topics == ["First", "Second"]
        assert (await fake.next_registration()).topics == ["Third"]


async def test_topics_get_no_more_permission_than_the_broker_has(tmp_path: Path) -> None:
    async with fake_name_server() as fake, Broker(tmp_path, fake.address) as broker:
        first = await fake.next_registration()
        assert first.wrapper.topic_config_table["First"].perm == 6
        await broker.registration.wait_tried()
        broker.live.update({"brokerPermission": "4"})
        second = await fake.next_registration()
        assert second.wrapper.topic_config_table["First"].perm == 4
        assert second.wrapper.data_version != first.wrapper.data_version
        config = broker.topics.get("First")
        assert config is not None
        assert config.perm == 6


async def test_the_version_is_asked_for_before_everything_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerSettings, "registration_period_s", 0.01)
    async with fake_name_server() as fake, Broker(tmp_path, fake.address, force_register=False) as broker:
        await fake.next_registration()
        fake.is_outdated = False
        for _ in range(3):
            question = await fake.next()
            assert isinstance(question, QueryDataVersion)
            assert question.body == broker.topics.data_version
        fake.is_outdated = True
        heard: Request[Any] = question
        while isinstance(heard, QueryDataVersion):
            heard = await fake.next()
        assert isinstance(heard, RegisterBroker)
        assert Registered(heard).topics == ["First", "Second"]


async def test_a_forced_registration_is_repeated_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerSettings, "registration_period_s", 0.01)
    async with fake_name_server() as fake, Broker(tmp_path, fake.address):
        for _ in range(3):
            assert (await fake.next_registration()).topics == ["First", "Second"]


async def test_the_first_name_server_says_which_topics_are_ordered(tmp_path: Path) -> None:
    async with fake_name_server() as first, fake_name_server() as second:
        first.answer = lambda _: RegisterBrokerAnswer(body=KVTable(table={"Second": "broker-a:4"}))
        second.answer = lambda _: RegisterBrokerAnswer(body=KVTable(table={"First": "broker-a:4"}))
        async with Broker(tmp_path, first.address, second.address) as broker:
            await turn_until(lambda: broker.topics.is_ordered("Second"))
            await turn_until(lambda: all(state.is_registered for state in broker.registration.statistics()))
            while True:
                registered = await second.next_registration()
                if registered.topics == ["Second"] or registered.wrapper.topic_config_table["Second"].order:
                    break
            assert not broker.topics.is_ordered("First")


async def test_heartbeats_follow_a_registration_that_announced_them(tmp_path: Path) -> None:
    async with (
        fake_name_server() as fake,
        Broker(tmp_path, fake.address, heartbeat_interval_ms=5, not_active_timeout_ms=7000),
    ):
        registered = await fake.next_registration()
        assert registered.request.heartbeat_timeout_millis == 7000
        async with asyncio.timeout(TIMEOUT_S):
            beat = await fake.beats.get()
            await fake.beats.get()
        assert (beat.cluster_name, beat.broker_addr, beat.broker_name, beat.broker_id) == (
            "C",
            BROKER,
            "broker-a",
            0,
        )


async def test_a_name_server_that_comes_back_is_told_everything_again(tmp_path: Path) -> None:
    fake, again = FakeNameServer(), FakeNameServer()
    with held_port() as port:
        await fake.start(port)
        async with Broker(tmp_path, fake.address) as broker:
            await fake.next_registration()
            await broker.registration.wait_tried()
            await fake.stop()
            await turn_until(lambda: not broker.registration.statistics()[0].is_registered)
            broker.add("Third")
            await again.start(fake.server.address[1])
            assert (await again.next_registration()).topics == ["First", "Second", "Third"]
            await turn_until(lambda: broker.registration.statistics()[0].is_registered)
            await again.stop()


async def test_leaving_says_goodbye_to_those_who_know_the_broker(tmp_path: Path) -> None:
    async with fake_name_server() as fake, fake_name_server() as dead:
        await dead.server.stop(grace_s=0)
        async with Broker(tmp_path, fake.address, dead.address) as broker:
            await broker.registration.wait_tried()
            await fake.next_registration()
            await broker.stop()
            await broker.registration.unregister()
            goodbye = await fake.next()
            assert isinstance(goodbye, UnregisterBroker)
            assert (goodbye.broker_name, goodbye.broker_addr, goodbye.cluster_name, goodbye.broker_id) == (
                "broker-a",
                BROKER,
                "C",
                0,
            )
            assert not any(state.is_registered for state in broker.registration.statistics())


async def test_the_list_of_name_servers_may_change_while_running(tmp_path: Path) -> None:
    async with fake_name_server() as old, fake_name_server() as new, Broker(tmp_path, old.address) as broker:
        await old.next_registration()
        await broker.registration.wait_tried()
        broker.live.update({"namesrvAddr": new.address})
        assert (await new.next_registration()).topics == ["First", "Second"]
        assert isinstance(await old.next(), UnregisterBroker)
        broker.add("Third")
        assert (await new.next_registration()).topics == ["Third"]
        assert old.heard.empty()


async def test_a_name_server_that_cannot_unpack_gets_it_plain(tmp_path: Path) -> None:
    async with fake_name_server() as fake:

        def answer(request: RegisterBroker) -> RegisterBrokerAnswer:
            if request.compressed:
                raise Refused(ResponseCode.SYSTEM_ERROR, "cannot read that")
            return RegisterBrokerAnswer()

        fake.answer = answer
        async with Broker(tmp_path, fake.address, compressed_register=True) as broker:
            packed = await fake.next_registration()
            assert packed.request.compressed
            assert packed.topics == ["First", "Second"]
            plain = await fake.next_registration()
            assert not plain.request.compressed
            assert plain.topics == ["First", "Second"]
            await turn_until(lambda: broker.registration.statistics()[0].is_registered)


async def test_very_many_topics_go_out_in_parts_each_with_its_own_version(tmp_path: Path) -> None:
    async with (
        fake_name_server() as fake,
        Broker(tmp_path, fake.address, split_registration=True, split_registration_topics=2) as broker,
    ):
        broker.add("Third", "Fourth", "Fifth")
        parts = [await fake.next_registration() for _ in range(3)]
        assert [len(part.topics) for part in parts] == [2, 2, 1]
        assert sorted(topic for part in parts for topic in part.topics) == sorted(broker.topics.all())
        versions = [part.wrapper.data_version for part in parts]
        assert len(set(versions)) == 3
        assert versions[-1] == broker.topics.data_version


async def test_a_broker_without_name_servers_waits_for_some(tmp_path: Path) -> None:
    async with fake_name_server() as fake, Broker(tmp_path) as broker:
        await broker.registration.wait_tried()
        assert broker.registration.statistics() == []
        broker.live.update({"namesrvAddr": fake.address})
        assert (await fake.next_registration()).topics == ["First", "Second"]
