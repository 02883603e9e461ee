# cython: boundscheck=False, wraparound=False
"""Twin of the hot part of `pyromq.protocol.record`: a record is written, or taken apart, without an object.

Whoever writes asks first whether the record `is_writable`; for what is not, the interpreted twin says why.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from pyromq_native.big_endian cimport get_int16, get_int32, get_int64, put_int16, put_int32, put_int64
from pyromq_native.protocol.checksums cimport crc32_of
from pyromq_native.protocol.declared cimport (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC_BYTES,
    MIN_RECORD_BYTES,
)
from pyromq_native.protocol.spans cimport is_ascii
from pyromq_native.slices cimport Slice, is_utf8, slice_of

cdef Py_ssize_t MAX_SHORT = 32767
cdef int32_t HOSTS_MASK = 0x30


cdef bint is_whole(object number, int64_t low, int64_t high, int64_t *value) noexcept:
    """Whether a number is an int within limits; then `value` is it."""
    cdef int overflow = 0
    if not PyLong_Check(number):
        return False
    value[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and low <= value[0] <= high


cdef Py_ssize_t all_properties_bytes(const Record *record) noexcept nogil:
    cdef Py_ssize_t length = record.properties_bytes + record.more_properties_bytes
    if record.more_properties_bytes and record.properties_bytes:
        length += record.properties[record.properties_bytes - 1] != 2
    return length


cdef Py_ssize_t record_size(const Record *record) noexcept nogil:
    return (
        75
        + record.body_bytes
        + record.topic_bytes
        + all_properties_bytes(record)
        + record.born_host_bytes
        + record.store_host_bytes
        + record.is_version_2
    )


cdef bint is_writable(const Record *record) noexcept nogil:
    """Whether its parts have lengths that a record can tell of."""
    return (
        (record.born_host_bytes == 8 or record.born_host_bytes == 20)
        and (record.store_host_bytes == 8 or record.store_host_bytes == 20)
        and record.topic_bytes <= (MAX_SHORT if record.is_version_2 else MAX_V1_TOPIC_BYTES)
        and all_properties_bytes(record) <= MAX_SHORT
        and record.body_bytes <= INT32_MAX - (1 << 20)
    )


cdef void write_record(uint8_t *at, const Record *record, Py_ssize_t size) noexcept nogil:
    """Write a record that `is_writable` and has this `record_size`; there must be room for it."""
    cdef int32_t sys_flag = record.sys_flag & ~HOSTS_MASK
    cdef Py_ssize_t properties_bytes
    if record.born_host_bytes == 20:
        sys_flag |= FLAG_BORN_HOST_V6
    if record.store_host_bytes == 20:
        sys_flag |= FLAG_STORE_HOST_V6
    put_int32(at, <int32_t>size)
    put_int32(at + 4, MAGIC_V2 if record.is_version_2 else MAGIC_V1)
    put_int32(at + 8, crc32_of(record.body, record.body_bytes) & 0x7FFFFFFF)
    put_int32(at + 12, record.queue_id)
    put_int32(at + 16, record.flag)
    put_int64(at + 20, record.queue_offset)
    put_int64(at + 28, record.log_offset)
    put_int32(at + 36, sys_flag)
    put_int64(at + 40, record.born_timestamp)
    at += 48
    memcpy(at, record.born_host, record.born_host_bytes)
    at += record.born_host_bytes
    put_int64(at, record.store_timestamp)
    at += 8
    memcpy(at, record.store_host, record.store_host_bytes)
    at += record.store_host_bytes
    put_int32(at, record.reconsume_times)
    put_int64(at + 4, record.prepared_transaction_offset)
    put_int32(at + 12, <int32_t>record.body_bytes)
    at += 16
    memcpy(at, record.body, record.body_bytes)
    at += record.body_bytes
    if record.is_version_2:
        put_int16(at, <int>record.topic_bytes)
        at += 2
    else:
        at[0] = <uint8_t>record.topic_bytes
        at += 1
    memcpy(at, record.topic, record.topic_bytes)
    at += record.topic_bytes
    properties_bytes = all_properties_bytes(record)
    put_int16(at, <int>properties_bytes)
    at += 2
    memcpy(at, record.properties, record.properties_bytes)
    at += record.properties_bytes
    if record.more_properties_bytes:
        if properties_bytes != record.properties_bytes + record.more_properties_bytes:
            at[0] = 2
            at += 1
        memcpy(at, record.more_properties, record.more_properties_bytes)


cdef bint outline_record(const uint8_t *at, int64_t room, Outline *outline) noexcept nogil:
    """Find the parts of the record that begins here; False for anything but a sound one within `room`."""
    cdef int32_t magic, body_bytes
    cdef int64_t place
    if room < MIN_RECORD_BYTES:
        return False
    outline.size = get_int32(at)
    magic = get_int32(at + 4)
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or outline.size < MIN_RECORD_BYTES or outline.size > room:
        return False
    outline.queue_id = get_int32(at + 12)
    outline.queue_offset = get_int64(at + 20)
    outline.log_offset = get_int64(at + 28)
    outline.sys_flag = get_int32(at + 36)
    place = 68 if outline.sys_flag & FLAG_BORN_HOST_V6 else 56
    outline.store_timestamp = get_int64(at + place)
    # place of the body's length: behind the store host, reconsume times and prepared offset
    place += 40 if outline.sys_flag & FLAG_STORE_HOST_V6 else 28
    if place + 4 > outline.size:
        return False
    body_bytes = get_int32(at + place)
    place += 4 + <int64_t>body_bytes
    if body_bytes < 0 or place + 4 > outline.size:
        return False
    if magic == MAGIC_V1:
        outline.topic_bytes = at[place]
        place += 1
        if outline.topic_bytes > MAX_V1_TOPIC_BYTES:
            return False
    else:
        outline.topic_bytes = get_int16(at + place)
        place += 2
        if outline.topic_bytes < 0:
            return False
    outline.topic_start = place
    place += outline.topic_bytes
    if place + 2 > outline.size:
        return False
    outline.properties_bytes = get_int16(at + place)
    outline.properties_start = place + 2
    return outline.properties_bytes >= 0 and place + 2 + outline.properties_bytes == outline.size


cdef bint has_own_body(const uint8_t *at, int32_t sys_flag) noexcept nogil:
    """Whether the body of a record, whose parts were found, matches its checksum."""
    cdef const uint8_t *body = at + 88 + (12 if sys_flag & FLAG_BORN_HOST_V6 else 0) + (12 if sys_flag & FLAG_STORE_HOST_V6 else 0)
    cdef int32_t body_bytes = get_int32(body - 4)
    # java: the CRC of an empty body is not looked at
    return not body_bytes or crc32_of(body, body_bytes) & 0x7FFFFFFF == <uint32_t>get_int32(at + 8)


cdef bint is_sound(const uint8_t *at, int64_t room, int64_t log_offset, int32_t *size) noexcept nogil:
    """Whether a record is what it says: its parts, its place, its topic of plain letters, and its body."""
    cdef Outline outline
    cdef Py_ssize_t position
    if (
        not outline_record(at, room, &outline)
        or outline.log_offset != log_offset
        or outline.queue_id < 0
        or outline.queue_offset < 0
        or not outline.topic_bytes
    ):
        return False
    for position in range(outline.topic_start, outline.topic_start + outline.topic_bytes):
        if not (c"0" <= at[position] <= c"z" or at[position] == c"%" or at[position] == c"-"):
            return False
    size[0] = outline.size
    return has_own_body(at, outline.sys_flag)


def whole_records(buffer, Py_ssize_t position, Py_ssize_t end, Py_ssize_t limit, int64_t log_offset):
    """Pass over the whole and sound records in [position, end), the first of them at `log_offset`; none may end
    behind `limit`. Returns where it stopped, where the last one begins (-1 if there was none), and how many
    there were. It also stops before a sound record that is unusual."""
    cdef Py_buffer view
    cdef Py_ssize_t last = -1, count = 0
    cdef int32_t size = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        end = min(end, limit, view.len)
        if position >= 0:
            while is_sound(<const uint8_t *>view.buf + position, end - position, log_offset, &size):
                last = position
                position += size
                log_offset += size
                count += 1
    finally:
        PyBuffer_Release(&view)
    return position, last, count


def first_damaged(buffer, Py_ssize_t position):
    """Where the first record begins whose body does not match its checksum, of those that follow each other from
    `position` on; -1 if there is none."""
    cdef Py_buffer view
    cdef Outline outline
    cdef Slice topic
    cdef const uint8_t *at
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while 0 <= position < view.len:
            at = <const uint8_t *>view.buf + position
            if not outline_record(at, view.len - position, &outline) or not has_own_body(at, outline.sys_flag):
                return position
            topic = slice_of(<const char *>at + outline.topic_start, outline.topic_bytes)
            if not is_ascii(topic.at, topic.size) and not is_utf8(topic):
                return position
            position += outline.size
    finally:
        PyBuffer_Release(&view)
    return -1
