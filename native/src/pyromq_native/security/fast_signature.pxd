from libc.stdint cimport int64_t, uint8_t

from pyromq_native.protocol.headers cimport Header, Span


cdef class SignatureCheck:
    cdef object _inner, _outer, _full_inner, _full_outer, _session
    cdef bytes _name
    cdef bint _requires_full
    cdef int64_t _number, _seen, _latest_ms, _seen_ms, _oldest_ms, _newest_ms
    cdef readonly int64_t oldest_send_ms, newest_send_ms

    cdef bint accepts(self, Header *header, const uint8_t *body, Py_ssize_t body_bytes) except -1
    cdef bint _accepts_full(
        self, Header *header, Span field, const uint8_t *body, Py_ssize_t body_bytes
    ) except -1
    cdef void took(self) noexcept
    cdef save(self)
