"""Which receipt stands for which, and for how long."""

from pyromq.broker.flow.popping.changed_receipts import ChangedReceipts
from pyromq.protocol.pop_receipt import PopReceipt


def _receipt(pop_ms: int, invisible_ms: int) -> PopReceipt:
    return PopReceipt(0, pop_ms, invisible_ms, 0, "0", "b", 0, 7)


def test_a_replaced_receipt_stands_for_the_newest_until_that_ones_time_is_over() -> None:
    changed = ChangedReceipts()
    first, second, third = _receipt(0, 100), _receipt(90, 100), _receipt(180, 100)
    changed.replace("T", "G", 7, first, second, 90)
    changed.replace("T", "G", 7, second, third, 180)
    assert changed.newest("T", "G", 7, first) == third
    other, its = _receipt(1, 1000), _receipt(2, 1000)
    changed.replace("T", "G", 8, other, its, 279)
    assert changed.newest("T", "G", 7, first) == third
    changed.replace("T", "G", 9, other, its, 280)
    assert changed.newest("T", "G", 7, first) == first
    assert len(changed) == 2
