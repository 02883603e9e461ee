"""Sessions whose broker dies: the next master has their messages, and lets the same writer append."""

import asyncio
from typing import Any

import pytest
from tests.support.front import Front, front
from tests.support.http_user import Answer, HttpUser

from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.protocol.requests.topics import TopicConfig

SESSION = "/v1/sessions/Chat/anna"
_PASSING = (404, 502, 503, 504)
"""While there is no master, or its route is not known yet."""
GROUP: dict[str, Any] = {"replicas": 3, "light_queues": True, "multi_dispatch": True}


async def _create(running: Front) -> None:
    async with Cluster(running.cluster.namesrv) as cluster:
        masters = [member.address for member in await cluster.masters()]
        config = TopicConfig(topic_name="Chat", read_queue_nums=2, write_queue_nums=2)
        await topics.put(cluster, masters, config, "+message.type=LITE")


async def _answered(web: HttpUser, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    """The answer of whoever is the master then."""
    async with asyncio.timeout(120):
        while (answer := await web.ask(method, path, body, **headers)).status in _PASSING:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return answer


@pytest.mark.timeout(300)
async def test_the_next_master_knows_who_may_append_and_readers_miss_nothing() -> None:
    async with front(settings={"http_enable": True, "http_ping_seconds": 1}, **GROUP) as running:
        await _create(running)
        cluster, web = running.cluster, HttpUser(running.target)
        assert (await _answered(web, "POST", f"{SESSION}/claim")).json["epoch"] == 1
        slow = {"Session-Epoch": "1"}
        assert (await web.ask("POST", f"{SESSION}/messages", b"one", **slow)).status == 201
        assert (await web.ask("POST", f"{SESSION}/claim")).json["epoch"] == 2
        async with web.events(f"{SESSION}/events") as events:
            assert [each.id for each in await events.take(3)] == [0, 1, 2]
            await cluster.wait_in_sync()
            first = await cluster.kill_master()
            # Whoever had the session before must not get in while everything is new.
            for more in (slow, {}, {"Session-Epoch": "1", "Expected-Offset": "3"}):
                refused = await _answered(web, "POST", f"{SESSION}/messages", b"too late", **more)
                assert refused.status == 409, refused
            good = {"Session-Epoch": "2", "Expected-Offset": "3"}
            stored = await _answered(web, "POST", f"{SESSION}/messages", b"two", **good)
            # An answer that was lost with the master's connection is found by its offset.
            assert stored.status in (201, 412)
            assert [each.id for each in await events.take(1)] == [3]
            assert cluster.master_number() != first
        assert (await _answered(web, "POST", f"{SESSION}/claim")).json["epoch"] == 3
        read = (await _answered(web, "GET", f"{SESSION}/messages")).json["messages"]
        assert [(each["offset"], each.get("epoch", 0), each["text"]) for each in read] == [
            (0, 1, "claim"),
            (1, 1, "one"),
            (2, 2, "claim"),
            (3, 2, "two"),
            (4, 3, "claim"),
        ]
