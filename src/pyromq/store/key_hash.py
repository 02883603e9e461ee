"""Hashes of index keys, many at a time: Java's 31-polynomial on all keys at once inside one big number.

Keys are padded on the left with zero bytes, which leave the hash as it is, and laid side by side. Then
neighbouring digits of the long number are combined, `high * 31**n + low`: bytes into pairs, pairs into fours,
fours into eights, eights into sixteens. A dozen operations do the work of a loop over every character.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import Final

from pyromq.protocol.java_hash import java_string_hash

_LANE_BYTES: Final = 16
_MOST_BYTES: Final = 256
_MASK: Final = 0xFFFFFFFF
_POWER_16: Final = pow(31, 16, 1 << 32)
_POWER_32: Final = pow(31, 32, 1 << 32)


def index_key_hash(key: str) -> int:
    """java: the absolute value of the string hash, and 0 where that does not exist."""
    value = abs(java_string_hash(key))
    return value if value <= 0x7FFFFFFF else 0


def index_key_hashes(keys: Sequence[bytes]) -> list[int]:
    """`index_key_hash` of each key, given in UTF-8."""
    longest = max(map(len, keys), default=0)
    if longest > _MOST_BYTES or not b"".join(keys).isascii():
        return [index_key_hash(key.decode("utf-8", "replace")) for key in keys]
    lanes = max(3, -(-longest // _LANE_BYTES))
    width = lanes * _LANE_BYTES
    digits = int.from_bytes(b"".join([key.rjust(width, b"\0") for key in keys]), "big")
    for shift, mask, factor in _steps(_round_up(len(keys) * width)):
        digits = (digits >> shift & mask) * factor + (digits & mask)
    raw = digits.to_bytes(len(keys) * width, "big")
    if lanes == 3:
        sums = [
            (high * _POWER_32 + middle * _POWER_16 + low) & _MASK
            for high, middle, low in _last_words(3).iter_unpack(raw)
        ]
    else:
        powers = [pow(31, _LANE_BYTES * lane, 1 << 32) for lane in reversed(range(lanes))]
        sums = [sum(map(mul, words, powers)) & _MASK for words in _last_words(lanes).iter_unpack(raw)]
    # java: Math.abs of the smallest number is negative and becomes 0
    return [each if each < 0x80000000 else (0x100000000 - each) & 0x7FFFFFFF for each in sums]


@lru_cache(maxsize=_MOST_BYTES // _LANE_BYTES)
def _last_words(lanes: int) -> struct.Struct:
    return struct.Struct(">" + f"{_LANE_BYTES - 4}xI" * lanes)


def _round_up(size_bytes: int) -> int:
    """Few distinct sizes, so that few sets of masks are kept."""
    return 1 << max(size_bytes - 1, _LANE_BYTES - 1).bit_length()


@lru_cache(maxsize=24)
def _steps(size_bytes: int) -> tuple[tuple[int, int, int], ...]:
    """For each doubling of the digit: how far to shift, which bits to keep, what to multiply by."""
    steps = []
    digit_bytes = 1
    while digit_bytes < _LANE_BYTES:
        # No digit of up to 4 bytes can outgrow its double; of longer ones the low 32 bits are all that
        # counts.
        kept = (1 << 8 * min(digit_bytes, 4)) - 1
        lane = kept.to_bytes(2 * digit_bytes, "big")
        mask = int.from_bytes(lane * (size_bytes // (2 * digit_bytes)), "big")
        steps.append((8 * digit_bytes, mask, pow(31, digit_bytes, 1 << 32)))
        digit_bytes *= 2
    return tuple(steps)
