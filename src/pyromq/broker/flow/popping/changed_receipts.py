"""Receipts that were replaced because their messages are hidden for longer or shorter.

A replaced receipt stands for its successor: who changes or acknowledges by an old one, because an answer was
lost or came late, does so for the one pop that is still open. So one message never has two deliveries ahead.
A receipt is forgotten when its own time is over; the table is not kept over a restart.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from msgspec.structs import replace

from pyromq.protocol.pop_receipt import PopReceipt

_Key = tuple[str, str, int, int, int]
"""Topic, group, queue id, offset and pop time."""


class ChangedReceipts:
    def __init__(self) -> None:
        self._successors: dict[_Key, PopReceipt] = {}
        self._ends: list[tuple[int, _Key]] = []

    def __repr__(self) -> str:
        return f"<ChangedReceipts {len(self._successors)}>"

    def __len__(self) -> int:
        return len(self._successors)

    def newest(self, topic: str, group: str, offset: int, receipt: PopReceipt) -> PopReceipt:
        """The receipt that is good now for the message of this one."""
        while True:
            key = (topic, group, receipt.queue_id, offset, receipt.pop_time_ms)
            successor = self._successors.get(key)
            if successor is None:
                return receipt
            receipt = successor

    def newest_of(
        self, topic: str, group: str, offsets: Sequence[int], receipt: PopReceipt
    ) -> dict[PopReceipt, Sequence[int]]:
        """The receipts that are good now for messages of one pop, and of which of them each is."""
        if not self._successors:
            return {receipt: offsets}
        found: dict[PopReceipt, list[int]] = {}
        for offset in offsets:
            newest = replace(self.newest(topic, group, offset, receipt), queue_offset=None)
            found.setdefault(newest, []).append(offset)
        return dict(found)

    def replace(
        self, topic: str, group: str, offset: int, receipt: PopReceipt, successor: PopReceipt, now_ms: int
    ) -> None:
        key = (topic, group, receipt.queue_id, offset, receipt.pop_time_ms)
        self._successors[key] = successor
        heappush(self._ends, (receipt.pop_time_ms + receipt.invisible_time_ms, key))
        while self._ends and self._ends[0][0] <= now_ms:
            self._successors.pop(heappop(self._ends)[1], None)
