# cython: boundscheck=False, wraparound=False
"""Plain sends of gRPC clients; see `calls`."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from pyromq_native.protocol.declared cimport (
    FLAG_COMPRESSED,
    PROPERTY_BORN_HOST,
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_KEYS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
)
from pyromq_native.proxy.calls cimport (
    GRPC_PREFIX_BYTES,
    OK_BYTES,
    Plain,
    framed,
    put_ok,
    put_piece,
    read_name,
    unframe,
    whole_answer,
)
from pyromq_native.growing cimport Growing, put, put_byte, put_bytes, put_constant, put_number, reserve, take_bytes
from pyromq_native.protocol.headers cimport Header
from pyromq_native.proxy.protobuf cimport BYTES, VARINT, Field, next_field, put_tag, put_text, put_varint, varint_size
from pyromq_native.protocol.requests cimport SendAnswer, read_send_answer
from pyromq_native.slices cimport (
    Slice,
    as_bytes,
    as_str,
    is_same,
    is_text,
    is_utf8,
    slice_of,
    slice_of_bytes,
    slice_of_constant,
)

cdef enum:
    GZIP = 2
    TRANSACTION = 4
    MAX_PAIRS = 32
    MAX_KEYS = 32

cdef Growing _request = Growing()
cdef Growing _answer = Growing()
cdef Growing _properties = Growing()


cdef struct Pair:
    Slice name
    Slice value


cdef class PlainSend(Plain):
    """One message."""

    cdef readonly object topic
    cdef readonly object message_group
    """None unless the message has one."""
    cdef Slice _id, _body
    cdef bytes _properties
    cdef int _sys_flag
    cdef int64_t _born_ms

    def frame(self, tuple pieces not None, int32_t queue_id, int64_t now_ms, int32_t opaque, Py_ssize_t max_frame_bytes):
        """The request that stores the message; None if the general path must make it.

        `pieces` are the bytes of a `RequestForm` around queue id, system flag, time, properties and opaque.
        """
        cdef Growing out = _request
        out.size = 0
        put_piece(out, pieces, 0)
        put_number(out, queue_id)
        put_piece(out, pieces, 1)
        put_number(out, self._sys_flag)
        put_piece(out, pieces, 2)
        put_number(out, self._born_ms if self._born_ms else now_ms)
        put_piece(out, pieces, 3)
        reserve(out, PyBytes_GET_SIZE(self._properties))
        put_bytes(out, self._properties)
        put_piece(out, pieces, 4)
        put_number(out, opaque)
        put_piece(out, pieces, 5)
        return framed(out, self._body, max_frame_bytes)

    cdef bytes answer(self, Header *header):
        cdef Slice transaction = self._id
        cdef SendAnswer found
        cdef Growing out = _answer
        cdef Py_ssize_t size
        if not read_send_answer(header, &found) or found.offset < 0 or found.recall_handle.at != NULL:
            return None
        if found.transaction.length:
            transaction = slice_of(<const char *>found.transaction.at, found.transaction.length)
        size = 1 + OK_BYTES + 2 + varint_size(self._id.size) + self._id.size
        size += varint_size(transaction.size) + transaction.size
        if found.offset:
            size += 1 + varint_size(found.offset)
        out.size = GRPC_PREFIX_BYTES
        reserve(out, 64 + size)
        put_ok(out, 1)
        put_tag(out, 2, BYTES)
        put_varint(out, <uint64_t>size)
        put_ok(out, 1)
        put_text(out, 2, self._id)
        put_text(out, 3, transaction)
        if found.offset:
            put_tag(out, 4, VARINT)
            put_varint(out, <uint64_t>found.offset)
        return whole_answer(out)


cdef class SendReader:
    """Reads requests with one plain message, within the limits of the front."""

    cdef frozenset _unusual
    cdef Py_ssize_t _max_body, _max_properties, _max_properties_bytes, _max_group_bytes
    cdef bint _refuses_empty

    def __init__(
        self,
        frozenset unusual not None,
        *,
        Py_ssize_t max_body_bytes,
        bint refuses_empty,
        Py_ssize_t max_properties,
        Py_ssize_t max_properties_bytes,
        Py_ssize_t max_group_bytes,
    ):
        """`unusual`: names of properties that only the general path knows."""
        self._unusual = unusual
        self._max_body = max_body_bytes
        self._refuses_empty = refuses_empty
        self._max_properties = max_properties
        self._max_properties_bytes = max_properties_bytes
        self._max_group_bytes = max_group_bytes

    def read(self, bytes data not None, bytes peer_host not None):
        """A PlainSend; None if the general path must read it. `peer_host`: where the call came from."""
        cdef Slice rest, message, topic, system
        cdef Field field
        cdef Pair pairs[MAX_PAIRS]
        cdef Pair pair
        cdef int count = 0, index, seen = 0
        cdef Py_ssize_t properties_bytes = 0
        cdef PlainSend send
        if not unframe(data, &rest) or not next_field(&rest, &field):
            return None
        if field.number != 1 or field.kind != BYTES or rest.size:
            return None
        message = field.text
        send = PlainSend.__new__(PlainSend)
        send.data = data
        send._body.at = message.at
        send._body.size = 0
        while message.size:
            if not next_field(&message, &field) or field.kind != BYTES:
                return None
            if field.number == 2:
                if count == MAX_PAIRS or not read_pair(field.text, &pair):
                    return None
                for index in range(count):
                    if is_same(pairs[index].name, pair.name):
                        return None
                if not is_text(pair.name, False) or not is_text(pair.value, False):
                    return None
                if as_bytes(pair.name) in self._unusual:
                    return None
                properties_bytes += pair.name.size + pair.value.size
                pairs[count] = pair
                count += 1
                continue
            if field.number > 4 or seen & 1 << field.number:
                return None
            seen |= 1 << field.number
            if field.number == 1:
                if not read_name(field.text, &topic):
                    return None
            elif field.number == 3:
                system = field.text
            else:
                send._body = field.text
        if not seen & 2 or not seen & 8 or count > self._max_properties:
            return None
        if not send._body.size and self._refuses_empty or send._body.size > self._max_body > 0:
            return None
        if not is_text(topic, True):
            return None
        send.topic = as_str(topic)
        if not self._read_system(send, system, topic, pairs, count, properties_bytes, slice_of_bytes(peer_host)):
            return None
        return send

    cdef bint _read_system(
        self,
        PlainSend send,
        Slice system,
        Slice topic,
        Pair *pairs,
        int count,
        Py_ssize_t properties_bytes,
        Slice born_host,
    ) except -1:
        cdef Field field
        cdef Slice tag, group, keys[MAX_KEYS]
        cdef int key_count = 0, seen = 0, index
        cdef Growing out = _properties
        tag.size = group.size = 0
        while system.size:
            if not next_field(&system, &field):
                return False
            if field.number == 2 and field.kind == BYTES:
                if key_count == MAX_KEYS or not is_text(field.text, True):
                    return False
                keys[key_count] = field.text
                properties_bytes += field.text.size + (key_count > 0)
                key_count += 1
                continue
            if field.number > 17 or seen & 1 << field.number:
                return False
            seen |= 1 << field.number
            if field.number == 1 and field.kind == BYTES:
                tag = field.text
                properties_bytes += tag.size
                if tag.size and (not is_text(tag, True) or memchr(tag.at, 0x7C, <size_t>tag.size) != NULL):
                    return False
            elif field.number == 3 and field.kind == BYTES:
                send._id = field.text
            elif field.number == 4 and field.kind == BYTES:
                if not is_digest(field.text):  # which is not compared
                    return False
            elif field.number == 5 and field.kind == VARINT:
                if field.value == GZIP:
                    send._sys_flag = FLAG_COMPRESSED
            elif field.number == 6 and field.kind == VARINT:
                if field.value == TRANSACTION:
                    return False
            elif field.number == 7 and field.kind == BYTES:
                if not read_milliseconds(field.text, &send._born_ms):
                    return False
            elif field.number == 8 and field.kind == BYTES:
                if field.text.size:
                    born_host = field.text
            elif field.number == 13 and field.kind == VARINT:
                pass  # the front chooses the queue
            elif field.number == 17 and field.kind == BYTES:
                group = field.text
                if group.size >= self._max_group_bytes or not is_text(group, True):
                    return False
                send.message_group = as_str(group)
            else:
                return False
        if not is_text(send._id, True) or not is_text(born_host, False):
            return False
        if properties_bytes > self._max_properties_bytes > 0:
            return False
        out.size = 0
        reserve(out, 2)
        put_byte(out, 0x22)
        for index in range(count):
            put_pair(out, pairs[index].name, pairs[index].value)
        put_pair(out, slice_of_constant(PROPERTY_UNIQ_KEY), send._id)
        put_pair(out, slice_of_constant(PROPERTY_PRODUCER_GROUP), topic)
        put_pair(out, slice_of_constant(PROPERTY_WAIT), slice_of(b"true", 4))
        if tag.size:
            put_pair(out, slice_of_constant(PROPERTY_TAGS), tag)
        if key_count:
            reserve(out, 32)
            put_constant(out, PROPERTY_KEYS)
            put(out, b"\\u0001", 6)
            for index in range(key_count):
                reserve(out, 2 * keys[index].size + 16)
                if index:
                    put_byte(out, 0x20)
                put_escaped(out, keys[index])
            put(out, b"\\u0002", 6)
        if group.size:
            put_pair(out, slice_of_constant(PROPERTY_SHARDING_KEY), group)
        put_pair(out, slice_of_constant(PROPERTY_BORN_HOST), born_host)
        if send._born_ms:
            reserve(out, 64)
            put_constant(out, PROPERTY_BORN_TIMESTAMP)
            put(out, b"\\u0001", 6)
            put_number(out, send._born_ms)
            put(out, b"\\u0002", 6)
        reserve(out, 1)
        put_byte(out, 0x22)
        send._properties = take_bytes(out)
        return True


cdef bint read_pair(Slice entry, Pair *pair) noexcept nogil:
    """An entry of a map of texts; its name is not empty."""
    cdef Field field
    pair.name.size = pair.value.size = 0
    pair.value.at = entry.at
    while entry.size:
        if not next_field(&entry, &field) or field.kind != BYTES:
            return False
        if field.number == 1 and not pair.name.size:
            pair.name = field.text
        elif field.number == 2 and not pair.value.size:
            pair.value = field.text
        else:
            return False
    return pair.name.size > 0


cdef int put_pair(Growing out, Slice name, Slice value) except -1:
    reserve(out, 2 * (name.size + value.size) + 12)
    put_escaped(out, name)
    put(out, b"\\u0001", 6)
    put_escaped(out, value)
    put(out, b"\\u0002", 6)
    return 0


cdef inline void put_escaped(Growing out, Slice text) noexcept:
    """A part of a JSON string without control characters, as msgspec writes it."""
    cdef Py_ssize_t index
    cdef uint8_t letter
    for index in range(text.size):
        letter = text.at[index]
        if letter == 0x22 or letter == 0x5C:
            put_byte(out, 0x5C)
        put_byte(out, letter)


cdef bint is_digest(Slice digest) except -1:
    """Whether protobuf can read it."""
    cdef Field field
    while digest.size:
        if not next_field(&digest, &field):
            return False
        if not (field.number == 1 and field.kind == VARINT):
            if field.number != 2 or field.kind != BYTES or not is_utf8(field.text):
                return False
    return True


cdef bint read_milliseconds(Slice timestamp, int64_t *milliseconds) noexcept nogil:
    cdef Field field
    cdef uint64_t seconds = 0, nanos = 0
    while timestamp.size:
        if not next_field(&timestamp, &field) or field.kind != VARINT:
            return False
        if field.number == 1:
            seconds = field.value
        elif field.number == 2:
            nanos = field.value
        else:
            return False
    milliseconds[0] = <int64_t>(seconds * 1000 + nanos // 1000000)
    return seconds < <uint64_t>1099511627776 and nanos < <uint64_t>1000000000
