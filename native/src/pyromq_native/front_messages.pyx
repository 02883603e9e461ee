# cython: boundscheck=False, wraparound=False
"""The compiled half of `pyromq.proxy.quick_calls`: plain calls of gRPC clients become requests of brokers, and
back, without an object for each protobuf message.

Everything unusual is declined, and the general path takes it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from hashlib import md5

from pyromq_native.big_endian cimport get_int32, get_int64, get_uint32, put_int32
from pyromq_native.digits cimport MAX_NUMBER_CHARS
from pyromq_native.digits cimport put_number as put_digits
from pyromq_native.headers cimport Header, Span, is_called, next_answer, read_int64
from pyromq_native.records cimport Outline, outline_record

cdef enum:
    PREFIX_BYTES = 8
    GRPC_PREFIX_BYTES = 5
    VARINT = 0
    FIXED_64 = 1
    BYTES = 2
    FIXED_32 = 5
    GZIP = 2
    TRANSACTION = 4
    COMPRESSED = 1
    MAX_HEADER_BYTES = 1048576
    MAX_ESCAPED = 6
    MAX_PAIRS = 32
    MAX_KEYS = 32
    RECEIPT_WORDS = 8
    MAX_DIGITS = 18
    MAX_QUEUE_DIGITS = 9
    BODY_AT = 88

cdef const char *HEX = b"0123456789abcdef"

# status { code: OK message: "OK" }, without its tag
cdef const char *OK = b"\x08\x08\xa0\x9c\x01\x12\x02OK"
cdef Py_ssize_t OK_BYTES = 9


# ------------------------------------------------------------------------------------------ protobuf


cdef struct Slice:
    const uint8_t *at
    Py_ssize_t size


cdef struct Field:
    int number
    int kind
    uint64_t value
    Slice text


cdef inline Slice slice_of(const char *text, Py_ssize_t size) noexcept nogil:
    cdef Slice found
    found.at = <const uint8_t *>text
    found.size = size
    return found


cdef inline Slice slice_of_bytes(bytes text) noexcept:
    return slice_of(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef bint read_varint(Slice *rest, uint64_t *value) noexcept nogil:
    cdef int shift = 0
    value[0] = 0
    while rest.size and shift < 63:
        value[0] |= <uint64_t>(rest.at[0] & 0x7F) << shift
        shift += 7
        rest.at += 1
        rest.size -= 1
        if rest.at[-1] < 0x80:
            return True
    return False


cdef bint next_field(Slice *rest, Field *field) noexcept nogil:
    """Take the first field off a message; False if it is not of a plain kind, or not whole."""
    cdef uint64_t value
    if not read_varint(rest, &value) or value >> 3 == 0 or value >> 3 > 1000:
        return False
    field.number = <int>(value >> 3)
    field.kind = <int>(value & 7)
    if field.kind == VARINT:
        return read_varint(rest, &field.value)
    if field.kind != BYTES or not read_varint(rest, &value) or value > <uint64_t>rest.size:
        return False
    field.text.at = rest.at
    field.text.size = <Py_ssize_t>value
    rest.at += field.text.size
    rest.size -= field.text.size
    return True


cdef bint read_name(Slice resource, Slice *name) noexcept nogil:
    """The name in a Resource."""
    cdef Field field
    name.size = 0
    while resource.size:
        if not next_field(&resource, &field) or field.kind != BYTES:
            return False
        if field.number == 2 and not name.size:
            name[0] = field.text
        elif field.number != 1 or field.text.size:
            return False
    return name.size > 0


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


cdef bint is_plain(Slice text, bint *has_letter, bint *is_ascii) noexcept nogil:
    """Whether a text has no control characters; and has it a letter, is it ASCII?"""
    cdef Py_ssize_t index
    cdef uint8_t byte
    has_letter[0] = False
    is_ascii[0] = True
    for index in range(text.size):
        byte = text.at[index]
        if byte < 0x20 or byte == 0x7F:
            return False
        if byte >= 0x80:
            is_ascii[0] = False
            if byte == 0xC2 and index + 1 < text.size and text.at[index + 1] < 0xA0:
                return False
        elif byte > 0x20:
            has_letter[0] = True
    return True


cdef bint is_utf8(Slice text) except -1:
    try:
        PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint is_text(Slice text, bint must_have_letter) except -1:
    """Whether it is a text that no check of the general path would refuse for its letters."""
    cdef bint has_letter, is_ascii
    if not is_plain(text, &has_letter, &is_ascii) or (must_have_letter and not has_letter):
        return False
    return is_ascii or is_utf8(text)


cdef bint is_same(Slice one, Slice other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, <size_t>one.size) == 0


cdef bint is_named(Slice name, const char *text, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, text, <size_t>size) == 0


cdef object as_str(Slice text):
    return PyUnicode_DecodeUTF8(<const char *>text.at, text.size, NULL)


cdef bint unframe(bytes data, Slice *message) noexcept:
    """The only message in the bytes of a call; False if it is compressed, or not the only one."""
    message[0] = slice_of_bytes(data)
    if message.size < GRPC_PREFIX_BYTES or message.at[0] != 0:
        return False
    if get_uint32(message.at + 1) != <uint64_t>(message.size - GRPC_PREFIX_BYTES):
        return False
    message.at += GRPC_PREFIX_BYTES
    message.size -= GRPC_PREFIX_BYTES
    return True


cdef bytes as_bytes(Slice text):
    return PyBytes_FromStringAndSize(<const char *>text.at, text.size)


# ------------------------------------------------------------------------------------------ writing


cdef struct Out:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef Out _header, _system, _own, _answers, _text


cdef int reserve(Out *out, Py_ssize_t more) except -1:
    """Call it before the functions below."""
    cdef uint8_t *grown
    cdef Py_ssize_t wanted = out.size + more
    if wanted > out.room:
        wanted *= 2
        grown = <uint8_t *>PyMem_Realloc(out.data, <size_t>wanted)
        if grown is NULL:
            raise MemoryError()
        out.data = grown
        out.room = wanted
    return 0


cdef inline void put(Out *out, const void *source, Py_ssize_t size) noexcept nogil:
    memcpy(out.data + out.size, source, <size_t>size)
    out.size += size


cdef inline void put_byte(Out *out, int byte) noexcept nogil:
    out.data[out.size] = <uint8_t>byte
    out.size += 1


cdef inline void put_varint(Out *out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        put_byte(out, <int>(value & 0x7F | 0x80))
        value >>= 7
    put_byte(out, <int>value)


cdef inline Py_ssize_t varint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline void put_tag(Out *out, int number, int kind) noexcept nogil:
    put_varint(out, <uint64_t>(number << 3 | kind))


cdef inline void put_text(Out *out, int number, Slice text) noexcept nogil:
    put_tag(out, number, BYTES)
    put_varint(out, <uint64_t>text.size)
    put(out, text.at, text.size)


cdef inline void put_ok(Out *out, int number) noexcept nogil:
    put_tag(out, number, BYTES)
    put(out, OK, OK_BYTES)


cdef inline void put_number(Out *out, int64_t number) noexcept nogil:
    """In decimal digits."""
    out.size = put_digits(out.data + out.size, number) - out.data


cdef inline void put_escaped(Out *out, Slice text) noexcept nogil:
    """A part of a JSON string without control characters, as msgspec writes it."""
    cdef Py_ssize_t index
    cdef uint8_t letter
    for index in range(text.size):
        letter = text.at[index]
        if letter == 0x22 or letter == 0x5C:
            put_byte(out, 0x5C)
        put_byte(out, letter)


cdef int put_pair(Out *out, Slice name, Slice value) except -1:
    reserve(out, 2 * (name.size + value.size) + 12)
    put_escaped(out, name)
    put(out, b"\\u0001", 6)
    put_escaped(out, value)
    put(out, b"\\u0002", 6)
    return 0


cdef int put_piece(Out *out, tuple pieces, int index) except -1:
    cdef bytes piece = <bytes?>pieces[index]
    reserve(out, PyBytes_GET_SIZE(piece) + MAX_NUMBER_CHARS)
    put(out, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return 0


cdef bytes framed(Out *header, Slice body, Py_ssize_t max_frame_bytes):
    """A request of a broker; None if it is too large."""
    cdef Py_ssize_t length = 4 + header.size + body.size
    cdef bytes frame
    cdef uint8_t *at
    if header.size > MAX_HEADER_BYTES or length + 4 > max_frame_bytes:
        return None
    frame = PyBytes_FromStringAndSize(NULL, length + 4)
    at = <uint8_t *>PyBytes_AS_STRING(frame)
    put_int32(at, <uint32_t>length)
    put_int32(at + 4, <uint32_t>header.size)
    memcpy(at + PREFIX_BYTES, header.data, <size_t>header.size)
    memcpy(at + PREFIX_BYTES + header.size, body.at, <size_t>body.size)
    return frame


# ------------------------------------------------------------------------------------------ calls


cdef class Plain:
    """A plain call."""

    cdef readonly bytes data
    """The bytes of the call."""

    cdef bytes answer(self, Header *header):
        """The client's answer, made from that of a broker; None if the general path must do it."""
        return None


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
        cdef Out *out = &_header
        out.size = 0
        put_piece(out, pieces, 0)
        put_number(out, queue_id)
        put_piece(out, pieces, 1)
        put_number(out, self._sys_flag)
        put_piece(out, pieces, 2)
        put_number(out, self._born_ms if self._born_ms else now_ms)
        put_piece(out, pieces, 3)
        reserve(out, PyBytes_GET_SIZE(self._properties))
        put(out, PyBytes_AS_STRING(self._properties), PyBytes_GET_SIZE(self._properties))
        put_piece(out, pieces, 4)
        put_number(out, opaque)
        put_piece(out, pieces, 5)
        return framed(out, self._body, max_frame_bytes)

    cdef bytes answer(self, Header *header):
        cdef Slice transaction = self._id
        cdef int64_t offset = -1
        cdef int index
        cdef Span *value
        cdef Out *out = &_answers
        cdef Py_ssize_t size
        for index in range(header.field_count):
            value = &header.values[index]
            if is_called(header.names[index], b"queueOffset", 11):
                if offset >= 0 or not read_int64(value[0], &offset):
                    return None
            elif is_called(header.names[index], b"transactionId", 13):
                if value.has_escapes:
                    return None
                if value.length:
                    transaction = slice_of(<const char *>value.at, value.length)
            elif is_called(header.names[index], b"recallHandle", 12):
                return None
        if offset < 0:
            return None
        size = 1 + OK_BYTES + 2 + varint_size(self._id.size) + self._id.size
        size += varint_size(transaction.size) + transaction.size
        if offset:
            size += 1 + varint_size(offset)
        out.size = GRPC_PREFIX_BYTES
        reserve(out, 64 + size)
        put_ok(out, 1)
        put_tag(out, 2, BYTES)
        put_varint(out, <uint64_t>size)
        put_ok(out, 1)
        put_text(out, 2, self._id)
        put_text(out, 3, transaction)
        if offset:
            put_tag(out, 4, VARINT)
            put_varint(out, <uint64_t>offset)
        return whole_answer(out)


