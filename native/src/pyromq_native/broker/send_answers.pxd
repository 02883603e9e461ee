"""Answers to sends, written from pieces."""

from libc.stdint cimport int32_t, int64_t

from pyromq_native.growing cimport Growing
from pyromq_native.protocol.headers cimport Header, Span


cdef class Pieces:
    cdef bytes message_ids, queue_id, queue_offset, fixed, unique_key, recall_handle, text_end, opaque, end


cdef class SendAnswers:
    cdef bytes _id_prefix
    cdef object _known_fields
    cdef Pieces _json, _binary

    cdef int use_fields(self, fields) except -1
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
    ) except -1
    cdef int _put_ids(self, Growing out, int64_t log_offset, tuple offsets) except -1
