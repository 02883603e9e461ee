# cython: boundscheck=False, wraparound=False
"""Twin of the usual case of `MessageStore.append` and `append_encoded_batch`.

The usual case: the queue exists, the store takes messages, the current file has room and every part of the
message has a type and a size a record can hold. Anything else is declined before anything has changed, and
the interpreted twin does it, refusals included.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from pyromq_native.big_endian cimport get_int16, get_int32, get_int64
from pyromq_native.protocol.checksums cimport crc32_of
from pyromq_native.protocol.declared cimport (
    ENTRY_HEAD_BYTES,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_MASK,
    MAX_V1_TOPIC_BYTES,
)
from pyromq_native.protocol.records cimport (
    Outline,
    Record,
    is_whole,
    is_writable,
    outline_record,
    record_size,
    write_record,
)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    enum: CLOCK_REALTIME
    int clock_gettime(int clock, timespec *time)

cdef Py_ssize_t MIN_BATCH_ENTRY_BYTES = 22
cdef Py_ssize_t MAX_BATCH_ENTRIES = 16384
cdef int32_t TRANSACTION_PREPARED = 0x4


cdef class LogEnd:
    """Where the log is written next; `buffer` is the file, and records may go up to `room_end` there."""


cdef class QueueEnd:
    """Where a queue is written next, and what the records of this queue have in common."""


cdef inline const uint8_t *bytes_of(bytes value) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(value)


cdef inline bint is_int32(object number, int32_t *value) noexcept:
    cdef int64_t whole = 0
    if not is_whole(number, INT32_MIN, INT32_MAX, &whole):
        return False
    value[0] = <int32_t>whole
    return True


cdef inline bint ends_in_zero(const Record *record) noexcept nogil:
    """Such a record looks torn to recovery: the interpreted twin makes it end visibly."""
    if record.more_properties_bytes:
        return record.more_properties[record.more_properties_bytes - 1] == 0
    return record.properties_bytes > 0 and record.properties[record.properties_bytes - 1] == 0


cdef class Appender:
    def __init__(self, dict queues_by_topic not None, LogEnd log not None, now_ms, result_type, ok):
        """`now_ms` is the log's time where the system's clock is not; results are made of `result_type`."""
        self._queues_by_topic = queues_by_topic
        self._log = log
        self._now_ms = now_ms
        self._result_type = result_type
        self._ok = ok
        self.is_refusing = True
        self.max_message_bytes = 0

    cdef int64_t _time(self) except? -1:
        cdef timespec now
        cdef int64_t wall_ms
        clock_gettime(CLOCK_REALTIME, &now)
        wall_ms = <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000
        if self._log.wall_from_ms <= wall_ms < self._log.wall_until_ms:
            return wall_ms
        return self._now_ms()

    cdef QueueEnd find_queue(self, object topic, object queue_id):
        """The queue, if it exists."""
        cdef object found = self._queues_by_topic.get(topic)
        return None if found is None else (<dict>found).get(queue_id)

    cdef bint append_record(self, QueueEnd queue, Record *record, Appended *appended) except -1:
        """Append one message and say where it is; False if it was declined.

        The caller sets body, properties, flags, hosts, born timestamp, reconsume times and prepared offset;
        the rest is set here.
        """
        cdef LogEnd log = self._log
        cdef Py_buffer view
        cdef Py_ssize_t size
        cdef int64_t offset = log.end_offset
        cdef int64_t now_ms
        cdef bint has_place = not record.sys_flag & TRANSACTION_PREPARED
        record.topic = bytes_of(queue.topic_bytes)
        record.topic_bytes = PyBytes_GET_SIZE(queue.topic_bytes)
        record.is_version_2 = record.topic_bytes > MAX_V1_TOPIC_BYTES
        if (
            self.is_refusing
            or record.body_bytes > self.max_message_bytes
            or not is_writable(record)
            or ends_in_zero(record)
        ):
            return False
        size = record_size(record)
        if offset + size > log.room_end:
            return False
        now_ms = self._time()
        if now_ms < log.last_store_timestamp:
            now_ms = log.last_store_timestamp
        # java: prepared and rolled-back records have no place in the queue
        record.queue_offset = queue.next_offset if has_place else 0
        record.queue_id = queue.queue_id
        record.log_offset = offset
        record.store_timestamp = now_ms
        PyObject_GetBuffer(log.buffer, &view, PyBUF_WRITABLE)
        if offset < log.buffer_start or offset - log.buffer_start + size > view.len:
            PyBuffer_Release(&view)
            return False
        write_record(<uint8_t *>view.buf + (offset - log.buffer_start), record, size)
        PyBuffer_Release(&view)
        log.end_offset = offset + size
        log.last_store_timestamp = now_ms
        log.appended_messages += 1
        if has_place:
            queue.next_offset += 1
        appended.log_offset = offset
        appended.size_bytes = size
        appended.queue_offset = record.queue_offset
        appended.store_timestamp = now_ms
        return True

    def append(
        self,
        topic,
        queue_id,
        body,
        properties,
        born_timestamp,
        born_host,
        store_host,
        flag,
        sys_flag,
        reconsume_times,
        prepared_offset,
    ):
        """The answer of `MessageStore.append`; None if it was declined."""
        cdef Record record
        cdef Appended appended
        cdef QueueEnd queue
        if self.is_refusing or not (
            type(body) is bytes
            and type(properties) is bytes
            and type(born_host) is bytes
            and type(store_host) is bytes
            and is_int32(flag, &record.flag)
            and is_int32(sys_flag, &record.sys_flag)
            and is_int32(reconsume_times, &record.reconsume_times)
            and is_whole(born_timestamp, INT64_MIN, INT64_MAX, &record.born_timestamp)
            and is_whole(prepared_offset, INT64_MIN, INT64_MAX, &record.prepared_transaction_offset)
        ):
            return None
        queue = self.find_queue(topic, queue_id)
        if queue is None:
            return None
        record.body, record.body_bytes = bytes_of(body), PyBytes_GET_SIZE(body)
        record.properties, record.properties_bytes = bytes_of(properties), PyBytes_GET_SIZE(properties)
        record.more_properties, record.more_properties_bytes = NULL, 0
        record.born_host, record.born_host_bytes = bytes_of(born_host), PyBytes_GET_SIZE(born_host)
        record.store_host, record.store_host_bytes = bytes_of(store_host), PyBytes_GET_SIZE(store_host)
        if not self.append_record(queue, &record, &appended):
            return None
        return self._result_type(
            self._ok,
            appended.log_offset,
            appended.size_bytes,
            appended.queue_offset,
            appended.store_timestamp,
            store_host,
        )

    def append_again(self, record, topic, queue_id, bytes more_properties not None, bytes store_host not None):
        """Append what a record of the log has once more, to another queue and with more properties; None if that
        was declined."""
        cdef Py_buffer view
        cdef Record again
        cdef Outline outline
        cdef Appended appended
        cdef Py_ssize_t body_at
        cdef const uint8_t *at
        cdef QueueEnd queue = self.find_queue(topic, queue_id)
        if queue is None:
            return None
        PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *>view.buf
            if not outline_record(at, view.len, &outline) or outline.sys_flag & TRANSACTION_PREPARED:
                return None
            again.born_host_bytes = 20 if outline.sys_flag & FLAG_BORN_HOST_V6 else 8
            body_at = 48 + again.born_host_bytes + 8 + (20 if outline.sys_flag & FLAG_STORE_HOST_V6 else 8) + 16
            again.body, again.body_bytes = at + body_at, get_int32(at + body_at - 4)
            if again.body_bytes and <int32_t>(crc32_of(again.body, again.body_bytes) & 0x7FFFFFFF) != get_int32(at + 8):
                return None
            again.properties, again.properties_bytes = at + outline.properties_start, outline.properties_bytes
            again.more_properties, again.more_properties_bytes = bytes_of(more_properties), PyBytes_GET_SIZE(more_properties)
            again.born_host = at + 48
            again.store_host, again.store_host_bytes = bytes_of(store_host), PyBytes_GET_SIZE(store_host)
            again.flag = get_int32(at + 16)
            again.sys_flag = outline.sys_flag
            again.reconsume_times = get_int32(at + body_at - 16)
            again.born_timestamp = get_int64(at + 40)
            again.prepared_transaction_offset = 0
            if not self.append_record(queue, &again, &appended):
                return None
        finally:
            PyBuffer_Release(&view)
        return self._result_type(
            self._ok,
            appended.log_offset,
            appended.size_bytes,
            appended.queue_offset,
            appended.store_timestamp,
            store_host,
        )

    def append_encoded_batch(
        self,
        topic,
        queue_id,
        batch,
        born_timestamp,
        born_host,
        store_host,
        sys_flag,
        reconsume_times,
        appended_properties,
    ):
        """The answer of `MessageStore.append_encoded_batch`; None if it was declined, and the bytes it needs if
        the file has no room for them.
        """
        cdef Record record
        cdef QueueEnd queue
        if self.is_refusing or not (
            type(batch) is bytes
            and type(born_host) is bytes
            and type(store_host) is bytes
            and type(appended_properties) is bytes
            and is_int32(sys_flag, &record.sys_flag)
            and is_int32(reconsume_times, &record.reconsume_times)
            and is_whole(born_timestamp, INT64_MIN, INT64_MAX, &record.born_timestamp)
        ):
            return None
        queue = self.find_queue(topic, queue_id)
        if queue is None or record.sys_flag & FLAG_TRANSACTION_MASK:
            return None
        record.prepared_transaction_offset = 0
        record.born_host, record.born_host_bytes = bytes_of(born_host), PyBytes_GET_SIZE(born_host)
        record.store_host, record.store_host_bytes = bytes_of(store_host), PyBytes_GET_SIZE(store_host)
        record.more_properties = bytes_of(appended_properties)
        record.more_properties_bytes = PyBytes_GET_SIZE(appended_properties)
        record.topic, record.topic_bytes = bytes_of(queue.topic_bytes), PyBytes_GET_SIZE(queue.topic_bytes)
        record.is_version_2 = record.topic_bytes > MAX_V1_TOPIC_BYTES
        record.queue_id = queue.queue_id
        return self._append_entries(queue, &record, bytes_of(batch), PyBytes_GET_SIZE(batch), store_host)

    cdef object _append_entries(
        self, QueueEnd queue, Record *record, const uint8_t *batch, Py_ssize_t length, bytes store_host
    ):
        cdef LogEnd log = self._log
        cdef Py_buffer view
        cdef Py_ssize_t count = 0, at = 0, index, size
        cdef int64_t payload_bytes = 0, total = 0, offset = log.end_offset, now_ms
        cdef uint8_t *target
        cdef tuple offsets
        cdef object number, result
        while at < length:
            if not take_entry(batch, length, &at, record) or not is_writable(record) or ends_in_zero(record):
                return None
            size = record_size(record)
            total += size
            payload_bytes += (
                size - 75 - record.topic_bytes - record.born_host_bytes - record.store_host_bytes
                - record.is_version_2
            )
            count += 1
        if count == 0 or count > MAX_BATCH_ENTRIES or payload_bytes > self.max_message_bytes:
            return None
        if offset + total > log.room_end:
            return total
        now_ms = self._time()
        if now_ms < log.last_store_timestamp:
            now_ms = log.last_store_timestamp
        record.store_timestamp = now_ms
        PyObject_GetBuffer(log.buffer, &view, PyBUF_WRITABLE)
        try:
            if offset < log.buffer_start or offset - log.buffer_start + total > view.len:
                return None
            offsets = PyTuple_New(count)
            target = <uint8_t *>view.buf + (offset - log.buffer_start)
            record.log_offset = offset
            record.queue_offset = queue.next_offset
            at = 0
            for index in range(count):
                number = record.log_offset
                Py_INCREF(number)  # the tuple's own
                PyTuple_SET_ITEM(offsets, index, number)
                take_entry(batch, length, &at, record)
                size = record_size(record)
                write_record(target, record, size)
                target += size
                record.log_offset += size
                record.queue_offset += 1
        finally:
            PyBuffer_Release(&view)
        result = self._result_type(
            self._ok, offset, total, queue.next_offset, now_ms, store_host, offsets
        )
        log.end_offset = offset + total
        log.last_store_timestamp = now_ms
        log.appended_messages += count
        queue.next_offset += count
        return result


cdef inline bint take_entry(const uint8_t *batch, Py_ssize_t length, Py_ssize_t *at, Record *record) noexcept nogil:
    """Point `record` at the entry of a batch that begins at `at`, and move on; False if it is not sound."""
    cdef const uint8_t *entry = batch + at[0]
    cdef Py_ssize_t room = length - at[0]
    cdef int64_t size, body_bytes, properties_bytes
    if room < MIN_BATCH_ENTRY_BYTES:
        return False
    size = get_int32(entry)
    body_bytes = get_int32(entry + 16)
    if size < MIN_BATCH_ENTRY_BYTES or size > room:
        return False
    if body_bytes < 0 or ENTRY_HEAD_BYTES + body_bytes + 2 > size:
        return False
    properties_bytes = get_int16(entry + ENTRY_HEAD_BYTES + body_bytes)
    if properties_bytes < 0 or ENTRY_HEAD_BYTES + body_bytes + 2 + properties_bytes != size:
        return False
    record.flag = get_int32(entry + 12)
    record.body = entry + ENTRY_HEAD_BYTES
    record.body_bytes = body_bytes
    record.properties = entry + ENTRY_HEAD_BYTES + body_bytes + 2
    record.properties_bytes = properties_bytes
    at[0] += size
    return True
