"""What a name server's answer means, and how routes are kept fresh."""

import asyncio
import traceback
from typing import Any

import pytest
from tests.support.loop import turn_until

from pyromq.cluster import route_table
from pyromq.cluster.name_servers import NameServers
from pyromq.cluster.route_table import KnownRoutes
from pyromq.cluster.routes import Route, borrow_route, build_route, readable_queues, writable_queues
from pyromq.errors import (
    CallTimeout,
    ConnectFailed,
    NoRoute,
    PyroError,
    Refused,
    RemoteProtocolError,
    StateError,
    TransportError,
)
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.routes import BrokerData, GetRoute, GetRouteAnswer, QueueData, TopicRouteData
from pyromq.protocol.requests.topics import TopicQueueMappingInfo


def broker(name: str, *ids: int) -> BrokerData:
    return BrokerData(broker_name=name, broker_addrs={each: f"{name}{each}:1" for each in ids or (0,)})


def queues(name: str, read: int = 1, write: int = 1, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)


def named(found: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in found]


def route_data(*names: str) -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[broker(name) for name in names], queue_datas=[queues(name) for name in names]
    )


@pytest.mark.parametrize(
    ("data", "publish", "subscribe"),
    [
        pytest.param(
            TopicRouteData(
                broker_datas=[broker("b"), broker("a")], queue_datas=[queues("b", 1, 2), queues("a", 2, 1)]
            ),
            ["a0", "b0", "b1"],
            ["b0", "a0", "a1"],
            id="queues to write are sorted by broker",
        ),
        pytest.param(
            TopicRouteData(broker_datas=[broker("a"), broker("b")], queue_datas=[queues("a", perm=4)]),
            [],
            ["a0"],
            id="read only",
        ),
        pytest.param(
            TopicRouteData(broker_datas=[broker("a")], queue_datas=[queues("a", perm=2)]),
            ["a0"],
            [],
            id="write only",
        ),
        pytest.param(
            TopicRouteData(broker_datas=[broker("a", 1)], queue_datas=[queues("a")]),
            [],
            ["a0"],
            id="a broker without a master is read from only",
        ),
        pytest.param(
            TopicRouteData(broker_datas=[], queue_datas=[queues("a")]), [], ["a0"], id="unknown broker"
        ),
        pytest.param(
            TopicRouteData(
                broker_datas=[broker("a")],
                queue_datas=[queues("a", 3, 3)],
                order_topic_conf="a:2;b:1;broken;c:x",
            ),
            ["a0", "a1", "b0"],
            ["a0", "a1", "a2"],
            id="an ordered topic has the queues it was promised",
        ),
    ],
)
def test_queues_of_a_route(data: TopicRouteData, publish: list[str], subscribe: list[str]) -> None:
    route = build_route("t", data)
    assert named(route.publish_queues) == publish
    assert named(route.subscribe_queues) == subscribe
    assert route.is_ordered == bool(data.order_topic_conf)


def test_queues_of_a_static_topic_are_where_the_latest_epoch_says() -> None:
    def mapping(bname: str, epoch: int, *ids: int) -> TopicQueueMappingInfo:
        return TopicQueueMappingInfo(
            bname=bname, epoch=epoch, curr_id_map=dict.fromkeys(ids, 0), total_queues=4
        )

    data = TopicRouteData(
        broker_datas=[broker("a"), broker("b")],
        topic_queue_mapping_by_broker={"a": mapping("a", 1, 0, 1), "b": mapping("b", 2, 1, 2)},
    )
    route = build_route("t", data)
    assert [queue.queue_id for queue in route.publish_queues] == [0, 1, 2, 3]
    assert {queue.broker_name for queue in route.publish_queues} == {"__syslo__global__"}
    hosts = [route.broker_of(queue) for queue in route.publish_queues]
    assert hosts == ["a", "b", "b", "__syslo__none__"]
    assert route.subscribe_queues == route.publish_queues


def test_a_route_names_the_filter_servers_of_each_broker() -> None:
    table = {"a0:10911": ["f:1", "g:1"], "b0:10911": []}
    route = build_route("t", TopicRouteData(broker_datas=[broker("a")], filter_server_table=table))
    assert route.filter_servers == {"a0:10911": ("f:1", "g:1")}


def test_a_queue_of_its_own_broker_is_there() -> None:
    assert Route("t").broker_of(MessageQueue("t", "a", 0)) == "a"


