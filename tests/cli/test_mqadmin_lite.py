"""The commands of mqadmin about lite topics, against a running cluster."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyromq import LiteConsumer, Message, Producer
from pyromq.cli.mqadmin.commands import NOUNS
from pyromq.cli.mqadmin.tree import mqadmin
from pyromq.testing import RunningCluster, cluster

PARENT, GROUP = "sessions", "agents"
OF = ("-p", PARENT)
ON = ("-c", "DefaultCluster")


class LiteTool:
    """mqadmin at a cluster with lite topics, and a client that has read some."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running
        self.client_id = ""
        self.tried: set[str] = set()

    def __call__(self, *words: str) -> Result:
        self.tried.add(words[0])
        environment = {"NAMESRV_ADDR": self._running.namesrv}
        return CliRunner().invoke(mqadmin, [*words, "--timeout", "60"], prog_name="mqadmin", env=environment)

    def text(self, *words: str) -> str:
        done = self(*words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def data(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))

    def sees(self, form: str, *words: str) -> None:
        shown = self.text(*words)
        assert re.search(form, shown), shown


@pytest.fixture
def lite_tool() -> Iterator[LiteTool]:
    with cluster(light_queues=True, multi_dispatch=True) as running:
        tool = LiteTool(running)
        typed = "+message.type=LITE,+lite.topic.expiration=60"
        tool.text("updateTopic", *ON, "-t", PARENT, "-r", "2", "-w", "2", "-a", typed)
        bound = f"+lite.bind.topic={PARENT}"
        tool.text("updateSubGroup", *ON, "-g", GROUP, "--attributes", bound)
        with Producer("chat", running.namesrv) as producer:
            for lite_topic in ("a", "b", "b", "c"):
                producer.send(Message(PARENT, b"hello", lite_topic=lite_topic))
        with LiteConsumer(GROUP, PARENT, running.namesrv, wait_s=30) as consumer:
            consumer.subscribe_lite("a")
            consumer.ack_many(consumer.receive())
            consumer.subscribe_lite("b")
            tool.client_id = consumer.client_id
            yield tool


def test_operators_see_and_delete_lite_topics(lite_tool: LiteTool) -> None:
    tool, group = lite_tool, ("-g", GROUP)
    tool.sees(r"#Current LMQ +#SubscriptionCount", "getBrokerLiteInfo", *ON)
    tool.sees(r"Topic Meta: \{'sessions': 60\} Group Meta: .*agents", "getBrokerLiteInfo", *ON, "-d")
    assert tool.data("getBrokerLiteInfo", *ON)["brokers"][0]["currentLmqNum"] == 3
    tool.sees(r"Parent Topic Info: \[sessions\]", "getParentTopicInfo", *OF)
    assert tool.data("getParentTopicInfo", *OF)["brokers"] == [
        {"brokerName": "broker-a", "ttl": 60, "liteTopicCount": 3, "lmqNum": 3, "groups": [GROUP]}
    ]
    tool.sees(r"\[%LMQ%\$sessions\$b\]", "getLiteTopicInfo", *OF, "-l", "b")
    told = tool.data("getLiteTopicInfo", *OF, "-l", "b", "-s")
    assert (told["brokers"][0]["maxOffset"], told["brokers"][0]["subClientCount"]) == (2, 1)
    assert told["clients"][0]["clientId"] == tool.client_id
    client = ("getLiteClientInfo", *OF, *group, "-c", tool.client_id)
    tool.sees(r"#LiteTopicCount +#LastAccessTime", *client)
    assert tool.data(*client, "-s")["liteTopics"] == {"broker-a": ["%LMQ%$sessions$a", "%LMQ%$sessions$b"]}
    tool.sees(r"Total Lag Count: 3", "getLiteGroupInfo", *OF, *group)
    lags = tool.data("getLiteGroupInfo", *OF, *group, "-k", "1")
    assert [(each["liteTopic"], each["lagCount"]) for each in lags["lagCountTopK"]] == [("b", 2)]
    one = tool.data("getLiteGroupInfo", *OF, *group, "-l", "a")
    assert (one["totalLagCount"], one["brokers"][0]["consumeOffset"]) == (0, 1)
    tool.sees(r"broker-a: dispatched", "triggerLiteDispatch", *OF, *group)
    assert tool("triggerLiteDispatch", *OF, *group, "-b", "broker-z").exit_code == 1
    assert [each["liteTopic"] for each in tool.data("listLiteTopics", *OF)["liteTopics"]] == ["a", "b", "c"]
    tool.sees(r"delete lite topic \[c\] of \[sessions\] success", "deleteLiteTopic", *OF, "-l", "c")
    assert [each["liteTopic"] for each in tool.data("listLiteTopics", *OF)["liteTopics"]] == ["a", "b"]
    again = tool("deleteLiteTopic", *OF, "-l", "c")
    assert (again.exit_code, "has no lite topic c" in again.output) == (1, True)
    assert tool.tried >= NOUNS["lite"][1].keys()
