"""References: fastjson writes an object in full once, and afterwards only its path.

A reference to an enclosing object, or to nothing, becomes None. The size that references add is limited,
because each may stand for the whole document. References in keys are not resolved.
"""

import re
from typing import Any, Final

from pyromq.errors import RemoteProtocolError

MARK: Final = b"$ref"
"""No document without this has references."""

MAX_DEPTH: Final = 128
MAX_VALUES_BESIDE_REFERENCES: Final = 1_000_000
MAX_REFERENCED_VALUES: Final = 250_000

# java: characters other than letters and digits are escaped in the names of a path
_STEP = re.compile(r"""\.((?:\\.|[^.\[\\])++)|\[(\d{1,9})\]|\['((?:\\.|[^'\\])*+)'\]""", re.DOTALL)
_ESCAPED_IN_PATH = re.compile(r"\\(.)", re.DOTALL)


def path_of(value: Any) -> str | None:
    """The path of a reference; None if the value is not a reference."""
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None


def resolve(root: Any) -> Any:
    """Replace each `{"$ref": path}` in `root` by the value at that path."""
    if not isinstance(root, dict | list):
        return root
    return None if path_of(root) is not None else _References(root).resolve()


class _References:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._own_values = 0
        self._sizes: dict[int, int] = {}

    def resolve(self) -> Any:
        self._replace_in(self._root, [])
        if self._size(self._root, MAX_DEPTH) > self._own_values + MAX_REFERENCED_VALUES:
            raise RemoteProtocolError(f"references add more than {MAX_REFERENCED_VALUES} values to the JSON")
        return self._root

    def _replace_in(self, holder: Any, around: list[int]) -> None:
        if len(around) > MAX_DEPTH:
            raise RemoteProtocolError(f"JSON is nested deeper than {MAX_DEPTH} levels")
        around.append(id(holder))
        places = holder.items() if isinstance(holder, dict) else enumerate(holder)
        self._own_values += len(holder)
        if self._own_values > MAX_VALUES_BESIDE_REFERENCES:
            raise RemoteProtocolError(f"JSON has references and over {MAX_VALUES_BESIDE_REFERENCES} values")
        for place, value in list(places):
            if isinstance(value, dict | list):
                path = path_of(value)
                if path is None:
                    self._replace_in(value, around)
                else:
                    holder[place] = self._find(path, around)
        around.pop()

    def _find(self, path: str, around: list[int]) -> Any:
        if not path.startswith("$"):
            # java: `..` and `@` are what the reference stands in
            return None
        value = self._root
        at = 1
        while at < len(path):
            step = _STEP.match(path, at)
            if step is None:
                return None
            at = step.end()
            name = _ESCAPED_IN_PATH.sub(r"\1", step[step.lastindex or 0])
            if isinstance(value, dict):
                value = value.get(name)
            elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            else:
                return None
        # java: the path of a reference is where the value stands in full, so it leads to no other reference
        return None if id(value) in around or path_of(value) is not None else value

    def _size(self, value: Any, depth: int) -> int:
        """The number of values once every reference is replaced by its own copy."""
        if not isinstance(value, dict | list):
            return 0
        known = self._sizes.get(id(value))
        if known is not None:
            if known < 0:
                raise RemoteProtocolError("references form a cycle")
            return known
        if depth == 0:
            raise RemoteProtocolError(f"references nest JSON deeper than {MAX_DEPTH} levels")
        self._sizes[id(value)] = -1
        members = value.values() if isinstance(value, dict) else value
        size = self._sizes[id(value)] = len(value) + sum(self._size(each, depth - 1) for each in members)
        return size
