"""Heartbeats, goodbyes and who hears of them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_parts import BrokerParts, FakeChannel, broker_parts, refusal

from pyromq.broker.services.membership import FEW_MEMBERS, Membership
from pyromq.clock import elapsed_ms
from pyromq.protocol import names
from pyromq.protocol.codes import Language, ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.requests.membership import (
    CheckClientConfig,
    CheckClientRequestBody,
    ClientLanguage,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerIds,
    GetProducerConnections,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SendHeartbeat,
    SendHeartbeatAnswer,
    SubscriptionData,
    UnregisterClient,
)
from pyromq.protocol.requests.pushes import NotifyConsumerIdsChanged
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.routing import Caller

NOTICE = NotifyConsumerIdsChanged(consumer_group="g")


class World:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.filters = parts.tables.filters
        self.membership = Membership(parts.live, parts.tables, parts.clock)

    def beat(
        self,
        on: FakeChannel,
        client_id: str,
        *consumes: ConsumerData,
        produces: tuple[str, ...] = (),
        fingerprint: int = 0,
        without_sub: bool = False,
    ) -> SendHeartbeatAnswer:
        body = HeartbeatData(
            client_id=client_id,
            consumer_data_set=list(consumes),
            producer_data_set=[ProducerData(group_name=group) for group in produces],
            heartbeat_fingerprint=fingerprint,
            without_sub=without_sub,
        )
        return self.membership.heartbeat(SendHeartbeat(body=body), caller(on))

    def leave(self, on: FakeChannel, **groups: Any) -> None:
        self.membership.unregister(UnregisterClient(client_id="x", **groups), caller(on))

    async def told(self, *connections: FakeChannel) -> list[list[Any]]:
        """What each heard since the last time, once everything due has been told."""
        for _ in range(3):
            await asyncio.sleep(0)
        heard = [list(connection.oneways) for connection in connections]
        for connection in connections:
            connection.oneways.clear()
        return heard


def caller(on: FakeChannel, language: int = Language.JAVA) -> Caller:
    return Caller(on, Frame(34, version=401, language=language))


def consumer(
    group: str = "g",
    *topics: str,
    model: MessageModel = MessageModel.CLUSTERING,
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    unit: bool = False,
) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        message_model=model,
        consume_type=consume_type,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        unit_mode=unit,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics or ("T",)
        ],
    )


def by_sql(expression: str, version: int = 1) -> ConsumerData:
    data = consumer()
    data.subscription_data_set = [
        SubscriptionData(topic="T", sub_string=expression, sub_version=version, expression_type="SQL92")
    ]
    return data


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[BrokerParts]:
    with broker_parts(tmp_path) as made:
        yield made


@pytest.fixture
async def world(parts: BrokerParts) -> World:
    return World(parts)


async def test_a_heartbeat_makes_a_member_its_group_and_its_retry_topic(world: World) -> None:
    answer = world.beat(FakeChannel(), "a", consumer())
    assert (answer.supports_heartbeat_v2, answer.is_subscription_changed) == (True, True)
    group = world.parts.consumers.group("g")
    assert group is not None
    assert group.client_ids == ["a"]
    assert world.parts.topics.get("%RETRY%g") == TopicConfig(
        topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1
    )
    assert world.parts.groups.get("g") is not None


async def test_the_retry_topic_is_as_the_group_and_its_topics_are(world: World) -> None:
    world.parts.add_topic("Ordered", order=True)
    world.beat(FakeChannel(), "a", consumer("g", "T", "Ordered", unit=True))
    retry = world.parts.topics.get(names.retry_topic("g"))
    assert retry is not None
    assert (retry.order, retry.topic_sys_flag) == (True, 2)


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({"autoCreateSubscriptionGroup": "false"}, consumer()),
        ({}, consumer("bad name!")),
        ({"rejectPullConsumerEnable": "true"}, consumer(consume_type=ConsumeType.CONSUME_ACTIVELY)),
    ],
    ids=["no such group", "no name for a group", "pull consumers are refused"],
)
async def test_no_member_is_made_when(world: World, settings: dict[str, str], data: ConsumerData) -> None:
    world.parts.change(**settings)
    world.beat(FakeChannel(), "a", data)
    assert list(world.parts.consumers) == []


async def test_all_members_are_told_once_of_all_that_happened(world: World) -> None:
    one, two, three = FakeChannel(), FakeChannel(), FakeChannel()
    world.beat(one, "a", consumer())
    assert await world.told(one) == [[NOTICE]]
    world.beat(one, "a", consumer())
    assert await world.told(one) == [[]]
    world.beat(two, "b", consumer())
    world.beat(three, "c", consumer())
    world.beat(one, "a", consumer("g", "T", "U"))
    assert await world.told(one, two, three) == [[NOTICE], [NOTICE], [NOTICE]]


@pytest.mark.parametrize("how", ["goodbye", "connection lost", "silence"])
async def test_a_member_that_leaves_is_noticed_by_the_others(world: World, how: str) -> None:
    stays, leaves = FakeChannel(), FakeChannel("10.0.0.9:9")
    world.beat(leaves, "b", consumer())
    world.parts.clock.advance(60)
    world.beat(stays, "a", consumer())
    await world.told(stays, leaves)
    match how:
        case "goodbye":
            world.leave(leaves, consumer_group="g")
        case "connection lost":
            world.membership.connection_lost(leaves)
        case _:
            world.parts.clock.advance(60)
            world.membership.expire()
            assert await world.told(stays) == [[]], "120 s are not over yet"
            world.parts.clock.advance(0.001)
            world.membership.expire()
            assert not leaves.is_open
    assert await world.told(stays, leaves) == [[NOTICE], []]
    group = world.parts.consumers.group("g")
    assert group is not None
    assert group.client_ids == ["a"]


@pytest.mark.parametrize("set_ahead_s", [-7200, 5 * 86_400])
async def test_a_clock_that_is_set_makes_no_client_silent_and_keeps_none(
    world: World, set_ahead_s: int
) -> None:
    connection = FakeChannel()
    world.beat(connection, "p", produces=("known",))
    world.parts.clock.advance(60)
    world.parts.clock.set_ahead(set_ahead_s)
    world.membership.expire()
    assert list(world.parts.producers.groups()) == ["known"]
    world.parts.clock.advance(61)
    world.membership.expire()
    assert world.parts.producers.groups() == {}


async def test_silent_producers_go_too(world: World) -> None:
    one = FakeChannel()
    world.beat(one, "p", produces=("pg",))
    world.parts.clock.advance(121)
    world.membership.expire()
    assert world.parts.producers.groups() == {}
    assert not one.is_open


@pytest.mark.parametrize("why", ["broadcasting", "switched off", "switched off for the group"])
async def test_nobody_is_told_when(world: World, why: str) -> None:
    data = consumer(model=MessageModel.BROADCASTING) if why == "broadcasting" else consumer()
    if why == "switched off":
        world.parts.change(notifyConsumerIdsChangedEnable="false")
    if why == "switched off for the group":
        config = world.parts.groups.find("g")
        assert config is not None
        config.notify_consumer_ids_changed_enable = False
    one, two = FakeChannel(), FakeChannel()
    world.beat(one, "a", data)
    world.beat(two, "b", data)
    world.membership.connection_lost(two)
    assert await world.told(one, two) == [[], []]


@pytest.mark.parametrize(("members", "delays"), [(FEW_MEMBERS, [0, 0]), (1000, [0, 1.0])])
async def test_a_large_group_is_told_of_several_joins_together(
    world: World, monkeypatch: pytest.MonkeyPatch, members: int, delays: list[float]
) -> None:
    found: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        "pyromq.broker.services.membership.asyncio.get_running_loop", lambda: _Delays(loop, found)
    )
    crowd = World(world.parts)
    channels = [FakeChannel() for _ in range(members + 2)]
    for number, channel in enumerate(channels[:members]):
        crowd.beat(channel, f"c{number}", consumer())
    crowd.membership._notify()
    for channel in channels[members:]:
        crowd.beat(channel, f"c{id(channel)}", consumer())
    assert found == pytest.approx(delays)
    crowd.membership._notify()
    assert [len(channel.oneways) for channel in channels] == [2] * members + [1, 1]


async def test_members_may_be_told_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(
        "pyromq.broker.services.membership.asyncio.get_running_loop", lambda: _Delays(loop, delays)
    )
    late = World(world.parts)
    world.parts.change(realTimeNotifyConsumerChange="false")
    late.beat(FakeChannel(), "a", consumer())
    assert delays == [15.0]


class _Delays:
    def __init__(self, loop: asyncio.AbstractEventLoop, delays: list[float]) -> None:
        self._delays = delays

    def call_later(self, delay: float, callback: Any) -> None:
        self._delays.append(delay)


async def test_a_closed_connection_is_not_told(world: World) -> None:
    one, two = FakeChannel(), FakeChannel()
    world.beat(one, "a", consumer())
    world.beat(two, "b", consumer())
    one.is_open = False
    assert await world.told(one, two) == [[], [NOTICE]]


class TestFingerprints:
    async def test_an_unchanged_client_may_leave_its_subscriptions_out(self, world: World) -> None:
        one = FakeChannel()
        first = world.beat(one, "a", consumer("g", "T"), fingerprint=7)
        assert not first.is_subscription_changed
        light = consumer("g")
        light.subscription_data_set = []
        answer = world.beat(one, "a", light, fingerprint=7, without_sub=True)
        assert not answer.is_subscription_changed
        assert world.parts.consumers.subscription("g", "T") is not None

    async def test_another_fingerprint_means_that_subscriptions_changed(self, world: World) -> None:
        one, two = FakeChannel(), FakeChannel()
        world.beat(one, "a", consumer("g", "T"), fingerprint=7)
        assert world.beat(two, "b", consumer("g", "U"), fingerprint=8).is_subscription_changed
        assert world.beat(one, "a", consumer("g"), fingerprint=7, without_sub=True).is_subscription_changed

    async def test_a_broker_that_knows_nothing_asks_for_everything(self, world: World) -> None:
        light = consumer("g")
        light.subscription_data_set = []
        answer = world.beat(FakeChannel(), "a", light, fingerprint=7, without_sub=True)
        assert answer.is_subscription_changed

    async def test_a_member_that_speaks_the_old_way_makes_the_others_repeat_all(self, world: World) -> None:
        one, two = FakeChannel(), FakeChannel()
        world.beat(one, "a", consumer(), fingerprint=7)
        world.beat(two, "b", consumer())
        assert world.beat(one, "a", consumer(), fingerprint=7).is_subscription_changed


class TestFilters:
    async def test_expressions_of_heartbeats_are_compiled(self, world: World) -> None:
        world.beat(FakeChannel(), "a", by_sql("a > 1"))
        found = world.filters.get("T", "g")
        assert found is not None
        assert found.filter.matches({"a": "2"})

    async def test_a_group_without_members_leaves_a_dead_filter(self, world: World) -> None:
        one = FakeChannel()
        world.beat(one, "a", by_sql("a > 1"))
        world.leave(one, consumer_group="g")
        found = world.filters.get("T", "g")
        assert found is not None
        assert found.is_dead

    async def test_a_bad_expression_leaves_no_filter(self, world: World) -> None:
        world.beat(FakeChannel(), "a", by_sql("a >"))
        assert world.filters.get("T", "g") is None

    @pytest.mark.parametrize(
        ("enabled", "expression_type", "expression", "code"),
        [
            (False, "TAG", "a || b", None),
            (False, "", "*", None),
            (False, "SQL92", "a > 1", ResponseCode.SYSTEM_ERROR),
            (True, "SQL92", "a > 1", None),
            (True, "SQL92", "body.a > 1", ResponseCode.SYSTEM_ERROR),
            (True, "SQL92", "a >", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
            (True, "SQL92", None, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
            (True, "XPATH", "//a", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ],
    )
    async def test_a_client_may_have_its_expression_checked(
        self,
        world: World,
        enabled: bool,
        expression_type: str,
        expression: str | None,
        code: int | None,
    ) -> None:
        world.parts.change(enablePropertyFilter=str(enabled))
        request = CheckClientConfig(
            body=CheckClientRequestBody(
                subscription_data=SubscriptionData(
                    topic="T", sub_string=expression, expression_type=expression_type
                )
            )
        )

        def check() -> object:
            world.membership.check_config(request, caller(FakeChannel()))
            return None

        if code is None:
            check()
        else:
            assert refusal(check).code == code

    async def test_a_check_of_nothing_passes(self, world: World) -> None:
        request = CheckClientConfig(body=CheckClientRequestBody())
        world.membership.check_config(request, caller(FakeChannel()))


class TestLists:
    async def test_member_ids(self, world: World) -> None:
        world.beat(FakeChannel(), "a", consumer())
        world.beat(FakeChannel(), "b", consumer())
        answer = world.membership.consumer_ids(GetConsumerIds(consumer_group="g"), caller(FakeChannel()))
        assert answer.body.consumer_id_list == ["a", "b"]
        refused = refusal(
            lambda: world.membership.consumer_ids(GetConsumerIds(consumer_group="h"), caller(FakeChannel()))
        )
        assert refused.code == ResponseCode.SYSTEM_ERROR

    async def test_consumer_connections(self, world: World) -> None:
        world.beat(FakeChannel("1.2.3.4:5"), "a", consumer())
        request = GetConsumerConnections(consumer_group="g")
        body = world.membership.consumer_connections(request, caller(FakeChannel())).body
        (connection,) = body.connection_set
        assert (connection.client_addr, connection.client_id, connection.version) == ("1.2.3.4:5", "a", 401)
        assert connection.language is ClientLanguage.JAVA
        assert (body.consume_type, body.message_model) == (
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
        )
        assert list(body.subscription_table) == ["T"]
        request = GetConsumerConnections(consumer_group="h")
        refused = refusal(lambda: world.membership.consumer_connections(request, caller(FakeChannel())))
        assert refused.code == ResponseCode.CONSUMER_NOT_ONLINE

    async def test_producer_connections(self, world: World) -> None:
        world.beat(FakeChannel("1.2.3.4:5"), "p", produces=("pg",))
        request = GetProducerConnections(producer_group="pg")
        body = world.membership.producer_connections(request, caller(FakeChannel())).body
        assert [each.client_id for each in body.connection_set] == ["p"]
        request = GetProducerConnections(producer_group="other")
        refused = refusal(lambda: world.membership.producer_connections(request, caller(FakeChannel())))
        assert refused.code == ResponseCode.SYSTEM_ERROR

    async def test_all_producers(self, world: World) -> None:
        world.beat(FakeChannel("1.2.3.4:5"), "p", produces=("pg", "qg"))
        table = world.membership.all_producers(GetAllProducers(), caller(FakeChannel())).body.data
        assert sorted(table) == ["pg", "qg"]
        assert table["pg"][0].remote_ip == "/1.2.3.4:5"
        assert table["pg"][0].last_update_timestamp == world.parts.clock.now_ms()

    async def test_a_language_nobody_knows_is_another(self, world: World) -> None:
        body = HeartbeatData(client_id="a", consumer_data_set=[consumer()])
        world.membership.heartbeat(SendHeartbeat(body=body), caller(FakeChannel(), language=99))
        request = GetConsumerConnections(consumer_group="g")
        answer = world.membership.consumer_connections(request, caller(FakeChannel()))
        assert answer.body.connection_set[0].language is ClientLanguage.OTHER


async def test_producers_are_passed_over_where_nobody_needs_them(world: World) -> None:
    one = FakeChannel()
    world.beat(one, "p", produces=("known",))
    world.parts.change(enableRegisterProducer="false", rejectTransactionMessage="true")
    world.parts.clock.advance(1)
    world.beat(one, "p", produces=("known", "unknown"))
    assert list(world.parts.producers.groups()) == ["known"]
    assert world.parts.producers.members("known")[0].last_seen_ms == elapsed_ms(world.parts.clock)
    world.leave(one, producer_group="known")
    assert world.parts.producers.groups() == {}


async def test_goodbyes_of_strangers_are_harmless(world: World) -> None:
    world.beat(FakeChannel(), "a", consumer())
    world.leave(FakeChannel(), consumer_group="g", producer_group="pg")
    group = world.parts.consumers.group("g")
    assert group is not None
    assert group.client_ids == ["a"]


# How much one heartbeat may bring


def _subscribing(*subscriptions: SubscriptionData) -> ConsumerData:
    return ConsumerData(group_name="g", subscription_data_set=list(subscriptions))


@pytest.mark.parametrize(
    ("client_id", "consumes", "problem"),
    [
        ("x" * 1025, [], "1025 characters of a client id: expected at most 1024"),
        ("c", [ConsumerData(group_name=f"g{n}") for n in range(513)], "513 groups: expected at most 512"),
        (
            "c",
            [_subscribing(*(SubscriptionData(topic=f"t{n}") for n in range(4097)))],
            "4097 subscriptions: expected at most 4096",
        ),
        (
            "c",
            [
                _subscribing(
                    *(
                        SubscriptionData(topic=f"t{n}", expression_type="SQL92", sub_string="a" * 22_000)
                        for n in range(3)
                    )
                )
            ],
            "66000 characters of filter expressions: expected at most 65536",
        ),
        (
            "c",
            [_subscribing(SubscriptionData(topic="t", code_set=set(range(2049))))],
            "2049 tags in a subscription: expected at most 2048",
        ),
    ],
    ids=["client id", "groups", "subscriptions", "filters", "tags"],
)
async def test_a_heartbeat_is_refused_that_brings_too_much(
    world: World, client_id: str, consumes: list[ConsumerData], problem: str
) -> None:
    body = HeartbeatData(client_id=client_id, consumer_data_set=consumes)
    refused = refusal(lambda: world.membership.heartbeat(SendHeartbeat(body=body), caller(FakeChannel())))
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert refused.remark == f"the heartbeat has {problem}"
    assert list(world.parts.consumers) == []
    assert len(world.filters) == 0


async def test_a_client_produces_for_a_bounded_number_of_groups(world: World) -> None:
    world.parts.live.update({"enableRegisterProducer": "true"})
    connection = FakeChannel()
    world.beat(connection, "c", produces=tuple(f"p{n}" for n in range(500)))
    world.beat(connection, "c", produces=tuple(f"q{n}" for n in range(500)))
    refused = refusal(lambda: world.beat(connection, "c", produces=("r",)))
    assert refused.remark == "the client has more than 512 producer groups"


async def test_the_subscriptions_of_all_groups_have_a_bounded_size(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyromq.broker.services.membership.MAX_SUBSCRIPTION_BYTES", 2000)
    first, second = FakeChannel(), FakeChannel()
    world.beat(first, "a", consumer("g", "T", "U"))
    refused = refusal(lambda: world.beat(second, "b", consumer("h", "T", "U")))
    assert refused.remark == "the subscriptions of all groups need more than 2000 bytes"
    world.leave(first, consumer_group="g")
    assert world.parts.consumers.size_bytes == 0
    world.beat(second, "b", consumer("h", "T", "U"))


def tagged(*tags: str, topic: str = "T") -> ConsumerData:
    data = consumer()
    subscription = SubscriptionData(
        topic=topic, sub_string=" || ".join(tags), tags_set=set(tags), sub_version=1, expression_type="TAG"
    )
    data.subscription_data_set = [subscription]
    return data


async def test_members_that_subscribe_differently_are_named_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = FakeChannel(), FakeChannel()
    assert world.beat(a, "a", tagged("Created", "Paid")).conflict is None
    assert world.beat(b, "b", tagged("Paid", "Created")).conflict is None
    conflict = world.beat(b, "b", tagged("Paid")).conflict
    assert conflict == (
        "members of the group g subscribe differently, and lose messages:"
        " b to T (Paid), a to T (Created || Paid)"
    )
    for _ in range(3):
        assert world.beat(a, "a", tagged("Created", "Paid")).conflict == conflict
        assert world.beat(b, "b", tagged("Paid")).conflict == conflict
    assert caplog.text.count("subscribe differently") == 1
    assert world.beat(a, "a", tagged("Paid")).conflict is None
    world.leave(a, consumer_group="g")
    assert world.beat(b, "b", tagged("Sent")).conflict is None


async def test_members_with_different_topics_can_be_refused(world: World) -> None:
    world.parts.change(rejectDifferentSubscriptions="true")
    a, b = FakeChannel(), FakeChannel()
    world.beat(a, "a", consumer("g", "T"))
    both = consumer("g", "T", "U"), consumer("other", "V")
    problem = refusal(lambda: world.beat(b, "b", *both, produces=("p",)))
    assert problem.code == ResponseCode.ILLEGAL_OPERATION
    assert "b to U (*), a to nothing else" in str(problem)
    group, other = world.parts.consumers.group("g"), world.parts.consumers.group("other")
    assert group is not None
    assert other is not None
    assert (group.client_ids, list(group.subscriptions), other.client_ids) == (["a"], ["T"], ["b"])
    assert world.parts.tables.producers.find("b") is not None
