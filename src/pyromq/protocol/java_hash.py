"""Java's `String.hashCode`, bit for bit: tags, index keys and consume queues are compared by it."""

import sys
from functools import lru_cache
from operator import mul

_CHUNK = 256
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_CHUNK + 1))
_NATIVE_UTF16 = f"utf-16-{sys.byteorder[:1]}e"


def java_string_hash(text: str) -> int:
    """31-polynomial over the UTF-16 code units of `text`, as a signed 32-bit number."""
    # java: a character outside the basic plane counts as its two surrogates
    units = text.encode() if text.isascii() else _utf16_units(text)
    if len(units) <= _CHUNK:
        total: int = sum(map(mul, units[::-1], _POWERS))
    else:
        total = 0
        for start in range(0, len(units), _CHUNK):
            chunk = units[start : start + _CHUNK]
            total = (total * _POWERS[len(chunk)] + sum(map(mul, chunk[::-1], _POWERS))) & 0xFFFFFFFF
    return ((total + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def _utf16_units(text: str) -> memoryview:
    return memoryview(text.encode(_NATIVE_UTF16, "surrogatepass")).cast("H")


@lru_cache(maxsize=4096)
def tag_code(tag: str | None) -> int:
    """The number that stands for a tag in subscriptions and consume queues; 0 for no tag."""
    return java_string_hash(tag) if tag else 0
