from libc.stdint cimport int32_t, uint8_t

cdef int32_t index_hash(const uint8_t *text, Py_ssize_t length) noexcept nogil
