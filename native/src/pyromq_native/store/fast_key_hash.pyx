# cython: boundscheck=False, wraparound=False
"""Java's string hash over bytes. Only ASCII: of anything else a character is more than one byte."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t, uint8_t


cdef bint add_to_hash(const uint8_t *text, Py_ssize_t length, uint32_t *value) noexcept nogil:
    """Continue hashing from `value`; False if the text is not ASCII."""
    cdef uint32_t total = value[0]
    cdef uint8_t seen = 0
    cdef const uint8_t *end = text + length
    # Four at a time: one multiplication waits for another only every fourth character.
    while end - text >= 4:
        seen |= text[0] | text[1] | text[2] | text[3]
        total = total * <uint32_t>923521 + (
            text[0] * <uint32_t>29791 + text[1] * <uint32_t>961 + text[2] * <uint32_t>31 + text[3]
        )
        text += 4
    while text < end:
        seen |= text[0]
        total = total * 31 + text[0]
        text += 1
    value[0] = total
    return not seen & 0x80


cdef int32_t index_hash(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """The hash of an index key, -1 for what is not ASCII."""
    cdef uint32_t value = 0
    return as_index_hash(value) if add_to_hash(text, length, &value) else -1


def index_key_hashes(keys):
    """The index hash of each key; None if one of them is not ASCII."""
    cdef list hashes = []
    cdef bytes key
    cdef int32_t value
    for key in keys:
        value = index_hash(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        if value < 0:
            return None
        hashes.append(value)
    return hashes
