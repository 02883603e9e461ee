"""The strings of pop consumption: the receipt of one message, and what an answer says about its queues.

receipt         checkpoint-offset pop-time invisible-time revive-queue retry-mark broker queue [offset]
start offsets   retry-mark queue offset;...
offsets         retry-mark queue offset,offset,...;...
order counts    retry-mark queue count;...    or, for one message,    retry-mark qo<queue>%<offset> count
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.names import RETRY_PREFIX, pop_retry_topics

NORMAL_TOPIC: Final = "0"
RETRY_TOPIC_V1: Final = "1"
RETRY_TOPIC_V2: Final = "2"
_MAX_WORDS = 10
_USUAL: Final = re.compile(r"([0-9]{1,18}) " * 4 + r"([012]) ([^ ]+) ([0-9]{1,9}) ([0-9]{1,18})")
"""Most receipts, in one look."""
_RETRY_MARKS: Final = frozenset({NORMAL_TOPIC, RETRY_TOPIC_V1, RETRY_TOPIC_V2})

ORDER_REVIVE_QUEUE: Final = 999
"""The revive queue that marks a receipt of ordered consumption."""

_NUMBER = re.compile(r"-?[0-9]{1,19}")
_ONE_MESSAGE = re.compile(r"qo([0-9]{1,10})%([0-9]{1,19})")

QueueKey: TypeAlias = tuple[str, int]
"""A retry mark and a queue id."""
OrderKey: TypeAlias = tuple[str, int, int | None]
"""A retry mark, a queue id, and the queue offset if the count is about one message."""


class PopReceipt(msgspec.Struct, frozen=True, gc=False):
    """The receipt with which a consumer acknowledges a popped message or keeps it invisible for longer."""

    checkpoint_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue_id: int
    retry_mark: str
    broker_name: str
    queue_id: int
    queue_offset: int | None = None

    @property
    def is_ordered(self) -> bool:
        return self.revive_queue_id == ORDER_REVIVE_QUEUE


def retry_mark_of(topic: str) -> str:
    """Whether a topic is an ordinary one or holds retries, and named by which rule."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL_TOPIC
    return RETRY_TOPIC_V2 if "+" in topic else RETRY_TOPIC_V1


def marked_topic(topic: str, group: str, retry_mark: str) -> str:
    """The topic in which a popped message of `topic` is stored."""
    if retry_mark == NORMAL_TOPIC:
        return topic
    v1, v2 = pop_retry_topics(topic, group)
    return v1 if retry_mark == RETRY_TOPIC_V1 else v2


def encode_pop_receipt(receipt: PopReceipt) -> str:
    if not receipt.broker_name or " " in receipt.broker_name or receipt.retry_mark not in _RETRY_MARKS:
        raise LocalProtocolError(
            f"a receipt cannot carry broker {receipt.broker_name!r}, mark {receipt.retry_mark!r}"
        )
    words: list[object] = [
        receipt.checkpoint_offset,
        receipt.pop_time_ms,
        receipt.invisible_time_ms,
        receipt.revive_queue_id,
        receipt.retry_mark,
        receipt.broker_name,
        receipt.queue_id,
    ]
    if receipt.queue_offset is not None:
        words.append(receipt.queue_offset)
    return " ".join(map(str, words))


def decode_pop_receipt(text: str) -> PopReceipt:
    found = _USUAL.fullmatch(text)
    if found is not None:
        start, time_ms, invisible_ms, revive, mark, broker, queue, offset = found.groups()
        return PopReceipt(
            int(start), int(time_ms), int(invisible_ms), int(revive), mark, broker, int(queue), int(offset)
        )
    words = text.split(" ")
    # java: Apache's proxy passes its handles on, which have one or two more words
    if not 7 <= len(words) <= _MAX_WORDS or words[4] not in _RETRY_MARKS or not words[5]:
        raise RemoteProtocolError(f"not a pop receipt: {text[:200]!r}")
    return PopReceipt(
        _number(words[0], text),
        _number(words[1], text),
        _number(words[2], text),
        _number(words[3], text),
        words[4],
        words[5],
        _number(words[6], text),
        _number(words[7], text) if len(words) > 7 else None,
    )


def encode_start_offsets(offsets: Mapping[QueueKey, int]) -> str:
    return ";".join(f"{mark} {queue_id} {offset}" for (mark, queue_id), offset in offsets.items())


def decode_start_offsets(text: str) -> dict[QueueKey, int]:
    offsets: dict[QueueKey, int] = {}
    for mark, queue, offset in _entries(text):
        key = (mark, _number(queue, text))
        _refuse_second(key, offsets, text)
        offsets[key] = _number(offset, text)
    return offsets


def encode_offsets(offsets: Mapping[QueueKey, Sequence[int]]) -> str:
    return ";".join(
        f"{mark} {queue_id} {','.join(map(str, each))}" for (mark, queue_id), each in offsets.items()
    )


def decode_offsets(text: str) -> dict[QueueKey, list[int]]:
    offsets: dict[QueueKey, list[int]] = {}
    for mark, queue, each in _entries(text):
        key = (mark, _number(queue, text))
        _refuse_second(key, offsets, text)
        offsets[key] = [_number(offset, text) for offset in each.split(",")]
    return offsets


def encode_order_counts(counts: Mapping[OrderKey, int]) -> str:
    return ";".join(
        f"{mark} {queue_id} {count}"
        if queue_offset is None
        else f"{mark} qo{queue_id}%{queue_offset} {count}"
        for (mark, queue_id, queue_offset), count in counts.items()
    )


def decode_order_counts(text: str) -> dict[OrderKey, int]:
    counts: dict[OrderKey, int] = {}
    for mark, place, count in _entries(text):
        one_message = _ONE_MESSAGE.fullmatch(place)
        key: OrderKey
        if one_message:
            key = (mark, int(one_message[1]), int(one_message[2]))
        else:
            key = (mark, _number(place, text), None)
        _refuse_second(key, counts, text)
        counts[key] = _number(count, text)
    return counts


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    for entry in text.split(";") if text else ():
        words = entry.split(" ")
        if len(words) != 3 or words[0] not in _RETRY_MARKS:
            raise RemoteProtocolError(f"not an entry about a queue: {entry[:200]!r}")
        yield words[0], words[1], words[2]


def _refuse_second(key: object, known: Container[object], text: str) -> None:
    if key in known:
        raise RemoteProtocolError(f"the same queue twice in {text[:200]!r}")


def _number(word: str, text: str) -> int:
    if not _NUMBER.fullmatch(word):
        raise RemoteProtocolError(f"{word[:40]!r} is not a number in {text[:200]!r}")
    return int(word)
