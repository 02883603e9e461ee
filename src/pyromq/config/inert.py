"""Keys of RocketMQ without an effect here: each is harmless to ignore, or refused unless it has its default.

A key is harmless if nobody relies on it: it tunes Java's internals, or it belongs to a feature that another
key turns on. All others are refused: a server must not start that does less than its settings say.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class InertKey(NamedTuple):
    default: str
    """Its kind is that of the default."""
    reason: str
    is_refused: bool


Lines = Mapping[str, str]
"""By reason: the keys as `key=default`, one a line."""


def inert_keys(harmless: Lines, refused: Lines) -> Mapping[str, InertKey]:
    found: dict[str, InertKey] = {}
    for groups, is_refused in ((harmless, False), (refused, True)):
        for reason, lines in groups.items():
            for line in lines.split():
                key, _, default = line.partition("=")
                assert key not in found, key
                found[key] = InertKey(default, reason, is_refused)
    return MappingProxyType(found)
