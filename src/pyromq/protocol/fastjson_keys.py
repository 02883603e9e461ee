"""Numbers and objects as keys, which fastjson writes without quotes, put into quotes.

All but the objects is done by whole-buffer operations in C, because tables of offsets can be large.
"""

import re

_NUMERIC_KEY = re.compile(rb"(?<![-\d])(-?\d++)(?=\s*+:)")
_OBJECT_KEY = re.compile(rb"\{[^{}\[\]]*+\}(?=\s*+:)")
# Control characters, which no standard JSON has, stand in for what would be taken for the end of a string.
_NEW_QUOTE, _ESCAPED_BACKSLASH, _ESCAPED_QUOTE, _STRING_IN_KEY = b"\0", b"\1", b"\2", b"\3"
_STRING_OR_STRING_IN_KEY = re.compile(rb'["\3]')
_NEITHER = bytes(set(range(256)) - set(b'"\3'))


def as_standard_json(data: bytes) -> bytes | None:
    """The same document with its numbers and objects that are keys in quotes.

    None if it has no such keys. If it has other oddities as well, the result is not JSON, either.
    """
    if any(code in data for code in (_NEW_QUOTE, _ESCAPED_BACKSLASH, _ESCAPED_QUOTE, _STRING_IN_KEY)):
        return None
    has_escapes = b"\\" in data
    if has_escapes:
        data = data.replace(rb"\\", _ESCAPED_BACKSLASH).replace(rb"\"", _ESCAPED_QUOTE)
    parts = data.split(b'"')
    # From here on a single quote stands for a whole string.
    rest = b'"'.join(parts[::2])
    has_object_keys = _OBJECT_KEY.search(rest) is not None
    if not has_object_keys and not _NUMERIC_KEY.search(rest):
        return None
    if has_object_keys:
        rest = _OBJECT_KEY.sub(_object_key_as_text, rest)
    # Splitting at the keys keeps them, so that joining again puts a quote on either side of each.
    rest = _NEW_QUOTE.join(_NUMERIC_KEY.split(rest))
    if has_object_keys:
        data = _with_strings(rest, parts[1::2])
    else:
        parts[::2] = rest.split(b'"')
        data = b'"'.join(parts)
    data = data.replace(_NEW_QUOTE, b'"')
    if has_escapes:
        data = data.replace(_ESCAPED_QUOTE, rb"\"").replace(_ESCAPED_BACKSLASH, rb"\\")
    return data


def _object_key_as_text(match: re.Match[bytes]) -> bytes:
    return _NEW_QUOTE + match[0].replace(b'"', _STRING_IN_KEY) + _NEW_QUOTE


def _with_strings(rest: bytes, strings: list[bytes]) -> bytes:
    """Put the strings back, those within keys with their quotes and escapes escaped."""
    between = _STRING_OR_STRING_IN_KEY.split(rest)
    pieces = between[:1]
    for place, string, following in zip(rest.translate(None, _NEITHER), strings, between[1:], strict=False):
        if place == _STRING_IN_KEY[0]:
            string = string.replace(_ESCAPED_QUOTE, rb"\"").replace(_ESCAPED_BACKSLASH, rb"\\")
            pieces += [rb"\"", string.replace(b"\\", rb"\\").replace(b'"', rb"\""), rb"\"", following]
        else:
            pieces += [b'"', string, b'"', following]
    return b"".join(pieces)
