# cython: boundscheck=False, wraparound=False
"""Twin of the usual case of a read: the units of a queue lead to records of one log file, and then of the next.

A unit that is not sound is declined.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from pyromq_native.big_endian cimport get_int16, get_int32, get_int64
from pyromq_native.protocol.declared cimport (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    FLAG_TRANSACTION_PREPARED,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    UNIT_BYTES,
)
from pyromq_native.protocol.records cimport is_whole

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define PYROMQ_PREFETCH(address) __builtin_prefetch(address)
    #else
    #define PYROMQ_PREFETCH(address) ((void)(address))
    #endif
    """
    void prefetch "PYROMQ_PREFETCH"(const void *address) noexcept nogil

cdef enum:
    MAX_CODES = 128
    # Records lie all over the log: the next ones are fetched while one is looked at.
    FETCHED_AHEAD = 8
    # A slice of a view, and whoever sends it, cost about as much as copying this many bytes.
    COPIED_BYTES = 4096


cdef struct Queue:
    const uint8_t *topic
    Py_ssize_t topic_bytes
    int64_t queue_id


cdef struct Piece:
    int64_t start
    int64_t end


cdef struct Topic:
    # Of a record: where its length is, which has one byte or two.
    const uint8_t *at
    Py_ssize_t length_bytes


