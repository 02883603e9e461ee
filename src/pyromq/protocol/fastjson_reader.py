"""JSON as Java's fastjson 1.2 writes and accepts it, read into plain values in linear time.

What fastjson writes that is not JSON: numbers as keys, objects as keys, references to an earlier place in
the document. What it accepts besides: single quotes, bare words as keys, needless commas, comments, control
characters in strings, escapes of C, NaN. The keys of what is read here are `str` or `ObjectKey`.
"""

import re
from typing import Any, Final

import msgspec

from pyromq.errors import RemoteProtocolError

MAX_DEPTH: Final = 128
MAX_REFERENCED_VALUES: Final = 250_000
MAX_DIGITS: Final = 400

REFERENCE_MARK: Final = b"$ref"


class ObjectKey:
    """An object in the place of a key; equal only to itself, as its members may be unhashable."""

    __slots__ = ("members",)

    def __init__(self, members: dict[Any, Any]) -> None:
        self.members = members

    def __repr__(self) -> str:
        return f"ObjectKey({self.members!r})"


def read(data: bytes) -> Any:
    """The plain value of a document, references resolved; `RemoteProtocolError` if it is not one."""
    value = _read_plain(data)
    return _References(value).resolve() if REFERENCE_MARK in data else value


def _read_plain(data: bytes) -> Any:
    """Only documents that are too odd for the parser in C are read by the one in Python."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        pass
    quoted = quote_numeric_keys(data)
    if quoted is not None:
        try:
            return msgspec.json.decode(quoted)
        except msgspec.DecodeError:
            pass
    return _Parser(data.decode()).document()


_NUMERIC_KEY = re.compile(rb"(?<![-\d])(-?\d++)(?=\s*+:)")
# Control characters, which no standard JSON has, stand in for what would be taken for the end of a string.
_NEW_QUOTE, _ESCAPED_BACKSLASH, _ESCAPED_QUOTE = b"\0", b"\1", b"\2"


def quote_numeric_keys(data: bytes) -> bytes | None:
    """The same document with its numeric keys in quotes, or None if it has none or is odder than that."""
    if _NEW_QUOTE in data or _ESCAPED_BACKSLASH in data or _ESCAPED_QUOTE in data:
        return None
    has_escapes = b"\\" in data
    if has_escapes:
        data = data.replace(rb"\\", _ESCAPED_BACKSLASH).replace(rb"\"", _ESCAPED_QUOTE)
    parts = data.split(b'"')
    between_strings = b'"'.join(parts[::2])
    if not _NUMERIC_KEY.search(between_strings):
        return None
    # Splitting at the keys keeps them, so that joining again puts a quote on either side of each.
    quoted = _NEW_QUOTE.join(_NUMERIC_KEY.split(between_strings))
    parts[::2] = quoted.split(b'"')
    data = b'"'.join(parts).replace(_NEW_QUOTE, b'"')
    if has_escapes:
        data = data.replace(_ESCAPED_QUOTE, rb"\"").replace(_ESCAPED_BACKSLASH, rb"\\")
    return data


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
    """One pass over a text; each method leaves `_at` behind what it has read."""

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
        # Two escapes may make one character; one that is left alone cannot be written as UTF-8 again.
        plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return plain


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPED:
        raise RemoteProtocolError(f"JSON has no escape \\{escape}")
    return _ESCAPED[escape]


# java: characters other than letters and digits are escaped in the names of a path
_STEP = re.compile(r"""\.((?:\\.|[^.\[\\])++)|\[(\d{1,9})\]|\['((?:\\.|[^'\\])*+)'\]""", re.DOTALL)
_ESCAPED_IN_PATH = re.compile(r"\\(.)", re.DOTALL)


class _References:
    """Puts in the place of each `{"$ref": path}` what stands at that path of the document.

    A reference to something it stands in, or to nothing, becomes None. What references add to a document is
    limited, for each may stand for as much as the whole document.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._own_values = 0
        self._sizes: dict[int, int] = {}

    def resolve(self) -> Any:
        if not isinstance(self._root, dict | list):
            return self._root
        if _path_of(self._root) is not None:
            return None
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
        for place, value in list(places):
            if isinstance(place, ObjectKey):
                path = _path_of(place.members)
                if path is None:
                    self._replace_in(place.members, around)
                elif isinstance(key := self._find(path, around), dict):
                    place.members = key
                else:
                    # java: a key that stood in full before cannot be told from the other keys of its map
                    del holder[place]
                    continue
            if isinstance(value, dict | list):
                path = _path_of(value)
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
        return None if id(value) in around or _path_of(value) is not None else value

    def _size(self, value: Any, depth: int) -> int:
        """How many values there are once every reference stands for its own copy."""
        if not isinstance(value, dict | list):
            return 0
        known = self._sizes.get(id(value))
        if known is not None:
            if known < 0:
                raise RemoteProtocolError("references go round in a circle")
            return known
        if depth == 0:
            raise RemoteProtocolError(f"references nest JSON deeper than {MAX_DEPTH} levels")
        self._sizes[id(value)] = -1
        size = len(value)
        if isinstance(value, dict):
            size += sum(self._size(key.members, depth - 1) for key in value if isinstance(key, ObjectKey))
            size += sum(self._size(member, depth - 1) for member in value.values())
        else:
            size += sum(self._size(item, depth - 1) for item in value)
        self._sizes[id(value)] = size
        return size


def _path_of(value: Any) -> str | None:
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None
