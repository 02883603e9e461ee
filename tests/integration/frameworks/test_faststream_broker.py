"""FastStream on RocketMQ: what handlers get, what becomes of messages that they refuse, requests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

from pyromq import Sql
from pyromq.errors import BadMessage, ConfigError, StateError
from pyromq.testing import RunningCluster

pytest.importorskip("faststream")
pytestmark = pytest.mark.filterwarnings("ignore")

from faststream import AckPolicy, FastStream, Header  # noqa: E402
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256  # noqa: E402
from faststream.specification import AsyncAPI  # noqa: E402

from pyromq.faststream import (  # noqa: E402
    RocketBroker,
    RocketMessage,
    RocketPublisher,
    RocketResponse,
    RocketRoute,
    RocketRouter,
    TestRocketBroker,
)

TIMEOUT_S = 60.0

New = Callable[..., RocketBroker]


@pytest.fixture
async def new(rocketmq: RunningCluster) -> AsyncIterator[New]:
    made: list[RocketBroker] = []

    def broker(**options: Any) -> RocketBroker:
        made.append(RocketBroker(rocketmq.namesrv, namespace="shop", logger=None, **options))
        return made[-1]

    yield broker
    for each in made:
        await each.stop()


async def taken(found: "asyncio.Queue[Any]", count: int = 1) -> list[Any]:
    async with asyncio.timeout(TIMEOUT_S):
        return [await found.get() for _ in range(count)]


async def test_a_handler_gets_the_body_the_headers_and_the_message(new: New) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    @broker.subscriber("Orders")
    async def bill(order: dict[str, int], shop: Annotated[str, Header()], message: RocketMessage) -> None:
        found.put_nowait((order, shop, message))

    await broker.start()
    sent = await broker.publish(
        {"amount": 3}, "Orders", headers={"shop": "Ulm"}, tag="Paid", keys="o-1", correlation_id="c-1"
    )
    ((order, shop, message),) = await taken(found)
    assert (order, shop) == ({"amount": 3}, "Ulm")
    assert (message.raw_message.tags, message.raw_message.keys) == ("Paid", ("o-1",))
    assert message.correlation_id == "c-1"
    assert message.headers == {"shop": "Ulm"}
    assert sent is not None
    assert message.message_id == sent.message_id
    assert await broker.ping()


async def test_a_message_without_a_body_arrives_without_one(new: New) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    @broker.subscriber("Ticks")
    async def tick(message: RocketMessage) -> None:
        found.put_nowait(message.body)

    await broker.start()
    await broker.publish(None, "Ticks")
    assert await taken(found) == [b""]


async def test_a_handler_that_fails_gets_its_message_again(new: New) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    @broker.subscriber("Unsure", retry_s=0.1)
    async def third_time(number: int, message: RocketMessage) -> None:
        found.put_nowait(message.raw_message.reconsume_times)
        if message.raw_message.reconsume_times < 2:
            raise ValueError("on purpose")

    await broker.start()
    await broker.publish(1, "Unsure")
    assert await taken(found, 3) == [0, 1, 2]


async def test_a_rejected_message_is_a_dead_letter(new: New, rocketmq: RunningCluster) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    @broker.subscriber("Bad", group="bad-readers", ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def fail(number: int) -> None:
        found.put_nowait(number)
        raise ValueError("on purpose")

    await broker.start()
    await broker.publish(7, "Bad")
    assert await taken(found) == [7]
    await broker.stop()
    (letter,) = await asyncio.to_thread(rocketmq.dead_letters, "shop%bad-readers")
    assert letter.error == "rejected by a handler"


async def test_results_go_to_the_publishers_topic_and_to_reply_to(new: New) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    @broker.subscriber("Numbers")
    @broker.publisher("Doubles", tag="Even")
    async def double(number: int) -> Any:
        return RocketResponse(number * 2, headers={"by": "double"}, keys=["n-1"])

    @broker.subscriber("Doubles", tags="Even")
    async def doubles(number: int, message: RocketMessage) -> None:
        found.put_nowait((number, message.headers, message.raw_message.keys))

    @broker.subscriber("Answers")
    async def answers(number: int) -> None:
        found.put_nowait(number)

    await broker.start()
    await broker.publish(4, "Numbers", reply_to="Answers")
    first, second = await taken(found, 2)
    assert sorted([first, second], key=str) == [(8, {"by": "double"}, ("n-1",)), 8]


async def test_a_request_gets_what_the_handler_returns(new: New) -> None:
    broker = new()

    @broker.subscriber("Questions")
    async def answer(text: str) -> str:
        return text.upper()

    await broker.start()
    reply = await broker.request("why", "Questions", timeout=TIMEOUT_S, correlation_id="c-2")
    assert (await reply.decode(), reply.correlation_id) == ("WHY", "c-2")


async def test_a_request_that_nobody_answers_ends_in_time(new: New) -> None:
    broker = new()
    await broker.start()
    with pytest.raises(TimeoutError, match="no reply"):
        await broker.request("why", "Nobody", timeout=1.0)


async def test_each_group_gets_a_message_once_and_only_what_it_wants(new: New) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    def reads(name: str, **options: Any) -> None:
        @broker.subscriber("Prices", **options)
        async def read(price: int) -> None:
            found.put_nowait((name, price))

    reads("tags", group="by-tag", tags="EUR || USD")
    reads("sql", group="by-sql", tags=Sql("amount > 10"))
    reads("shared", group="all")
    reads("shared", group="all")
    await broker.start()
    await broker.publish(1, "Prices", tag="EUR", headers={"amount": 5})
    await broker.publish(2, "Prices", tag="GBP", headers={"amount": 20})
    assert sorted(await taken(found, 4)) == [("shared", 1), ("shared", 2), ("sql", 2), ("tags", 1)]


async def test_a_group_that_would_read_two_things_is_refused(new: New) -> None:
    broker = new()
    broker.subscriber("One", group="same", tags="A")
    broker.subscriber("One", group="same", tags="B")
    with pytest.raises(ConfigError, match="same"):
        await broker.start()


async def test_several_handlers_run_at_a_time_if_asked(new: New) -> None:
    broker, both = new(), asyncio.Barrier(2)
    done = asyncio.Queue[Any]()

    @broker.subscriber("Slow", max_workers=2)
    async def meet(number: int) -> None:
        await both.wait()
        done.put_nowait(number)

    await broker.start()
    await broker.publish(1, "Slow")
    await broker.publish(2, "Slow")
    assert sorted(await taken(done, 2)) == [1, 2]


async def test_a_broker_that_stops_waits_for_its_handlers(new: New) -> None:
    broker, found, go_on = new(), asyncio.Queue[Any](), asyncio.Event()

    @broker.subscriber("Work", start_from="first")
    async def work(number: int) -> None:
        found.put_nowait(number)
        await go_on.wait()

    await broker.start()
    await broker.publish(1, "Work")
    assert await taken(found) == [1]
    stopping = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping
    await broker.start()  # the first message is done, or it would come again before this one
    await broker.publish(2, "Work")
    assert await taken(found) == [2]


async def test_messages_can_be_asked_for_one_by_one(new: New) -> None:
    broker = new()
    reader = broker.subscriber("Singles", persistent=False, start_from="first")
    await broker.start()
    for number in range(3):
        await broker.publish(number, "Singles")
    first = await reader.get_one(timeout=TIMEOUT_S)
    assert first is not None
    await first.ack()
    found = {await first.decode()}
    async with asyncio.timeout(TIMEOUT_S):
        async for message in reader:
            found.add(await message.decode())
            await message.ack()
            if len(found) == 3:
                break
    assert found == {0, 1, 2}
    assert await reader.get_one(timeout=0.05) is None


async def test_routers_put_their_prefix_before_topics(new: New) -> None:
    broker, found = new(), asyncio.Queue[Any]()

    async def note(text: str) -> str:
        found.put_nowait(text)
        return text

    async def copied(text: str) -> None:
        found.put_nowait(f"copy of {text}")

    routes = [RocketRoute(note, "in", publishers=[RocketPublisher("out")]), RocketRoute(copied, "out")]
    broker.include_router(RocketRouter("eu-", routes))
    await broker.start()
    await broker.publish("a", "eu-in")
    assert await taken(found, 2) == ["a", "copy of a"]
    with pytest.raises(TypeError, match="a router of RocketMQ"):
        broker.include_router(object())  # type: ignore[arg-type]


async def test_a_router_of_fastapi_starts_the_broker_with_the_application(rocketmq: RunningCluster) -> None:
    fastapi = pytest.importorskip("fastapi")
    from pyromq.faststream.fastapi import FastApiRouter

    router, found = FastApiRouter(rocketmq.namesrv, namespace="shop", logger=None), asyncio.Queue[Any]()

    @router.subscriber("Web")
    @router.publisher("Seen")
    async def seen(text: str) -> str:
        found.put_nowait(text)
        return text

    app = fastapi.FastAPI()
    app.include_router(router)
    async with router.lifespan_context(app):
        await router.broker.publish("hello", "Web")
        assert await taken(found) == ["hello"]
    with pytest.raises(StateError, match="not connected"):
        await router.broker.publish("late", "Web")


# In memory


def in_memory(**options: Any) -> RocketBroker:
    return RocketBroker("127.0.0.1:1", **options)


async def test_the_broker_in_memory_needs_no_cluster() -> None:
    broker = in_memory()

    @broker.subscriber("Orders", tags=Sql("amount > 10"))
    @broker.publisher("Bills")
    async def bill(order: str) -> str:
        return f"bill of {order}"

    async with TestRocketBroker(broker) as tested:
        await tested.publish("small", "Orders", headers={"amount": 5})
        await tested.publish("big", "Orders", headers={"amount": 20})
        bill.mock.assert_called_once_with("big")
        reply = await tested.request("huge", "Orders", headers={"amount": 99})
        assert await reply.decode() == "bill of huge"


async def test_the_broker_in_memory_gives_a_message_to_one_subscriber_of_a_group() -> None:
    broker, found = in_memory(), []
    for _ in range(2):

        @broker.subscriber("Shared", group="same")
        async def read(text: str) -> None:
            found.append(text)

    async with TestRocketBroker(broker) as tested:
        await tested.publish("once", "Shared")
    assert found == ["once"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topic": "not a topic"}, "not a topic"),
        ({"headers": {"KEYS": "a"}}, "KEYS"),
        ({"headers": {"empty": ""}}, "empty"),
        ({"delay_s": "soon"}, "delay_s is 'soon'"),
        ({"deliver_at": datetime(2030, 1, 1)}, "with a time zone"),
    ],
)
async def test_a_message_that_brokers_would_refuse_is_refused_in_memory_too(
    given: dict[str, Any], problem: str
) -> None:
    async with TestRocketBroker(in_memory()) as tested:
        with pytest.raises(BadMessage, match=problem):
            await tested.publish("text", **{"topic": "Orders", **given})


async def test_an_unknown_field_of_a_message_is_refused() -> None:
    broker = in_memory()
    with pytest.raises(TypeError, match="sharding_key"):
        await broker.publish("text", "Orders", sharding="a")
    with pytest.raises(TypeError, match="tags"):
        broker.publisher("Orders", tags="Paid")


async def test_times_of_delivery_arrive_with_the_message() -> None:
    broker, found = in_memory(), []

    @broker.subscriber("Later")
    async def read(message: RocketMessage) -> None:
        found.append(message.raw_message.properties["TIMER_DELIVER_MS"])

    at = datetime(2030, 1, 1, tzinfo=UTC)
    async with TestRocketBroker(broker) as tested:
        await tested.publish("text", "Later", deliver_at=at)
    assert found == [str(round(at.timestamp() * 1000))]


# Settings


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"invisible": 1}, "invisible_s"),
        ({"security": SASLScram256("a", "b")}, "SASLPlaintext"),
        ({"max_retries": 0}, "options of faststream"),
    ],
)
def test_bad_options_of_a_broker_stop_the_start(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        in_memory(**options)


@pytest.mark.parametrize("options", [{"max_workers": 0}, {"prefetch": 0}, {"retry_s": 0.0}])
def test_bad_options_of_a_subscriber_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        in_memory().subscriber("Orders", **options)


def test_faststreams_security_becomes_credentials_and_tls() -> None:
    link = in_memory(security=SASLPlaintext("key", "secret", use_ssl=True))._new_link()
    assert link.client["credentials"].secret_key == "secret"
    assert link.client["tls"].verify
    assert "credentials" not in in_memory(security=BaseSecurity())._new_link().client


def test_the_specification_has_topics_and_servers_and_no_secrets() -> None:
    broker = RocketBroker("rocketmq://key:secret@ns1:9876,ns2:9876/shop")

    @broker.subscriber("Orders")
    @broker.publisher("Bills")
    async def bill(order: int) -> str:
        return str(order)

    text = FastStream(broker, specification=AsyncAPI()).schema.to_specification().to_json()
    assert all(word in text for word in ("Orders:Bill", "Bills:Publisher", "ns1:9876", "rocketmq"))
    assert "secret" not in text
