"""Lite topics: what the attributes of their parent topics and of their groups say.

A lite topic is a name inside a parent topic of type LITE. Its first message makes it. A lite group is
bound to one parent topic, and its members subscribe to lite topics while they run.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pyromq.protocol.names import topic_problem

MESSAGE_TYPE: Final = "message.type"
LITE: Final = "LITE"
EXPIRATION: Final = "lite.topic.expiration"
MAX_EXPIRATION_MINUTES: Final = 43_200
DEFAULT_QUOTA: Final = 2000
BIND_TOPIC: Final = "lite.bind.topic"
MODEL: Final = "lite.sub.model"
RESET_WHEN_EXCLUSIVE: Final = "lite.sub.reset.offset.exclusive"
RESET_WHEN_UNSUBSCRIBED: Final = "lite.sub.reset.offset.unsubscribe"
QUOTA: Final = "lite.sub.client.quota"
MAX_EVENTS: Final = "lite.sub.client.max.event.cnt"
WILDCARD: Final = "lite.sub.wildcard"

_SHARED, _EXCLUSIVE = "Shared", "Exclusive"
_MAX_INT32 = 2**31 - 1

Check = tuple[Callable[[str], bool], str]
"""Whether a value is allowed, and what was expected."""


def _between(least: int, most: int) -> Callable[[str], bool]:
    def is_between(value: str) -> bool:
        return re.fullmatch(r"-?\d{1,10}", value, re.ASCII) is not None and least <= int(value) <= most

    return is_between


_BOOLEAN: Final[Check] = (("true", "false").__contains__, "true or false")

OF_TOPICS: Final[Mapping[str, Check]] = {
    EXPIRATION: (
        _between(-1, MAX_EXPIRATION_MINUTES),
        f"a whole number of minutes up to {MAX_EXPIRATION_MINUTES}, or -1 for never",
    )
}
OF_GROUPS: Final[Mapping[str, Check]] = {
    BIND_TOPIC: (lambda value: topic_problem(value) is None, "the name of a topic"),
    MODEL: ((_SHARED, _EXCLUSIVE).__contains__, f"{_SHARED} or {_EXCLUSIVE}"),
    RESET_WHEN_EXCLUSIVE: _BOOLEAN,
    RESET_WHEN_UNSUBSCRIBED: _BOOLEAN,
    QUOTA: (_between(-1, _MAX_INT32), "a whole number, or -1 for no limit"),
    # java: how many lite topics with messages a broker remembers for a client; ours remembers all of them
    MAX_EVENTS: (_between(10, _MAX_INT32), "a whole number of at least 10"),
    WILDCARD: (bool, "any text"),
}


class LiteGroup(NamedTuple):
    """A group that reads lite topics of one parent topic."""

    topic: str
    is_exclusive: bool = False
    """Only one client of the group reads a lite topic: the last that subscribed to it."""
    resets_when_exclusive: bool = False
    """A new owner of a lite topic begins with its first message."""
    resets_when_unsubscribed: bool = False
    quota: int = DEFAULT_QUOTA
    """How many lite topics a client may subscribe to; -1 means no limit."""
    is_wildcard: bool = False
    """The group reads all lite topics of the parent."""


def lite_group(attributes: Mapping[str, str]) -> LiteGroup | None:
    """The lite settings in a group's attributes; None if it is not a lite group."""
    topic = attributes.get(BIND_TOPIC)
    if not topic:
        return None
    return LiteGroup(
        topic,
        attributes.get(MODEL) == _EXCLUSIVE,
        attributes.get(RESET_WHEN_EXCLUSIVE) == "true",
        attributes.get(RESET_WHEN_UNSUBSCRIBED) == "true",
        int(attributes.get(QUOTA, DEFAULT_QUOTA)),
        WILDCARD in attributes,
    )


def is_lite(attributes: Mapping[str, str]) -> bool:
    """Whether a topic with these attributes has lite topics."""
    return attributes.get(MESSAGE_TYPE) == LITE


def expiration_minutes(attributes: Mapping[str, str]) -> int:
    """After how long without a message a lite topic is removed; -1 for never."""
    return int(attributes.get(EXPIRATION, -1))
