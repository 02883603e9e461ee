"""Reports as Java reads them."""

from pyromq.client.trace_records import (
    MessageKind,
    consumed_record,
    consuming_record,
    ended_record,
    sent_record,
)

SEPARATOR = "\x01"


def fields(record: str) -> list[str]:
    assert record.endswith("\x02")
    return record[:-1].split(SEPARATOR)


def test_a_sent_message() -> None:
    record = sent_record(
        at_ms=1700000000000,
        region="DefaultRegion",
        group="orders",
        topic="Orders",
        message_id="ABC",
        tags=None,
        keys="o-1",
        store_host="127.0.0.1:10911",
        body_bytes=5,
        cost_ms=3,
        kind=MessageKind.DELAYED,
        offset_message_id="DEF",
        is_ok=True,
    )
    who, what = fields(record)[:4], fields(record)[4:]
    assert who == ["Pub", "1700000000000", "DefaultRegion", "orders"]
    assert what == ["Orders", "ABC", "null", "o-1", "127.0.0.1:10911", "5", "3", "3", "DEF", "true"]


def test_the_end_of_a_transaction() -> None:
    record = ended_record(
        at_ms=1,
        region="r",
        group="g",
        topic="t",
        message_id="m",
        tags="A",
        keys=None,
        store_host="h:1",
        transaction_id=None,
        state="UNKNOW",
        is_check=True,
    )
    assert fields(record) == (
        ["EndTransaction", "1", "r", "g", "t", "m", "A", "null", "h:1", "2", "null", "UNKNOW", "true"]
    )


def test_a_message_before_and_after_it_was_consumed() -> None:
    before = consuming_record(
        at_ms=1, region="r", group="g", request_id="q", message_id="m", retries=2, keys="k"
    )
    assert fields(before) == ["SubBefore", "1", "r", "g", "q", "m", "2", "k"]
    after = consumed_record(
        at_ms=9, group="g", request_id="q", message_id="m", cost_ms=8, is_ok=False, keys=None, outcome=4
    )
    assert fields(after) == ["SubAfter", "q", "m", "8", "false", "null", "4", "9", "g"]
