# cython: boundscheck=False, wraparound=False
"""Ends of transactions on the broker's fast path."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from pyromq.protocol import names

from pyromq_native.protocol.declared cimport (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_COMMIT,
    FLAG_TRANSACTION_MASK,
    FLAG_TRANSACTION_ROLLBACK,
    MIN_RECORD_BYTES,
)
from pyromq_native.store.fast_appending cimport Appended, Appender, LogEnd, QueueEnd
from pyromq_native.big_endian cimport get_int32, get_int64
from pyromq_native.protocol.checksums cimport crc32_of
from pyromq_native.broker.counting cimport Touched
from pyromq_native.broker.known_queues cimport KnownQueues, WritableQueue
from pyromq_native.protocol.records cimport Outline, Record, outline_record
from pyromq_native.protocol.requests cimport End, HalfTraits, read_half_traits
from pyromq_native.slices cimport start_of
from pyromq_native.protocol.spans cimport text_of



cdef class FastEnds:
    """Ends of transactions whose half messages are in the last file of the log."""

    def __init__(self, store, bytes store_host not None, transactions, KnownQueues queues, Touched touched):
        self._appender = store.appender
        self._store_host = store_host
        self._half_topic = names.HALF_TOPIC.encode()
        self._transactions = transactions
        self._queues = queues
        self._touched = touched

    cdef bint take(self, End *end, set granted) except -1:
        """`granted`: topics that the client may send to, None for all. False if the general path must do that."""
        cdef LogEnd log
        cdef Py_buffer view
        if self._appender is None or end.state != FLAG_TRANSACTION_COMMIT and end.state != FLAG_TRANSACTION_ROLLBACK:
            return False
        log = self._appender._log
        if end.log_offset < log.buffer_start or end.log_offset > log.end_offset - MIN_RECORD_BYTES:
            return False
        if not self._transactions.is_open(end.queue_offset):
            return False
        PyObject_GetBuffer(log.buffer, &view, PyBUF_SIMPLE)
        try:
            if log.end_offset - log.buffer_start > view.len:
                return False
            ended = self._end_half(
                end,
                granted,
                <const uint8_t *>view.buf + (end.log_offset - log.buffer_start),
                log.end_offset - end.log_offset,
            )
        finally:
            PyBuffer_Release(&view)
        if ended is None:
            return False
        self._transactions.ended(*ended)
        return True

    cdef tuple _end_half(self, End *end, set granted, const uint8_t *at, int64_t room):
        """Store the committed message, if any; returns what `ended` is to know, None if it was declined."""
        cdef Outline outline
        cdef HalfTraits half
        cdef Record record
        cdef Appended appended
        cdef WritableQueue queue
        cdef QueueEnd queue_end
        cdef int64_t needed_end = 0
        cdef Py_ssize_t body_at
        if (
            not outline_record(at, room, &outline)
            or outline.log_offset != end.log_offset
            or outline.queue_offset != end.queue_offset
            or outline.sys_flag & FLAG_TRANSACTION_MASK
            or outline.topic_bytes != PyBytes_GET_SIZE(self._half_topic)
            or memcmp(at + outline.topic_start, start_of(self._half_topic), <size_t>outline.topic_bytes)
            or not read_half_traits(at + outline.properties_start, outline.properties_bytes, &half)
            or half.group.length != end.group.length
            or memcmp(half.group.at, end.group.at, <size_t>half.group.length)
        ):
            return None
        record.born_host_bytes = 20 if outline.sys_flag & FLAG_BORN_HOST_V6 else 8
        body_at = 48 + record.born_host_bytes + 8 + (20 if outline.sys_flag & FLAG_STORE_HOST_V6 else 8) + 16
        record.body = at + body_at
        record.body_bytes = get_int32(at + body_at - 4)
        if record.body_bytes and <int32_t>(crc32_of(record.body, record.body_bytes) & 0x7FFFFFFF) != get_int32(at + 8):
            return None
        if granted is not None and text_of(half.topic) not in granted:
            return None
        queue = self._queues.find(&half.topic, half.queue_id)
        if queue is None:
            return None
        record.born_timestamp = get_int64(at + 40)
        if end.state == FLAG_TRANSACTION_COMMIT:
            queue_end = self._appender.find_queue(queue.topic, queue.queue_id)
            if queue_end is None:
                return None
            record.properties = at + outline.properties_start
            record.properties_bytes = outline.properties_bytes
            record.more_properties = NULL
            record.more_properties_bytes = 0
            record.born_host = at + 48
            record.store_host = start_of(self._store_host)
            record.store_host_bytes = PyBytes_GET_SIZE(self._store_host)
            record.flag = get_int32(at + 16)
            record.sys_flag = outline.sys_flag | FLAG_TRANSACTION_COMMIT
            record.reconsume_times = get_int32(at + body_at - 16)
            record.prepared_transaction_offset = end.log_offset
            if not self._appender.append_record(queue_end, &record, &appended):
                return None
            self._touched.count(queue, 1, appended.size_bytes)
            needed_end = appended.log_offset + appended.size_bytes
        unique_key = half.unique_key.at[: half.unique_key.length].decode()
        return end.queue_offset, unique_key, record.born_timestamp, queue.topic, needed_end
