"""The three properties dispatch needs, out of a property string, without taking the others apart.

The messages of one queue mostly name the same properties in the same order. A shape seen twice in a row is
learnt as one pattern, which reads the next string of that shape in one step. The answer is always that of
`get_property_bytes`.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from pyromq.protocol.properties import get_property_bytes

Probed = tuple[bytes, bytes, bytes]
"""The values of TAGS, UNIQ_KEY and KEYS; empty where there is none."""

_WANTED: Final = (b"TAGS", b"UNIQ_KEY", b"KEYS")
_MAX_SHAPES: Final = 256
_MAX_NAMES: Final = 24

_Shape = tuple[Callable[[bytes], "re.Match[bytes] | None"], tuple[int, int, int]]
_NEVER: Final[_Shape] = (re.compile(rb"(?!)").fullmatch, (0, 0, 0))
_SHAPES: dict[tuple[bytes, ...], _Shape] = {}


class PropertyProbe:
    """Reads the property strings of one queue, and remembers their shape."""

    __slots__ = ("_groups", "_last_names", "_match")

    def __init__(self) -> None:
        self._match, self._groups = _NEVER
        self._last_names: tuple[bytes, ...] = ()

    def read(self, properties: bytes) -> Probed:
        found = self._match(properties)
        if found is None:
            return self._read_slowly(properties)
        values: Any = found.group(*self._groups)
        return values  # type: ignore[no-any-return]

    def _read_slowly(self, properties: bytes) -> Probed:
        names = tuple(piece.partition(b"\x01")[0] for piece in properties.split(b"\x02"))
        if names == self._last_names:
            self._match, self._groups = _shape(names)
        self._last_names = names
        return (
            get_property_bytes(properties, "TAGS") or b"",
            get_property_bytes(properties, "UNIQ_KEY") or b"",
            get_property_bytes(properties, "KEYS") or b"",
        )


def _shape(names: tuple[bytes, ...]) -> _Shape:
    """The pattern for these names in this order. Compiling one is slow, so their number is limited."""
    shape = _SHAPES.get(names)
    if shape is None:
        ends_with_separator = not names[-1]
        named = names[:-1] if ends_with_separator else names
        if len(_SHAPES) >= _MAX_SHAPES or len(named) > _MAX_NAMES or len(set(named)) != len(named):
            return _NEVER
        # Group 1 is empty: it stands for what has no value.
        parts, groups = [], dict.fromkeys(_WANTED, 1)
        for name in named:
            if name in groups:
                groups[name] = max(groups.values()) + 1
                parts.append(re.escape(name) + rb"\x01([^\x02]++)")
            else:
                parts.append(re.escape(name) + rb"\x01[^\x02]++")
        pattern = rb"()" + rb"\x02".join(parts) + (rb"\x02" if ends_with_separator else b"")
        tags, unique, keys = (groups[name] for name in _WANTED)
        shape = _SHAPES[names] = (re.compile(pattern).fullmatch, (tags, unique, keys))
    return shape
