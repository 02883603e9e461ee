"""A header, as spans of the bytes it was read from."""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    MAX_FIELDS = 40


cdef struct Span:
    const uint8_t *at
    Py_ssize_t length
    bint has_escapes


cdef struct Header:
    bint is_binary
    bint has_remark
    int32_t code
    int32_t flag
    int32_t opaque
    int32_t version
    int field_count
    Span names[MAX_FIELDS]
    Span values[MAX_FIELDS]


cdef bint scan_header(
    const uint8_t *data, Py_ssize_t length, bint is_binary, Header *header
) noexcept nogil
cdef Py_ssize_t next_answer(
    const uint8_t *data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t max_frame_bytes, Header *header
) noexcept nogil
cdef Py_ssize_t next_answer_with_body(
    const uint8_t *data,
    Py_ssize_t position,
    Py_ssize_t end,
    Py_ssize_t max_frame_bytes,
    Header *header,
    Py_ssize_t *body_at,
) noexcept nogil
cdef bint read_int32(Span span, int32_t *number) noexcept nogil
cdef bint read_int64(Span span, int64_t *number) noexcept nogil
cdef bint read_bool(Span span, bint *truth) noexcept nogil
cdef bint is_called(Span span, const char *name, Py_ssize_t length) noexcept nogil
cdef Py_ssize_t unescape(Span span, uint8_t *target) noexcept nogil
