# cython: boundscheck=False, wraparound=False
"""Plain acknowledgements of gRPC clients; see `calls`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from pyromq_native.proxy.calls cimport (
    GRPC_PREFIX_BYTES,
    OK_BYTES,
    Plain,
    framed,
    put_ok,
    put_piece,
    read_name,
    unframe,
    whole_answer,
)
from pyromq_native.growing cimport Growing, put, put_byte, put_number, reserve
from pyromq_native.protocol.headers cimport Header
from pyromq_native.proxy.protobuf cimport BYTES, Field, next_field, put_tag, put_text, put_varint, varint_size
from pyromq_native.slices cimport Slice, as_str, is_plain, is_text, slice_of

cdef enum:
    MAX_DIGITS = 18
    MAX_QUEUE_DIGITS = 9

cdef Growing _request = Growing()
cdef Growing _answer = Growing()


cdef class PlainAck(Plain):
    """The acknowledgement of one message."""

    cdef readonly object topic, group, handle, broker_name
    cdef readonly int64_t expires_ms
    cdef Slice _id, _handle, _receipt
    cdef int64_t _queue_id, _offset

    def frame(self, tuple pieces not None, int32_t opaque, Py_ssize_t max_frame_bytes):
        """The request; None if the general path must make it.

        `pieces` are the bytes of a `RequestForm` around queue id, receipt, offset and opaque.
        """
        cdef Growing out = _request
        out.size = 0
        put_piece(out, pieces, 0)
        put_number(out, self._queue_id)
        put_piece(out, pieces, 1)
        reserve(out, self._receipt.size + 2)
        put_byte(out, 0x22)
        put(out, self._receipt.at, self._receipt.size)
        put_byte(out, 0x22)
        put_piece(out, pieces, 2)
        put_number(out, self._offset)
        put_piece(out, pieces, 3)
        put_number(out, opaque)
        put_piece(out, pieces, 4)
        return framed(out, slice_of(b"", 0), max_frame_bytes)

    cdef bytes answer(self, Header *header):
        cdef Growing out = _answer
        cdef Py_ssize_t size = 2 + OK_BYTES + varint_size(self._handle.size) + self._handle.size
        if header.field_count:
            return None  # the declared answer has no fields
        if self._id.size:
            size += 1 + varint_size(self._id.size) + self._id.size
        out.size = GRPC_PREFIX_BYTES
        reserve(out, 64 + size)
        put_ok(out, 1)
        put_tag(out, 2, BYTES)
        put_varint(out, <uint64_t>size)
        if self._id.size:
            put_text(out, 1, self._id)
        put_text(out, 2, self._handle)
        put_ok(out, 3)
        return whole_answer(out)


def read_ack(bytes data not None):
    """A PlainAck; None if the general path must read it."""
    cdef Slice rest, group, topic, entry, words, broker
    cdef Field field
    cdef int seen = 0
    cdef bint has_letter, is_ascii
    cdef int64_t number, popped_ms, invisible_ms
    cdef const void *space
    cdef PlainAck ack
    if not unframe(data, &rest):
        return None
    while rest.size:
        if not next_field(&rest, &field) or field.kind != BYTES or field.number > 3 or seen & 1 << field.number:
            return None
        seen |= 1 << field.number
        if field.number == 1:
            if not read_name(field.text, &group):
                return None
        elif field.number == 2:
            if not read_name(field.text, &topic):
                return None
        else:
            entry = field.text
    if seen != 14 or not is_text(topic, True) or not is_text(group, True):
        return None
    ack = PlainAck.__new__(PlainAck)
    ack.data = data
    seen = 0
    while entry.size:
        if not next_field(&entry, &field) or field.kind != BYTES or field.number > 2 or seen & 1 << field.number:
            return None
        seen |= 1 << field.number
        if not is_plain(field.text, &has_letter, &is_ascii) or not is_ascii:
            return None
        if field.number == 1:
            ack._id = field.text
        else:
            ack._handle = field.text
    words = ack._handle
    if not read_word(&words, MAX_DIGITS, &number):
        return None
    if not read_word(&words, MAX_DIGITS, &popped_ms) or not read_word(&words, MAX_DIGITS, &invisible_ms):
        return None
    # A message that was retried is in another topic.
    if not read_word(&words, MAX_DIGITS, &number) or not read_word(&words, 1, &number) or number != 0:
        return None
    space = memchr(words.at, 0x20, <size_t>words.size)
    if space == NULL or space == words.at:
        return None
    broker.at = words.at
    broker.size = <const uint8_t *>space - words.at
    if memchr(broker.at, 0x22, <size_t>broker.size) != NULL or memchr(broker.at, 0x5C, <size_t>broker.size) != NULL:
        return None
    words.at += broker.size + 1
    words.size -= broker.size + 1
    if not read_word(&words, MAX_QUEUE_DIGITS, &ack._queue_id) or not read_word(&words, MAX_DIGITS, &ack._offset):
        return None
    if not words.size:
        return None
    ack._receipt.at = ack._handle.at
    ack._receipt.size = words.at - 1 - ack._handle.at
    if not read_word(&words, MAX_DIGITS, &number) or words.size or ack._handle.at[ack._handle.size - 1] == 0x20:
        return None
    ack.expires_ms = popped_ms + invisible_ms
    ack.topic, ack.group = as_str(topic), as_str(group)
    ack.handle, ack.broker_name = as_str(ack._handle), as_str(broker)
    return ack


cdef bint read_word(Slice *rest, int max_digits, int64_t *number) noexcept nogil:
    """A number in front of a space, or of the end; False unless it is written the usual way."""
    cdef Py_ssize_t digits = 0
    number[0] = 0
    while digits < rest.size and digits < max_digits and 0x30 <= rest.at[digits] <= 0x39:
        number[0] = number[0] * 10 + (rest.at[digits] - 0x30)
        digits += 1
    if not digits or (digits > 1 and rest.at[0] == 0x30):
        return False
    if digits < rest.size:
        if rest.at[digits] != 0x20:
            return False
        digits += 1
    rest.at += digits
    rest.size -= digits
    return True
