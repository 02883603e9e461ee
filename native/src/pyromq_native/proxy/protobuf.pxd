"""Fields of protobuf messages, read and written in place."""

from libc.stdint cimport uint64_t

from pyromq_native.growing cimport Growing, put, put_byte
from pyromq_native.slices cimport Slice

cdef enum:
    VARINT = 0
    BYTES = 2


cdef struct Field:
    int number
    int kind
    uint64_t value
    Slice text


cdef inline bint read_varint(Slice *rest, uint64_t *value) noexcept nogil:
    cdef int shift = 0
    value[0] = 0
    while rest.size and shift < 63:
        value[0] |= <uint64_t>(rest.at[0] & 0x7F) << shift
        shift += 7
        rest.at += 1
        rest.size -= 1
        if rest.at[-1] < 0x80:
            return True
    return False


cdef inline bint next_field(Slice *rest, Field *field) noexcept nogil:
    """Take the first field off a message; False if it is not of a plain kind, or not whole."""
    cdef uint64_t value
    if not read_varint(rest, &value) or value >> 3 == 0 or value >> 3 > 1000:
        return False
    field.number = <int>(value >> 3)
    field.kind = <int>(value & 7)
    if field.kind == VARINT:
        return read_varint(rest, &field.value)
    if field.kind != BYTES or not read_varint(rest, &value) or value > <uint64_t>rest.size:
        return False
    field.text.at = rest.at
    field.text.size = <Py_ssize_t>value
    rest.at += field.text.size
    rest.size -= field.text.size
    return True


cdef inline void put_varint(Growing out, uint64_t value) noexcept:
    while value >= 0x80:
        put_byte(out, <int>(value & 0x7F | 0x80))
        value >>= 7
    put_byte(out, <int>value)


cdef inline Py_ssize_t varint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline void put_tag(Growing out, int number, int kind) noexcept:
    put_varint(out, <uint64_t>(number << 3 | kind))


cdef inline void put_text(Growing out, int number, Slice text) noexcept:
    put_tag(out, number, BYTES)
    put_varint(out, <uint64_t>text.size)
    put(out, text.at, text.size)
