# cython: boundscheck=False, wraparound=False
"""Java's string hash over bytes. Only ASCII: of anything else a character is more than one byte."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint32_t, uint8_t


cdef int32_t index_hash(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    """The absolute value of the hash, 0 where that does not exist, -1 for what is not ASCII."""
    cdef uint32_t value = 0
    cdef uint8_t seen = 0
    cdef Py_ssize_t at
    for at in range(length):
        seen |= text[at]
        value = value * 31 + text[at]
    if seen & 0x80:
        return -1
    if <int32_t>value < 0:
        value = (0 - value) & <uint32_t>0x7FFFFFFF
    return <int32_t>value


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