def test_a_borrowed_route_has_no_more_queues_than_wanted() -> None:
    def lender(read: int) -> Route:
        data = TopicRouteData(broker_datas=[broker("a")], queue_datas=[queues("a", read, 8, perm=7)])
        return build_route("TBW102", data)

    assert named(borrow_route("new", lender(8), 4).publish_queues) == ["a0", "a1", "a2", "a3"]
    assert named(borrow_route("new", lender(2), 4).publish_queues) == ["a0", "a1"]


class NameServer:
    """Answers route questions from a dict; may be told to wait."""

    def __init__(self, **known: TopicRouteData) -> None:
        self.known = known
        self.watched = False
        self.asked: list[str] = []
        self.gate: asyncio.Event | None = None
        self.problem: PyroError | None = None

    async def call(self, address: str, request: Any, timeout_s: float) -> Any:
        assert isinstance(request, GetRoute)
        self.asked.append(request.topic)
        answer = self.known.get(request.topic)
        if self.gate is not None:
            await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        if answer is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, "no")
        return GetRouteAnswer(body=answer, watch=self.watched or None)


@pytest.fixture
def server() -> NameServer:
    return NameServer(t=route_data("a"), TBW102=route_data("a", "b"))


@pytest.fixture
def routes(server: NameServer) -> KnownRoutes:
    return KnownRoutes(NameServers(["ns:1"]), server.call, 3)


async def test_a_route_is_asked_for_once(server: NameServer, routes: KnownRoutes) -> None:
    found = await asyncio.gather(*(routes.get("t") for _ in range(10)))
    assert all(route is found[0] for route in found)
    await routes.get("t")
    assert server.asked == ["t"]
    assert routes.cached("t") is found[0]
    assert routes.cached("u") is None


async def test_one_who_gives_up_does_not_take_the_question_away(
    server: NameServer, routes: KnownRoutes
) -> None:
    server.gate = asyncio.Event()
    first, second = asyncio.create_task(routes.get("t")), asyncio.create_task(routes.get("t"))
    await turn_until(lambda: server.asked)
    first.cancel()
    server.gate.set()
    assert (await second).topic == "t"
    assert first.cancelled() or (await asyncio.gather(first, return_exceptions=True))


async def test_a_topic_nobody_has(routes: KnownRoutes) -> None:
    with pytest.raises(NoRoute, match="no route for topic nope: no broker registered it with ns:1"):
        await routes.get("nope")


async def test_an_error_that_many_share_has_the_frames_of_one(routes: KnownRoutes) -> None:
    def frames(problem: BaseException | None) -> int:
        return len(traceback.extract_tb(problem.__traceback__)) if problem is not None else 0

    alone = asyncio.create_task(routes.get("nobodys"))
    several = [asyncio.create_task(routes.get("nobodys too")) for _ in range(20)]
    await asyncio.wait([alone, *several])
    assert max(frames(task.exception()) for task in several) <= frames(alone.exception())


async def test_other_refusals_are_told_as_they_are(server: NameServer, routes: KnownRoutes) -> None:
    server.problem = Refused(ResponseCode.NO_PERMISSION, "who are you")
    with pytest.raises(Refused, match="who are you"):
        await routes.get("t")


async def test_a_topic_that_does_not_exist_borrows_a_route(server: NameServer, routes: KnownRoutes) -> None:
    route = await routes.get_or_borrow("new", "TBW102", 4)
    assert named(route.publish_queues) == ["a0", "b0"]
    assert {queue.topic for queue in route.publish_queues} == {"new"}
    assert await routes.get_or_borrow("new", "TBW102", 4) is route
    assert routes.cached("new") is None, "consumers must not believe in it"
    assert routes.for_publishing("new") is route
    assert set(routes.brokers) == {"a", "b"}
    server.known["new"] = route_data("b")
    await routes.refresh("new")
    assert routes.for_publishing("new") is routes.cached("new") is not None
    assert set(routes.brokers) == {"a", "b"}, "others mention it still"
    server.known["TBW102"] = route_data("b")
    await routes.refresh("TBW102")
    assert set(routes.brokers) == {"b"}, "nobody mentions the other any more"


async def test_a_borrowed_route_changes_with_its_template(server: NameServer, routes: KnownRoutes) -> None:
    server.known["TBW102"] = route_data()
    empty = await routes.get_or_borrow("new", "TBW102", 4)
    assert not empty.publish_queues
    server.known["TBW102"] = route_data("a")
    before = routes.changes
    await routes.refresh("TBW102")
    assert routes.changes > before
    assert routes.for_publishing("new") is None
    assert named((await routes.get_or_borrow("new", "TBW102", 4)).publish_queues) == ["a0"]


