"""The lite topics of a topic in the console: listed, searched, looked at and deleted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.console_browser import JSON
from tests.support.console_cluster import (
    AGENTS,
    CHAT_MINUTES,
    CHATS,
    LIGHT,
    ORDERS,
    Shown,
    fill_chats,
    shown_cluster,
)
from tests.support.replicas import until

from pyromq.admin import lite
from pyromq.aio import LiteConsumer, Message, Producer
from pyromq.console.security.roles import UserRole

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = [f"chat-{number:03}" for number in range(25)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    async with shown_cluster(tmp_path_factory.mktemp("console"), LIGHT) as made:
        await fill_chats(made.cluster)
        async with Producer("writers", namesrv=made.running.namesrv) as producer:
            for name in (*NAMES, "chat-003", "other"):
                await producer.send(Message(CHATS, b"hello", lite_topic=name))
        await made.look()
        shot = made.state.clusters["default"]
        await until(lambda: CHATS in shot.snapshot.topics, "the topic in the snapshot")
        yield made


async def listed(shown: Shown, query: str = "") -> Any:
    page = await shown.admin.get_json(f"/c/default/topics/{CHATS}/lite{query}")
    assert page.status == 200, page
    return page.json


async def test_lite_topics_are_listed_page_by_page_in_order(shown: Shown) -> None:
    seen: list[str] = []
    query = "?size=10"
    while query:
        page = await listed(shown, query)
        assert len(page["lite_topics"]) <= 10
        seen += [each["name"] for each in page["lite_topics"]]
        query = f"?size=10&begin={page['next']}" if page["next"] else ""
    assert seen == [*NAMES, "other"]
    (row,) = [each for each in (await listed(shown))["lite_topics"] if each["name"] == "chat-003"]
    assert row["messages"] == 2
    assert row["expires_ms"] == row["newest_ms"] + CHAT_MINUTES * 60_000
    assert sum(each["liteTopicCount"] for each in page["parents"].values()) == len(NAMES) + 1


async def test_a_search_finds_the_names_that_begin_with_it(shown: Shown) -> None:
    page = await listed(shown, "?q=chat-01&size=4")
    assert [each["name"] for each in page["lite_topics"]] == NAMES[10:14]
    page = await listed(shown, f"?q=chat-01&size=10&begin={page['next']}")
    assert ([each["name"] for each in page["lite_topics"]], page["next"]) == (NAMES[14:20], None)
    assert (await listed(shown, "?q=nothing"))["lite_topics"] == []


async def test_a_lite_topic_shows_its_offsets_and_who_subscribes_to_it(shown: Shown) -> None:
    async with LiteConsumer(AGENTS, CHATS, namesrv=shown.running.namesrv) as consumer:
        await consumer.subscribe_lite("chat-007")
        page = (await shown.admin.get_json(f"/c/default/topics/{CHATS}/lite/chat-007")).json
        assert {each["group"] for each in page["clients"]} == {AGENTS}
        (row,) = [each for each in page["rows"] if each["end"]]
        assert (row["first"], row["end"], row["messages"]) == (0, 1, 1)
        text = (await shown.admin.get(f"/c/default/topics/{CHATS}/lite/chat-007")).text
        assert f'href="/c/default/groups/{AGENTS}"' in text
        table = (await shown.admin.get(f"/c/default/topics/{CHATS}/lite?q=chat-007")).text
        assert 'href="/c/default/topics/Chats/lite/chat-007"' in table


async def test_only_topics_of_the_type_lite_have_the_tab(shown: Shown) -> None:
    tab = 'href="/c/default/topics/{}/lite"'
    assert tab.format(CHATS) in (await shown.admin.get(f"/c/default/topics/{CHATS}")).text
    assert tab.format(ORDERS) not in (await shown.admin.get(f"/c/default/topics/{ORDERS}")).text
    page = await shown.admin.get(f"/c/default/topics/{ORDERS}/lite")
    assert "not of type LITE" in page.text


async def test_a_lite_topic_is_deleted_after_a_preview(shown: Shown) -> None:
    fields = {"topic": CHATS, "lite_topic": "chat-024"}
    preview = await shown.do("lite.delete", "preview", **fields)
    assert f"mqadmin deleteLiteTopic -n {shown.running.namesrv} -p {CHATS} -l chat-024" in preview.text
    assert "Type chat-024 to confirm" in preview.text
    assert (await shown.do("lite.delete", confirm="chat", **fields)).status == 409
    assert "chat-024" in await lite.names(shown.cluster, CHATS)
    done = await shown.do("lite.delete", accept=JSON, confirm="chat-024", **fields)
    assert (done.status, len(done.json["done"]["rows"])) == (200, 1)
    assert "chat-024" not in await lite.names(shown.cluster, CHATS)
    assert (await shown.do("lite.delete", "preview", **fields)).status == 404
    gone = (await shown.admin.get(f"/c/default/topics/{CHATS}/lite/chat-024")).text
    assert "No broker has this lite topic" in gone


async def test_only_administrators_delete_lite_topics(shown: Shown) -> None:
    operator = await shown.browser(UserRole.OPERATOR)
    assert (await operator.get(f"/c/default/do/lite.delete?topic={CHATS}&lite_topic=chat-001")).status == 403
    page = await operator.get(f"/c/default/topics/{CHATS}/lite/chat-001")
    assert "Delete lite topic" not in page.text
