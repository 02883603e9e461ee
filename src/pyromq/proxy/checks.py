"""Checks of what a client sends: names, tags, keys, properties and times. Each check raises `Rejected`."""

import re
from collections.abc import Mapping
from typing import Any

from pyromq.protocol.names import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    group_problem,
    lite_topic_problem,
    topic_problem,
)
from pyromq.protocol.properties import RESERVED_NAMES
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.settings import ProxySettings

_GOOD_TOPICS: set[str] = set()
_GOOD_GROUPS: set[str] = set()
_MAX_GOOD_NAMES = 10_000
"""Names are few and repeat: most need no second look."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_topic(name: str) -> str:
    """The name of a topic that clients may use."""
    if name in _GOOD_TOPICS:
        return name
    problem = topic_problem(name)
    if problem is None and (name in SYSTEM_TOPICS or name.startswith((SYSTEM_TOPIC_PREFIX, "RMQ_SYS_"))):
        problem = f"the topic {name} belongs to the system"
    if problem is not None:
        raise Rejected(Code.ILLEGAL_TOPIC, problem)
    if len(_GOOD_TOPICS) < _MAX_GOOD_NAMES:
        _GOOD_TOPICS.add(name)
    return name


def check_group(name: str) -> str:
    if name in _GOOD_GROUPS:
        return name
    problem = group_problem(name)
    if problem is None and name.startswith(SYSTEM_GROUP_PREFIX):
        problem = f"the group {name} belongs to the system"
    if problem is not None:
        raise Rejected(Code.ILLEGAL_CONSUMER_GROUP, problem)
    if len(_GOOD_GROUPS) < _MAX_GOOD_NAMES:
        _GOOD_GROUPS.add(name)
    return name


def check_lite_topic(name: str, settings: ProxySettings) -> str:
    if (problem := lite_topic_problem(name, settings.max_lite_topic_bytes)) is not None:
        raise Rejected(Code.ILLEGAL_LITE_TOPIC, problem)
    return name


def check_tag(tag: str) -> None:
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        raise Rejected(
            Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag!r} is blank, or contains a bar or a control character"
        )


def check_key(key: str) -> None:
    if not key.strip() or _CONTROL.search(key):
        raise Rejected(Code.ILLEGAL_MESSAGE_KEY, f"the key {key!r} is blank, or contains a control character")


def check_message_group(group: str, settings: ProxySettings) -> None:
    if not group.strip() or len(group.encode()) >= settings.max_message_group_size or _CONTROL.search(group):
        raise Rejected(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"the message group {group!r} is blank, contains a control character, or has"
            f" {settings.max_message_group_size} bytes or more",
        )


def check_properties(own: Mapping[str, str], extra: str, settings: ProxySettings) -> None:
    """`extra`: the tag and the keys, which count for the same limit."""
    if len(own) > settings.user_property_max_num:
        raise Rejected(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(own)} properties; at most {settings.user_property_max_num} are allowed",
        )
    text = "".join((*own, *own.values()))
    if _CONTROL.search(text) or not RESERVED_NAMES.isdisjoint(own):
        for name, value in own.items():
            if name in RESERVED_NAMES or _CONTROL.search(name) or _CONTROL.search(value):
                raise Rejected(
                    Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                    f"the property {name!r} is reserved, or it or its value contains a control character",
                )
    size = len(text.encode()) + len(extra.encode())
    if size > settings.max_user_property_bytes > 0:
        raise Rejected(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size} bytes; the limit is {settings.max_user_property_bytes}",
        )


def check_body(body: bytes, settings: ProxySettings) -> None:
    if not body and settings.refuses_empty_bodies:
        raise Rejected(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(body) > settings.max_message_bytes > 0:
        raise Rejected(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"the body has {len(body)} bytes; at most {settings.max_message_bytes} are allowed",
        )


def check_invisible_time(ms: int, min_ms: int, settings: ProxySettings) -> int:
    if not min_ms <= ms <= settings.max_invisible_ms:
        raise Rejected(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"an invisible time of {ms} ms; expected {min_ms} to {settings.max_invisible_ms}",
        )
    return ms


def milliseconds(duration: Any) -> int:
    """The length of a protobuf Duration, or the time of a Timestamp."""
    return int(duration.seconds) * 1000 + int(duration.nanos) // 1_000_000
