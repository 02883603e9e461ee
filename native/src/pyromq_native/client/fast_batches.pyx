# cython: boundscheck=False, wraparound=False
"""Plain messages of a producer, gathered into batches: each is encoded at once, behind the one before it.

A message costs its bytes in the request, its id, and the coroutine of its caller. Unusual messages are declined,
and the general path takes them. So are whole batches, where something is in the way of their request.
"""

from asyncio.events import _get_running_loop

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memmove, memset, strlen

from pyromq_native.big_endian cimport get_uint32, put_int16, put_int32
from pyromq_native.digits cimport MAX_NUMBER_CHARS, put_number
from pyromq_native.client.twin_in_flight_limit cimport InFlightCounts
from pyromq_native.client.plain_messages cimport TAGS, TOPIC, Plain, PlainMessages, Text
from pyromq_native.client.sent cimport WAITING, PlainSends, Sent, Wakeup, resume_in_c
from pyromq_native.protocol.declared cimport (
    AFTER_NAME,
    AFTER_PAIR,
    ENTRY_HEAD_BYTES,
    MAX_PROPERTIES_BYTES,
    MIN_ENTRY_BYTES,
    PREFIX_BYTES,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from pyromq_native.protocol.unique_keys cimport KeyMaker

cdef extern from "Python.h":
    void *PyUnicode_DATA(object text)

    unsigned long PyThread_get_thread_ident()
cdef enum:
    PIECES = 7
    MAX_FILLING = 4096
    FIRST_BYTES = 4096

cdef inline uint8_t *put_pair(
    uint8_t *at, const char *name, const char *value, Py_ssize_t size
) noexcept nogil:
    memcpy(at, name, strlen(name))
    at += <Py_ssize_t>strlen(name)
    at[0] = AFTER_NAME
    memcpy(at + 1, value, <size_t>size)
    at += 1 + size
    at[0] = AFTER_PAIR
    return at + 1


cdef inline uint8_t *put_bytes(uint8_t *at, bytes piece) noexcept:
    memcpy(at, PyBytes_AS_STRING(piece), <size_t>PyBytes_GET_SIZE(piece))
    return at + PyBytes_GET_SIZE(piece)


@cython.no_gc
@cython.final
cdef class Gathered(Sent):
    """A message in a batch."""

    cdef Gathering _gathering
    cdef PlainBatch _batch
    cdef object _message, _key
    cdef Py_ssize_t _index

    cdef object begin(self):
        if self._gathering.is_closed or not self._gathering._add(self):
            return self._gathering.generally(self._message)
        return None

    cdef bint is_settled(self):
        return self._batch._is_settled

    cdef object outcome(self):
        return self._batch._result_of(self._index, self._key)


resume_in_c(Gathered)


cdef class PlainBatch:
    """A batch that is being filled, and then sent."""

    cdef readonly object topic
    """As brokers know it."""
    cdef readonly int64_t born_ms
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t entered, entered_bytes
    """How many messages are in flight for it, and their bytes, until it is settled."""
    cdef public object timer
    cdef public bint is_closed
    """Whether it takes no more messages."""
    cdef list _sends
    cdef Wakeup _wakeup
    cdef bint _is_settled
    cdef object _problem, _traceback, _result, _status, _queue, _transaction_id, _recall, _region
    cdef list _offset_ids
    cdef int64_t _offset
    cdef uint8_t *_data
    cdef Py_ssize_t _room

    def __cinit__(self):
        self._data = NULL

    def __dealloc__(self):
        PyMem_Free(self._data)

    def __init__(self, Wakeup wakeup not None, topic, int64_t born_ms):
        self._wakeup = wakeup
        self.topic = topic
        self.born_ms = born_ms
        self._sends = []

    def __len__(self):
        return len(self._sends)

    @property
    def messages(self):
        return [(<Gathered>each)._message for each in self._sends]

    @property
    def keys(self):
        return [(<Gathered>each)._key for each in self._sends]

    cdef uint8_t *_more(self, Py_ssize_t size) except NULL:
        """Room for that many more bytes."""
        cdef Py_ssize_t wanted = self.size_bytes + size
        cdef void *moved
        if wanted > self._room:
            self._room = max(2 * self._room, wanted, <Py_ssize_t>FIRST_BYTES)
            moved = PyMem_Realloc(self._data, <size_t>self._room)
            if moved is NULL:
                raise MemoryError()
            self._data = <uint8_t *>moved
        return self._data + self.size_bytes

    @property
    def body(self):
        """The body of the request."""
        return PyBytes_FromStringAndSize(<const char *>self._data, self.size_bytes)

    def frame(self, tuple pieces not None, int32_t queue_id, int32_t opaque):
        """The whole request. `pieces` are the bytes of a `RequestForm` around queue id, system flag, time,
        flag, properties and opaque."""
        cdef Py_ssize_t room = PREFIX_BYTES + 2 + 6 * MAX_NUMBER_CHARS
        cdef int index
        if len(pieces) != PIECES:
            return None
        for index in range(PIECES):
            room += PyBytes_GET_SIZE(<bytes?>pieces[index])
        cdef bytes head = PyBytes_FromStringAndSize(NULL, room)
        cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(head)
        cdef uint8_t *at = put_bytes(start + PREFIX_BYTES, pieces[0])
        at = put_bytes(put_number(at, queue_id), pieces[1])
        at = put_bytes(put_number(at, 0), pieces[2])
        at = put_bytes(put_number(at, self.born_ms), pieces[3])
        at = put_bytes(put_number(at, 0), pieces[4])
        memcpy(at, b'""', 2)
        at = put_bytes(at + 2, pieces[5])
        at = put_bytes(put_number(at, opaque), pieces[6])
        cdef Py_ssize_t head_bytes = at - start
        put_int32(start, <uint32_t>(head_bytes - 4 + self.size_bytes))
        put_int32(start + 4, <uint32_t>(head_bytes - PREFIX_BYTES))
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, head_bytes + self.size_bytes)
        memcpy(PyBytes_AS_STRING(frame), start, <size_t>head_bytes)
        memcpy(PyBytes_AS_STRING(frame) + head_bytes, self._data, <size_t>self.size_bytes)
        return frame

    def drop_cancelled(self):
        """Leave out messages whose caller was cancelled meanwhile."""
        cdef Py_ssize_t size
        cdef Py_ssize_t read_at = 0
        cdef Py_ssize_t write_at = 0
        cdef Gathered sent
        cdef list sends = []
        for sent in self._sends:
            if sent._state != WAITING:
                break
        else:
            return
        for sent in self._sends:
            size = get_uint32(self._data + read_at)
            if sent._state == WAITING:
                if write_at != read_at:
                    memmove(self._data + write_at, self._data + read_at, <size_t>size)
                write_at += size
                sent._index = len(sends)
                sends.append(sent)
            read_at += size
        self.size_bytes = write_at
        self._sends = sends

    def settle(self, result, list offset_ids not None, status, queue, int64_t offset, transaction_id, recall, region):
        """Everything is stored: `result` makes the SendResult of each message."""
        self._result, self._offset_ids, self._status = result, offset_ids, status
        self._queue, self._offset = queue, offset
        self._transaction_id, self._recall, self._region = transaction_id, recall, region
        self._settle()

    def fail(self, problem):
        """The batch was not stored."""
        self._problem = problem
        self._traceback = problem.__traceback__
        self._settle()

    def cancel(self):
        cdef Gathered sent
        for sent in self._sends:
            sent.cancel()
        self._settle()

    cdef _settle(self):
        self._is_settled = True
        # `Gathering` may remember the batch until the next one of its kind.
        sends, self._sends = self._sends, []
        PyMem_Free(self._data)
        self._data = NULL
        self._room = self.size_bytes = 0
        self._wakeup.wake(sends)

    cdef object _result_of(self, Py_ssize_t index, key):
        if self._problem is not None:
            # They share it: without this, each adds its own frames to one traceback.
            raise self._problem.with_traceback(self._traceback)
        return self._result(
            self._status,
            key,
            self._offset_ids[index],
            self._queue,
            self._offset + index,
            self._transaction_id,
            self._recall,
            self._region,
        )