async def test_nothing_to_borrow_from(server: NameServer, routes: KnownRoutes) -> None:
    with pytest.raises(NoRoute, match="no route for topic new"):
        await routes.get_or_borrow("new", "nothing", 4)


async def test_whoever_cares_is_told_of_new_routes(server: NameServer, routes: KnownRoutes) -> None:
    told: list[list[str]] = []
    stop = routes.on_change("t", lambda route: told.append(named(route.publish_queues)))
    await routes.get("t")
    await routes.refresh("t")
    assert told == [["a0"]], "the same route again is no news"
    server.known["t"] = route_data("a", "b")
    await routes.refresh("t")
    assert told[1:] == [["a0", "b0"]]
    stop()
    stop()
    server.known["t"] = route_data("b")
    await routes.refresh("t")
    assert len(told) == 2


async def test_a_route_that_is_gone_stays_in_use(server: NameServer, routes: KnownRoutes) -> None:
    route = await routes.get("t")
    del server.known["t"]
    with pytest.raises(NoRoute):
        await routes.refresh("t")
    assert routes.cached("t") is route


async def test_a_notice_that_comes_during_a_question_has_it_asked_again(
    server: NameServer, routes: KnownRoutes
) -> None:
    server.gate = asyncio.Event()
    asking = asyncio.create_task(routes.get("t"))
    await turn_until(lambda: server.asked)
    server.known["t"] = route_data("b")
    routes.changed(["t"])
    server.gate.set()
    assert named((await asking).publish_queues) == ["b0"]
    assert server.asked == ["t", "t"]


async def test_notices_of_topics_nobody_wants_are_ignored(server: NameServer, routes: KnownRoutes) -> None:
    routes.changed(["t"])
    await asyncio.sleep(0)
    assert server.asked == []


async def test_polls_ask_for_what_nobody_tells_about(server: NameServer, routes: KnownRoutes) -> None:
    routes.on_change("u", lambda _: None)
    await routes.get("t")
    await routes.get_or_borrow("new", "TBW102", 4)
    server.asked.clear()
    await routes.poll()
    assert sorted(server.asked) == ["TBW102", "new", "t", "u"]
    server.watched = True
    await routes.refresh("t")
    await routes.refresh("TBW102")
    for watched in ("t", "TBW102", "t"):
        server.asked.clear()
        await routes.poll()
        assert sorted(server.asked) == sorted([watched, "new", "u"]), "one that is announced, in turns"


