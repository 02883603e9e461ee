"""A buffer that grows, and is used again and again."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, strlen

from pyromq_native.big_endian cimport put_int32
from pyromq_native.digits cimport put_number as put_digits


cdef class Growing:
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t room


cdef inline int reserve(Growing out, Py_ssize_t more) except -1:
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


cdef inline void put(Growing out, const void *source, Py_ssize_t size) noexcept:
    if size:  # memcpy takes no null pointer, not even for nothing
        memcpy(out.data + out.size, source, <size_t>size)
        out.size += size


cdef inline void put_bytes(Growing out, bytes source) noexcept:
    put(out, PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source))


cdef inline void put_constant(Growing out, const char *constant) noexcept:
    put(out, constant, <Py_ssize_t>strlen(constant))


cdef inline void put_byte(Growing out, int byte) noexcept:
    out.data[out.size] = <uint8_t>byte
    out.size += 1


cdef inline void put_uint32(Growing out, uint32_t value) noexcept:
    put_int32(out.data + out.size, value)
    out.size += 4


cdef inline void put_number(Growing out, int64_t number) noexcept:
    """In decimal digits."""
    out.size = put_digits(out.data + out.size, number) - out.data


cdef inline bytes take_bytes(Growing out):
    """Everything written so far; the buffer is empty afterwards."""
    cdef bytes taken = PyBytes_FromStringAndSize(<char *>out.data, out.size)
    out.size = 0
    return taken
