"""Commands about clients, with a consumer and a producer that are online."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.broker_cluster import BrokerClient, consumer

from pyromq.admin import brokers, offsets
from pyromq.admin.cluster import Cluster
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.requests.inspection import (
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerRunningInfo,
    ProcessQueueInfo,
)
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.protocol.requests.pushes import GetConsumerStatusBody, GetConsumerStatusFromClient
from pyromq.remoting.routing import Caller, handles
from pyromq.standalone import Standalone, StandaloneSettings

TOPIC, GROUP = "orders", "shop"
RUNNING = ConsumerRunningInfo(
    properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1"},
    subscription_set=[SubscriptionData(topic=TOPIC, sub_string="*")],
    mq_table={MessageQueue(TOPIC, "broker-a", 0): ProcessQueueInfo(commit_offset=7, cached_msg_count=1)},
    status_table={TOPIC: ConsumeStatus(pull_tps=1.5)},
    jstack="main\n  at work",
)


class PushConsumer(BrokerClient):
    @handles(GetConsumerRunningInfo)
    def _running_info(
        self, request: GetConsumerRunningInfo, caller: Caller
    ) -> BodyAnswer[ConsumerRunningInfo]:
        return BodyAnswer(body=RUNNING)

    @handles(GetConsumerStatusFromClient)
    def _status(
        self, request: GetConsumerStatusFromClient, caller: Caller
    ) -> BodyAnswer[GetConsumerStatusBody]:
        return BodyAnswer(
            body=GetConsumerStatusBody(message_queue_table={MessageQueue(TOPIC, "broker-a", 0): 7})
        )

    async def aclose(self) -> None:
        await self.close()


Tool = Callable[..., Awaitable[Result]]


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[Tool]:
    settings = StandaloneSettings(
        store=tmp_path,
        namesrv_port=0,
        broker_port=0,
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    async with (
        Standalone(settings) as running,
        aclosing(PushConsumer(running.broker.address, client_id="10.0.0.1@7")) as client,
    ):
        await client.create_topic(TOPIC, 1)
        await client.heartbeat(consumer(GROUP, TOPIC), producers=("tills",))

        async def run(*words: str) -> Result:
            runner = CliRunner()
            env = {"NAMESRV_ADDR": running.namesrv}
            return await asyncio.to_thread(runner.invoke, mqadmin, [*words, "--timeout", "60"], env=env)

        assert (await run("sendMessage", "-t", TOPIC, "-p", "hello")).exit_code == 0
        assert (await run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")).exit_code == 0
        yield run


STUCK = "10.0.0.1@7 orders@broker-a:0 can't consume for a while, maybe blocked, "
CLIENT = r"10\.0\.0\.1@7 +127\.0\.0\.1:\d+ +PYTHON +V5_3_3"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["consumerConnection", "-g", GROUP], rf"#ClientId +#ClientAddr +#Language +#Version\n{CLIENT}\n"),
        (["consumerConnection", "-g", GROUP], r"Below is subscription:\n#Topic +#SubExpression\n"),
        (["consumerConnection", "-g", GROUP, "-b", "broker-a"], r"orders +\*\n"),
        (["consumerConnection", "-g", GROUP], r"ConsumeType: CONSUME_PASSIVELY\nMessageModel: CLUSTERING\n"),
        (["producerConnection", "-g", "tills", "-t", TOPIC], CLIENT),
        (["producer", "-b", "broker-a"], r"tills +10\.0\.0\.1@7"),
        (["consumerProgress"], r"shop +1 +V5_3_3 +PUSH +CLUSTERING +0 +1\n"),
        (
            ["consumerProgress", "-g", GROUP, "-s", "true"],
            r"orders +broker-a +0 +1 +0 +10\.0\.0\.1 +1 +0 +N/A",
        ),
        (
            ["consumerStatus", "-g", GROUP],
            r"#Index +#ClientId +#Version +#Queues\n1 +10\.0\.0\.1@7 +V5_3_3 +1\n",
        ),
        (["consumerStatus", "-g", GROUP], r"Same subscription in the same group of consumer\nRebalance OK"),
        (
            ["consumerStatus", "-g", GROUP, "-i", "10.0.0.1@7"],
            r"#Consumer Properties#\nPROP_CONSUMER_START_TIMESTAMP",
        ),
        (
            ["consumerStatus", "-g", GROUP, "-i", "10.0.0.1@7"],
            r"#Consumer MQ Detail#\n.*\norders +broker-a +0 +7 ",
        ),
        (["consumerStatus", "-g", GROUP, "-i", "10.0.0.1@7", "-s"], r"#Consumer jstack#\nmain\n"),
        (
            ["getConsumerStatus", "-g", GROUP, "-t", TOPIC],
            r"#clientId +#brokerName +#queueId +#offset\n10\.0\.0\.1@7 +broker-a +0 +7\n",
        ),
        (["getConsumerStatus", "-g", GROUP, "-t", TOPIC, "-i", "10.0.0.1@7"], r"broker-a +0 +7\n"),
        (["statsAll", "-t", TOPIC], r"orders +shop +1 "),
        (
            ["startMonitoring", "--rounds", "1"],
            rf"#Delay\(ms\)\nshop +orders +1 +1 +0\n\nshop: {re.escape(STUCK)}",
        ),
        (["topicList", "-c"], r"DefaultCluster +orders +shop"),
    ],
)
async def test_a_command_about_clients_shows(tool: Tool, words: list[str], expected: str) -> None:
    done = await tool(*words)
    assert done.exit_code == 0, done.output
    assert re.search(expected, done.stdout), done.stdout


@pytest.mark.parametrize(("version", "asks_the_broker"), [("V5_3_3", True), ("V4_9_7", False)])
async def test_one_queue_is_reset_without_a_request_that_version_4_misunderstands(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, version: str, asks_the_broker: bool
) -> None:
    """java: a broker of 4.x overlooks which queue is meant, and resets the whole group."""
    made: list[tuple[str, int]] = []

    async def runtime_info(*_: object) -> dict[str, str]:
        return {"brokerVersionDesc": version}

    def watch(name: str) -> None:
        work = getattr(offsets, name)

        async def watched(
            cluster: Cluster, address: str, group: str, queue: MessageQueue, offset: int
        ) -> None:
            made.append((name, offset))
            await work(cluster, address, group, queue, offset)

        monkeypatch.setattr(offsets, name, watched)

    monkeypatch.setattr(brokers, "runtime_info", runtime_info)
    watch("reset_queue")
    watch("commit")
    done = await tool("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "-1", "-b", "broker-a", "-q", "0")
    assert "reset consumer offset to 1" in done.output
    assert made == [*([("reset_queue", 1)] if asks_the_broker else []), ("commit", 1)]


async def test_what_members_say_is_json_for_scripts(tool: Tool) -> None:
    data = json.loads((await tool("consumerStatus", "-g", GROUP, "--json")).stdout)
    assert data["sameSubscription"] is True
    assert [re.sub(r"\d+ms$", "", text) for text in data["complaints"]] == [STUCK]
    assert data["running"]["10.0.0.1@7"]["queues"][0]["queue"]["queueId"] == 0
    data = json.loads((await tool("consumerConnection", "-g", GROUP, "--json")).stdout)
    assert data["connections"][0]["clientId"] == "10.0.0.1@7"
    assert data["subscriptions"] == [
        {"topic": "%RETRY%shop", "expression": "*"},
        {"topic": TOPIC, "expression": "*"},
    ] or data["subscriptions"] == [{"topic": TOPIC, "expression": "*"}]


async def test_a_message_is_handed_to_one_member(tool: Tool) -> None:
    found = json.loads((await tool("consumeMessage", "-t", TOPIC, "--json")).stdout)
    words = ("-t", TOPIC, "-g", GROUP, "-d", "10.0.0.1@7")
    for command, message_id in (
        ("queryMsgById", found["offsetMsgId"]),
        ("queryMsgByUniqueKey", found["msgId"]),
    ):
        done = await tool(command, "-i", message_id, *words)
        assert done.exit_code == 0, done.output
        assert "remark=10.0.0.1@7" in done.stdout


async def test_what_became_of_a_message_is_told(tool: Tool) -> None:
    done = await tool("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0")
    assert "MessageTrack [consumerGroup=shop, trackType=NOT_CONSUME_YET, exceptionDesc=null]" in done.stdout


async def test_a_member_that_is_not_there_is_not_found(tool: Tool) -> None:
    done = await tool("consumerStatus", "-g", GROUP, "-i", "nobody")
    assert done.exit_code == 1
    assert "`mqadmin consumerConnection -g shop` lists the members of the group" in done.stderr
