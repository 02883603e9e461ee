# cython: boundscheck=False, wraparound=False
"""The messages of a pop as a gRPC client receives them: the compiled twin of `pyromq.proxy.incoming`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from hashlib import md5

from pyromq_native.big_endian cimport get_int32, get_int64
from pyromq_native.digits cimport MAX_NUMBER_CHARS
from pyromq_native.digits cimport put_number as put_digits
from pyromq_native.growing cimport Growing, put, put_byte, put_bytes, put_number, put_uint32, reserve, take_bytes
from pyromq_native.protocol.declared cimport (
    FLAG_COMPRESSED,
    FLAG_HOSTS_MASK,
    PROPERTY_BORN_HOST,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
)
from pyromq_native.proxy.protobuf cimport BYTES, VARINT, put_tag, put_text, put_varint, varint_size
from pyromq_native.protocol.records cimport Outline, outline_record
from pyromq_native.slices cimport Slice, as_bytes, is_named, is_plain, is_same, is_utf8, slice_of, slice_of_bytes

# The last millisecond that a Timestamp of protobuf can have, in the year 9999.
cdef int64_t MAX_TIME_MS = 253402300799999

cdef enum:
    MAX_PAIRS = 32
    BODY_AT = 88


cdef class ReceiptMaker:
    """The common part of one answer's handles."""

    cdef bytes _times
    cdef bytes _broker
    cdef dict _starts
    cdef dict _offsets

    def __init__(self, bytes times not None, bytes broker not None, dict starts not None, dict offsets not None):
        """`times`: pop time, invisible time and revive queue as words; `starts` and `offsets` as the answer
        says them."""
        self._times = times
        self._broker = broker
        self._starts = starts
        self._offsets = offsets

    cdef bint put(self, Growing out, int mark, int32_t queue_id, int64_t queue_offset, int64_t log_offset) except -1:
        """Write a handle; False if the answer says too little."""
        cdef int64_t start = queue_offset
        if self._starts:
            key = ("012"[mark], queue_id)
            found = self._starts.get(key)
            if found is None or queue_offset not in self._offsets.get(key, ()):
                return False
            start = found
        out.size = 0
        reserve(out, PyBytes_GET_SIZE(self._times) + PyBytes_GET_SIZE(self._broker) + 6 * MAX_NUMBER_CHARS)
        put_number(out, start)
        put_byte(out, 0x20)
        put_bytes(out, self._times)
        put_byte(out, 0x20)
        put_byte(out, 0x30 + mark)
        put_byte(out, 0x20)
        put_bytes(out, self._broker)
        put_byte(out, 0x20)
        put_number(out, queue_id)
        put_byte(out, 0x20)
        put_number(out, queue_offset)
        put_byte(out, 0x20)
        put_number(out, log_offset)
        return True


cdef struct Traits:
    # What a record's properties say.
    Slice tag
    Slice keys
    Slice unique_key
    Slice group
    Slice born_host
    bint is_half
    bint is_delayed


