# cython: boundscheck=False, wraparound=False
"""The compiled half of `pyromq.client.quick_sends`: a plain message becomes a frame, an answer a result.

Unusual messages and answers are declined, and the general path takes them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.math cimport INFINITY
from libc.string cimport memcpy, strlen

from asyncio.events import _get_running_loop

from pyromq.client.values import Message
from pyromq.remoting.connection import ConnectionState

from pyromq_native.big_endian cimport put_int32
from pyromq_native.digits cimport MAX_NUMBER_CHARS, put_number
from pyromq_native.protocol.declared cimport (
    MAX_PROPERTIES_BYTES,
    PREFIX_BYTES,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from pyromq_native.protocol.headers cimport Header, Span, next_answer
from pyromq_native.client.twin_in_flight_limit cimport InFlightCounts
from pyromq_native.client.plain_messages cimport TOPIC, Plain, PlainMessages, Text
from pyromq_native.protocol.requests cimport SendAnswer, read_send_answer
from pyromq_native.client.sent cimport WAITING, PlainSends, Sent, Wakeup, resume_in_c
from pyromq_native.protocol.unique_keys cimport KeyMaker, monotonic_us

cdef object _OPEN = ConnectionState.OPEN

cdef enum:
    MAX_ESCAPED = 6
    PIECES = 7
    OPAQUES_AT_ONCE = 64
    LOOKED_AT_BYTES = 16384

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    unsigned long PyThread_get_thread_ident()

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


cdef inline uint8_t *put_pair(uint8_t *at, const char *name, Text *value) noexcept nogil:
    at = put(at, name, <Py_ssize_t>strlen(name))
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
    if not MESSAGES.read(message, body_limit, &plain):
        return None
    return _frame(pieces, &plain, unique_key, suffix, queue_id, born_ms, opaque)


cdef bytes _frame(
    tuple pieces,
    Plain *plain,
    str unique_key,
    str suffix,
    int32_t queue_id,
    int64_t born_ms,
    int32_t opaque,
):
    cdef Text key, end
    if len(pieces) != PIECES:
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
        at = put_pair(at, PROPERTY_KEYS, &plain.keys)
    if plain.tags.size:
        at = put_pair(at, PROPERTY_TAGS, &plain.tags)
    at = put_pair(at, PROPERTY_UNIQ_KEY, &key)
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


@cython.final
cdef class Place:
    """A queue, and what the requests to it have in common."""

    cdef object target, shown_queue, address
    cdef tuple pieces
    cdef int32_t queue_id
    cdef double limit_s
    cdef Line line

    def __init__(self, target):
        self.target = target
        self.shown_queue = target.shown_queue
        self.address = target.address
        self.pieces = target.pieces
        self.queue_id = target.queue.queue_id
        self.limit_s = target.limit_s


@cython.final
cdef class Line:
    """A connection. What is sent in one turn of the loop is written at its end."""

    cdef object connection, put, calls
    cdef dict waiting, quick
    cdef bint is_ready
    """Whether it was found to be writable in this turn."""
    cdef Py_ssize_t sent, unwritten_bytes
    """In this turn."""
    cdef double limit_s
    """The shortest in this turn: a timer for it runs."""
    cdef uint32_t _opaque, _opaques_left

    def __init__(self, connection):
        self.connection = connection
        self.put = connection.put
        self.calls = connection.calls
        self.waiting = self.calls.by_opaque
        self.quick = connection.quick

    cdef int32_t take_opaque(self) except? -1:
        if not self._opaques_left:
            self._opaque = <uint32_t><int32_t>self.calls.take_opaques(OPAQUES_AT_ONCE)
            self._opaques_left = OPAQUES_AT_ONCE
        self._opaques_left -= 1
        self._opaque += 1
        return <int32_t>(self._opaque - 1)


@cython.no_gc
@cython.final
cdef class Call(Sent):
    """A message that waits for its answer. To its connection it is a call like others."""

    cdef readonly object message
    cdef readonly str unique_key
    cdef readonly int64_t born_ms
    cdef Sending _sending
    cdef Place place
    cdef Line line
    cdef object _result, _answer
    cdef int32_t _opaque
    cdef Py_ssize_t _size_bytes
    cdef int64_t _started_us
    cdef bint _is_answered

    @property
    def target(self):
        return self.place.target

    @property
    def connection(self):
        return self.line.connection

    @property
    def started(self):
        return self._started_us / 1e6

    cdef object begin(self):
        if not self._sending.is_closed and self._sending._send(self):
            return None
        return self._sending.generally(self.message)

    cdef bint is_settled(self):
        return self._is_answered

    cdef object outcome(self):
        if self._answer is not None:
            self.otherwise = self._sending._end_otherwise(self, self._answer)
        return self._result

    cdef int give_up(self) except -1:
        if not self._is_answered:
            self._is_answered = True
            self._sending._leave(self)
            self.line.connection.end_quick_call(self._opaque)
        return 0

    cdef int take(self, result) except -1:
        """The answer was plain."""
        cdef Line line = self.line
        if self._is_answered or self._state != WAITING:
            return 0
        self._is_answered = True
        self._result = result
        line.waiting.pop(self._opaque, None)
        if not line.waiting and not line.connection.is_writable:
            self._sending._later(line.connection.end_quick_call, self._opaque)  # it may close now
        self._sending._took(self)
        return 0

    def set_result(self, answer):
        """It was an unusual frame, or there was none."""
        if self._is_answered or self._state != WAITING:
            return
        self._is_answered = True
        self._answer = answer
        self._sending._leave(self)
        self._sending._later(self.line.connection.end_quick_call, self._opaque)
        self._sending._wakeup.wake_one(self)

    set_exception = set_result


resume_in_c(Call)


cdef class Sending(PlainSends):
    """The plain sends of a producer."""

    cdef InFlightCounts _in_flight
    cdef KeyMaker _keys
    cdef Wakeup _wakeup
    cdef dict _topics, _places, _lines, _turns, _faults
    cdef list _unwritten
    cdef object _loop, _later, _loop_time, _monotonic, _statistics, _routes, _route_changes, _answers
    cdef object _end_otherwise, _targets_of, _next_turn, _writable, _check_loop, _note_answer, _soon
    cdef str _suffix
    cdef Py_ssize_t _body_limit, _max_frame_bytes
    cdef int64_t _slow_us
    cdef unsigned long _thread
    cdef bint _avoids_brokers, _is_planned

    def __init__(
        self,
        dict topics not None,
        targets_of,
        routes,
        sender,
        session,
        InFlightCounts in_flight not None,
        answers,
        generally,
        end_otherwise,
        soon,
        *,
        now_ms,
        monotonic,
        str suffix not None,
        Py_ssize_t body_limit,
        int64_t slow_us,
    ):
        """`topics`: the application's names of known topics → the brokers' names; `targets_of` tells the
        queues of a topic, until `routes.changes` is another. `now_ms` and `monotonic` tell the time, None is
        the machine's own. `answers` is the fast path of connections. `generally` sends a message by the
        general path, `end_otherwise` continues with an unusual answer. `soon` calls a function at the end of
        this turn of the loop. Bodies must be shorter than `body_limit`; `suffix` is appended to the properties.
        """
        self._topics = topics
        self._targets_of = targets_of
        self._routes = routes
        self._turns = sender.turns
        self._next_turn = sender.next_turn
        self._faults = sender.faults
        self._avoids_brokers = sender.settings.avoid_slow_brokers
        self._note_answer = sender.note_answer
        self._statistics = sender.statistics
        self._writable = session.writable
        self._check_loop = session.check_loop
        self._max_frame_bytes = session.max_frame_bytes
        self._keys = KeyMaker(session.unique_keys, now_ms)
        self._monotonic = monotonic
        self._in_flight = in_flight
        self._answers = answers
        self.generally = generally
        self._end_otherwise = end_otherwise
        self._soon = soon
        self._suffix = suffix
        self._body_limit = body_limit
        self._slow_us = slow_us
        self._loop = _get_running_loop()
        self._later = self._loop.call_soon
        self._loop_time = self._loop.time
        self._thread = PyThread_get_thread_ident()
        self._wakeup = Wakeup(self._loop, self._write)
        self._places, self._lines, self._unwritten = {}, {}, []

    cdef Sent new(self, message):
        cdef Call call = Call.__new__(Call)
        call.loop = self._loop
        call.message = message
        call._sending = self
        return call

    cdef int64_t _now_us(self) except? -1:
        return monotonic_us() if self._monotonic is None else <int64_t>(self._monotonic() * 1e6)

    cdef bint _send(self, Call call) except -1:
        """False if the general path must take the message, or too much is in flight."""
        if PyThread_get_thread_ident() != self._thread:
            self._check_loop()
        cdef Plain plain
        if not MESSAGES.read(call.message, self._body_limit, &plain):
            return False
        cdef object name = MESSAGES.field(call.message, TOPIC)
        cdef object topic = self._topics.get(name) if type(name) is str else None
        if topic is None or (self._avoids_brokers and self._faults):
            return False
        cdef list places = self._places_of(topic)
        if not places:
            return False
        cdef object turn = self._turns.get(topic)
        if turn is None:
            turn = self._next_turn(topic)
        cdef Place place = places[turn % len(places)]
        cdef Line line = place.line
        if line is None or not line.is_ready or line.connection.state is not _OPEN:
            line = self._ready_line(place)
            if line is None:
                return False
        cdef int64_t now_ms = self._keys.time_ms()
        cdef str key = self._keys.next(now_ms)
        cdef int32_t opaque = line.take_opaque()
        cdef bytes frame = _frame(place.pieces, &plain, key, self._suffix, place.queue_id, now_ms, opaque)
        if frame is None:
            return False
        cdef Py_ssize_t size_bytes = PyBytes_GET_SIZE(frame)
        if size_bytes > self._max_frame_bytes or not self._in_flight.try_enter(size_bytes):
            return False
        self._turns[topic] = turn + 1
        call.place = place
        call.line = line
        call.unique_key = key
        call.born_ms = now_ms
        call._opaque = opaque
        call._size_bytes = size_bytes
        call._started_us = self._now_us()
        cdef object number = opaque
        if place.limit_s < line.limit_s:
            line.limit_s = place.limit_s
            line.calls.expect(number, call, place.limit_s)
        else:
            line.waiting[number] = (call, <double>self._loop_time() + place.limit_s)
        line.quick[number] = call
        line.put(frame)
        line.sent += 1
        line.unwritten_bytes += size_bytes
        if line.unwritten_bytes >= LOOKED_AT_BYTES:
            # It may be enough for one write, and then for the connection.
            line.is_ready = False
            line.connection.flush_soon()
        return True

    cdef list _places_of(self, topic):
        changes = self._routes.changes
        if changes != self._route_changes:
            self._places.clear()
            self._route_changes = changes
        cdef list places = self._places.get(topic)
        if not places:
            places = self._places[topic] = [Place(target) for target in self._targets_of(topic)]
        return places

    cdef Line _ready_line(self, Place place):
        """The connection of a queue, if one is open and takes requests. Looked for once in a turn of the loop."""
        if _get_running_loop() is not self._loop:
            self._check_loop()
        connection = self._writable(place.address)
        if connection is None:
            return None
        cdef Line line = self._lines.get(place.address)
        if line is None or line.connection is not connection:
            line = self._lines[place.address] = Line(connection)
            if connection.fast_path is None:
                connection.fast_path = self._answers
        place.line = line
        if not line.is_ready:
            line.is_ready = True
            line.limit_s = INFINITY
            line.unwritten_bytes = 0
            self._unwritten.append(line)
            if not self._is_planned and not self._wakeup.is_running:
                self._is_planned = True
                self._soon(self._write)
        return line

    def _write(self):
        """Write what was sent in this turn."""
        cdef Line line
        self._is_planned = False
        if not self._unwritten:
            return
        lines, self._unwritten = self._unwritten, []
        for line in lines:
            line.is_ready = False
            self._statistics.attempts += line.sent
            line.sent = 0
            line.connection.flush()

    cdef int _took(self, Call call) except -1:
        """A call has its result."""
        cdef int64_t waited_us = self._now_us() - call._started_us
        if waited_us >= self._slow_us or self._faults:
            self._note_answer(call.place.target.queue.broker_name, waited_us / 1000)
        self._leave(call)
        return self._wakeup.wake_one(call)

    cdef int _leave(self, Call call) except -1:
        self._in_flight.count -= 1
        self._in_flight.size_bytes -= call._size_bytes
        if self._in_flight._waiting or not self._in_flight.count:
            self._in_flight._has_room_again()
        return 0

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
        cdef tuple told
        cdef Call call
        while True:
            end = next_answer(start, position, available, self._max_frame_bytes, &header)
            if not end:
                break
            opaque = header.opaque
            entry = waiting.get(opaque)
            if type(entry) is Call:
                call = entry
                result = self._result_of(&header, call.place.shown_queue, call.place.queue_id, call.unique_key)
                if result is None:
                    break
                del waiting[opaque]
                call.take(result)
            elif entry is None:
                break
            else:
                told = entry
                result = self._result_of(&header, told[1], told[1].queue_id, told[2])
                if result is None:
                    break
                del waiting[opaque]
                if not told[0].done():
                    told[0].set_result(result)
            frames += 1
            position = end
        return frames, position

    cdef object _result_of(self, Header *header, queue, int32_t expected_queue_id, unique_key):
        """The SendResult in an answer; None if the general path must read it."""
        cdef SendAnswer answer
        if not read_send_answer(header, &answer) or answer.queue_id != expected_queue_id:
            return None
        named = _text(&answer.region) if answer.region.length else self._region
        return self._result(
            self._ok,
            unique_key,
            _text(&answer.id),
            queue,
            answer.offset,
            _text(&answer.transaction) if answer.transaction.at != NULL else None,
            _text(&answer.recall_handle) if answer.recall_handle.at != NULL else None,
            named,
        )
