# cython: boundscheck=False, wraparound=False
"""Pulls on the broker's fast path: those with a read grant that find messages now."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from pyromq.protocol.codes import CURRENT_VERSION
from pyromq.store.results import ReadStatus

from pyromq_native.protocol.answers cimport (
    begin_binary,
    put_binary_number,
    put_json_number,
    put_prefix,
)
from pyromq_native.big_endian cimport put_int32
from pyromq_native.broker.counting cimport Counted, Touched
from pyromq_native.growing cimport Growing, put, put_bytes, put_uint32, reserve, take_bytes
from pyromq_native.protocol.declared cimport COMMIT_FLAG, PREFIX_BYTES, SUBSCRIPTION_FLAG
from pyromq_native.protocol.headers cimport Header, Span
from pyromq_native.protocol.requests cimport Pull

cdef enum:
    SHORT_BYTES = 32768
    MAX_GRANTS = 4096


cdef class ReadGrant:
    """See `pyromq.broker.flow.read_grants`."""


cdef class FastPulls:
    """Pulls, answered from the store."""

    def __init__(self, store, read_grants, offsets, statistics, Touched touched, Py_ssize_t max_frame_bytes):
        self._read = store.read
        self._read_grants = read_grants
        self._offsets = offsets
        self._statistics = statistics
        self._touched = touched
        self._max_frame_bytes = max_frame_bytes
        self._found = ReadStatus.FOUND
        self._known_grants = {}
        self._scratch = Growing()
        self._json_end = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
        read_grants.on_change(self._known_grants.clear)

    def __len__(self):
        """The number of known grants."""
        return len(self._known_grants)

    cdef Py_ssize_t take(self, Header *header, Pull *pull, connection) except -2:
        """Answer a pull that finds messages now; returns their bytes, -1 if the general path must handle it."""
        cdef ReadGrant grant = self._find_grant(header.code, pull)
        cdef Growing out = self._scratch
        cdef Py_ssize_t fields_at, body_bytes, done
        cdef int64_t suggested
        cdef bytes whole
        cdef Counted counted
        cdef list views
        cdef Py_buffer view
        if (
            grant is None
            or not 0 <= pull.queue_id < grant.queues
            or pull.sub_version > grant.newest_version
        ):
            return -1
        resets = self._offsets.resets
        if resets and (grant.topic, grant.group) in resets:
            return -1
        result = self._read(
            grant.topic,
            pull.queue_id,
            pull.offset,
            pull.max_messages,
            pull.max_bytes or 1 << 30,
            tag_codes=grant.tag_codes,
        )
        if result.status is not self._found:
            return -1
        body_bytes = result.size_bytes
        suggested = grant.suggested_far if result.suggest_replica else grant.suggested_near
        next_offset = result.next_offset
        out.size = 0
        reserve(out, 512)
        out.size = PREFIX_BYTES
        if header.is_binary:
            fields_at = begin_binary(out, header, b"FOUND")
            put_binary_number(out, b"\x00\x14suggestWhichBrokerId", 22, suggested)
            put_binary_number(out, b"\x00\x0fnextBeginOffset", 17, next_offset)
            put_binary_number(out, b"\x00\x09minOffset", 11, result.min_offset)
            put_binary_number(out, b"\x00\x09maxOffset", 11, result.max_offset)
            put_int32(out.data + fields_at - 4, <uint32_t>(out.size - fields_at))
        else:
            put_json_number(out, b'{"code":0,"extFields":{"suggestWhichBrokerId":"', 47, suggested)
            put_json_number(out, b'","nextBeginOffset":"', 21, next_offset)
            put_json_number(out, b'","minOffset":"', 15, result.min_offset)
            put_json_number(out, b'","maxOffset":"', 15, result.max_offset)
            put_json_number(out, b'"},"flag":1,"language":"PYTHON","opaque":', 41, header.opaque)
            put(out, b',"remark":"FOUND"', 17)
            put_bytes(out, self._json_end)
        put_prefix(out, 0, header.is_binary, body_bytes)
        if out.size + body_bytes > self._max_frame_bytes:
            return -1
        if pull.sys_flag & COMMIT_FLAG:
            self._offsets.commit(grant.group, grant.topic, pull.queue_id, pull.commit_offset)
        self._offsets.pulled(grant.group, grant.topic, pull.queue_id, next_offset)
        counted = grant.counted.get(pull.queue_id)
        if counted is None:
            counted = grant.counted[pull.queue_id] = Counted.__new__(Counted)
            counted.series = self._statistics.gets_of(grant.group, grant.topic, pull.queue_id)
        self._touched.count(counted, result.message_count, body_bytes)
        views = result.views
        if len(views) == 1 and body_bytes >= SHORT_BYTES:
            # One contiguous view is sent without a copy.
            connection.put(take_bytes(out))
            connection.put(views[0])
            return body_bytes
        whole = PyBytes_FromStringAndSize(NULL, out.size + body_bytes)
        memcpy(PyBytes_AS_STRING(whole), out.data, <size_t>out.size)
        done = out.size
        for each in views:
            PyObject_GetBuffer(each, &view, PyBUF_SIMPLE)
            try:
                if view.len > PyBytes_GET_SIZE(whole) - done:
                    raise ValueError(f"records are longer than the {body_bytes} bytes that the read reported")
                memcpy(PyBytes_AS_STRING(whole) + done, view.buf, <size_t>view.len)
                done += view.len
            finally:
                PyBuffer_Release(&view)
        connection.put(whole)
        return body_bytes

    cdef ReadGrant _find_grant(self, int32_t code, Pull *pull):
        cdef bint brings_subscription = pull.sys_flag & SUBSCRIPTION_FLAG != 0
        cdef Growing key = self._scratch
        cdef ReadGrant grant
        cdef bytes name
        key.size = 0
        reserve(key, 
            24 + pull.group.length + pull.topic.length + pull.subscription.length + pull.expression_type.length
        )
        put_uint32(key, <uint32_t>code << 1 | brings_subscription)
        put_part(key, pull.topic)
        put_part(key, pull.group)
        if brings_subscription:
            put_part(key, pull.expression_type)
            put_part(key, pull.subscription)
        name = take_bytes(key)
        grant = self._known_grants.get(name)
        if grant is None:
            found = self._read_grants.find(
                code,
                pull.group.at[: pull.group.length].decode(),
                pull.topic.at[: pull.topic.length].decode(),
                _text_or_none(pull.subscription) if brings_subscription else None,
                _text_or_none(pull.expression_type) if brings_subscription else None,
            )
            if found is None:
                return None
            grant = ReadGrant.__new__(ReadGrant)
            grant.group = found.group
            grant.topic = found.topic
            grant.tag_codes = found.tag_codes
            grant.queues = found.queues
            grant.newest_version = found.newest_version
            grant.suggested_near = found.suggested_near
            grant.suggested_far = found.suggested_far
            grant.counted = {}
            if len(self._known_grants) >= MAX_GRANTS:
                self._known_grants.clear()
            self._known_grants[name] = grant
        return grant


cdef inline void put_part(Growing key, Span span) noexcept:
    """A part of a key after its length; a missing part differs from an empty one."""
    put_uint32(key, <uint32_t>0xFFFFFFFF if span.at is NULL else <uint32_t>span.length)
    if span.at is not NULL:
        put(key, span.at, span.length)


cdef inline object _text_or_none(Span span):
    return None if span.at is NULL else span.at[: span.length].decode()
