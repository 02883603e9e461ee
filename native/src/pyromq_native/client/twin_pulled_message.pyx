# cython: boundscheck=False, wraparound=False
"""Twin of `pyromq.client.pulled_message`: messages of a pull answer, decoded only as far as they are asked.

A message keeps a copy of its record and nothing else of the answer, so holding one of them is cheap.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from pyromq.protocol.record import decode_record

from pyromq_native.big_endian cimport get_int32
from pyromq_native.protocol.declared cimport (
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_INNER_BATCH,
    FLAG_STORE_HOST_V6,
)
from pyromq_native.protocol.headers cimport Header, next_answer_with_body
from pyromq_native.protocol.records cimport Outline, outline_record
from pyromq_native.protocol.requests cimport PullAnswer, read_pull_answer

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void *thing)

cdef enum:
    # A body that must be decompressed, or taken out of an inner batch.
    CLOSED = FLAG_COMPRESSED | FLAG_INNER_BATCH
    # What a quick pull asks for.
    WANTED = 6


cdef class PulledMessage:
    def __init__(self, stored, queue, topic=None):
        self.queue = queue
        self.topic = stored.topic if topic is None else topic
        self.queue_offset = stored.queue_offset
        self._stored = stored
        self._body = stored.body
        self.body_bytes = PyBytes_GET_SIZE(self._body)

    @property
    def stored(self):
        if self._stored is None:
            self._stored = decode_record(self._record, check_crc=False)
            self._body = self._stored.body
            self._record = None
        return self._stored

    @property
    def body(self):
        if self._body is None:
            self._body = PyBytes_FromStringAndSize(PyBytes_AS_STRING(self._record) + self._body_at, self.body_bytes)
        return self._body

    @property
    def raw_properties(self):
        if self._stored is not None:
            return self._stored.properties
        return self._record[self._properties_at :]


def pulled_messages(type kind, bytes data not None, queue, int32_t queue_id, bytes topic not None, shown, int64_t first, int64_t end):
    """The messages of an answer as objects of `kind`, in order; None if the general path must decode it.

    `topic` and `queue_id` must be those of each record, and the offsets rise from `first` to below `end`.
    """
    if not issubclass(kind, PulledMessage):
        raise TypeError(f"{kind} is not a PulledMessage")
    return messages_in(
        kind, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), queue, queue_id, topic, shown, first, end
    )


cdef list messages_in(
    type kind,
    const uint8_t *start,
    Py_ssize_t available,
    queue,
    int32_t queue_id,
    bytes topic,
    shown,
    int64_t first,
    int64_t end,
):
    cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(topic)
    cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t length_at
    cdef Outline outline
    cdef PulledMessage message
    cdef list messages = []
    while position < available:
        if not outline_record(start + position, available - position, &outline):
            return None
        if (
            outline.queue_id != queue_id
            or outline.queue_offset < first
            or outline.queue_offset >= end
            or outline.sys_flag & CLOSED
            or outline.topic_bytes != topic_bytes
            or memcmp(start + position + outline.topic_start, wanted, <size_t>topic_bytes)
        ):
            return None
        first = outline.queue_offset + 1
        message = PulledMessage.__new__(kind)
        message.queue = queue
        message.topic = shown
        message.queue_offset = outline.queue_offset
        # The body's length is behind both hosts, the store timestamp, reconsume times and prepared offset.
        length_at = 84 + (12 if outline.sys_flag & FLAG_BORN_HOST_V6 else 0) + (12 if outline.sys_flag & FLAG_STORE_HOST_V6 else 0)
        message._body_at = length_at + 4
        message.body_bytes = get_int32(start + position + length_at)
        message._properties_at = outline.properties_start
        message._record = PyBytes_FromStringAndSize(<const char *>start + position, outline.size)
        # Nothing that it refers to can refer to it: the collector would look at thousands of them in vain.
        PyObject_GC_UnTrack(<void *>message)
        messages.append(message)
        position += outline.size
    return messages


cdef class PullAnswers:
    """The fast path of a consumer's connections: plain answers to quick pulls, each a result for its future.

    A connection's `quick` has what they ask for: the future, the queue with its id, its topic in bytes and the
    topic to show, and the offset. Producers may share the connection: `sends` reads answers to them.
    """

    cdef type _kind
    cdef object _pulled, _sends
    cdef Py_ssize_t _max_frame_bytes

    def __init__(self, type kind not None, pulled, sends, Py_ssize_t max_frame_bytes):
        """`pulled` makes a result of messages of this kind, the offset behind them, the first and the last offset
        of the queue, and the broker to ask next."""
        if not issubclass(kind, PulledMessage):
            raise TypeError(f"{kind} is not a PulledMessage")
        self._kind = kind
        self._pulled = pulled
        self._sends = sends
        self._max_frame_bytes = max_frame_bytes

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end, body_at
        cdef Py_ssize_t frames = 0, more, length
        cdef Header header
        cdef dict waiting = connection.quick
        cdef tuple entry
        while True:
            end = next_answer_with_body(start, position, available, self._max_frame_bytes, &header, &body_at)
            if not end:
                break
            asked = waiting.get(header.opaque)
            if asked is None:
                break
            if type(asked) is not tuple or len(<tuple>asked) != WANTED:
                more, length = self._sends(data[position:], connection)
                if not more:
                    break
                frames += more
                position += length
                continue
            entry = asked
            pulled = self._pulled_in(&header, start + body_at, end - body_at, entry)
            if pulled is None:
                break
            del waiting[header.opaque]
            if not entry[0].done():
                entry[0].set_result(pulled)
            frames += 1
            position = end
        return frames, position

    cdef object _pulled_in(self, Header *header, const uint8_t *body, Py_ssize_t body_bytes, tuple entry):
        """None if the general path must read it."""
        cdef PullAnswer answer
        cdef int64_t first = entry[5]
        if not read_pull_answer(header, &answer) or answer.next_offset < 0 or answer.next_offset <= first:
            return None
        messages = messages_in(
            self._kind, body, body_bytes, entry[1], entry[2], <bytes?>entry[3], entry[4], first, answer.next_offset
        )
        if messages is None:
            return None
        return self._pulled(
            messages, answer.next_offset, answer.min_offset, answer.max_offset, answer.broker_id
        )


cdef class HeldMessages:
    """Twin of `in_flight.InterpretedHeld`."""

    def __init__(self, int64_t last_offset):
        self._messages = {}
        self._last_offset = last_offset

    def hold(self, messages):
        for message in messages:
            if isinstance(message, PulledMessage):
                self._last_offset = (<PulledMessage>message).queue_offset
                self.size_bytes += (<PulledMessage>message).body_bytes
            else:
                self._last_offset = message.queue_offset
                self.size_bytes += message.body_bytes
            self._messages[self._last_offset] = message

    def done(self, message):
        self.end(message)

    cdef int end(self, message) except -1:
        cdef Py_ssize_t size_bytes = take_out(self._messages, message)
        if size_bytes >= 0:
            self.let_go(size_bytes)
        return 0

    def done_all(self, messages):
        cdef Py_ssize_t size_bytes = 0, each
        for message in messages:
            each = take_out(self._messages, message)
            if each >= 0:
                size_bytes += each
        self.let_go(size_bytes)

    def _let_go(self, Py_ssize_t size_bytes):
        self.let_go(size_bytes)

    cdef int let_go(self, Py_ssize_t size_bytes) except -1:
        self.size_bytes -= size_bytes
        if self._has_room_again is not None or self._idle is not None:
            self._tell()
        return 0


cdef Py_ssize_t take_out(dict held, message) except -2:
    """The size of a message that was held and is not any more; -1 if it was not."""
    if isinstance(message, PulledMessage):
        if held.pop((<PulledMessage>message).queue_offset, None) is not None:
            return (<PulledMessage>message).body_bytes
    elif held.pop(message.queue_offset, None) is not None:
        return message.body_bytes
    return -1
