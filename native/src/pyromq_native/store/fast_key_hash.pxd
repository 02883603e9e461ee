from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef bint add_to_hash(const uint8_t *text, Py_ssize_t length, uint32_t *value) noexcept nogil
cdef int32_t index_hash(const uint8_t *text, Py_ssize_t length) noexcept nogil


cdef inline int32_t as_index_hash(uint32_t value) noexcept nogil:
    """java: the absolute value of a string hash, 0 where that does not exist."""
    return <int32_t>value if <int32_t>value >= 0 else <int32_t>((0 - value) & <uint32_t>0x7FFFFFFF)
