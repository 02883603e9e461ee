"""A front beside its broker: calls cross no socket, and brokers see clients under their own addresses."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.front import Front, front, user
from tests.support.front_user import CODES, Resource
from tests.support.server_programs import get

from pyromq.protocol.requests.membership import GetConsumerConnections
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.remoting.addresses import format_address

TOPIC, GROUP = "Beside", "BesideGroup"
_MAX_BODY_BYTES = 5000


@pytest.fixture
async def running() -> AsyncIterator[Front]:
    settings = {"min_polling_ms": 100, "metrics_exporter": "PROM", "metrics_port": 0, "second_port": 0}
    async with front(settings=settings, beside=True, max_in_flight_per_connection=4) as started:
        await started.create_topic(TOPIC)
        await started.create_group(GROUP)
        yield started


async def test_messages_come_and_go_without_a_socket_to_the_broker(running: Front) -> None:
    async with user(running.target) as client:
        await client.subscribe(GROUP, TOPIC)
        assert CODES[(await client.send(client.message(TOPIC, b"here"))).status.code] == "OK"
        received = await client.receive(GROUP, TOPIC)
        assert received.bodies == [b"here"]
        assert await client.ack(GROUP, TOPIC, *received.messages) == ["OK"]
        answer = await running.ask_broker(GetConsumerConnections(consumer_group=GROUP))
        [member] = answer.body.connection_set
        [mine] = running.proxy.clients
        assert (member.client_id, member.client_addr) == (client.client_id, mine.peer_address)


async def test_a_broker_that_refuses_a_plain_message_is_heard(running: Front) -> None:
    async with user(running.target) as client:
        for number in range(2):
            assert CODES[(await client.send(client.message(TOPIC, b"%d" % number))).status.code] == "OK"
        # The front would take more.
        await running.ask_broker(UpdateBrokerConfig(body=f"maxMessageSize={_MAX_BODY_BYTES}"))
        refused = await client.send(client.message(TOPIC, b"x" * (_MAX_BODY_BYTES + 1)))
        assert CODES[refused.status.code] == "INTERNAL_SERVER_ERROR"
        assert str(_MAX_BODY_BYTES) in refused.status.message
        assert CODES[(await client.send(client.message(TOPIC, b"short"))).status.code] == "OK"


async def test_receives_that_wait_do_not_use_up_the_connection_of_the_others(running: Front) -> None:
    waiting = 5
    assert running.cluster.broker.settings.max_in_flight_per_connection < waiting
    async with asyncio.TaskGroup() as group, user(running.target, "producer@1@0@a") as producer:
        users = [user(running.target, f"waiter@{number}@0@a") for number in range(waiting)]
        clients = [await each.__aenter__() for each in users]
        for client in clients:
            await client.subscribe(GROUP, TOPIC)
        receives = [
            group.create_task(client.receive(GROUP, TOPIC, wait_s=10, batch_size=1)) for client in clients
        ]
        broker = running.cluster.broker
        while broker.statistics().traffic.in_flight < waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for number in range(waiting):
            sent = await producer.send(producer.message(TOPIC, str(number).encode()))
            assert CODES[sent.status.code] == "OK"
        bodies = [body for each in receives for body in (await each).bodies]
        assert sorted(bodies) == [str(number).encode() for number in range(waiting)]
        for each in users:
            await each.__aexit__(None, None, None)


async def test_the_front_has_metrics_and_tells_its_health(running: Front) -> None:
    address = format_address(*running.proxy.metrics_address)
    async with user(running.target) as client:
        await client.subscribe(GROUP, TOPIC)
        await client.send(client.message(TOPIC))
        await client.code("QueryRoute", topic=Resource(name="Absent"))
        status, text = await asyncio.to_thread(get, address, "/metrics")
    assert status == 200
    found = {
        (sample.name, *(sample.labels.get(name, "") for name in ("rpc", "status", "client_type"))): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    up = found["rocketmq_proxy_up", "", "", ""]
    assert up.value == 1
    assert up.labels["node_type"] == "proxy"
    assert up.labels["proxy_mode"] == "cluster"
    assert found["pyromq_proxy_calls_total", "SendMessage", "OK", ""].value == 1
    assert found["pyromq_proxy_calls_total", "QueryRoute", "TOPIC_NOT_FOUND", ""].value == 1
    assert found["pyromq_proxy_call_seconds_count", "SendMessage", "", ""].value == 1
    assert found["pyromq_proxy_open_calls", "Telemetry", "", ""].value == 1
    assert found["pyromq_proxy_clients", "", "", "simple_consumer"].value == 1
    assert (await asyncio.to_thread(get, address, "/ready"))[0] == 200
    assert (await asyncio.to_thread(get, address, "/health"))[0] == 200


async def test_grpc_is_served_on_the_second_port_as_well(running: Front) -> None:
    _, second = running.proxy.addresses
    async with user(format_address(*second)) as client:
        assert await client.code("QueryRoute", topic=Resource(name="Absent")) == "TOPIC_NOT_FOUND"
