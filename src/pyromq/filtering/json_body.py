"""Fields of a JSON body, read without building the rest of it.

Each level of the body is read once, when the first field in it is asked for; the rest stays bytes.
Whatever the bytes are, a field is a value or NULL, never an error.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

Path = tuple[str | int, ...]
"""Names of objects' members and numbers of lists' elements, from the outside in."""


class Structure:
    """An object or a list: there, and equal to nothing."""


STRUCTURE: Final = Structure()

Field = str | bool | int | float | Structure | None

_Level = dict[str, msgspec.Raw] | list[msgspec.Raw] | None

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list = msgspec.json.Decoder(list[msgspec.Raw])
_scalar = msgspec.json.Decoder(str | bool | int | float | None)
_SPACE: Final = b" \t\r\n"


class JsonBody:
    """The fields of one body; `read` gives its bytes, when they are needed, or None."""

    def __init__(self, read: Callable[[], bytes | None]) -> None:
        self._read = read
        self._levels: dict[Path, _Level] = {}
        self._fields: dict[Path, Field] = {}

    def field(self, path: Path) -> Field:
        """NULL for a field that is not there, that is null, or that cannot be read."""
        if path not in self._fields:
            self._fields[path] = _value(self._raw(path))
        return self._fields[path]

    def _raw(self, path: Path) -> msgspec.Raw | bytes | None:
        if not path:
            return self._read()
        level = self._level(path[:-1])
        step = path[-1]
        if isinstance(level, dict):
            return level.get(step) if isinstance(step, str) else None
        if isinstance(level, list) and isinstance(step, int) and step < len(level):
            return level[step]
        return None

    def _level(self, path: Path) -> _Level:
        if path not in self._levels:
            self._levels[path] = _open(self._raw(path))
        return self._levels[path]


class MessageWithBody(dict[str, str]):
    """The properties of a message, together with its body."""

    def __init__(self, properties: Mapping[str, str], read_body: Callable[[], bytes | None]) -> None:
        super().__init__(properties)
        self.body = JsonBody(read_body)


def _open(raw: msgspec.Raw | bytes | None) -> _Level:
    if raw is None:
        return None
    decoder: msgspec.json.Decoder[dict[str, msgspec.Raw]] | msgspec.json.Decoder[list[msgspec.Raw]]
    decoder = _list if _first(raw) == b"[" else _object
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _value(raw: msgspec.Raw | bytes | None) -> Field:
    if raw is None:
        return None
    if _first(raw) in (b"{", b"["):
        return STRUCTURE
    try:
        found: Field = _scalar.decode(raw)
        return found
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _first(raw: msgspec.Raw | bytes) -> bytes:
    """The first byte that is not white space."""
    return bytes(memoryview(raw)[:64]).lstrip(_SPACE)[:1] or bytes(raw).lstrip(_SPACE)[:1]
