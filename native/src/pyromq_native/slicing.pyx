# cython: boundscheck=False, wraparound=False
"""Twin of the usual case of a read: the units of a queue lead to records that all lie in one log file.

The unusual, a record in another file or none at all, is declined.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from pyromq_native.big_endian cimport get_int32, get_int64
from pyromq_native.records cimport is_whole

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)

cdef enum:
    UNIT_BYTES = 20
    MOST_CODES = 128
    # A slice of a view, and whoever sends it, cost about as much as copying this many bytes.
    COPIED_BYTES = 4096


cdef struct Piece:
    int64_t start
    int64_t end


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
):
    """What is wanted of `count` units from `position` on: units examined, messages, their bytes, slices.

    Records that lie together are one slice, and small ones that do not are copied together. `log_view` is a
    whole log file from `log_start` on, and the log goes up to `log_end`. None if this is not for this road.
    """
    cdef int64_t codes[MOST_CODES]
    cdef int code_count = -1
    cdef Py_buffer units
    cdef Piece *pieces
    cdef object result
    if type(log_view) is not memoryview or position < 0 or count < 1:
        return None
    if tag_codes is not None:
        code_count = 0
        for code in tag_codes:
            if code_count == MOST_CODES or not is_whole(code, INT64_MIN, INT64_MAX, &codes[code_count]):
                return None
            code_count += 1
    log_end = min(log_end, log_start + PyMemoryView_GET_BUFFER(log_view).len)
    PyObject_GetBuffer(queue_buffer, &units, PyBUF_SIMPLE)
    try:
        if position > units.len:
            return None
        count = min(count, (units.len - position) // UNIT_BYTES)
        pieces = <Piece *>malloc(max(min(count, max_messages), 1) * sizeof(Piece))
        if pieces == NULL:
            raise MemoryError
        try:
            result = gather(
                <const uint8_t *>units.buf + position, count, codes, code_count, log_view, log_start, log_end,
                max_messages, max_bytes, pieces,
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
    Piece *pieces,
):
    cdef int64_t examined = 0, messages = 0, size_bytes = 0, piece_count = 0, place, index
    cdef int32_t size
    while examined < count:
        place, size = get_int64(unit), get_int32(unit + 8)
        if messages and (messages >= max_messages or size_bytes + size > max_bytes):
            break
        examined += 1
        if code_count < 0 or is_among(get_int64(unit + 12), codes, code_count):
            if size < 1 or place < log_start or place > log_end - size:
                return None
            if piece_count and pieces[piece_count - 1].end == place:
                pieces[piece_count - 1].end = place + size
            else:
                pieces[piece_count].start = place
                pieces[piece_count].end = place + size
                piece_count += 1
            messages += 1
            size_bytes += size
        unit += UNIT_BYTES
    cdef list views = []
    if piece_count > 1 and size_bytes <= COPIED_BYTES * piece_count:
        views.append(memoryview(joined(log_view, log_start, pieces, piece_count, size_bytes)))
    else:
        for index in range(piece_count):
            views.append(log_view[pieces[index].start - log_start : pieces[index].end - log_start])
    return examined, messages, size_bytes, views


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
