"""A buffer that grows, and is used again and again."""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from pyromq_native.digits cimport put_number as put_digits


cdef struct Out:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef inline int reserve(Out *out, Py_ssize_t more) except -1:
    """Call it before the functions below."""
    cdef uint8_t *grown
    cdef Py_ssize_t wanted = out.size + more
    if wanted > out.room:
        wanted *= 2
        grown = <uint8_t *>PyMem_Realloc(out.data, <size_t>wanted)
        if grown is NULL:
            raise MemoryError()
        out.data = grown
        out.room = wanted
    return 0


cdef inline void put(Out *out, const void *source, Py_ssize_t size) noexcept nogil:
    memcpy(out.data + out.size, source, <size_t>size)
    out.size += size


cdef inline void put_byte(Out *out, int byte) noexcept nogil:
    out.data[out.size] = <uint8_t>byte
    out.size += 1


cdef inline void put_number(Out *out, int64_t number) noexcept nogil:
    """In decimal digits."""
    out.size = put_digits(out.data + out.size, number) - out.data
