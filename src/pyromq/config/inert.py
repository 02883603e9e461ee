"""Keys of RocketMQ without an effect here: each is harmless to ignore, or refused unless it has its default.

A key is harmless if it tunes Java's internals, or if it belongs to a feature that another key turns on. All
others are refused: a server must not start if it does less than its settings say. The files in `inert/` list
the keys with RocketMQ's defaults (of the broker: on four processors), and the comment above a group of keys
is the reason.
"""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

_REFUSED: Final = "refused: "


class InertKey(NamedTuple):
    default: str
    """Its kind is that of the default."""
    reason: str
    is_refused: bool


def inert_keys(*names: str) -> Mapping[str, InertKey]:
    """The keys in the files of these names."""
    return MappingProxyType({key: each for name in names for key, each in _read(name).items()})


def _read(name: str) -> Mapping[str, InertKey]:
    found: dict[str, InertKey] = {}
    reason = ""
    text = files("pyromq.config").joinpath("inert", f"{name}.properties").read_text("utf-8")
    for line in text.splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            key, _, default = line.partition("=")
            assert key not in found, key
            found[key] = InertKey(default, reason.removeprefix(_REFUSED), reason.startswith(_REFUSED))
    return found
