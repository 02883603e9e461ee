"""Spans of headers compared with our texts."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, strlen

from pyromq_native.protocol.headers cimport Span


cdef inline bint is_ascii(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint8_t seen = 0
    cdef Py_ssize_t index
    for index in range(length):
        seen |= at[index]
    return seen < 0x80


cdef inline bint is_same(Span span, bytes text) noexcept:
    return span.length == PyBytes_GET_SIZE(text) and memcmp(span.at, PyBytes_AS_STRING(text), <size_t>span.length) == 0


cdef inline bint is_field(Span name, const char *field) noexcept nogil:
    """Whether this is the name of a field; the compiler knows the length of a constant."""
    return name.length == <Py_ssize_t>strlen(field) and memcmp(name.at, field, strlen(field)) == 0


cdef inline bint is_named(Span span, bytes name) noexcept:
    return name is not None and not span.has_escapes and is_same(span, name)


cdef inline bytes text_of(Span span):
    """As granted; a text that is written in another way than usual is never granted."""
    return b"" if span.has_escapes else span.at[: span.length]
