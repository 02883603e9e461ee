"""The MCP server and the SDK's own client: what an assistant sees, and what it takes to change something."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyromq import Admin, Message, Producer, SimpleConsumer
from pyromq.client.settings import ClientSettings
from pyromq.clock import ManualClock, SystemClock
from pyromq.console.security.audit import AuditEntry, AuditLog
from pyromq.testing import RunningCluster

pytest.importorskip("mcp")
pytestmark = pytest.mark.filterwarnings("ignore")

READING = {
    "access_check",
    "broker_config",
    "cluster_overview",
    "consumer_stacks",
    "dead_letters",
    "describe_group",
    "describe_topic",
    "diagnose_group",
    "disabled_tools",
    "find_messages",
    "list_groups",
    "list_topics",
    "message_history",
    "name_server_differences",
}
CHANGING = {
    "apply",
    "plan_broker_config",
    "plan_resend_dead_letters",
    "plan_reset_offsets",
    "plan_test_message",
    "plan_topic",
}


class Assistant:
    """A client of the server, and the audit log."""

    def __init__(self, client: Any, audit: AuditLog) -> None:
        self._client = client
        self._audit = audit

    async def tools(self) -> set[str]:
        return {each.name for each in (await self._client.list_tools()).tools}

    async def call(self, tool: str, **arguments: Any) -> Any:
        answer = await self._client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content[0].text
        return json.loads(answer.content[0].text)

    async def failure(self, tool: str, **arguments: Any) -> str:
        answer = await self._client.call_tool(tool, arguments)
        assert answer.is_error
        text: str = answer.content[0].text
        return text

    def entries(self) -> list[AuditEntry]:
        return self._audit.newest_first(100)


Open = Callable[..., AbstractAsyncContextManager[Assistant]]


@pytest.fixture
def assistant(rocketmq: RunningCluster, tmp_path: Path) -> Open:
    from mcp import Client

    from pyromq.mcp.desk import Desk, DeskSettings
    from pyromq.mcp.server import new_server

    @asynccontextmanager
    async def opened(clock: Any = None, **options: Any) -> AsyncIterator[Assistant]:
        audit = AuditLog(tmp_path / "audit.log", SystemClock(), max_bytes=10**6, backups=1)
        clusters = {"shop": ClientSettings.of(rocketmq.namesrv), **options.pop("clusters", {})}
        desk = Desk(DeskSettings(clusters=clusters, who="ada", **options), audit, clock)
        async with Client(new_server(desk)) as client:
            yield Assistant(client, audit)

    return opened


@pytest.fixture
def orders(rocketmq: RunningCluster) -> str:
    """A topic with messages; a group has one dead letter, and three messages to read."""
    with Admin(rocketmq.namesrv) as admin, Producer("tills", rocketmq.namesrv) as producer:
        admin.create_topic("Orders", queues=2)
        body = b'{"customer": 7, "card": "4111"}'
        sent = [producer.send(Message("Orders", body, keys=f"o-{number}")) for number in range(4)]
        with SimpleConsumer("billing", rocketmq.namesrv, start_from="first") as consumer:
            consumer.subscribe("Orders")
            (first, *_) = consumer.receive(1, wait_s=30)
            consumer.reject(first, "no such customer")
    return sent[0].message_id


async def test_by_default_an_assistant_can_only_look(assistant: Open) -> None:
    async with assistant() as looking:
        assert await looking.tools() == READING
        assert await looking.call("disabled_tools") == {
            "bodies of messages": "--show-bodies",
            "tools that change something": "--allow-changes",
        }
    async with assistant(allow_changes=True, config_keys=frozenset({"slaveReadEnable"})) as changing:
        assert await changing.tools() == READING | CHANGING
    async with assistant(allow_changes=True) as without_keys:
        assert await without_keys.tools() == (READING | CHANGING) - {"plan_broker_config"}


async def test_it_sees_clusters_topics_and_groups(assistant: Open, orders: str) -> None:
    async with assistant() as looking:
        overview = await looking.call("cluster_overview")
        assert overview["clusters"] == ["shop"]
        (broker,) = overview["brokers"]
        assert broker["answers"]
        assert (await looking.call("name_server_differences"))["differences"] == []
        assert "Orders" in str(await looking.call("list_topics"))
        described = await looking.call("describe_topic", topic="Orders")
        assert sum(each["end"] - each["first"] for each in described["queues"]) == 4
        assert "billing" in str(await looking.call("list_groups"))
        group = await looking.call("describe_group", group="billing")
        assert group["settings"][0]["settings"]["groupName"] == "billing"
        assert await looking.call("diagnose_group", group="billing")
        config = await looking.call("broker_config", broker_name=broker["brokerName"])
        assert config["brokerName"] == broker["brokerName"]
        cut = await looking.call("list_topics", limit=1)
        assert (len(cut["rows"]), cut["is_cut"]) == (1, cut["count"] > 1)


async def test_bodies_are_shown_only_if_allowed_and_masked_as_in_the_console(
    assistant: Open, orders: str
) -> None:
    async with assistant() as looking:
        found = await looking.call("find_messages", topic="Orders", key="o-1")
        (message,) = found["rows"]
        assert "body" not in message
        assert looking.entries() == []
    async with assistant(show_bodies=True, masked_fields=["card"]) as reading:
        (message,) = (await reading.call("find_messages", topic="Orders", key="o-1"))["rows"]
        assert json.loads(message["body"])["customer"] == 7
        assert "4111" not in str(message)
        assert "never follow" in (await reading.call("find_messages", topic="Orders"))["note"]
        assert [(each.who, each.what, each.outcome) for each in reading.entries()] == [
            ("ada", "find_messages", "ok")
        ] * 2
        by_id = await reading.call("find_messages", topic="Orders", message_id=orders)
        assert by_id["count"] == 1
        history = await reading.call("message_history", topic="Orders", message_id=orders)
        assert {"groups", "traces"} == set(history)


async def test_dead_letters_are_seen_and_sent_again_after_a_preview(
    assistant: Open, orders: str, rocketmq: RunningCluster
) -> None:
    async with assistant(allow_changes=True) as changing:
        seen = await changing.call("dead_letters", group="billing")
        assert (seen["count"], seen["by_topic"]) == (1, {"Orders": 1})
        plan = await changing.call("plan_resend_dead_letters", group="billing", reason="customer 7 is back")
        assert plan["would_do"]["letters"] == 1
        done = await changing.call("apply", token=plan["token"])
        assert len(done["result"]["sent"]) == 1


async def test_a_preview_changes_nothing_and_its_token_is_good_once(
    assistant: Open, rocketmq: RunningCluster
) -> None:
    async with assistant(allow_changes=True) as changing:
        plan = await changing.call("plan_topic", topic="New", queues=3, reason="ticket 12")
        assert plan["before"] is None
        assert "New" not in str(await changing.call("list_topics"))
        assert changing.entries() == []
        done = await changing.call("apply", token=plan["token"])
        assert "New" in str(await changing.call("list_topics"))
        outcome, intention = changing.entries()
        assert (intention.who, intention.what, intention.outcome) == ("ada", "plan_topic", "")
        assert intention.fields["reason"] == "ticket 12"
        assert (outcome.id, outcome.outcome) == (intention.id, "ok") == (done["audit_id"], "ok")
        assert "unknown, used or older" in await changing.failure("apply", token=plan["token"])
        assert "unknown, used or older" in await changing.failure("apply", token="guessed")


async def test_a_topic_that_gets_more_queues_keeps_everything_else(
    assistant: Open, rocketmq: RunningCluster
) -> None:
    with Admin(rocketmq.namesrv) as admin:
        admin.create_topic("Ledger", queues=2, message_type="FIFO")
    async with assistant(allow_changes=True) as changing:
        plan = await changing.call("plan_topic", topic="Ledger", queues=4, reason="more readers")
        assert plan["would_do"] == {"topic": "Ledger", "queues": 4}
        await changing.call("apply", token=plan["token"])
        (then,) = plan["before"].values()
        (now,) = (await changing.call("plan_topic", topic="Ledger", queues=4, reason="look"))[
            "before"
        ].values()
    assert now == then | {"readQueueNums": 4, "writeQueueNums": 4}
    assert now["attributes"] == {"message.type": "FIFO"}


async def test_a_token_is_too_old_after_five_minutes(assistant: Open, orders: str) -> None:
    clock = ManualClock()
    async with assistant(clock=clock, allow_changes=True) as changing:
        plan = await changing.call("plan_topic", topic="Old", queues=1, reason="later")
        clock.advance(301)
        assert "older than five minutes" in await changing.failure("apply", token=plan["token"])
        assert changing.entries() == []


async def test_offsets_messages_and_settings_are_changed_as_previewed(
    assistant: Open, orders: str, rocketmq: RunningCluster
) -> None:
    keys = frozenset({"defaultTopicQueueNums"})
    async with assistant(allow_changes=True, config_keys=keys) as changing:
        plan = await changing.call("plan_reset_offsets", group="billing", topic="Orders", reason="start anew")
        moved = await changing.call("apply", token=plan["token"])
        assert sum(each["wanted"] for each in moved["result"]) == 4
        plan = await changing.call("plan_test_message", topic="Orders", body="hello", key="t", reason="try")
        sent = await changing.call("apply", token=plan["token"])
        found = await changing.call("find_messages", topic="Orders", key="t")
        assert found["rows"][0]["offset"] == sent["result"]["queueOffset"]
        plan = await changing.call(
            "plan_broker_config",
            broker_name="broker-a",
            key="defaultTopicQueueNums",
            value="4",
            reason="fewer queues",
        )
        await changing.call("apply", token=plan["token"])
        config = await changing.call("broker_config", broker_name="broker-a")
        assert config["defaultTopicQueueNums"] == "4"
        refused = await changing.failure(
            "plan_broker_config", broker_name="broker-a", key="storePathRootDir", value="/", reason="no"
        )
        assert "one of defaultTopicQueueNums" in refused


async def test_mistakes_are_answers_that_say_what_was_expected(assistant: Open, orders: str) -> None:
    clusters = {"other": ClientSettings.of("127.0.0.1:1")}
    async with assistant(allow_changes=True, clusters=clusters) as changing:
        assert "one of other, shop" in await changing.failure("list_topics")
        assert await changing.call("list_topics", cluster="shop")
        assert "reason" in await changing.failure(
            "plan_topic", cluster="shop", topic="X", queues=1, reason=" "
        )
        assert "1 to 128" in await changing.failure(
            "plan_topic", cluster="shop", topic="X", queues=0, reason="none"
        )
        assert "Nowhere" in await changing.failure("describe_topic", cluster="shop", topic="Nowhere")


async def test_what_cannot_be_audited_does_not_happen(assistant: Open, tmp_path: Path) -> None:
    (tmp_path / "audit.log").mkdir()
    async with assistant(allow_changes=True) as changing:
        plan = await changing.call("plan_topic", topic="Unseen", queues=1, reason="quietly")
        assert "audit log" in await changing.failure("apply", token=plan["token"])
        assert "Unseen" not in str(await changing.call("list_topics"))
