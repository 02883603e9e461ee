# cython: boundscheck=False, wraparound=False
"""Queues that take messages, by the bytes of their topics; see `pyromq.broker.flow.writable_queues`."""

from pyromq.protocol.names import lite_queue
from pyromq.store.light.light_queues import enters_light_queues

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from pyromq_native.slices cimport start_of
from pyromq_native.store.fast_light cimport hash_of

cdef enum:
    MAX_KNOWN_TOPICS = 1024
    MAX_KNOWN_QUEUES = 1024


cdef class WritableQueue(Counted):
    """One of them, and what is counted of it."""


cdef class KnownQueues:
    """Those that were looked up before."""

    def __init__(self, writable_queues, statistics, bint has_light_queues):
        self._has_light_queues = has_light_queues
        self._writable_queues = writable_queues
        self._statistics = statistics
        self._queues = {}
        self._last_topic = b""
        self._last_queues = []
        writable_queues.on_change(self._forget)

    def __len__(self):
        return len(self._queues)

    def _forget(self):
        self._queues.clear()
        self._last_topic = b""
        self._last_queues = []

    cdef WritableQueue find(self, Span *topic, int32_t queue_id):
        cdef Py_ssize_t topic_bytes = topic.length
        cdef object found
        cdef WritableQueue queue
        cdef bytes name
        if (
            PyBytes_GET_SIZE(self._last_topic) != topic_bytes
            or memcmp(PyBytes_AS_STRING(self._last_topic), topic.at, <size_t>topic_bytes)
        ):
            name = topic.at[:topic_bytes]
            found = self._queues.get(name)
            if found is None:
                return self._open(topic, queue_id)
            self._last_topic = name
            self._last_queues = found
        if 0 <= queue_id < len(self._last_queues):
            queue = self._last_queues[queue_id]
            if queue is not None:
                return queue
        return self._open(topic, queue_id)

    cdef WritableQueue _open(self, Span *topic, int32_t queue_id):
        """Only existing topics are remembered: unknown names may have any length."""
        cdef bytes name = topic.at[: topic.length]
        cdef WritableQueue queue
        cdef list known
        writable = self._writable_queues.find(name.decode(), queue_id)
        if writable is None or not (writable.is_plain or writable.has_only_quota):
            return None
        if writable.is_lite and not (self._has_light_queues and enters_light_queues(writable.topic)):
            return None
        queue = WritableQueue.__new__(WritableQueue)
        queue.topic = writable.topic
        queue.queue_id = writable.queue_id
        queue.number = writable.queue_id
        queue.sys_flag = writable.sys_flag
        queue.has_quota = writable.has_quota
        if writable.is_lite:
            queue.lite_prefix = lite_queue(writable.topic, "").encode()
            queue.lite_hash = hash_of(start_of(queue.lite_prefix), PyBytes_GET_SIZE(queue.lite_prefix))
        queue.series = self._statistics.puts_of(writable.topic, writable.queue_id)
        if 0 <= queue.number < MAX_KNOWN_QUEUES:
            known = self._queues.get(name)
            if known is None:
                if len(self._queues) >= MAX_KNOWN_TOPICS:
                    self._queues.clear()
                known = self._queues[name] = []
            while len(known) <= queue.number:
                known.append(None)
            known[queue.number] = queue
        return queue
