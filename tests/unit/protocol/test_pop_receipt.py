"""Pop receipts and the queue lists of pop answers."""

from collections.abc import Callable

import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.pop_receipt import (
    PopReceipt,
    decode_offsets,
    decode_order_counts,
    decode_pop_receipt,
    decode_start_offsets,
    encode_offsets,
    encode_order_counts,
    encode_pop_receipt,
    encode_start_offsets,
    marked_topic,
    retry_mark_of,
)


@pytest.mark.parametrize(
    ("receipt", "text"),
    [
        (PopReceipt(5, 1700000000000, 60000, 3, "0", "broker-a", 2), "5 1700000000000 60000 3 0 broker-a 2"),
        (
            PopReceipt(5, 1700000000000, 60000, 3, "1", "broker-a", 2, 7),
            "5 1700000000000 60000 3 1 broker-a 2 7",
        ),
        (PopReceipt(5, 1, 2, 999, "2", "b", -1, 7), "5 1 2 999 2 b -1 7"),
    ],
)
def test_receipts(receipt: PopReceipt, text: str) -> None:
    assert encode_pop_receipt(receipt) == text
    assert decode_pop_receipt(text) == receipt
    assert receipt.is_ordered == (" 999 " in text)


@pytest.mark.parametrize("handle", ["5 1 2 3 0 b 2 7 4096", "5 1 2 3 0 b 2 7 0 4096"])
def test_handles_of_apaches_proxy_are_receipts_with_more_words(handle: str) -> None:
    assert decode_pop_receipt(handle) == PopReceipt(5, 1, 2, 3, "0", "b", 2, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "1 2 3 4 0 b",
        "1 2 3 4 0 b 5 6 7 8 9",
        "1 2 3 4 3 b 5",
        "x 2 3 4 0 b 5",
        "1 2 3 4 0  5",
        "1_0 2 3 4 0 b 5",
    ],
)
def test_what_is_not_a_receipt_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_pop_receipt(text)


@pytest.mark.parametrize(("broker", "mark"), [("a b", "0"), ("", "0"), ("a", "x")])
def test_a_receipt_that_could_not_be_read_is_our_own_error(broker: str, mark: str) -> None:
    with pytest.raises(LocalProtocolError):
        encode_pop_receipt(PopReceipt(1, 2, 3, 4, mark, broker, 5))


@pytest.mark.parametrize(
    ("topic", "mark", "real"),
    [("orders", "0", "orders"), ("orders", "1", "%RETRY%g_orders"), ("orders", "2", "%RETRY%g+orders")],
)
def test_the_mark_tells_the_topic_a_message_lies_in(topic: str, mark: str, real: str) -> None:
    assert marked_topic(topic, "g", mark) == real
    assert retry_mark_of(real) == mark


def test_queue_lists() -> None:
    starts = {("0", 0): 17, ("1", 3): 0}
    assert encode_start_offsets(starts) == "0 0 17;1 3 0"
    assert decode_start_offsets("0 0 17;1 3 0") == starts
    offsets = {("0", 0): [17, 18, 20], ("2", 1): [5]}
    assert encode_offsets(offsets) == "0 0 17,18,20;2 1 5"
    assert decode_offsets("0 0 17,18,20;2 1 5") == offsets
    counts: dict[tuple[str, int, int | None], int] = {("0", 0, None): 2, ("0", 0, 18): 1}
    assert encode_order_counts(counts) == "0 0 2;0 qo0%18 1"
    assert decode_order_counts("0 0 2;0 qo0%18 1") == counts


@pytest.mark.parametrize("decode", [decode_start_offsets, decode_offsets, decode_order_counts])
@pytest.mark.parametrize(
    "text", ["x", "0 0", "0 0 1 2", "0 0 x", "9 0 1", "0 0 1;0 0 1", "0 0 1;", "0 0 1,", "0 y 1"]
)
def test_broken_queue_lists_are_refused(decode: Callable[[str], object], text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(text)


@pytest.mark.parametrize("decode", [decode_start_offsets, decode_offsets, decode_order_counts])
def test_an_empty_queue_list_is_empty(decode: Callable[[str], object]) -> None:
    assert decode("") == {}