async def test_a_poll_survives_what_fails(
    server: NameServer, routes: KnownRoutes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await routes.get("t")
    server.problem = ConnectFailed("the cable is out")
    await routes.poll()
    assert "routes not refreshed topic=t: no name server can be reached" in caplog.text
    assert "the cable is out" in caplog.text
    await routes.close()


async def test_topics_whose_routes_cannot_be_asked_for_share_a_line_of_the_log(
    server: NameServer, routes: KnownRoutes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.known["u"] = route_data("a")
    await routes.get("t")
    await routes.get("u")
    server.problem = ConnectFailed("the cable is out")
    await routes.poll()
    await routes.poll()
    assert caplog.text.count("routes not refreshed") == 1
    assert "topic=t and 1 more: " in caplog.text
    await routes.close()


async def test_a_changed_route_whose_question_timed_out_is_asked_for_again(
    server: NameServer, routes: KnownRoutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name server tells of a change once; polls look at what it tells about only every tenth time."""
    monkeypatch.setattr(route_table, "_FIRST_RETRY_S", 0.0, raising=False)
    server.watched = True
    await routes.get("t")
    server.known["t"] = route_data("b")
    server.problem = CallTimeout("no answer")
    routes.changed(["t"])
    await turn_until(lambda: len(server.asked) > 2)
    server.problem = None
    await turn_until(lambda: "b" in routes.brokers)
    count = len(server.asked)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(server.asked) == count
    await routes.close()


async def test_a_topic_that_is_not_in_use_is_not_asked_for_again(
    server: NameServer, routes: KnownRoutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_table, "_FIRST_RETRY_S", 0.0, raising=False)
    server.problem = CallTimeout("no answer")
    with pytest.raises(TransportError):
        await routes.get("t")
    for _ in range(10):
        await asyncio.sleep(0)
    assert server.asked == ["t"]


async def test_a_lost_watch_has_everything_asked_again(server: NameServer, routes: KnownRoutes) -> None:
    server.watched = True
    await routes.get("t")
    routes.watch_lost()
    await turn_until(lambda: server.asked == ["t", "t"])
    await routes.close()
    unwatched = KnownRoutes(NameServers(["ns:1"]), server.call, 3)
    unwatched.watch_lost()


@pytest.mark.parametrize(
    ("broker_id", "only_this", "address"),
    [
        (0, True, "a0:1"),
        (2, True, "a2:1"),
        (1, True, "a2:1"),
        (3, True, None),
        (3, False, "a0:1"),
        (3, None, "a0:1"),
    ],
)
async def test_addresses_of_a_broker(
    server: NameServer, routes: KnownRoutes, broker_id: int, only_this: bool | None, address: str | None
) -> None:
    server.known["t"] = TopicRouteData(broker_datas=[broker("a", 0, 2)], queue_datas=[queues("a")])
    await routes.get("t")
    assert routes.address("a", broker_id, only_this=bool(only_this)) == address
    assert routes.address("stranger") is None


async def test_closing_ends_questions(server: NameServer, routes: KnownRoutes) -> None:
    server.gate = asyncio.Event()
    routes.on_change("t", lambda _: None)
    routes.refresh_soon("t")
    await turn_until(lambda: server.asked)
    await routes.close()
    assert "topics=0" in repr(routes)


@pytest.mark.parametrize("turns", [1, 5])
async def test_who_asks_when_all_is_closed_is_told_so_and_not_cancelled(
    server: NameServer, routes: KnownRoutes, turns: int
) -> None:
    server.gate = asyncio.Event()
    asking = asyncio.create_task(routes.get("t"))
    for _ in range(turns):
        await asyncio.sleep(0)
    await routes.close()
    for late in (asking, asyncio.create_task(routes.get("t"))):
        with pytest.raises(StateError, match="is closed"):
            await late


async def test_everyone_who_borrows_shares_the_questions(server: NameServer, routes: KnownRoutes) -> None:
    borrowed = await asyncio.gather(*(routes.get_or_borrow("new", "TBW102", 4) for _ in range(10)))
    assert all(route is borrowed[0] for route in borrowed)
    assert server.asked == ["new", "TBW102"]


@pytest.mark.parametrize("count", [2_000_000_000, 65_537, -1])
def test_a_route_with_an_absurd_number_of_queues_is_an_error_that_names_it(count: int) -> None:
    words = rf"topic t has {count} queues on a; 0 to 65536 are allowed"
    for data in (
        TopicRouteData(broker_datas=[broker("a")], queue_datas=[queues("a", read=count)]),
        TopicRouteData(broker_datas=[broker("a")], queue_datas=[queues("a", write=count)]),
    ):
        with pytest.raises(RemoteProtocolError, match=words):
            build_route("t", data)
        with pytest.raises(RemoteProtocolError, match=words):
            list(readable_queues("t", data)) + list(writable_queues("t", data))


def test_queues_of_many_brokers_count_together() -> None:
    names = "abcde"
    data = TopicRouteData(
        broker_datas=[broker(name) for name in names], queue_datas=[queues(name, 65_536) for name in names]
    )
    with pytest.raises(RemoteProtocolError, match="327680 queues on 5 brokers; 262144 are allowed"):
        build_route("t", data)


@pytest.mark.parametrize("count", ["2000000000", "9" * 100_000])
def test_an_absurd_order_configuration_is_an_error(count: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"topic t has \d+ queues on a"):
        build_route("t", TopicRouteData(order_topic_conf=f"a:{count}"))


def test_an_absurd_static_topic_is_an_error() -> None:
    info = TopicQueueMappingInfo(bname="a", scope="s", topic="t", total_queues=2_000_000_000)
    with pytest.raises(RemoteProtocolError, match="topic t has 2000000000 queues on __syslo__s"):
        build_route("t", TopicRouteData(topic_queue_mapping_by_broker={"a": info}))


async def test_whoever_waits_for_another_route_is_woken_by_it(
    server: NameServer, routes: KnownRoutes
) -> None:
    await routes.get("t")
    waiting = asyncio.create_task(routes.wait_changed("t", 3600))
    await routes.refresh("t")
    assert not waiting.done()
    server.known["t"] = route_data("b")
    routes.changed(["t"])
    await waiting


async def test_whoever_waits_for_another_route_in_vain_goes_on(routes: KnownRoutes) -> None:
    await routes.wait_changed("t", 0.0)