def slice_records(
    queue_buffer,
    int64_t position,
    int64_t count,
    tag_codes,
    log_view,
    int64_t log_start,
    int64_t log_end,
    int64_t max_messages,
    int64_t max_bytes,
    bytes topic,
    int64_t queue_id,
    int64_t offset,
    int64_t stride,
):
    """Reads the wanted ones of `count` units from `position` on: units examined, messages, their bytes, slices.

    The first unit is that of message `offset` of the queue. Records that lie together are one slice, and small
    ones that do not are copied together. `log_view` is a whole log file from `log_start` on, and the log goes up
    to `log_end`; it ends before a record of a later file. Of units that are not wanted, one of `stride` is looked
    at. None if this is not for this road.
    """
    cdef Queue queue
    cdef int64_t codes[MAX_CODES]
    cdef int code_count = -1
    cdef Py_buffer units
    cdef Piece *pieces
    cdef Topic *topics
    cdef int64_t room
    cdef object result
    if type(log_view) is not memoryview or position < 0 or count < 1:
        return None
    if tag_codes is not None:
        code_count = 0
        for code in tag_codes:
            if code_count == MAX_CODES or not is_whole(code, INT64_MIN, INT64_MAX, &codes[code_count]):
                return None
            code_count += 1
    queue.topic = <const uint8_t *>PyBytes_AS_STRING(topic)
    queue.topic_bytes = PyBytes_GET_SIZE(topic)
    queue.queue_id = queue_id
    PyObject_GetBuffer(queue_buffer, &units, PyBUF_SIMPLE)
    try:
        if position > units.len:
            return None
        count = min(count, (units.len - position) // UNIT_BYTES)
        room = max(min(count, max_messages), 1)
        pieces = <Piece *>malloc(room * (sizeof(Piece) + sizeof(Topic)))
        if pieces == NULL:
            raise MemoryError
        topics = <Topic *>(pieces + room)
        try:
            result = gather(
                <const uint8_t *>units.buf + position, count, codes, code_count, log_view, log_start, log_end,
                max_messages, max_bytes, &queue, offset, max(stride, 1), pieces, topics,
            )
        finally:
            free(pieces)
    finally:
        PyBuffer_Release(&units)
    return result


cdef object gather(
    const uint8_t *unit,
    int64_t count,
    const int64_t *codes,
    int code_count,
    object log_view,
    int64_t log_start,
    int64_t log_end,
    int64_t max_messages,
    int64_t max_bytes,
    const Queue *queue,
    int64_t offset,
    int64_t stride,
    Piece *pieces,
    Topic *topics,
):
    cdef const uint8_t *log = <const uint8_t *>PyMemoryView_GET_BUFFER(log_view).buf
    cdef int64_t file_end = min(log_end, log_start + PyMemoryView_GET_BUFFER(log_view).len)
    cdef int64_t examined = 0, messages = 0, size_bytes = 0, piece_count = 0, after = 0, place, code, index
    cdef int32_t size
    cdef Topic topic
    cdef bint is_wanted
    while examined < count:
        if examined + FETCHED_AHEAD < count:
            place = get_int64(unit + FETCHED_AHEAD * UNIT_BYTES)
            code = get_int64(unit + FETCHED_AHEAD * UNIT_BYTES + 12)
            if log_start <= place < file_end and (code_count < 0 or is_among(code, codes, code_count)):
                prefetch(log + (place - log_start))
                prefetch(log + (place - log_start) + 64)
        place, size = get_int64(unit), get_int32(unit + 8)
        if messages and (messages >= max_messages or size_bytes + size > max_bytes):
            break
        code = get_int64(unit + 12)
        is_wanted = code_count < 0 or is_among(code, codes, code_count)
        if is_wanted or (offset + examined) % stride == 0:
            if examined and place >= log_start + PyMemoryView_GET_BUFFER(log_view).len:
                break
            if size < MIN_RECORD_BYTES or place < log_start or place > file_end - size:
                return None
            if not find_topic(log + (place - log_start), place, size, queue, offset + examined, &topic):
                return None
            if is_wanted:
                prefetch(topic.at)
                topics[messages] = topic
            elif not is_topic_of(&topic, queue):
                return None
        if not is_wanted:
            if size < MIN_RECORD_BYTES or place < after or place > log_end - size:
                return None
            if code < INT32_MIN or code > INT32_MAX:
                return None
        after = place + size
        examined += 1
        if is_wanted:
            if piece_count and pieces[piece_count - 1].end == place:
                pieces[piece_count - 1].end = place + size
            else:
                pieces[piece_count].start = place
                pieces[piece_count].end = place + size
                piece_count += 1
            messages += 1
            size_bytes += size
        unit += UNIT_BYTES
    for index in range(messages):
        if not is_topic_of(&topics[index], queue):
            return None
    cdef list views = []
    if piece_count > 1 and size_bytes <= COPIED_BYTES * piece_count:
        views.append(memoryview(joined(log_view, log_start, pieces, piece_count, size_bytes)))
    else:
        for index in range(piece_count):
            views.append(log_view[pieces[index].start - log_start : pieces[index].end - log_start])
    return examined, messages, size_bytes, views


cdef bint find_topic(
    const uint8_t *at, int64_t place, int32_t size, const Queue *queue, int64_t offset, Topic *topic
) noexcept nogil:
    """Find the topic in the record of a unit, which has room for that of the queue.

    False if the record is another queue's or another message's. Its topic is still to be looked at: it lies
    behind the body, and is best fetched while the next record is looked at.
    """
    cdef int32_t magic = get_int32(at + 4), sys_flag = get_int32(at + 36), body_bytes
    cdef int64_t position
    if (
        get_int32(at) != size
        or (magic != MAGIC_V1 and magic != MAGIC_V2)
        or get_int32(at + 12) != queue.queue_id
        or get_int64(at + 20) != offset
        or get_int64(at + 28) != place
        or sys_flag & FLAG_TRANSACTION_PREPARED
    ):
        return False
    position = 84 + (12 if sys_flag & FLAG_BORN_HOST_V6 else 0) + (12 if sys_flag & FLAG_STORE_HOST_V6 else 0)
    if position + 4 > size:
        return False
    body_bytes = get_int32(at + position)
    position += 4 + <int64_t>body_bytes
    topic.at = at + position
    topic.length_bytes = 1 if magic == MAGIC_V1 else 2
    return body_bytes >= 0 and position + topic.length_bytes + queue.topic_bytes + 2 <= size


cdef bint is_topic_of(const Topic *topic, const Queue *queue) noexcept nogil:
    cdef Py_ssize_t length = topic.at[0] if topic.length_bytes == 1 else get_int16(topic.at)
    return (
        length == queue.topic_bytes
        and memcmp(topic.at + topic.length_bytes, queue.topic, <size_t>queue.topic_bytes) == 0
    )


cdef bint is_among(int64_t code, const int64_t *codes, int code_count) noexcept nogil:
    cdef int index
    for index in range(code_count):
        if codes[index] == code:
            return True
    return False


cdef bytes joined(object log_view, int64_t log_start, const Piece *pieces, int64_t count, int64_t size_bytes):
    cdef const uint8_t *log = <const uint8_t *>PyMemoryView_GET_BUFFER(log_view).buf
    cdef bytes copy = PyBytes_FromStringAndSize(NULL, size_bytes)
    cdef char *target = PyBytes_AS_STRING(copy)
    cdef int64_t index, length
    for index in range(count):
        length = pieces[index].end - pieces[index].start
        memcpy(target, log + (pieces[index].start - log_start), length)
        target += length
    return copy
