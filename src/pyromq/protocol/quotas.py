"""Quotas of topics, groups and users: attributes with a whole number a second; 0 means no limit."""

import re
from collections.abc import Mapping
from typing import Final

SEND_MESSAGES: Final = "quota.send.messages"
SEND_BYTES: Final = "quota.send.bytes"
READ_MESSAGES: Final = "quota.read.messages"
READ_BYTES: Final = "quota.read.bytes"

SENDING: Final = (SEND_MESSAGES, SEND_BYTES)
READING: Final = (READ_MESSAGES, READ_BYTES)
OF_GROUPS: Final = READING
OF_TOPICS: Final = (*SENDING, *READING)
OF_USERS: Final = OF_TOPICS

EXPECTED: Final = "a whole number a second from 0, which is no limit, to 999999999999"


def is_rate(value: str) -> bool:
    return re.fullmatch(r"\d{1,12}", value, re.ASCII) is not None


def rates(attributes: Mapping[str, str], wanted: tuple[str, str]) -> tuple[int, int] | None:
    """Messages and bytes a second that attributes allow, 0 for any number; None if they set no limit."""
    if not attributes:
        return None
    messages, size_bytes = (int(attributes.get(name) or 0) for name in wanted)
    return (messages, size_bytes) if messages or size_bytes else None


def checked_rates(attributes: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The attributes without those that are 0; raises ValueError if one is unknown, or is not a rate."""
    for name, value in attributes.items():
        if name not in known:
            raise ValueError(f"attribute {name!r} is unknown: expected one of {', '.join(known)}")
        if not is_rate(value):
            raise ValueError(f"attribute {name}={value}: expected {EXPECTED}")
    return {name: value for name, value in attributes.items() if int(value)}
