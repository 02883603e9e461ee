"""Hashes of index keys, many at a time: Java's 31-polynomial on all keys at once inside one big number.

Keys are padded on the left with zero bytes, which leave the hash as it is, and laid side by side. Then
neighbouring digits of the long number are combined, `high * 31**n + low`: bytes into pairs, pairs into fours,
fours into eights, eights into sixteens, and those by one multiplication. A few operations do the work of a
loop over every character.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pyromq.compiled import twin
from pyromq.protocol.java_hash import java_string_hash

_native = twin("store.fast_key_hash")

_LANE_BYTES: Final = 16
_MAX_BYTES: Final = 256
_MASK: Final = 0xFFFFFFFF


def index_key_hash(key: str) -> int:
    """java: the absolute value of the string hash, and 0 where that does not exist."""
    value = abs(java_string_hash(key))
    return value if value <= 0x7FFFFFFF else 0


def index_key_hashes(keys: Sequence[bytes]) -> list[int]:
    """`index_key_hash` of each key, given in UTF-8."""
    if _native is not None:
        found: list[int] | None = _native.index_key_hashes(keys)
        if found is not None:
            return found
    longest = max(map(len, keys), default=0)
    if longest > _MAX_BYTES or not b"".join(keys).isascii():
        return [index_key_hash(key.decode("utf-8", "replace")) for key in keys]
    lanes = max(1, -(-longest // _LANE_BYTES))
    width = lanes * _LANE_BYTES
    digits = int.from_bytes(b"".join([key.rjust(width, b"\0") for key in keys]), "big")
    for shift, mask, factor in _steps(_round_up(len(keys) * width)):
        digits = (digits >> shift & mask) * factor + (digits & mask)
    multiplier, last_word = _joining(lanes)
    joined = (digits & _lane_mask(_round_up(len(keys) * width))) * multiplier
    raw = joined.to_bytes(len(keys) * width + width - _LANE_BYTES, "big")[width - _LANE_BYTES :]
    # java: Math.abs of the smallest number is negative and becomes 0
    return [
        each if each < 0x80000000 else (0x100000000 - each) & 0x7FFFFFFF
        for (each,) in last_word.iter_unpack(raw)
    ]


@lru_cache(maxsize=_MAX_BYTES // _LANE_BYTES)
def _joining(lanes: int) -> tuple[int, struct.Struct]:
    """The factor that makes the first digit of a key the sum of all, each times its power; its place."""
    multiplier = 0
    for lane in range(lanes):
        multiplier |= pow(31, _LANE_BYTES * (lanes - 1 - lane), 1 << 32) << 8 * _LANE_BYTES * lane
    return multiplier, struct.Struct(f">{_LANE_BYTES - 4}xI{_LANE_BYTES * (lanes - 1)}x")


@lru_cache(maxsize=24)
def _lane_mask(size_bytes: int) -> int:
    lane = _MASK.to_bytes(_LANE_BYTES, "big")
    return int.from_bytes(lane * (size_bytes // _LANE_BYTES), "big")


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
