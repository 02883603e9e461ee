"""Receipts that were replaced because their messages are hidden for longer or shorter.

A replaced receipt stands for its successor: who changes or acknowledges by an old one, because an answer was
lost or came late, does so for the one pop that is still open. So one message never has two deliveries ahead.
A receipt is forgotten when the time of its newest successor is over. After a restart, and in a new master,
the log shows what was replaced; see `found_changes`.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from msgspec.structs import replace

from pyromq.protocol.pop_receipt import PopReceipt

_Key = tuple[str, str, int, int, int]
"""Topic, group, queue id, offset and pop time."""


class ChangedReceipts:
    def __init__(self) -> None:
        self._newest: dict[_Key, PopReceipt] = {}
        self._replaced_by: dict[_Key, list[_Key]] = {}
        """The receipts that a good one stands for."""
        self._ends: list[tuple[int, _Key]] = []

    def __repr__(self) -> str:
        return f"<ChangedReceipts {len(self._newest)}>"

    def __len__(self) -> int:
        return len(self._newest)

    def newest(self, topic: str, group: str, offset: int, receipt: PopReceipt) -> PopReceipt:
        """The receipt that is good now for the message of this one."""
        return self._newest.get(_key(topic, group, offset, receipt), receipt)

    def newest_of(
        self, topic: str, group: str, offsets: Sequence[int], receipt: PopReceipt
    ) -> dict[PopReceipt, Sequence[int]]:
        """The receipts that are good now for messages of one pop, and of which of them each is."""
        if not self._newest:
            return {receipt: offsets}
        found: dict[PopReceipt, list[int]] = {}
        for offset in offsets:
            newest = replace(self.newest(topic, group, offset, receipt), queue_offset=None)
            found.setdefault(newest, []).append(offset)
        return dict(found)

    def replace(
        self, topic: str, group: str, offset: int, receipt: PopReceipt, successor: PopReceipt, now_ms: int
    ) -> None:
        """A good receipt is not good any more."""
        key, new = _key(topic, group, offset, receipt), _key(topic, group, offset, successor)
        replaced = [each for each in self._replaced_by.pop(key, ()) if each in self._newest]
        replaced.append(key)
        for each in replaced:
            self._newest[each] = successor
        self._replaced_by[new] = replaced
        heappush(self._ends, (receipt.pop_time_ms + receipt.invisible_time_ms, key))
        heappush(self._ends, (successor.pop_time_ms + successor.invisible_time_ms, new))
        while self._ends and self._ends[0][0] <= now_ms:
            _, ended = heappop(self._ends)
            newest = self._newest.get(ended)
            if newest is not None and newest.pop_time_ms + newest.invisible_time_ms > now_ms:
                # The message is still hidden: its consumer may know only the first receipt.
                heappush(self._ends, (newest.pop_time_ms + newest.invisible_time_ms, ended))
                continue
            self._newest.pop(ended, None)
            self._replaced_by.pop(ended, None)


def _key(topic: str, group: str, offset: int, receipt: PopReceipt) -> _Key:
    return topic, group, receipt.queue_id, offset, receipt.pop_time_ms
