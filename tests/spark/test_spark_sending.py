"""Batches on their way: everything is stored, however busy a broker is, and what was sent is what arrives."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.scripted_broker import ScriptedBroker

from pyromq.protocol.batch import decode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import decode_properties
from pyromq.spark.options import write_options
from pyromq.spark.writer import Written, write_rows

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def batch(rows: int, body_bytes: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d" % row + b"x" * body_bytes for row in range(rows)], pa.binary()),
            "key": pa.array([f"k{row}" for row in range(rows)]),
        }
    )


async def write(broker: ScriptedBroker, rows: pa.RecordBatch, **more: str) -> Written:
    options = write_options({"namesrv": broker.address, "topic": "Out", **more})
    return await asyncio.to_thread(write_rows, iter([rows]), options, "query:1:0")


def bodies_of(broker: ScriptedBroker) -> list[bytes]:
    return [entry.body for sent in broker.sent for entry in decode_batch(bytes(sent.body))]


async def test_a_busy_broker_gets_everything_in_the_end() -> None:
    async with ScriptedBroker("Out") as broker:
        broker.answers.extend([ResponseCode.SYSTEM_BUSY] * 6)
        written = await write(broker, batch(300, 10), batchBytes="1k")
        assert written.messages == 300
        stored = set(bodies_of(broker))
        assert stored == set(batch(300, 10).column("value").to_pylist())


async def test_large_bodies_arrive_as_they_were() -> None:
    async with ScriptedBroker("Out") as broker:
        rows = batch(5, 40_000)
        written = await write(broker, rows, batchBytes="100k")
        assert written.messages == 5
        assert [len(decode_batch(bytes(sent.body))) for sent in broker.sent] == [2, 2, 1]
        assert sorted(bodies_of(broker)) == sorted(rows.column("value").to_pylist())


async def test_a_body_larger_than_a_request_travels_alone_in_its_place() -> None:
    """Brokers measure batches with what is around the bodies, and a single message without."""
    rows = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"a", b"b" * 1024, b"c"], pa.binary()), "key": ["same"] * 3, "tags": ["t"] * 3}
    )
    async with ScriptedBroker("Out") as broker:
        written = await write(broker, rows, batchBytes="1k")
        assert written.messages == 3
        first, alone, last = broker.sent
        assert [len(decode_batch(bytes(each.body))) for each in (first, last)] == [1, 1]
        assert bytes(alone.body) == b"b" * 1024
        told = decode_properties(alone.properties or "")
        assert (told["KEYS"], told["TAGS"], len(told["UNIQ_KEY"])) == ("same", "t", 32)


async def test_signed_requests_are_signed_with_their_bodies() -> None:
    async with ScriptedBroker("Out") as broker:
        written = await write(broker, batch(3, 30_000), accessKey="me", secretKey="secret")
        assert written.messages == 3
        assert len(bodies_of(broker)) == 3


async def test_a_refused_batch_is_not_overtaken_in_its_queue() -> None:
    async with ScriptedBroker("Out") as broker:
        broker.answers.extend([ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SUCCESS])
        rows = batch(60, 10).set_column(1, "key", pa.array(["one"] * 60))
        await write(broker, rows, batchBytes="500")
        # Each request in turn, the refused one twice, nothing between its two attempts.
        asked = [decode_batch(bytes(sent.body))[0].body for sent in broker.sent]
        assert asked[1] == asked[2]
        bodies = rows.column("value").to_pylist()
        assert [bodies.index(first) for first in asked] == [0, 5, *range(5, 60, 5)]


async def test_keys_choose_queues_and_the_rest_is_spread_evenly() -> None:
    async with ScriptedBroker("Out", queues=4) as broker:
        rows = batch(400, 10).set_column(1, "key", pa.array([f"k{row % 10}" for row in range(400)]))
        await write(broker, rows)
        queues: dict[str, set[int]] = {}
        for sent in broker.sent:
            for entry in decode_batch(bytes(sent.body)):
                key = decode_properties(entry.properties)["KEYS"]
                queues.setdefault(key, set()).add(sent.queue_id)
        assert len(queues) == 10
        assert all(len(found) == 1 for found in queues.values())
        broker.sent.clear()
        await write(broker, rows, queueBy="none")
        by_queue: Counter[int] = Counter()
        for sent in broker.sent:
            by_queue[sent.queue_id] += len(decode_batch(bytes(sent.body)))
        assert by_queue == dict.fromkeys(range(4), 100)


def test_rows_with_keys_create_a_topic_on_every_broker_they_go_to(topics_of_two: "Topics") -> None:
    given = {"namesrv": topics_of_two.running.namesrv, "topic": "Made", "fetchOffset.numRetries": "0"}
    written = write_rows(iter([batch(300, 10)]), write_options(given | {"batchBytes": "1k"}), "query:1:0")
    assert written.messages == 300
    assert topics_of_two.reach("Made") == 300