cdef class Gathering(PlainSends):
    cdef PlainMessages _plain
    cdef KeyMaker _keys
    cdef Wakeup _wakeup
    cdef InFlightCounts _in_flight
    cdef dict _topics, _filling
    cdef object _loop, _check_loop, _find_topic, _begin, _flush
    cdef bytes _suffix
    cdef Py_ssize_t _body_limit, _max_bytes
    cdef unsigned long _thread

    def __init__(
        self,
        kind,
        dict topics not None,
        find_topic,
        InFlightCounts in_flight not None,
        unique_keys,
        now_ms,
        check_loop,
        begin,
        flush,
        generally,
        *,
        str suffix not None,
        Py_ssize_t body_limit,
        Py_ssize_t max_bytes,
    ):
        """`topics`: the application's names of topics that may be batched → the brokers' names. `find_topic`
        finds those that are not there yet: None for a topic that may not be batched.

        `now_ms` tells the time, None is the machine's own. `begin` gets every new batch, `flush` one that is
        full. `generally` sends a message by the general path. Bodies must be shorter than `body_limit`; `suffix` is appended to the properties.
        """
        self._plain = PlainMessages(kind)
        self._topics = topics
        self._find_topic = find_topic
        self._filling = {}
        self._in_flight = in_flight
        self._keys = KeyMaker(unique_keys, now_ms)
        self._check_loop = check_loop
        self._loop = _get_running_loop()
        self._wakeup = Wakeup(self._loop)
        self._thread = PyThread_get_thread_ident()
        self._begin = begin
        self._flush = flush
        self.generally = generally
        self._suffix = suffix.encode()
        self._body_limit = body_limit
        self._max_bytes = max_bytes

    cdef Sent new(self, message):
        cdef Gathered sent = Gathered.__new__(Gathered)
        sent.loop = self._loop
        sent._gathering = self
        sent._message = message
        return sent

    cdef bint _add(self, Gathered sent) except -1:
        """False if the general path must take the message, or too much is in flight."""
        if PyThread_get_thread_ident() != self._thread:
            self._check_loop()
        cdef object message = sent._message
        cdef Plain plain
        if not self._plain.read(message, self._body_limit, &plain):
            return False
        cdef object name = self._plain.field(message, TOPIC)
        cdef object topic = self._topics.get(name)
        if topic is None:
            topic = self._find_topic(name)
            if topic is None:
                return False
        cdef int64_t now_ms = self._keys.time_ms()
        cdef str key = self._keys.next(now_ms)
        cdef Py_ssize_t key_size = len(key)
        cdef Py_ssize_t suffix_size = PyBytes_GET_SIZE(self._suffix)
        cdef Py_ssize_t properties = 10 + key_size + suffix_size
        if plain.tags.size:
            properties += 6 + plain.tags.size
        if plain.keys.size:
            properties += 6 + plain.keys.size
        cdef Py_ssize_t size = MIN_ENTRY_BYTES + plain.body.size + properties
        if properties > MAX_PROPERTIES_BYTES or size > self._max_bytes or not self._in_flight.try_enter(size):
            return False
        cdef object place = name
        if plain.tags.size:
            place = (name, self._plain.field(message, TAGS))
        cdef PlainBatch batch = self._filling.get(place)
        if batch is None or batch.is_closed or batch.size_bytes + size > self._max_bytes:
            batch = self._next_batch(place, batch, topic, now_ms)
        cdef uint8_t *at = batch._more(size)
        put_int32(at, <uint32_t>size)
        memset(at + 4, 0, 8)
        put_int32(at + 12, <uint32_t>plain.flag)
        put_int32(at + 16, <uint32_t>plain.body.size)
        memcpy(at + ENTRY_HEAD_BYTES, plain.body.at, <size_t>plain.body.size)
        at += ENTRY_HEAD_BYTES + plain.body.size
        put_int16(at, <uint16_t>properties)
        at += 2
        if plain.keys.size:
            at = put_pair(at, PROPERTY_KEYS, plain.keys.at, plain.keys.size)
        if plain.tags.size:
            at = put_pair(at, PROPERTY_TAGS, plain.tags.at, plain.tags.size)
        at = put_pair(at, PROPERTY_UNIQ_KEY, <const char *>PyUnicode_DATA(key), key_size)
        memcpy(at, PyBytes_AS_STRING(self._suffix), <size_t>suffix_size)
        sent._key = key
        sent._batch = batch
        sent._index = len(batch._sends)
        batch._sends.append(sent)
        batch.size_bytes += size
        batch.entered += 1
        batch.entered_bytes += size
        if batch.size_bytes >= self._max_bytes:
            self._flush(batch)
        return True

    cdef PlainBatch _next_batch(self, place, PlainBatch full, topic, int64_t now_ms):
        # Here, not for each message: this look costs a system call.
        if _get_running_loop() is not self._loop:
            self._check_loop()
        if full is not None and not full.is_closed:
            self._flush(full)
        if len(self._filling) >= MAX_FILLING:
            self._filling.clear()  # they are sent when their time has come
        cdef PlainBatch batch = PlainBatch(self._wakeup, topic, now_ms)
        self._filling[place] = batch
        self._begin(batch)
        return batch
