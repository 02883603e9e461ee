"""Reports as Java reads them."""

from pyromq.client.trace_records import (
    ConsumedRecord,
    ConsumingRecord,
    EndedRecord,
    MessageKind,
    SentRecord,
)

SEPARATOR = "\x01"


def fields(record: str) -> list[str]:
    assert record.endswith("\x02")
    return record[:-1].split(SEPARATOR)


def test_a_sent_message() -> None:
    record = SentRecord(
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
    who, what = fields(record.text())[:4], fields(record.text())[4:]
    assert who == ["Pub", "1700000000000", "DefaultRegion", "orders"]
    assert what == ["Orders", "ABC", "null", "o-1", "127.0.0.1:10911", "5", "3", "3", "DEF", "true"]


def test_the_end_of_a_transaction() -> None:
    record = EndedRecord(
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
    assert fields(record.text()) == (
        ["EndTransaction", "1", "r", "g", "t", "m", "A", "null", "h:1", "2", "null", "UNKNOW", "true"]
    )


def test_a_message_before_and_after_it_was_consumed() -> None:
    before = ConsumingRecord(
        at_ms=1, region="r", group="g", request_id="q", message_id="m", retries=2, keys="k"
    )
    assert fields(before.text()) == ["SubBefore", "1", "r", "g", "q", "m", "2", "k"]
    after = ConsumedRecord(
        at_ms=9, group="g", request_id="q", message_id="m", cost_ms=8, is_ok=False, keys=None, outcome=4
    )
    assert fields(after.text()) == ["SubAfter", "q", "m", "8", "false", "null", "4", "9", "g"]
