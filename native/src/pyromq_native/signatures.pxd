from libc.stdint cimport uint8_t

from pyromq_native.headers cimport Header

cdef bint is_signed(
    Header *header, const uint8_t *body, Py_ssize_t body_bytes, inner, outer
) except -1
