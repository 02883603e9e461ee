"""The common part of the compiled calls of the gRPC front."""

from pyromq_native.growing cimport Growing
from pyromq_native.protocol.headers cimport Header
from pyromq_native.slices cimport Slice

cdef enum:
    GRPC_PREFIX_BYTES = 5
    OK_BYTES = 9


cdef class Plain:
    cdef readonly bytes data

    cdef bytes answer(self, Header *header)


cdef bint unframe(bytes data, Slice *message) noexcept
cdef bint read_name(Slice resource, Slice *name) noexcept nogil
cdef void put_ok(Growing out, int number) noexcept
cdef int put_piece(Growing out, tuple pieces, int index) except -1
cdef bytes framed(Growing header, Slice body, Py_ssize_t max_frame_bytes)
cdef bytes whole_answer(Growing out)
