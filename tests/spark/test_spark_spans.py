"""OpenTelemetry in Spark's tasks: their spans, and the trace of the messages that they write."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.support.consumer_cluster import consumer_cluster
from tests.support.recorded_spans import attributes, one, parent_id, record_anew, span_id, spans, traceparent
from tests.support.scripted_broker import ScriptedBroker

from pyromq.errors import ConfigError, PyroError
from pyromq.otel import trace_options
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import decode_properties
from pyromq.spark.batch_reader import BatchReader
from pyromq.spark.links import close_links
from pyromq.spark.options import read_options, write_options
from pyromq.spark.writer import Written, write_rows

GIVEN, OWN = f"00-{'ab' * 16}-{'12' * 8}-01", f"00-{'cd' * 16}-{'34' * 8}-01"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    record_anew()
    yield
    record_anew()
    close_links()


def rows() -> pa.RecordBatch:
    maps = pa.array([None, {"a": "b"}, {"traceparent": OWN}], pa.map_(pa.string(), pa.string()))
    return pa.RecordBatch.from_pydict(
        {"value": pa.array([b"x", b"y", b"z"], pa.binary()), "properties": maps}
    )


async def write(namesrv: str, **more: str) -> Written:
    options = write_options({"namesrv": namesrv, "topic": "Out", **more})
    return await asyncio.to_thread(write_rows, iter([rows()]), options, "query:1:0")


def traces(broker: ScriptedBroker) -> list[str | None]:
    entries = [entry for sent in broker.sent for entry in decode_batch(bytes(sent.body))]
    return [decode_properties(entry.properties).get("traceparent") for entry in entries]


async def test_without_the_options_messages_carry_what_their_rows_say() -> None:
    async with ScriptedBroker("Out") as broker:
        await write(broker.address)
        assert traces(broker) == [None, None, OWN]


async def test_messages_carry_the_given_trace_unless_their_row_has_one() -> None:
    async with ScriptedBroker("Out") as broker:
        await write(broker.address, traceparent=GIVEN)
        assert traces(broker) == [GIVEN, GIVEN, OWN]
    assert spans("send Out") == []


async def test_a_task_that_sends_is_a_span_whose_context_its_messages_carry() -> None:
    async with ScriptedBroker("Out") as broker:
        with trace.get_tracer("program").start_as_current_span("job"):
            options = trace_options()
        assert options == {"otel": "true", "traceparent": traceparent(one("job"))}
        await write(broker.address, **options)
        sent = one("send Out")
        assert traces(broker) == [traceparent(sent), traceparent(sent), OWN]
    assert (sent.kind, parent_id(sent)) == (SpanKind.PRODUCER, span_id(one("job")))
    assert attributes(sent) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "Out",
        "messaging.batch.message_count": 3,
    }


async def test_a_task_that_fails_is_an_error() -> None:
    async with ScriptedBroker("Out") as broker:
        broker.answers.append(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(PyroError):
            await write(broker.address, otel="true")
    assert one("send Out").status.status_code is StatusCode.ERROR
    assert attributes(one("send Out"))["error.type"] == "Refused"


async def test_a_task_that_reads_is_a_span_of_the_given_trace(tmp_path: Path) -> None:
    async with consumer_cluster(tmp_path) as cluster:
        (queue,) = await cluster.create_topic("Orders", queues=1)
        await cluster.send_to(queue, ["a", "b"])
        given = {"namesrv": cluster.namesrv, "subscribe": "Orders", "otel": "true", "traceparent": GIVEN}
        options = read_options(given, streaming=False)

        def read() -> list[bytes]:
            reader = BatchReader(options, StructType([StructField("value", BinaryType())]))
            (partition,) = reader.partitions()
            return [body for batch in reader.read(partition) for body in batch.column("value").to_pylist()]

        assert await asyncio.to_thread(read) == [b"a", b"b"]
    received = one("receive Orders")
    assert (received.kind, parent_id(received)) == (SpanKind.CLIENT, 0x1212121212121212)
    assert attributes(received)["messaging.batch.message_count"] == 2


async def test_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyromq.spark.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    async with ScriptedBroker("Out") as broker:
        with pytest.raises(ConfigError, match="OpenTelemetry on all executors: pip install"):
            await write(broker.address, otel="true")


def test_a_trace_that_is_none_is_refused_when_the_frame_is_made() -> None:
    with pytest.raises(ConfigError, match="traceparent=mine: expected a trace context like 00-"):
        write_options({"namesrv": "a:1", "topic": "Out", "traceparent": "mine"})