cdef bytes whole_answer(Out *out):
    out.data[0] = 0
    put_int32(out.data + 1, <uint32_t>(out.size - GRPC_PREFIX_BYTES))
    return PyBytes_FromStringAndSize(<char *>out.data, out.size)


cdef struct Pair:
    Slice name
    Slice value


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
        cdef Out *out = &_text
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
                pass  # a digest, which nobody compares
            elif field.number == 5 and field.kind == VARINT:
                if field.value == GZIP:
                    send._sys_flag = COMPRESSED
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
        put_pair(out, slice_of(b"UNIQ_KEY", 8), send._id)
        put_pair(out, slice_of(b"PGROUP", 6), topic)
        put_pair(out, slice_of(b"WAIT", 4), slice_of(b"true", 4))
        if tag.size:
            put_pair(out, slice_of(b"TAGS", 4), tag)
        if key_count:
            reserve(out, 32)
            put(out, b"KEYS\\u0001", 10)
            for index in range(key_count):
                reserve(out, 2 * keys[index].size + 16)
                if index:
                    put_byte(out, 0x20)
                put_escaped(out, keys[index])
            put(out, b"\\u0002", 6)
        if group.size:
            put_pair(out, slice_of(b"__SHARDINGKEY", 13), group)
        put_pair(out, slice_of(b"__BORNHOST", 10), born_host)
        if send._born_ms:
            reserve(out, 64)
            put(out, b"BORN_TIMESTAMP\\u0001", 20)
            put_number(out, send._born_ms)
            put(out, b"\\u0002", 6)
        reserve(out, 1)
        put_byte(out, 0x22)
        send._properties = PyBytes_FromStringAndSize(<char *>out.data, out.size)
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


