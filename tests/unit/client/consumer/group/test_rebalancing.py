"""When and how the queues of a group are divided."""

import asyncio

import pytest
from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import BROKERS, QUEUE, RETRY_QUEUE

from pyromq.client.consumer.group.rebalancing import Division, Rebalancing
from pyromq.client.values import MessageQueue
from pyromq.cluster.assignment import Average
from pyromq.cluster.routes import Route
from pyromq.errors import CallTimeout, PyroError, Refused
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.membership import GetConsumerIds, GetConsumerListByGroupResponseBody


class Held:
    def __init__(self) -> None:
        self.queues: dict[str, set[MessageQueue]] = {}
        self.is_enough = True

    async def hold(self, topic: str, queues: set[MessageQueue]) -> bool:
        self.queues[topic] = queues
        return self.is_enough


def members(*ids: str) -> BodyAnswer[GetConsumerListByGroupResponseBody]:
    return BodyAnswer(body=GetConsumerListByGroupResponseBody(consumer_id_list=list(ids)))


async def test_each_member_takes_its_share(network: FakeNetwork) -> None:
    queues = tuple(MessageQueue("Orders", "broker-a", number) for number in range(4))
    network.routes._take(Route("Orders", queues, queues, BROKERS))
    network.answers[GetConsumerIds] = members("you", "me")
    held = Held()
    assert await Rebalancing(network, "g", "me", Division(Average()), lambda: ["Orders"], held.hold).once()
    assert held.queues == {"Orders": set(queues[:2])}


async def test_broadcasting_members_take_all_and_ask_nobody(network: FakeNetwork) -> None:
    held = Held()
    assert await Rebalancing(network, "g", "me", Division(None), lambda: ["Orders"], held.hold).once()
    assert held.queues == {"Orders": {QUEUE}}
    assert network.calls == []


async def test_who_is_not_known_as_a_member_holds_nothing(network: FakeNetwork) -> None:
    network.answers[GetConsumerIds] = members("you")
    held = Held()
    assert not await Rebalancing(
        network, "g", "me", Division(Average()), lambda: ["Orders"], held.hold
    ).once()
    assert held.queues == {"Orders": set()}


@pytest.mark.parametrize("problem", [CallTimeout("away"), Refused(ResponseCode.SYSTEM_ERROR)])
async def test_nothing_changes_while_the_members_are_unknown(
    network: FakeNetwork, problem: PyroError
) -> None:
    network.answers[GetConsumerIds] = problem
    held = Held()
    topics = ["Orders", "Nowhere"]
    assert not await Rebalancing(network, "g", "me", Division(Average()), lambda: topics, held.hold).once()
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

    rebalancing = Rebalancing(
        network, "g", "me", Division(Average(), interval_s=3600), lambda: ["Orders"], hold
    )
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


async def test_a_failure_that_lasts_is_logged_once_for_all_topics(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    topics = ["Orders", RETRY_QUEUE.topic]
    rebalancing = Rebalancing(network, "g", "me", Division(Average()), lambda: topics, held.hold)
    network.answers[GetConsumerIds] = CallTimeout("no answer")
    for _ in range(5):
        await rebalancing.once()
    assert len(caplog.messages) == 1
    network.answers[GetConsumerIds] = members("me")
    await rebalancing.once()
    assert caplog.messages[1:] == ["rebalance succeeded group=g"]