def received(
    bytes body not None,
    bytes topic not None,
    ReceiptMaker receipts not None,
    frozenset hidden not None,
    frozenset unusual not None,
    frozenset wanted_tags,
    int32_t max_retries,
):
    """The messages of a pop as parts of a client's answer, and the handle and the attempt of each.

    None if the general path must make them. `topic`: a Resource; `hidden`: names of properties that clients
    do not see; `unusual`: those that only the general path knows; `wanted_tags`: None for all.
    """
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(body)
    cdef Py_ssize_t room = PyBytes_GET_SIZE(body)
    cdef Outline outline
    cdef Traits traits
    cdef Slice text, digest
    cdef Growing answers = Growing.__new__(Growing)
    cdef Growing system = Growing.__new__(Growing)
    cdef Growing own = Growing.__new__(Growing)
    cdef Growing handle = Growing.__new__(Growing)
    cdef Py_ssize_t size
    cdef int32_t retries
    cdef int mark
    cdef list found = []
    cdef bytes checksum
    cdef bint is_gzipped
    answers.size = 0
    while room > 0:
        if not outline_record(at, room, &outline) or outline.sys_flag & FLAG_HOSTS_MASK:
            return None
        if not is_utf8_text(slice_of(<const char *>at + outline.topic_start, outline.topic_bytes)):
            return None
        retries = get_int32(at + 72)
        if retries < 0 or retries > max_retries:
            return None
        if not read_properties(at + outline.properties_start, outline.properties_bytes, hidden, unusual, own, &traits):
            return None
        if wanted_tags is not None and (not traits.tag.size or as_bytes(traits.tag) not in wanted_tags):
            return None
        mark = 0
        text.at = at + outline.topic_start
        text.size = outline.topic_bytes
        if text.size >= 7 and memcmp(text.at, b"%RETRY%", 7) == 0:
            mark = 2 if memchr(text.at, 0x2B, <size_t>text.size) != NULL else 1
        if not receipts.put(handle, mark, outline.queue_id, outline.queue_offset, outline.log_offset):
            return None
        text.at = at + BODY_AT
        text.size = get_int32(at + 84)
        is_gzipped = outline.sys_flag & FLAG_COMPRESSED
        if is_gzipped and (text.size < 2 or text.at[0] != 0x1F or text.at[1] != 0x8B):
            return None
        checksum = md5(as_bytes(text), usedforsecurity=False).hexdigest().upper().encode()
        digest = slice_of_bytes(checksum)
        if not put_system(system, &traits, handle, at, &outline, digest, is_gzipped, retries):
            return None
        found.append((PyUnicode_DecodeASCII(<const char *>handle.data, handle.size, NULL), retries + 1))
        size = 1 + varint_size(PyBytes_GET_SIZE(topic)) + PyBytes_GET_SIZE(topic) + own.size
        size += 1 + varint_size(system.size) + system.size
        if text.size:
            size += 1 + varint_size(text.size) + text.size
        reserve(answers, size + 64)
        put_byte(answers, 0)
        put_uint32(answers, <uint32_t>(1 + varint_size(size) + size))
        put_tag(answers, 2, BYTES)
        put_varint(answers, <uint64_t>size)
        put_text(answers, 1, slice_of_bytes(topic))
        put(answers, own.data, own.size)
        put_tag(answers, 3, BYTES)
        put_varint(answers, <uint64_t>system.size)
        put(answers, system.data, system.size)
        if text.size:
            put_text(answers, 4, text)
        at += outline.size
        room -= outline.size
    return take_bytes(answers), found


cdef bint read_properties(
    const uint8_t *at, Py_ssize_t room, frozenset hidden, frozenset unusual, Growing own, Traits *traits
) except -1:
    """Those of clients become entries in `own`; False if the general path must read them."""
    cdef Slice piece, name, value
    cdef Slice names[MAX_PAIRS]
    cdef int count = 0, index
    cdef const uint8_t *stop
    cdef const void *between
    cdef bint has_letter, is_ascii
    cdef bytes called
    traits.tag.size = traits.keys.size = traits.unique_key.size = traits.group.size = traits.born_host.size = 0
    traits.is_half = traits.is_delayed = False
    own.size = 0
    piece.at = at
    piece.size = room
    if not is_utf8_text(piece):
        return False
    while room > 0:
        stop = <const uint8_t *>memchr(at, 2, <size_t>room)
        piece.at = at
        piece.size = room if stop == NULL else stop - at
        room -= piece.size + 1
        at += piece.size + 1
        between = memchr(piece.at, 1, <size_t>piece.size)
        if between == NULL:
            continue
        name.at = piece.at
        name.size = <const uint8_t *>between - piece.at
        value.at = piece.at + name.size + 1
        value.size = piece.size - name.size - 1
        if not name.size or not value.size:
            continue
        if count == MAX_PAIRS:
            return False
        for index in range(count):
            if is_same(names[index], name):
                return False
        names[count] = name
        count += 1
        called = as_bytes(name)
        if called in unusual:
            return False
        if is_named(name, PROPERTY_UNIQ_KEY):
            traits.unique_key = value
        elif is_named(name, PROPERTY_TAGS):
            traits.tag = value
        elif is_named(name, PROPERTY_KEYS):
            if not is_plain(value, &has_letter, &is_ascii) or not is_ascii:
                return False
            traits.keys = value
        elif is_named(name, PROPERTY_SHARDING_KEY):
            traits.group = value
        elif is_named(name, PROPERTY_BORN_HOST):
            traits.born_host = value
        elif is_named(name, PROPERTY_TRANSACTION_PREPARED):
            traits.is_half = True
        elif is_named(name, PROPERTY_DELAY):
            traits.is_delayed = True
        elif called not in hidden:
            reserve(own, name.size + value.size + 40)
            put_tag(own, 2, BYTES)
            put_varint(
                own, <uint64_t>(2 + varint_size(name.size) + name.size + varint_size(value.size) + value.size)
            )
            put_text(own, 1, name)
            put_text(own, 2, value)
    return traits.unique_key.size > 0


