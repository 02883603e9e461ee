"""Appending for the other compiled modules: a `Record` with pointers to its parts goes straight to the log."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from pyromq_native.protocol.records cimport Record


cdef class LogEnd:
    cdef public int64_t end_offset
    cdef public int64_t buffer_start
    cdef public int64_t room_end
    cdef public int64_t last_store_timestamp
    cdef public int64_t wall_from_ms
    cdef public int64_t wall_until_ms
    cdef public int64_t appended_messages
    cdef public object buffer


cdef class QueueEnd:
    cdef public int32_t queue_id
    cdef public bint is_schedule
    cdef public bint is_dirty
    cdef public int64_t fixed_bytes
    cdef public int64_t end_offset
    cdef public int64_t next_offset
    cdef public int64_t write_position
    cdef public int64_t write_limit
    cdef public object write_buffer
    cdef public bytes topic_bytes
    cdef public bytes index_prefix
    cdef int64_t touched_in_run


cdef struct Appended:
    int64_t log_offset
    int64_t size_bytes
    int64_t queue_offset
    int64_t store_timestamp


cdef class Appender:
    cdef dict _queues_by_topic
    cdef LogEnd _log
    cdef object _now_ms
    cdef object _result_type
    cdef object _ok
    cdef public bint is_refusing
    cdef public int64_t max_message_bytes

    cdef QueueEnd find_queue(self, object topic, object queue_id)
    cdef bint append_record(self, QueueEnd queue, Record *record, Appended *appended) except -1
    cdef int64_t _time(self) except? -1
    cdef object _append_entries(
        self, QueueEnd queue, Record *record, const uint8_t *batch, Py_ssize_t length, bytes store_host
    )
