# cython: boundscheck=False, wraparound=False
"""Answers to sends, written from pieces; see `pyromq.broker.flow.send_answers`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pyromq.broker.flow.send_answers import binary_pieces, json_pieces

from pyromq_native.protocol.answers cimport begin_binary, put_binary_number, put_json_number, put_prefix
from pyromq_native.big_endian cimport put_int32
from pyromq_native.growing cimport Growing, put, put_bytes, put_uint32, reserve
from pyromq_native.protocol.declared cimport PREFIX_BYTES
from pyromq_native.protocol.headers cimport Header, Span

cdef enum:
    HEX_DIGITS = 16

cdef const char *HEX = b"0123456789ABCDEF"


cdef class Pieces:
    """See `pyromq.broker.flow.send_answers.SendAnswerPieces`."""

    def __init__(self, *pieces):
        (
            self.message_ids,
            self.queue_id,
            self.queue_offset,
            self.fixed,
            self.unique_key,
            self.recall_handle,
            self.text_end,
            self.opaque,
            self.end,
        ) = pieces


cdef class SendAnswers:
    """Those of one broker."""

    def __init__(self, bytes store_host not None):
        self._id_prefix = store_host.hex().upper().encode()

    cdef int use_fields(self, fields) except -1:
        """The fields that are the same in all answers from now on."""
        if fields is not self._known_fields:
            self._known_fields = fields
            self._json = Pieces(*json_pieces(fields))
            self._binary = Pieces(*binary_pieces(fields))
        return 0

    cdef int put_sent(
        self,
        Growing out,
        Header *header,
        int32_t queue_id,
        int64_t log_offset,
        tuple offsets,
        int64_t queue_offset,
        Span *unique_key,
        bytes recall_handle,
    ) except -1:
        """Write the answer to a send; `offsets` are those of a batch."""
        cdef Pieces pieces = self._binary if header.is_binary else self._json
        cdef Py_ssize_t start = out.size
        cdef Py_ssize_t fields_at, ids_at
        cdef Py_ssize_t ids = len(offsets) or 1
        reserve(out, 
            512
            + ids * (PyBytes_GET_SIZE(self._id_prefix) + HEX_DIGITS + 1)
            + PyBytes_GET_SIZE(self._json.fixed)
            + PyBytes_GET_SIZE(self._binary.fixed)
            + unique_key.length
            + (0 if recall_handle is None else PyBytes_GET_SIZE(recall_handle))
        )
        out.size += PREFIX_BYTES
        if header.is_binary:
            fields_at = begin_binary(out, header, b"")
            put_bytes(out, pieces.message_ids)
            out.size += 4
            ids_at = out.size
            self._put_ids(out, log_offset, offsets)
            put_int32(out.data + ids_at - 4, <uint32_t>(out.size - ids_at))
            put_binary_number(
                out, PyBytes_AS_STRING(pieces.queue_id), PyBytes_GET_SIZE(pieces.queue_id), queue_id
            )
            put_binary_number(
                out, PyBytes_AS_STRING(pieces.queue_offset), PyBytes_GET_SIZE(pieces.queue_offset), queue_offset
            )
            put_bytes(out, pieces.fixed)
            if unique_key.length:
                put_bytes(out, pieces.unique_key)
                put_uint32(out, <uint32_t>unique_key.length)
                put(out, unique_key.at, unique_key.length)
            if recall_handle is not None:
                put_bytes(out, pieces.recall_handle)
                put_uint32(out, <uint32_t>PyBytes_GET_SIZE(recall_handle))
                put_bytes(out, recall_handle)
            put_int32(out.data + fields_at - 4, <uint32_t>(out.size - fields_at))
        else:
            put_bytes(out, pieces.message_ids)
            self._put_ids(out, log_offset, offsets)
            put_json_number(
                out, PyBytes_AS_STRING(pieces.queue_id), PyBytes_GET_SIZE(pieces.queue_id), queue_id
            )
            put_json_number(
                out, PyBytes_AS_STRING(pieces.queue_offset), PyBytes_GET_SIZE(pieces.queue_offset), queue_offset
            )
            put_bytes(out, pieces.fixed)
            if unique_key.length:
                put_bytes(out, pieces.unique_key)
                put(out, unique_key.at, unique_key.length)
                put_bytes(out, pieces.text_end)
            if recall_handle is not None:
                put_bytes(out, pieces.recall_handle)
                put_bytes(out, recall_handle)
                put_bytes(out, pieces.text_end)
            put_json_number(
                out, PyBytes_AS_STRING(pieces.opaque), PyBytes_GET_SIZE(pieces.opaque), header.opaque
            )
            put_bytes(out, pieces.end)
        put_prefix(out, start, header.is_binary, 0)
        return 0

    cdef int _put_ids(self, Growing out, int64_t log_offset, tuple offsets) except -1:
        cdef Py_ssize_t index
        if not offsets:
            put_bytes(out, self._id_prefix)
            put_hex(out, <uint64_t>log_offset)
        for index in range(len(offsets)):
            if index:
                put(out, b",", 1)
            log_offset = offsets[index]
            put_bytes(out, self._id_prefix)
            put_hex(out, <uint64_t>log_offset)
        return 0


cdef inline void put_hex(Growing out, uint64_t number) noexcept:
    """Sixteen hexadecimal digits."""
    cdef int at
    for at in range(HEX_DIGITS):
        out.data[out.size + HEX_DIGITS - 1 - at] = <uint8_t>HEX[number & 15]
        number >>= 4
    out.size += HEX_DIGITS