cdef bint is_utf8_text(Slice text) except -1:
    cdef Py_ssize_t index
    for index in range(text.size):
        if text.at[index] >= 0x80:
            return is_utf8(text)
    return True


cdef bint put_system(
    Growing out,
    Traits *traits,
    Growing handle,
    const uint8_t *record,
    Outline *outline,
    Slice digest,
    bint is_gzipped,
    int32_t retries,
) except -1:
    """The system properties of a message; False if the general path must write."""
    cdef int64_t born_ms = get_int64(record + 40)
    cdef uint8_t host[48]
    cdef Slice text, rest
    cdef const uint8_t *stop
    cdef Py_ssize_t host_chars
    if not 0 <= born_ms <= MAX_TIME_MS or not 0 <= outline.store_timestamp <= MAX_TIME_MS:
        return False
    if outline.queue_id < 0 or outline.queue_offset < 0:
        return False
    out.size = 0
    reserve(
        out,
        512
        + traits.tag.size
        + 6 * traits.keys.size
        + traits.unique_key.size
        + traits.group.size
        + traits.born_host.size
        + handle.size
        + digest.size,
    )
    if traits.tag.size:
        put_text(out, 1, traits.tag)
    rest = traits.keys
    while rest.size:
        stop = <const uint8_t *>memchr(rest.at, 0x20, <size_t>rest.size)
        text.at = rest.at
        text.size = rest.size if stop == NULL else stop - rest.at
        if text.size:
            put_text(out, 2, text)
        rest.at += text.size + (stop != NULL)
        rest.size -= text.size + (stop != NULL)
    put_text(out, 3, traits.unique_key)
    put_tag(out, 4, BYTES)
    put_varint(out, <uint64_t>(4 + digest.size))
    put_tag(out, 1, VARINT)
    put_byte(out, 2)  # MD5
    put_text(out, 2, digest)
    put_tag(out, 5, VARINT)
    put_byte(out, 2 if is_gzipped else 1)
    put_tag(out, 6, VARINT)
    put_byte(out, 4 if traits.is_half else 3 if traits.is_delayed else 2 if traits.group.size else 1)
    put_time(out, 7, born_ms)
    if traits.born_host.size:
        put_text(out, 8, traits.born_host)
    else:
        put_text(out, 8, slice_of(<const char *>host, put_ip(host, record + 48)))
    put_time(out, 9, outline.store_timestamp)
    host_chars = put_ip(host, record + 64)
    host[host_chars] = 0x3A
    host_chars = put_digits(host + host_chars + 1, get_int32(record + 68)) - host
    put_text(out, 10, slice_of(<const char *>host, host_chars))
    put_text(out, 12, slice_of(<const char *>handle.data, handle.size))
    if outline.queue_id:
        put_tag(out, 13, VARINT)
        put_varint(out, <uint64_t>outline.queue_id)
    put_tag(out, 14, VARINT)
    put_varint(out, <uint64_t>outline.queue_offset)
    put_tag(out, 16, VARINT)
    put_varint(out, <uint64_t>(<int64_t>retries + 1))
    if traits.group.size:
        put_text(out, 17, traits.group)
    return True


cdef void put_time(Growing out, int number, int64_t milliseconds) noexcept:
    cdef uint64_t seconds = <uint64_t>milliseconds // 1000
    cdef uint64_t nanos = <uint64_t>milliseconds % 1000 * 1000000
    cdef Py_ssize_t size = 0
    if seconds:
        size += 1 + varint_size(seconds)
    if nanos:
        size += 1 + varint_size(nanos)
    put_tag(out, number, BYTES)
    put_varint(out, <uint64_t>size)
    if seconds:
        put_tag(out, 1, VARINT)
        put_varint(out, seconds)
    if nanos:
        put_tag(out, 2, VARINT)
        put_varint(out, nanos)


cdef Py_ssize_t put_ip(uint8_t *into, const uint8_t *ip) noexcept nogil:
    """An IPv4 address as text; returns its length."""
    cdef Py_ssize_t size = 0
    cdef int index, part
    for index in range(4):
        part = ip[index]
        if index:
            into[size] = 0x2E
            size += 1
        if part >= 100:
            into[size] = <uint8_t>(0x30 + part // 100)
            size += 1
        if part >= 10:
            into[size] = <uint8_t>(0x30 + part // 10 % 10)
            size += 1
        into[size] = <uint8_t>(0x30 + part % 10)
        size += 1
    return size
