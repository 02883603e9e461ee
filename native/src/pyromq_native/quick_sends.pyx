# cython: boundscheck=False, wraparound=False
"""The compiled half of `pyromq.client.quick_sends`: a plain message becomes a frame, an answer a result.

Unusual messages and answers are declined, and the general path takes them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pyromq.client.values import Message

from pyromq_native.big_endian cimport put_int32
from pyromq_native.digits cimport MAX_NUMBER_CHARS, put_number
from pyromq_native.headers cimport Header, Span, is_called, next_answer, read_int32, read_int64
from pyromq_native.plain_messages cimport Plain, PlainMessages, Text

cdef enum:
    PREFIX_BYTES = 8
    MAX_PROPERTIES_BYTES = 32767
    MAX_ESCAPED = 6
    PIECES = 7

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef PlainMessages MESSAGES = PlainMessages(Message)

cdef const char *HEX = b"0123456789abcdef"


cdef inline uint8_t *put(uint8_t *at, const char *source, Py_ssize_t size) noexcept nogil:
    memcpy(at, source, <size_t>size)
    return at + size


cdef inline uint8_t *put_escaped(uint8_t *at, const char *source, Py_ssize_t size) noexcept nogil:
    """A part of a JSON string, written as msgspec writes it."""
    cdef Py_ssize_t index
    cdef uint8_t letter
    for index in range(size):
        letter = <uint8_t>source[index]
        if letter >= 0x20 and letter != 0x22 and letter != 0x5C:
            at[0] = letter
            at += 1
            continue
        at[0] = 0x5C
        if letter == 0x22 or letter == 0x5C:
            at[1] = letter
        elif letter == 0x08:
            at[1] = 0x62
        elif letter == 0x09:
            at[1] = 0x74
        elif letter == 0x0A:
            at[1] = 0x6E
        elif letter == 0x0C:
            at[1] = 0x66
        elif letter == 0x0D:
            at[1] = 0x72
        else:
            memcpy(at + 1, b"u00", 3)
            at[4] = <uint8_t>HEX[letter >> 4]
            at[5] = <uint8_t>HEX[letter & 15]
            at += 4
        at += 2
    return at


cdef inline uint8_t *put_pair(uint8_t *at, const char *name, Py_ssize_t name_size, Text *value) noexcept nogil:
    at = put(at, name, name_size)
    at = put(at, b"\\u0001", 6)
    at = put_escaped(at, value.at, value.size)
    return put(at, b"\\u0002", 6)


def plain_frame(
    tuple pieces not None,
    object message,
    str unique_key not None,
    str suffix not None,
    Py_ssize_t body_limit,
    int32_t queue_id,
    int64_t born_ms,
    int32_t opaque,
):
    """A message as a whole request; None if the general path must take it.

    `pieces` are the bytes of a `RequestForm` around queue id, system flag, time, flag, properties and opaque.
    """
    cdef Plain plain
    cdef Text key, end
    if len(pieces) != PIECES or not MESSAGES.read(message, body_limit, &plain):
        return None
    key.at = PyUnicode_AsUTF8AndSize(unique_key, &key.size)
    end.at = PyUnicode_AsUTF8AndSize(suffix, &end.size)
    cdef Py_ssize_t size = 10 + key.size + end.size
    if plain.tags.size:
        size += 6 + plain.tags.size
    if plain.keys.size:
        size += 6 + plain.keys.size
    if size > MAX_PROPERTIES_BYTES:
        return None
    cdef Py_ssize_t room = PREFIX_BYTES + MAX_ESCAPED * size + 2 + 6 * MAX_NUMBER_CHARS
    cdef int index
    for index in range(PIECES):
        room += PyBytes_GET_SIZE(<bytes?>pieces[index])
    cdef uint8_t small[2048]
    cdef uint8_t *start = &small[0]
    if room > 2048:
        start = <uint8_t *>PyMem_Malloc(<size_t>room)
    if start is NULL:
        raise MemoryError()
    cdef uint8_t *at = start + PREFIX_BYTES
    at = put(at, PyBytes_AS_STRING(pieces[0]), PyBytes_GET_SIZE(pieces[0]))
    at = put_number(at, queue_id)
    at = put(at, PyBytes_AS_STRING(pieces[1]), PyBytes_GET_SIZE(pieces[1]))
    at = put_number(at, 0)
    at = put(at, PyBytes_AS_STRING(pieces[2]), PyBytes_GET_SIZE(pieces[2]))
    at = put_number(at, born_ms)
    at = put(at, PyBytes_AS_STRING(pieces[3]), PyBytes_GET_SIZE(pieces[3]))
    at = put_number(at, plain.flag)
    at = put(at, PyBytes_AS_STRING(pieces[4]), PyBytes_GET_SIZE(pieces[4]))
    at[0] = 0x22
    at += 1
    if plain.keys.size:
        at = put_pair(at, b"KEYS", 4, &plain.keys)
    if plain.tags.size:
        at = put_pair(at, b"TAGS", 4, &plain.tags)
    at = put_pair(at, b"UNIQ_KEY", 8, &key)
    at = put_escaped(at, end.at, end.size)
    at[0] = 0x22
    at += 1
    at = put(at, PyBytes_AS_STRING(pieces[5]), PyBytes_GET_SIZE(pieces[5]))
    at = put_number(at, opaque)
    at = put(at, PyBytes_AS_STRING(pieces[6]), PyBytes_GET_SIZE(pieces[6]))
    cdef Py_ssize_t header_bytes = at - start - PREFIX_BYTES
    cdef bytes frame
    try:
        put_int32(start, <uint32_t>(4 + header_bytes + plain.body.size))
        put_int32(start + 4, <uint32_t>header_bytes)
        frame = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + header_bytes + plain.body.size)
        memcpy(PyBytes_AS_STRING(frame), start, <size_t>(PREFIX_BYTES + header_bytes))
        memcpy(PyBytes_AS_STRING(frame) + PREFIX_BYTES + header_bytes, plain.body.at, <size_t>plain.body.size)
    finally:
        if start != &small[0]:
            PyMem_Free(start)
    return frame


cdef inline object _text(Span *span):
    return PyUnicode_DecodeASCII(<const char *>span.at, span.length, NULL)


cdef class QuickAnswers:
    """The fast path of a client's connections: answers to quick sends, each a result for its future."""

    cdef object _result, _ok, _region
    cdef Py_ssize_t _max_frame_bytes

    def __init__(self, result, ok, str region not None, Py_ssize_t max_frame_bytes):
        """`result` makes a SendResult, `ok` is its status, `region` the one that answers leave out."""
        self._result = result
        self._ok = ok
        self._region = region
        self._max_frame_bytes = max_frame_bytes

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end
        cdef int frames = 0
        cdef Header header
        cdef dict waiting = connection.quick
        cdef tuple entry
        while True:
            end = next_answer(start, position, available, self._max_frame_bytes, &header)
            if not end:
                break
            entry = waiting.get(header.opaque)
            if entry is None:
                break
            result = self._result_of(&header, entry)
            if result is None:
                break
            del waiting[header.opaque]
            if not entry[0].done():
                entry[0].set_result(result)
            frames += 1
            position = end
        return frames, position

    cdef object _result_of(self, Header *header, tuple entry):
        """The SendResult in an answer; None if the general path must read it."""
        cdef Span *id_ = NULL
        cdef Span *transaction = NULL
        cdef Span *recall = NULL
        cdef Span *region = NULL
        cdef Span *value
        cdef int32_t queue_id = -1
        cdef int64_t offset = 0
        cdef bint has_queue = False
        cdef bint has_offset = False
        cdef int index
        for index in range(header.field_count):
            value = &header.values[index]
            if value.has_escapes:
                return None
            if is_called(header.names[index], b"msgId", 5):
                if id_ != NULL:
                    return None
                id_ = value
            elif is_called(header.names[index], b"queueId", 7):
                if has_queue or not read_int32(value[0], &queue_id):
                    return None
                has_queue = True
            elif is_called(header.names[index], b"queueOffset", 11):
                if has_offset or not read_int64(value[0], &offset):
                    return None
                has_offset = True
            elif is_called(header.names[index], b"transactionId", 13):
                if transaction != NULL:
                    return None
                transaction = value
            elif is_called(header.names[index], b"recallHandle", 12):
                if recall != NULL:
                    return None
                recall = value
            elif is_called(header.names[index], b"MSG_REGION", 10):
                if region != NULL:
                    return None
                region = value
            elif not is_called(header.names[index], b"TRACE_ON", 8):
                return None
            elif not is_called(value[0], b"true", 4) and not is_called(value[0], b"false", 5):
                return None
        if id_ == NULL or not has_queue or not has_offset:
            return None
        queue = entry[1]
        if queue.queue_id != queue_id:
            return None
        named = self._region if region == NULL or region.length == 0 else _text(region)
        return self._result(
            self._ok,
            entry[2],
            _text(id_),
            queue,
            offset,
            _text(transaction) if transaction != NULL else None,
            _text(recall) if recall != NULL else None,
            named,
        )
