"""JSON as Java's fastjson 1.2 writes and accepts it, read into plain values in linear time.

fastjson writes numbers as keys, objects as keys, and references to an earlier place in the document, which
are not JSON. It also accepts single quotes, bare words as keys, extra commas, comments, control characters in
strings, C escapes and NaN. Keys are read as `str` or `ObjectKey`.
"""

import re
from typing import Any, Final

import msgspec

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import fastjson_references
from pyromq.protocol.fastjson_keys import as_standard_json
from pyromq.protocol.fastjson_references import MAX_DEPTH

MAX_DIGITS: Final = 400
MAX_ODD_BYTES: Final = 1024 * 1024
"""The limit of the parser in Python; documents that are odd only in their keys do not need it."""


class ObjectKey:
    """An object used as a key; equal only to itself, because its members may be unhashable."""

    __slots__ = ("members",)

    def __init__(self, members: dict[Any, Any]) -> None:
        self.members = members

    def __repr__(self) -> str:
        return f"ObjectKey({self.members!r})"


def read(data: bytes, standard: bytes | None = None, max_odd_bytes: int = MAX_ODD_BYTES) -> Any:
    """The plain value of a document with references resolved; raises RemoteProtocolError.

    `standard` is the result of `as_standard_json`, if the caller has it already.
    """
    value = _read_plain(data, standard, max_odd_bytes)
    return fastjson_references.resolve(value) if fastjson_references.MARK in data else value


def _read_plain(data: bytes, standard: bytes | None, max_odd_bytes: int) -> Any:
    try:
        return msgspec.json.decode(data if standard is None else standard)
    except msgspec.DecodeError:
        pass
    if standard is None:
        standard = as_standard_json(data)
        if standard is not None:
            try:
                return msgspec.json.decode(standard)
            except msgspec.DecodeError:
                pass
    if len(data) > max_odd_bytes:
        raise RemoteProtocolError(f"{len(data)} bytes of odd JSON; {max_odd_bytes} are allowed")
    return _Parser(data.decode()).document()


_BLANK = r"(?:[\s\ufeff]++|//[^\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)*+"
_BLANKS = re.compile(_BLANK)
_COMMAS = re.compile(rf"(?:{_BLANK},)++{_BLANK}")
_COLON = re.compile(rf"{_BLANK}:{_BLANK}")
_USUAL_KEY = re.compile(r'"([^"\\]*+)":')
_TOKEN = re.compile(
    r"""
      "([^"\\]*+)"                                                  # 1 a string without escapes
    | "([^"\\]*+(?:\\.[^"\\]*+)*+)"                                 # 2 a string with escapes
    | '([^'\\]*+(?:\\.[^'\\]*+)*+)'                                 # 3 a string in single quotes
    | ([+-]?\d++)[BSL]?                                             # 4 a whole number ...
      (\.\d*+(?:[eE][+-]?\d++)?|[eE][+-]?\d++)?[FD]?                # 5 ... or not
    | ([^\W\d][\w$]*+|\$[\w$]*+)                                    # 6 a word
    | ([{\[])                                                       # 7
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {
    **dict(zip("btnvfFr", "\b\t\n\v\f\f\r", strict=True)),
    **{char: char for char in "\"'\\/"},
    **{str(code): chr(code) for code in range(8)},
}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}


class _Parser:
    """One pass over a text; each method moves `_at` to the end of what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> Any:
        self._skip(_BLANKS)
        value = self._value(MAX_DEPTH)
        self._skip(_BLANKS)
        if self._at < len(self._text):
            raise self._unexpected("the end of the document")
        return value

    def _value(self, depth: int) -> Any:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._unexpected("a value")
        self._at = match.end()
        kind = match.lastindex
        if kind == 1:
            return match[1]
        if kind == 7:
            if depth == 0:
                raise RemoteProtocolError(f"JSON is nested deeper than {MAX_DEPTH} levels")
            return self._object(depth - 1) if match[7] == "{" else self._array(depth - 1)
        if kind == 6:
            word = match[6]
            if word not in _WORDS:
                raise RemoteProtocolError(f"JSON has no value called {word[:40]}")
            return _WORDS[word]
        if kind in (4, 5):
            return _number(match[4], match[5])
        return _unescape(match[kind or 0])

    def _object(self, depth: int) -> dict[str | ObjectKey, Any]:
        members: dict[str | ObjectKey, Any] = {}
        self._skip_to_first()
        while not self._closes("}"):
            usual = _USUAL_KEY.match(self._text, self._at)
            if usual is not None:
                key: str | ObjectKey = usual[1]
                self._at = usual.end()
                self._skip(_BLANKS)
            else:
                key = self._key(depth)
                if not self._skip(_COLON):
                    raise self._unexpected("a colon")
            members[key] = self._value(depth)
            self._skip_to_next("}")
        return members

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._skip_to_first()
        while not self._closes("]"):
            items.append(self._value(depth))
            self._skip_to_next("]")
        return items

    def _key(self, depth: int) -> str | ObjectKey:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._unexpected("a key")
        kind = match.lastindex
        if kind == 7:
            key = self._value(depth)
            if isinstance(key, dict):
                return ObjectKey(key)
            raise RemoteProtocolError("JSON has a list as a key")
        self._at = match.end()
        return match[0] if kind in (4, 5, 6) else _unescape(match[kind or 0])

    def _closes(self, bracket: str) -> bool:
        if self._text.startswith(bracket, self._at):
            self._at += 1
            return True
        return False

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match is not None

    def _skip_to_first(self) -> None:
        if not self._skip(_COMMAS):
            self._skip(_BLANKS)

    def _skip_to_next(self, bracket: str) -> None:
        if self._text.startswith(bracket, self._at) or self._skip(_COMMAS):
            return
        self._skip(_BLANKS)
        if not self._text.startswith(bracket, self._at):
            raise self._unexpected(f"a comma or {bracket}")

    def _unexpected(self, expected: str) -> RemoteProtocolError:
        found = self._text[self._at : self._at + 20] or "the end"
        return RemoteProtocolError(f"JSON should have {expected} at character {self._at}, not {found!r}")


def _number(whole: str, rest: str | None) -> int | float | None:
    if len(whole) > MAX_DIGITS:
        raise RemoteProtocolError(f"JSON has a number of {len(whole)} digits")
    if rest is None:
        return int(whole)
    number = float(whole + rest)
    return number if abs(number) != float("inf") else None


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(_escaped, text)
    if _LONE_SURROGATE.search(plain):
        # Two escapes may form one character; a lone surrogate cannot be encoded as UTF-8.
        plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPED:
        raise RemoteProtocolError(f"JSON has no escape \\{escape}")
    return _ESCAPED[escape]
