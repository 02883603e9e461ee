"""Health: what a probe sees while brokers live, die and come back, and handlers hang."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_cluster import ConsumerCluster, Received, consumer_cluster

import pyromq
from pyromq import aio
from pyromq.client.values import Message, ReceivedMessage
from pyromq.testing import RunningCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def probed(*clients: Any) -> tuple[int, Any]:
    """What a probe gets from the ASGI application."""
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        raise AssertionError("a probe has no body")

    await aio.readiness(*clients)({"type": "http"}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_a_dead_broker_is_seen_by_producers_and_consumers(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    simple = aio.SimpleConsumer("simple", cluster.namesrv)
    simple.subscribe("Orders")
    async with aio.Producer("orders", cluster.namesrv) as producer, consumer, simple:
        await producer.send(Message("Orders", b"one"))
        await received.wait_for_all(["one"])
        status, page = await probed(producer, consumer, simple)
        assert (status, page["ok"]) == (200, True)
        health = await consumer.health()
        assert (health.is_ok, health.brokers, health.queues, health.lag) == (True, 1, 5, 0)
        assert health.last_pull_s is not None
        await cluster.standalone.brokers[0].stop()
        for client in (producer, consumer, simple):
            lost = await client.health()
            assert not lost.is_ok
            assert lost.lost_brokers == ("broker-a",)
            assert "the broker broker-a does not answer" in lost.problems[0]
        status, page = await probed(producer, consumer)
        assert (status, page["ok"], page["clients"][0]["ok"]) == (503, False, False)
    assert (await consumer.health()).problems == ("it is not running",)


async def test_a_hung_broker_does_not_hang_the_probe(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("Orders")
    async with aio.Producer("orders", cluster.namesrv) as producer:
        await producer.send(Message("Orders", b"one"))

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(producer._started().session._dialer, "call", never)
            health = await producer.health(timeout_s=0.05)
        assert health.problems == ("the broker broker-a does not answer: no answer in 0.05 s",)


async def test_a_client_without_a_name_server_is_not_ready() -> None:
    async with aio.Producer("orders", "127.0.0.1:1") as producer:
        health = await producer.health()
    assert "no name server of 127.0.0.1:1 answers" in health.problems[0]


async def test_a_topic_without_a_route_and_lost_handlers_are_problems(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    hanging, end = asyncio.Event(), asyncio.Event()
    consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first", handler_timeout_s=0.01)

    @consumer.on("Orders")
    async def handle(message: ReceivedMessage) -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                hanging.set()

    consumer.subscribe("Missing", "*", handle)
    await cluster.send("Orders", 1)
    async with consumer:
        await hanging.wait()
        health = await consumer.health()
        end.set()
    assert health.lost_handlers == 1
    assert set(health.problems) == {
        "1 handlers run although their time is up",
        "the topic Missing has no route",
    }


def test_a_wsgi_server_answers_probes(rocketmq: RunningCluster) -> None:
    answers: list[str] = []
    with pyromq.Producer("orders", rocketmq.namesrv) as producer:
        (body,) = pyromq.readiness(producer)({}, lambda status, headers: answers.append(status))
        assert json.loads(body)["ok"] is True
    (body,) = pyromq.readiness(producer)({}, lambda status, headers: answers.append(status))
    assert answers == ["200 OK", "503 Service Unavailable"]
    assert json.loads(body)["clients"][0]["problems"] == ["it is not running"]
