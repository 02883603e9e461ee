"""CloudEvents of a topic as columns, whatever their mode."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudevents.core.v1.event import CloudEvent
from pyspark.sql import SparkSession

from pyromq import Message, Producer
from pyromq.cloudevents import to_message
from pyromq.spark.cloudevents import with_event_columns

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def test_events_of_both_modes_have_the_same_columns(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Events", queues=1)
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    attributes = {"id": "e-1", "source": "/shop", "type": "order", "subject": "o-1", "time": time}
    attributes["datacontenttype"] = "application/json"
    event = CloudEvent(attributes, {"total": 1})
    with Producer("tills", namesrv=topics.running.namesrv) as producer:
        producer.send(to_message("Events", event))
        producer.send(to_message("Events", event, "structured"))
        producer.send(to_message("Events", CloudEvent(attributes, b"\xff"), "structured"))
        producer.send(to_message("Events", CloudEvent(attributes, None)))
        producer.send(Message("Events", b"no event"))
    read = spark.read.format("rocketmq").options(**topics.options("Events")).load()
    rows = with_event_columns(read).orderBy("offset").collect()
    binary, structured, base64, empty, plain = (
        {name: value for name, value in row.asDict().items() if name.startswith("ce_")} for row in rows
    )
    assert binary["ce_data"] == b'{"total": 1}'
    assert structured["ce_data"] == b'{"total":1}'
    assert base64["ce_data"] == b"\xff"
    assert binary | {"ce_data": None} == structured | {"ce_data": None} == empty
    assert binary["ce_id"] == "e-1"
    assert binary["ce_time"] is not None
    assert binary["ce_time"].timestamp() == time.timestamp()
    assert set(plain.values()) == {None}
