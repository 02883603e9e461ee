"""What traces and dead letters tell, and how dead letters get a second life."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.brief_consumer import consume_with

from pyromq import GiveUp, Message, Producer, ReceivedMessage
from pyromq.client.trace_records import ConsumedRecord, ConsumingRecord, MessageKind, SentRecord
from pyromq.spark.pipelines.dlq import described, read_dead_letters, samples, summarized, with_outcomes
from pyromq.spark.pipelines.plots import plot_latencies
from pyromq.spark.pipelines.redrive import redrive
from pyromq.spark.pipelines.trace import consumptions, latencies, read_messages, records, sends

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def sent(message_id: str, at_ms: int, kind: MessageKind = MessageKind.NORMAL, is_ok: bool = True) -> str:
    return SentRecord(
        at_ms=at_ms,
        region="DefaultRegion",
        group="tills",
        topic="Orders",
        message_id=message_id,
        tags=None,
        keys="k",
        store_host="127.0.0.1:10911",
        body_bytes=3,
        cost_ms=4,
        kind=kind,
        offset_message_id="0A",
        is_ok=is_ok,
    ).text()


def consumed(message_id: str, at_ms: int, retries: int = 0, outcome: int = 0) -> str:
    request = f"{message_id}-{retries}"
    begun = ConsumingRecord(
        at_ms=at_ms,
        region="DefaultRegion",
        group="clerks",
        request_id=request,
        message_id=message_id,
        retries=retries,
        keys="k",
    )
    done = ConsumedRecord(
        at_ms=at_ms + 2,
        group="clerks",
        request_id=request,
        message_id=message_id,
        cost_ms=2,
        is_ok=outcome == 0,
        keys="k",
        outcome=outcome,
    )
    return begun.text() + done.text()


def traces(spark: SparkSession, *texts: str) -> DataFrame:
    return records(spark.createDataFrame([(text.encode(),) for text in texts], "value binary"))


def test_latencies_run_from_the_send_to_the_first_attempt(spark: SparkSession, tmp_path: Path) -> None:
    batch = sent("m1,m2", 1000)
    rows = traces(
        spark,
        batch + sent("m3", 1000),
        sent("late", 1000, MessageKind.DELAYED) + sent("lost", 1000, is_ok=False),
        consumed("m1", 1010) + consumed("m2", 1020, outcome=2) + consumed("m2", 9000, retries=1),
        consumed("m3", 990) + consumed("late", 99_000) + consumed("lost", 99_000) + consumed("unknown", 5),
    )
    [row] = latencies(rows).collect()
    assert (row.topic, row.group, row.messages) == ("Orders", "clerks", 3)
    # m3 was consumed before it was sent, as two clocks see it: that is no time at all.
    assert (row.p50, row.max, row.retries, row.failures) == (10.0, 20.0, 1, 1)
    assert (row.handling_p99, row.send_p99) == (2.0, 4.0)
    for name in ("latency.png", "latency.svg", "latency.html"):
        plot_latencies({"Orders → clerks": row.grid}, tmp_path / name, [["topic"], ["<Orders>"]])
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "latency.html").read_text()
    assert "<svg" in page
    assert "<td>&lt;Orders&gt;</td>" in page


def test_records_of_other_clients_are_read_too(spark: SparkSession) -> None:
    # java: 4.x leaves out the id in the log; the cloud's record of a consumption ends with the outcome
    old = "\x01".join(("Pub", "5", "r", "g", "T", "m", "null", "null", "h", "1", "2", "0", "true")) + "\x02"
    cloud = "\x01".join(("SubAfter", "q", "m", "3", "true", "null", "0", "")) + "\x02"
    begun = "\x01".join(("SubBefore", "9", "r", "g", "q", "m", "0", "null")) + "\x02"
    rows = traces(spark, old + begun + cloud + "Recall\x019\x01r\x01g\x01T\x01m\x01true\x02")
    assert [(row.id, row.sent_ms, row.is_sent) for row in sends(rows).collect()] == [("m", 5, True)]
    assert [(row.begun_ms, row.cost_ms) for row in consumptions(rows).collect()] == [(9, 3)]


def test_dead_letters_are_explained_and_delivered_again(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    running, options = topics.running, topics.options()
    with Producer("tills", namesrv=running.namesrv) as producer:
        for number in range(6):
            producer.send(Message("Payments", b"%d" % number, keys=[f"p-{number}"], tags="t"))

    def refuse_even_ones(message: ReceivedMessage) -> None:
        if int(message.body) % 2 == 0:
            raise GiveUp("not a payment")

    consume_with(running, "payers", "Payments", 6, refuse_even_ones, trace=True)
    letters = read_dead_letters(spark, options)
    reported = records(read_messages(spark, options))
    [kind] = summarized(with_outcomes(letters, reported)).collect()
    assert (kind.group, kind.origin, kind.reason) == ("payers", "Payments", "given up: failed")
    assert (kind.letters, kind.attempts) == (3, 1)
    shown = samples(letters, 2).collect()
    assert len(shown) == 2
    assert {row.key for row in shown} <= {"p-0", "p-2", "p-4"}
    checkpoint = str(tmp_path / "origin")
    assert redrive(spark, options, "origin", checkpoint, groups=("payers",)).rows_in == 3
    assert redrive(spark, options, "origin", checkpoint, groups=("payers",)).rows_in == 0
    limited = options | {"maxOffsetsPerTrigger": "9"}
    one = redrive(spark, limited, "group", str(tmp_path / "group"), where="key = 'p-4'")
    assert (one.rows_in, one.rows_out) == (3, 1)
    again = consume_with(running, "payers", "Payments", 4, lambda _: None)
    assert sorted((one.keys[0], one.reconsume_times) for one in again) == [
        ("p-0", 0),
        ("p-2", 0),
        ("p-4", 0),
        ("p-4", 2),
    ]
    assert {(one.topic, one.tags) for one in again} == {("Payments", "t")}


@pytest.mark.parametrize(("attempts", "reason"), [(17, "retries used up"), (16, "given up")])
def test_who_gave_up_shows_in_the_number_of_attempts(spark: SparkSession, attempts: int, reason: str) -> None:
    schema = "topic string, properties map<string,string>, reconsumeTimes int"
    letter = spark.createDataFrame([("%DLQ%payers", {"RETRY_TOPIC": "Payments"}, attempts)], schema)
    [row] = described(letter).collect()
    assert (row.group, row.origin, row.reason, row.attempts) == ("payers", "Payments", reason, attempts)
