"""Numbers as texts: decimal digits, as headers and properties have them."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    MAX_NUMBER_CHARS = 20


cdef inline uint8_t *put_number(uint8_t *at, int64_t number) noexcept nogil:
    """Write a number, for which there must be room; returns where it ends."""
    cdef uint8_t digits[MAX_NUMBER_CHARS]
    cdef int first = MAX_NUMBER_CHARS
    cdef uint64_t rest = <uint64_t>number
    if number < 0:
        rest = 0 - rest
    while True:
        first -= 1
        digits[first] = <uint8_t>(0x30 + rest % 10)
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        first -= 1
        digits[first] = 0x2D
    memcpy(at, digits + first, <size_t>(MAX_NUMBER_CHARS - first))
    return at + (MAX_NUMBER_CHARS - first)
