"""Attributes of topics: their names, their values, and the syntax of a change.

A change is a list separated by commas: `+key=value` sets, `-key` removes.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyromq.errors import Refused
from pyromq.protocol import lite, quotas
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.protocol.topic_ages import RESERVE_HOURS, TTL_SECONDS

CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"
RESERVE_BYTES = "reserve.bytes"


class _Attribute(NamedTuple):
    is_allowed: Callable[[str], bool]
    expected: str
    changeable: bool


def _one_of(*values: str) -> tuple[Callable[[str], bool], str]:
    return frozenset(values).__contains__, "one of " + ", ".join(values)


def _number(pattern: str, expected: str) -> tuple[Callable[[str], bool], str]:
    return lambda value: re.fullmatch(pattern, value, re.ASCII) is not None, expected


def _only(value: str, reason: str) -> tuple[Callable[[str], bool], str]:
    return value.__eq__, f"{value}, because {reason}"


_KNOWN = {
    "message.type": _Attribute(
        *_one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", lite.LITE, "MIXED"),
        changeable=True,
    ),
    "queue.type": _Attribute(*_only("SimpleCQ", "queues of batches are not supported"), changeable=False),
    CLEANUP_POLICY: _Attribute(*_one_of("DELETE", COMPACTION), changeable=False),
    RESERVE_HOURS: _Attribute(
        *_number(r"-1|\d{1,7}", "a whole number of hours; -1 and 0 set no limit"), changeable=True
    ),
    RESERVE_BYTES: _Attribute(
        *_number(r"\d{1,18}", "a whole number of bytes; 0 sets no limit"), changeable=True
    ),
    TTL_SECONDS: _Attribute(
        *_number(r"\d{1,10}", "a whole number of seconds; 0 sets no limit"), changeable=True
    ),
    **{name: _Attribute(*check, changeable=True) for name, check in lite.OF_TOPICS.items()},
    **{name: _Attribute(quotas.is_rate, quotas.EXPECTED, changeable=True) for name in quotas.OF_TOPICS},
}


def topics_of_batches(topics: Mapping[str, TopicConfig]) -> list[str]:
    """Topics whose queues count the messages inside batches; only Apache's broker has them."""
    return sorted(name for name, topic in topics.items() if topic.attributes.get("queue.type") == "BatchCQ")


def is_compacted(attributes: Mapping[str, str]) -> bool:
    """Whether the newest message of each key is kept for ever."""
    return attributes.get(CLEANUP_POLICY) == COMPACTION


def refuse_compacted(topic: str, attributes: Mapping[str, str]) -> None:
    """Raises Refused for a topic from which operators remove nothing."""
    if is_compacted(attributes):
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"the topic {topic} is compacted: to remove a key, send a message with it and without a body",
        )


def parse_change(text: str | None) -> dict[str, str | None]:
    """The new values, None for a removal; raises ValueError for bad syntax."""
    change: dict[str, str | None] = {}
    for part in filter(None, (text or "").split(",")):
        key, has_value, value = part.partition("=")
        if part.startswith("+") and has_value and key != "+":
            change[key[1:].strip()] = value.strip()
        elif part.startswith("-") and not has_value and key != "-":
            change[key[1:].strip()] = None
        else:
            raise ValueError(f"attribute change {part!r}: expected +key=value or -key")
    return change


def apply_change(attributes: Mapping[str, str] | None, change: Mapping[str, str | None]) -> dict[str, str]:
    """The attributes after a change; `attributes` is None for a topic that is being created.

    Raises ValueError if an attribute is unknown, its value is bad, or it cannot be changed.
    """
    after = dict(attributes or {})
    for key, value in change.items():
        known = _KNOWN.get(key)
        if known is None:
            raise ValueError(f"attribute {key!r} is unknown: expected one of {', '.join(_KNOWN)}")
        if attributes is not None and not known.changeable and attributes.get(key) != value:
            raise ValueError(f"attribute {key} of an existing topic cannot be changed")
        if value is None:
            if attributes is None:
                raise ValueError(f"attribute {key} cannot be removed from a new topic")
            after.pop(key, None)
        elif not known.is_allowed(value):
            raise ValueError(f"attribute {key}={value}: expected {known.expected}")
        else:
            after[key] = value
    if is_compacted(after):
        for key in (RESERVE_HOURS, RESERVE_BYTES, TTL_SECONDS):
            if key in change and key in after:
                raise ValueError(
                    f"attribute {key}={after[key]}: expected none for a compacted topic, which keeps the"
                    " newest message of each key"
                )
    return after
