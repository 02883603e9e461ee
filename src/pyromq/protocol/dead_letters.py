"""The properties of a dead letter: where it came from, why it was given up, and what was settled.

A letter is settled when it was sent again or dropped. Brokers delete no single message, so a note in the same
queue names the offsets of settled letters: a log that loses letters has lost their notes before.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from pyromq.protocol import properties as props

ERROR: Final = "PYROMQ_ERROR"
MEMBER: Final = "PYROMQ_MEMBER"
FAILED_AT: Final = "PYROMQ_FAILED_AT"
ATTEMPTS: Final = "PYROMQ_ATTEMPTS"

SETTLED: Final = "PYROMQ_SETTLED"
"""Marks a note. Its body has the offsets, separated by commas."""

_OF_ITS_LIFE = frozenset(
    (
        ATTEMPTS,
        ERROR,
        FAILED_AT,
        MEMBER,
        props.CONSUME_START_TIME,
        props.DELAY,
        props.DLQ_ORIGIN_MESSAGE_ID,
        props.DLQ_ORIGIN_TOPIC,
        props.KEYS,
        props.MAX_OFFSET,
        props.MAX_RECONSUME_TIMES,
        props.MIN_OFFSET,
        props.ORIGIN_MESSAGE_ID,
        props.REAL_QUEUE_ID,
        props.REAL_TOPIC,
        props.RECONSUME_TIME,
        props.RECORD_CRC,
        props.RETRY_TOPIC,
        props.TAGS,
        props.UNIQ_KEY,
        props.WAIT,
    )
)
"""Properties that describe the letter's way here; the new message gets its own."""


class Letter(Protocol):
    def get(self, name: str) -> str | None: ...


class StoredLetter(Letter, Protocol):
    @property
    def queue_offset(self) -> int: ...
    @property
    def body(self) -> bytes: ...


def is_open(letter: StoredLetter, settled: set[int]) -> bool:
    """Whether this is a letter that is not settled. For the messages of a queue, read backwards: a note adds
    its offsets to `settled`, and comes before the letters that it names."""
    if letter.get(SETTLED) is not None:
        settled.update(map(int, letter.body.split(b",")))
        return False
    return letter.queue_offset not in settled


def origin_topic(letter: Letter) -> str:
    """The topic that the message was sent to first; empty if the letter does not say."""
    return letter.get(props.DLQ_ORIGIN_TOPIC) or letter.get(props.RETRY_TOPIC) or ""


def origin_id(letter: Letter) -> str:
    return letter.get(props.DLQ_ORIGIN_MESSAGE_ID) or letter.get(props.ORIGIN_MESSAGE_ID) or ""


def sent_again(letter: Letter, properties: Mapping[str, str], *, to_group: bool) -> dict[str, str]:
    """The properties of a copy, apart from keys and tags. `to_group`: for the retry topic of the group."""
    kept = {name: value for name, value in properties.items() if name not in _OF_ITS_LIFE}
    if to_group:
        kept |= {props.RETRY_TOPIC: origin_topic(letter), props.ORIGIN_MESSAGE_ID: origin_id(letter)}
    return kept
