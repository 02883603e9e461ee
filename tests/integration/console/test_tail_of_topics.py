"""A tail of several topics: one reader, in the order of time; one that fails does not stop the others."""

from pathlib import Path

from tests.support.console_cluster import ORDERS, shown_cluster
from tests.support.replicas import until

from pyromq.admin import messages, topics
from pyromq.console.tailing import TailFilter, TailReader
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.topics import TopicConfig


async def test_several_topics_are_read_as_one(tmp_path: Path) -> None:
    async with shown_cluster(tmp_path) as shown:
        masters = [member.address for member in await shown.cluster.masters()]
        await topics.put(shown.cluster, masters, TopicConfig(topic_name="Payments"))
        reader = TailReader(shown.cluster, TailFilter("default", (ORDERS, "Payments", "Never")))
        positions: dict[str, dict[MessageQueue, int]] = {}
        for topic in (ORDERS, "Payments"):
            assert await reader._read(topic, positions) == []
        for topic in ("Payments", ORDERS):
            await messages.send(shown.cluster, topic, topic.encode())
        found = [*await reader._read(ORDERS, positions), *await reader._read("Payments", positions)]
        reader._keep(found)
        rows = reader.since(0, 10).rows
        assert {row["topic"]: row["body"] for row in rows} == {ORDERS: ORDERS, "Payments": "Payments"}
        times = [row["stored_ms"] for row in rows]
        assert times == sorted(times)

        page = await shown.admin.get(f"/c/default/topics/{ORDERS}/tail?with=Payments")
        assert "tail/stream?tags=%2A&amp;with=Payments" in page.text
        many = ",".join(f"t{number}" for number in range(8))
        assert (await shown.admin.get(f"/c/default/topics/{ORDERS}/tail?with={many}")).status == 400


async def test_a_topic_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    async with shown_cluster(tmp_path) as shown:
        reader = TailReader(shown.cluster, TailFilter("default", ("Never", ORDERS)))
        reader.start()
        await until(lambda: "there is no topic Never" in reader.problem)
        await messages.send(shown.cluster, ORDERS, b"x")
        await until(lambda: reader.matched == 1)
        await reader.stop()
