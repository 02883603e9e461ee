"""What is masked is on no page, in no download, no export and no tail, and no filter finds it."""

from pathlib import Path

from tests.support.console_cluster import GROUP, ORDERS, shown_cluster

from pyromq.admin import messages
from pyromq.console.tailing import TailFilter, TailReader
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import dlq_topic

SECRET = "4929-geheim"
BODY = f'{{"id": 7, "card": {{"number": "{SECRET}"}}}}'.encode()


async def test_a_masked_field_is_seen_nowhere(tmp_path: Path) -> None:
    async with shown_cluster(tmp_path, masked_fields="card*, pin") as shown:
        sent = await messages.send_with(shown.cluster, ORDERS, BODY, {"PIN": SECRET, "shown": "yes"})
        await messages.send_with(shown.cluster, dlq_topic(GROUP), BODY, {"PIN": SECRET})
        message = (await shown.admin.get_json(f"/c/default/topics/{ORDERS}/messages/{sent.message_id}")).json
        assert '"card": "******"' in message["body"]["text"]
        assert (message["properties"]["PIN"], message["properties"]["shown"]) == ("******", "yes")
        place = f"topics/{ORDERS}/at/{message['broker']}/{message['queue']}/{message['offset']}"
        for path in (
            f"topics/{ORDERS}/messages",
            f"topics/{ORDERS}/messages/{sent.message_id}",
            f"topics/{ORDERS}/messages/{sent.message_id}?form=hex",
            place,
            f"{place}/body",
            f"groups/{GROUP}/dlq",
            f"groups/{GROUP}/dlq.csv",
            f"groups/{GROUP}/dlq.ndjson",
        ):
            page = await shown.admin.get(f"/c/default/{path}")
            assert page.status == 200, path
            assert SECRET not in page.text, path
            assert SECRET.encode().hex(" ") not in page.text, path
        assert (await shown.admin.get(f"/c/default/{place}/body")).body == b'{"id": 7, "card": "******"}'
        for query in (f"text={SECRET}", f"json=$.card.number={SECRET}"):
            found = await shown.admin.get_json(f"/c/default/topics/{ORDERS}/messages?{query}")
            assert found.json["messages"] == [], query
        reader = TailReader(shown.cluster, TailFilter("default", (ORDERS,)), shown.state.masks)
        positions: dict[str, dict[MessageQueue, int]] = {}
        assert await reader._read(ORDERS, positions) == []
        await messages.send(shown.cluster, ORDERS, BODY)
        reader._keep(await reader._read(ORDERS, positions))
        (row,) = reader.since(0, 10).rows
        assert row["body"] == '{"id": 7, "card": "******"}'