cdef class PlainAck(Plain):
    """The acknowledgement of one message."""

    cdef readonly object topic, group, handle, broker_name
    cdef readonly int64_t expires_ms
    cdef Slice _id, _handle, _receipt
    cdef int64_t _queue_id, _offset

    def frame(self, tuple pieces not None, int32_t opaque, Py_ssize_t max_frame_bytes):
        """The request; None if the general path must make it.

        `pieces` are the bytes of a `RequestForm` around queue id, receipt, offset and opaque.
        """
        cdef Out *out = &_header
        out.size = 0
        put_piece(out, pieces, 0)
        put_number(out, self._queue_id)
        put_piece(out, pieces, 1)
        reserve(out, self._receipt.size + 2)
        put_byte(out, 0x22)
        put(out, self._receipt.at, self._receipt.size)
        put_byte(out, 0x22)
        put_piece(out, pieces, 2)
        put_number(out, self._offset)
        put_piece(out, pieces, 3)
        put_number(out, opaque)
        put_piece(out, pieces, 4)
        return framed(out, slice_of(b"", 0), max_frame_bytes)

    cdef bytes answer(self, Header *header):
        cdef Out *out = &_answers
        cdef Py_ssize_t size = 2 + OK_BYTES + varint_size(self._handle.size) + self._handle.size
        if self._id.size:
            size += 1 + varint_size(self._id.size) + self._id.size
        out.size = GRPC_PREFIX_BYTES
        reserve(out, 64 + size)
        put_ok(out, 1)
        put_tag(out, 2, BYTES)
        put_varint(out, <uint64_t>size)
        if self._id.size:
            put_text(out, 1, self._id)
        put_text(out, 2, self._handle)
        put_ok(out, 3)
        return whole_answer(out)


