"""Quotas on a whole broker: what has one leaves the compiled path, on the wire and for users alike."""

import asyncio
from pathlib import Path

import pytest
from tests.support.access import ALICE, ROOT, SECURE, client, grant, user_creation
from tests.support.broker_cluster import GROUP, TOPIC, BrokerClient, running_broker
from tests.support.loop import turn_until

from pyromq.broker.broker import Broker
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.access import GetUser, UpdateUser, UserInfo
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.topics import CreateOrUpdateTopic

UNIQUE = {"UNIQ_KEY": "A1"}


def topic(attributes: str) -> CreateOrUpdateTopic:
    return CreateOrUpdateTopic(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=attributes,
    )


async def figures(client: BrokerClient) -> tuple[int, int]:
    table = (await client.call(GetBrokerRuntimeInfo())).body.table
    return int(table["quotaDelayedRequests"]), int(table["quotaRefusedRequests"])


async def test_a_topic_gets_a_quota_while_it_is_used_and_loses_it_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker, BrokerClient(broker.address) as client:
        await client.create_topic()
        for _ in range(5):
            await client.send(properties=UNIQUE)
        await client.call(topic("+quota.send.messages=2,+quota.read.messages=2"))
        for _ in range(2):
            await client.send(properties=UNIQUE)
        assert await figures(client) == (0, 0)
        # The answer to this one comes half a second later, by the loop's clock; the broker's stands still.
        await client.send(properties=UNIQUE)
        sends = [asyncio.create_task(client.send(properties=UNIQUE)) for _ in range(4)]
        done = await asyncio.gather(*sends, return_exceptions=True)
        refused = [each for each in done if isinstance(each, Refused)]
        assert [each.code for each in refused] == [ResponseCode.SYSTEM_BUSY] * 2
        assert f"the topic {TOPIC} is over its quota.send.messages of 2" in str(refused[0])
        assert await figures(client) == (3, 2)

        assert len((await client.pull(0)).messages) == 2
        clock.advance(10)
        await client.call(topic("-quota.send.messages,+quota.read.messages=0"))
        for _ in range(10):
            await client.send(properties=UNIQUE)
        assert len((await client.pull(0)).messages) == 20
        assert await figures(client) == (3, 2)


async def test_a_bad_quota_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        with pytest.raises(Refused, match=r"quota.send.bytes=1k: expected a whole number a second"):
            await client.call(topic("+quota.send.bytes=1k"))
        for name, expected in (("quota.send.bytes", "is unknown"), ("quota.read.bytes", "whole number")):
            config = SubscriptionGroupConfig(group_name=GROUP, attributes={f"+{name}": "-1"})
            with pytest.raises(Refused, match=expected):
                await client.call(CreateOrUpdateGroup(body=config))


async def test_a_group_with_a_quota_waits_for_its_messages(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker, BrokerClient(broker.address) as client:
        await client.create_topic()
        for _ in range(6):
            await client.send(properties=UNIQUE)
        config = SubscriptionGroupConfig(group_name=GROUP, attributes={"+quota.read.messages": "3"})
        await client.call(CreateOrUpdateGroup(body=config))
        assert len((await client.pull(0)).messages) == 3
        assert len((await client.pull(3)).messages) == 1
        late = asyncio.create_task(client.pull(4))
        await turn_until(lambda: broker_delayed(broker) == 1)
        clock.advance(1)
        assert len((await late).messages) == 2


def broker_delayed(broker: Broker) -> int:
    return broker._started._quotas.delayed.total()


async def test_a_user_with_a_quota_is_counted_on_every_path_and_keeps_it_after_a_restart(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with (
        running_broker(tmp_path, clock=clock, **SECURE) as broker,
        client(broker.address, ROOT) as root,
        client(broker.address, ALICE) as alice,
    ):
        await root.create_topic()
        await root.call(user_creation(ALICE))
        await root.call(grant(ALICE, f"Pub,Sub on Topic:{TOPIC}", f"Sub on Group:{GROUP}"))
        for _ in range(5):
            await alice.send(properties=UNIQUE)
        name = ALICE.access_key
        change = UserInfo(attributes={"quota.send.messages": "2", "quota.read.messages": "1"})
        await root.call(UpdateUser(username=name, body=change))
        for _ in range(3):
            await alice.send(properties=UNIQUE)
        assert broker_delayed(broker) == 1
        for _ in range(5):
            await root.send(properties=UNIQUE)
        assert broker_delayed(broker) == 1
        assert len((await alice.pull(0)).messages) == 1
        with pytest.raises(Refused, match="'quota' is unknown"):
            await root.call(UpdateUser(username=name, body=UserInfo(attributes={"quota": "1"})))
    async with (
        running_broker(tmp_path, clock=clock, **SECURE) as broker,
        client(broker.address, ROOT) as root,
    ):
        kept = (await root.call(GetUser(username=ALICE.access_key))).body
        assert kept is not None
        assert kept.attributes == {"quota.send.messages": "2", "quota.read.messages": "1"}
        await root.call(UpdateUser(username=ALICE.access_key, body=UserInfo(password="another")))
        assert broker.access.attributes_of(ALICE.access_key) == kept.attributes
        off = UserInfo(attributes={"quota.send.messages": "0", "quota.read.messages": "0"})
        await root.call(UpdateUser(username=ALICE.access_key, body=off))
        assert not broker.access.attributes_of(ALICE.access_key)
