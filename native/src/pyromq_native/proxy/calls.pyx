# cython: boundscheck=False, wraparound=False
"""The compiled half of `pyromq.proxy.quick_calls`: plain calls of gRPC clients become requests of brokers, and
back, without an object for each protobuf message.

Everything unusual is declined, and the general path takes it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyromq_native.big_endian cimport get_uint32, put_int32
from pyromq_native.digits cimport MAX_NUMBER_CHARS
from pyromq_native.growing cimport Growing, put, put_bytes, reserve, take_bytes
from pyromq_native.protocol.declared cimport MAX_HEADER_BYTES, PREFIX_BYTES
from pyromq_native.protocol.headers cimport Header, next_answer
from pyromq_native.proxy.protobuf cimport BYTES, Field, next_field, put_tag
from pyromq_native.slices cimport Slice, slice_of_bytes

# status { code: OK message: "OK" }, without its tag
cdef const char *OK = b"\x08\x08\xa0\x9c\x01\x12\x02OK"


cdef class Plain:
    """A plain call; `data` are its bytes."""

    cdef bytes answer(self, Header *header):
        """The client's answer, made from that of a broker; None if the general path must do it."""
        return None


cdef class QuickAnswers:
    """The fast path of a front's connections to brokers: answers to plain calls, each for its client."""

    cdef Py_ssize_t _max_frame_bytes

    def __init__(self, Py_ssize_t max_frame_bytes):
        self._max_frame_bytes = max_frame_bytes

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end
        cdef int frames = 0
        cdef Header header
        cdef dict waiting = connection.quick
        cdef bytes told
        while True:
            end = next_answer(start, position, available, self._max_frame_bytes, &header)
            if not end:
                break
            call = waiting.get(header.opaque)
            if call is None:
                break
            told = (<Plain?>call.plain).answer(&header)
            if told is None:
                break
            call.settle(told)
            frames += 1
            position = end
        return frames, position


cdef bint unframe(bytes data, Slice *message) noexcept:
    """The only message in the bytes of a call; False if it is compressed, or not the only one."""
    message[0] = slice_of_bytes(data)
    if message.size < GRPC_PREFIX_BYTES or message.at[0] != 0:
        return False
    if get_uint32(message.at + 1) != <uint64_t>(message.size - GRPC_PREFIX_BYTES):
        return False
    message.at += GRPC_PREFIX_BYTES
    message.size -= GRPC_PREFIX_BYTES
    return True


cdef bint read_name(Slice resource, Slice *name) noexcept nogil:
    """The name in a Resource."""
    cdef Field field
    name.size = 0
    while resource.size:
        if not next_field(&resource, &field) or field.kind != BYTES:
            return False
        if field.number == 2 and not name.size:
            name[0] = field.text
        elif field.number != 1 or field.text.size:
            return False
    return name.size > 0


cdef void put_ok(Growing out, int number) noexcept:
    put_tag(out, number, BYTES)
    put(out, OK, OK_BYTES)


cdef int put_piece(Growing out, tuple pieces, int index) except -1:
    cdef bytes piece = <bytes?>pieces[index]
    reserve(out, PyBytes_GET_SIZE(piece) + MAX_NUMBER_CHARS)
    put_bytes(out, piece)
    return 0


cdef bytes framed(Growing header, Slice body, Py_ssize_t max_frame_bytes):
    """A request of a broker; None if it is too large."""
    cdef Py_ssize_t length = 4 + header.size + body.size
    cdef bytes frame
    cdef uint8_t *at
    if header.size > MAX_HEADER_BYTES or length + 4 > max_frame_bytes:
        return None
    frame = PyBytes_FromStringAndSize(NULL, length + 4)
    at = <uint8_t *>PyBytes_AS_STRING(frame)
    put_int32(at, <uint32_t>length)
    put_int32(at + 4, <uint32_t>header.size)
    memcpy(at + PREFIX_BYTES, header.data, <size_t>header.size)
    memcpy(at + PREFIX_BYTES + header.size, body.at, <size_t>body.size)
    return frame


cdef bytes whole_answer(Growing out):
    out.data[0] = 0
    put_int32(out.data + 1, <uint32_t>(out.size - GRPC_PREFIX_BYTES))
    return take_bytes(out)