cdef bint read_word(Slice *rest, int max_digits, int64_t *number) noexcept nogil:
    """A number in front of a space, or of the end; False unless it is written the usual way."""
    cdef Py_ssize_t digits = 0
    number[0] = 0
    while digits < rest.size and 0x30 <= rest.at[digits] <= 0x39 and digits <= max_digits:
        number[0] = number[0] * 10 + (rest.at[digits] - 0x30)
        digits += 1
    if not 0 < digits <= max_digits or (digits > 1 and rest.at[0] == 0x30):
        return False
    if digits < rest.size:
        if rest.at[digits] != 0x20:
            return False
        digits += 1
    rest.at += digits
    rest.size -= digits
    return True


def read_ack(bytes data not None):
    """A PlainAck; None if the general path must read it."""
    cdef Slice rest, group, topic, entry, words, broker
    cdef Field field
    cdef int seen = 0
    cdef bint has_letter, is_ascii
    cdef int64_t number, popped_ms, invisible_ms
    cdef const void *space
    cdef PlainAck ack
    if not unframe(data, &rest):
        return None
    while rest.size:
        if not next_field(&rest, &field) or field.kind != BYTES or field.number > 3 or seen & 1 << field.number:
            return None
        seen |= 1 << field.number
        if field.number == 1:
            if not read_name(field.text, &group):
                return None
        elif field.number == 2:
            if not read_name(field.text, &topic):
                return None
        else:
            entry = field.text
    if seen != 14 or not is_text(topic, True) or not is_text(group, True):
        return None
    ack = PlainAck.__new__(PlainAck)
    ack.data = data
    seen = 0
    while entry.size:
        if not next_field(&entry, &field) or field.kind != BYTES or field.number > 2 or seen & 1 << field.number:
            return None
        seen |= 1 << field.number
        if not is_plain(field.text, &has_letter, &is_ascii) or not is_ascii:
            return None
        if field.number == 1:
            ack._id = field.text
        else:
            ack._handle = field.text
    words = ack._handle
    if not read_word(&words, MAX_DIGITS, &number):
        return None
    if not read_word(&words, MAX_DIGITS, &popped_ms) or not read_word(&words, MAX_DIGITS, &invisible_ms):
        return None
    # A message that was retried is in another topic.
    if not read_word(&words, MAX_DIGITS, &number) or not read_word(&words, 1, &number) or number != 0:
        return None
    space = memchr(words.at, 0x20, <size_t>words.size)
    if space == NULL or space == words.at:
        return None
    broker.at = words.at
    broker.size = <const uint8_t *>space - words.at
    if memchr(broker.at, 0x22, <size_t>broker.size) != NULL or memchr(broker.at, 0x5C, <size_t>broker.size) != NULL:
        return None
    words.at += broker.size + 1
    words.size -= broker.size + 1
    if not read_word(&words, MAX_QUEUE_DIGITS, &ack._queue_id) or not read_word(&words, MAX_DIGITS, &ack._offset):
        return None
    if not words.size:
        return None
    ack._receipt.at = ack._handle.at
    ack._receipt.size = words.at - 1 - ack._handle.at
    if not read_word(&words, MAX_DIGITS, &number) or words.size or ack._handle.at[ack._handle.size - 1] == 0x20:
        return None
    ack.expires_ms = popped_ms + invisible_ms
    ack.topic, ack.group = as_str(topic), as_str(group)
    ack.handle, ack.broker_name = as_str(ack._handle), as_str(broker)
    return ack


