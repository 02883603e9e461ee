"""Plain sends, for the fast path."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from pyromq_native.store.fast_appending cimport Appended, Appender
from pyromq_native.store.fast_light cimport LightEnd
from pyromq_native.broker.counting cimport Counted, Touched
from pyromq_native.growing cimport Growing
from pyromq_native.protocol.headers cimport Header
from pyromq_native.broker.known_queues cimport KnownQueues, WritableQueue
from pyromq_native.protocol.records cimport Record
from pyromq_native.protocol.requests cimport Send, Traits
from pyromq_native.broker.send_answers cimport SendAnswers



cdef class Account:
    """The allowance of a topic with a quota, and what it has sent in this read; see `pyromq.broker.flow.quotas`."""

    cdef object _quotas, _topic
    cdef double _rates[2]
    cdef double _levels[2]
    cdef double _max_delay_s
    cdef long _messages
    cdef int64_t _size_bytes
    cdef long _delayed[2]

    cdef bint admits(self, topic) except -1
    cdef double charge(self, long messages, int64_t size_bytes) noexcept
    cdef int settle(self) except -1
    cdef double _debt_s(self, int which) noexcept


cdef class FastSends:
    cdef object _store, _appending, _send_throttle, _broker_properties, _born_hosts, _statistics, _transactions
    cdef object _half_topic, _timer_topic, _put_ok, _known_suffix
    cdef dict _recent
    cdef Appender _appender
    cdef LightEnd _light
    cdef KnownQueues _queues
    cdef Touched _touched
    cdef SendAnswers _send_answers
    cdef Counted _half_puts, _timer_puts
    cdef bytes _store_host, _born_host, _suffix, _recall_handle
    cdef bint _accepts_halves
    cdef int64_t _last_offset, _last_size
    cdef uint64_t _lite_hash
    cdef Growing _scratch, _place
    cdef bint waits
    cdef Growing answers, late_answers
    cdef double delay_s
    cdef Account _account

    cdef object last_append(self)
    cdef int settle(self) except -1
    cdef void begin(self, bint waits) noexcept
    cdef bint take(
        self, Header *header, Send *send, const uint8_t *body, Py_ssize_t body_bytes, connection
    ) except -1
    cdef bint _is_recent(self, Send *send, Traits *traits, const uint8_t *body, Py_ssize_t body_bytes) except -1
    cdef bint _is_admitted(self, connection) except -1
    cdef bint _append_one(
        self,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
        Appended *appended,
    ) except -1
    cdef void _describe(
        self,
        Record *record,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
    ) noexcept
    cdef bint _park(
        self,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
        Traits *traits,
        Appended *appended,
    ) except -1
    cdef bint _append_lite(
        self,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
        Traits *traits,
        Appended *appended,
    ) except -1
    cdef Counted _parked_puts(self, Traits *traits)
    cdef tuple _append_batch(self, WritableQueue queue, Send *send, bytes body, Appended *appended)
    cdef bint _note(self, result, Appended *appended) except -1
