"""The bytes of answers: what stands around the fields of a JSON or a binary header."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t

from pyromq_native.big_endian cimport put_int32
from pyromq_native.growing cimport Growing, put, put_bytes, put_number, put_uint32
from pyromq_native.protocol.declared cimport PREFIX_BYTES
from pyromq_native.protocol.headers cimport Header

cdef int LANGUAGE, VERSION


cdef inline void put_prefix(Growing out, Py_ssize_t start, bint is_binary, Py_ssize_t body_bytes) noexcept:
    """Fill in the eight bytes before a header that was written behind room for them."""
    cdef Py_ssize_t header_bytes = out.size - start - PREFIX_BYTES
    put_int32(out.data + start, <uint32_t>(4 + header_bytes + body_bytes))
    put_int32(out.data + start + 4, <uint32_t>header_bytes | <uint32_t>is_binary << 24)


cdef inline void put_json_number(Growing out, const char *before, Py_ssize_t length, int64_t number) noexcept:
    put(out, before, length)
    put_number(out, number)


cdef inline void put_binary_number(Growing out, const char *name, Py_ssize_t length, int64_t number) noexcept:
    """A field; `name` begins with its own length."""
    cdef Py_ssize_t at
    put(out, name, length)
    out.size += 4
    at = out.size
    put_number(out, number)
    put_int32(out.data + at - 4, <uint32_t>(out.size - at))


cdef inline Py_ssize_t begin_binary(Growing out, Header *header, bytes remark) except -1:
    """Write everything before the extension fields of a binary answer; returns where those begin."""
    put(out, b"\x00\x00", 2)
    out.data[out.size] = <uint8_t>LANGUAGE
    out.data[out.size + 1] = <uint8_t>(VERSION >> 8)
    out.data[out.size + 2] = <uint8_t>VERSION
    out.size += 3
    put_uint32(out, <uint32_t>header.opaque)
    put_uint32(out, 1)
    put_uint32(out, <uint32_t>PyBytes_GET_SIZE(remark))
    put_bytes(out, remark)
    out.size += 4
    return out.size