cdef class QuickAnswers:
    """The fast path of a front's connections to brokers: answers to plain calls, each for its client."""

    cdef Py_ssize_t _max_frame_bytes

    def __init__(self, Py_ssize_t max_frame_bytes):
        self._max_frame_bytes = max_frame_bytes

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end
        cdef int frames = 0
        cdef Header header
        cdef dict waiting = connection.quick
        cdef bytes told
        while True:
            end = next_answer(start, position, available, self._max_frame_bytes, &header)
            if not end:
                break
            call = waiting.get(header.opaque)
            if call is None:
                break
            told = (<Plain?>call.plain).answer(&header)
            if told is None:
                break
            call.settle(told)
            frames += 1
            position = end
        return frames, position


# ------------------------------------------------------------------------------------------ receives


cdef class ReceiptMaker:
    """What the handles of one answer have in common."""

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

    cdef bint put(self, Out *out, int mark, int32_t queue_id, int64_t queue_offset, int64_t log_offset) except -1:
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
        put(out, PyBytes_AS_STRING(self._times), PyBytes_GET_SIZE(self._times))
        put_byte(out, 0x20)
        put_byte(out, 0x30 + mark)
        put_byte(out, 0x20)
        put(out, PyBytes_AS_STRING(self._broker), PyBytes_GET_SIZE(self._broker))
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
    cdef Out *answers = &_answers
    cdef Out *system = &_system
    cdef Out *own = &_own
    cdef Py_ssize_t size
    cdef int32_t retries
    cdef int mark
    cdef list found = []
    cdef bytes checksum
    cdef bint is_gzipped
    answers.size = 0
    while room > 0:
        if not outline_record(at, room, &outline) or outline.sys_flag & 0x30:
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
        if not receipts.put(&_text, mark, outline.queue_id, outline.queue_offset, outline.log_offset):
            return None
        text.at = at + BODY_AT
        text.size = get_int32(at + 84)
        is_gzipped = outline.sys_flag & COMPRESSED
        if is_gzipped and (text.size < 2 or text.at[0] != 0x1F or text.at[1] != 0x8B):
            return None
        checksum = md5(as_bytes(text), usedforsecurity=False).hexdigest().upper().encode()
        digest = slice_of_bytes(checksum)
        if not put_system(system, &traits, at, &outline, digest, is_gzipped, retries):
            return None
        found.append((PyUnicode_DecodeASCII(<const char *>_text.data, _text.size, NULL), retries + 1))
        size = 1 + varint_size(PyBytes_GET_SIZE(topic)) + PyBytes_GET_SIZE(topic) + own.size
        size += 1 + varint_size(system.size) + system.size
        if text.size:
            size += 1 + varint_size(text.size) + text.size
        reserve(answers, size + 64)
        put_byte(answers, 0)
        put_int32(answers.data + answers.size, <uint32_t>(1 + varint_size(size) + size))
        answers.size += 4
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
    return PyBytes_FromStringAndSize(<char *>answers.data, answers.size), found


cdef bint read_properties(
    const uint8_t *at, Py_ssize_t room, frozenset hidden, frozenset unusual, Out *own, Traits *traits
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
        if is_named(name, b"UNIQ_KEY", 8):
            traits.unique_key = value
        elif is_named(name, b"TAGS", 4):
            traits.tag = value
        elif is_named(name, b"KEYS", 4):
            if not is_plain(value, &has_letter, &is_ascii) or not is_ascii:
                return False
            traits.keys = value
        elif is_named(name, b"__SHARDINGKEY", 13):
            traits.group = value
        elif is_named(name, b"__BORNHOST", 10):
            traits.born_host = value
        elif is_named(name, b"TRAN_MSG", 8):
            traits.is_half = True
        elif is_named(name, b"DELAY", 5):
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


cdef void put_time(Out *out, int number, int64_t milliseconds) noexcept nogil:
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


cdef bint put_system(
    Out *out,
    Traits *traits,
    const uint8_t *record,
    Outline *outline,
    Slice digest,
    bint is_gzipped,
    int32_t retries,
) except -1:
    """The system properties of a message whose handle is in `_text`; False if the general path must write."""
    cdef int64_t born_ms = get_int64(record + 40)
    cdef uint8_t host[48]
    cdef Slice text, rest
    cdef const uint8_t *stop
    cdef Out port
    if born_ms < 0 or outline.store_timestamp < 0 or outline.queue_id < 0 or outline.queue_offset < 0:
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
        + _text.size
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
    port.data = host
    port.size = put_ip(host, record + 64)
    put_byte(&port, 0x3A)
    put_number(&port, get_int32(record + 68))
    put_text(out, 10, slice_of(<const char *>host, port.size))
    put_text(out, 12, slice_of(<const char *>_text.data, _text.size))
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
