# cython: boundscheck=False, wraparound=False
"""Whether a scanned request is signed; see `pyromq.security.signature` and `pyromq.security.full_signature`.

The signed bytes are put together in place: nothing is decoded. False may also mean that the request is
unusual; the general path decides then. The hashes are hashlib's.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from pyromq_native.big_endian cimport put_int32
from pyromq_native.protocol.declared cimport FIELD_FULL_SIGNATURE, FIELD_SIGNATURE
from pyromq_native.protocol.headers cimport MAX_FIELDS, Header, Span, scan_header, unescape
from pyromq_native.protocol.spans cimport is_field

cdef enum:
    SHORT_BYTES = 4096
    MAX_SUM_BYTES = 32
    LABEL_BYTES = 24
    STAMP_CHARS = 40
    TIME_CHARS = 12
    SESSION_CHARS = 16
    FULL_CHARS = 84

cdef const char *LABEL = b"PyroMQ full signature 1\n"
cdef const char *DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class SignatureCheck:
    """The proof that a request must carry on a connection that others could write to: see `pyromq.remoting.admission.Proof`."""

    def __init__(self, proof):
        (
            (self._inner, self._outer),
            (self._full_inner, self._full_outer),
            self._session,
            self._requires_full,
            max_send_age_ms,
            max_age_ms,
            clock,
        ) = proof
        now_ms = clock()
        self.oldest_send_ms, self.newest_send_ms = INT64_MIN, INT64_MAX
        if max_send_age_ms:
            self.oldest_send_ms, self.newest_send_ms = now_ms - max_send_age_ms, now_ms + max_send_age_ms
        self._oldest_ms, self._newest_ms = now_ms - max_age_ms, now_ms + max_age_ms
        self._seen = self._number = -1
        self._seen_ms = self._latest_ms = 0
        if self._session is not None:
            self._name = self._session.name
            self._seen = self._number = self._session.number
            self._seen_ms = self._latest_ms = self._session.latest_ms

    cdef bint accepts(self, Header *header, const uint8_t *body, Py_ssize_t body_bytes) except -1:
        """Whether the signature is right, the full one if there is one; `took` follows if the request is taken."""
        cdef int index
        for index in range(header.field_count):
            if is_field(header.names[index], FIELD_FULL_SIGNATURE):
                return self._accepts_full(header, header.values[index], body, body_bytes)
        return not self._requires_full and is_signed(header, body, body_bytes, False, self._inner, self._outer)

    cdef bint _accepts_full(
        self, Header *header, Span field, const uint8_t *body, Py_ssize_t body_bytes
    ) except -1:
        cdef int64_t time_ms, number
        if self._session is None or field.length != FULL_CHARS or field.has_escapes:
            return False
        if memcmp(field.at + TIME_CHARS, PyBytes_AS_STRING(self._name), SESSION_CHARS):
            return False
        time_ms = _hexadecimal(field.at)
        number = _hexadecimal(field.at + TIME_CHARS + SESSION_CHARS)
        if number <= self._number or not self._oldest_ms <= time_ms <= self._newest_ms:
            return False
        if not is_signed(header, body, body_bytes, True, self._full_inner, self._full_outer):
            return False
        self._seen = number
        self._seen_ms = time_ms
        return True

    cdef void took(self) noexcept:
        self._number = self._seen
        if self._seen_ms > self._latest_ms:
            self._latest_ms = self._seen_ms

    cdef save(self):
        """Tell the session what was taken."""
        if self._session is not None and self._number != self._session.number:
            self._session.number = self._number
            self._session.latest_ms = self._latest_ms


cdef inline int64_t _hexadecimal(const uint8_t *at) noexcept nogil:
    """The number in 12 digits; -1 if they are something else."""
    cdef int64_t number = 0
    cdef int index
    for index in range(TIME_CHARS):
        if 0x30 <= at[index] <= 0x39:
            number = number << 4 | at[index] - 0x30
        elif 0x61 <= at[index] <= 0x66:
            number = number << 4 | at[index] - 0x57
        else:
            return -1
    return number


cdef bint is_signed(
    Header *header, const uint8_t *body, Py_ssize_t body_bytes, bint is_full, inner, outer
) except -1:
    """`inner` and `outer` are the hashes of the two pads of the key."""
    cdef int order[MAX_FIELDS]
    cdef int signature = -1
    cdef int count = _sort(header, order, &signature, is_full)
    cdef Py_ssize_t fixed = LABEL_BYTES + STAMP_CHARS + 20 if is_full else 0
    cdef Py_ssize_t room = fixed + _room(header, order, count)
    cdef Py_ssize_t length
    cdef Span field
    cdef uint8_t short_text[SHORT_BYTES]
    cdef uint8_t *text = short_text
    if count < 0 or signature < 0:
        return False
    field = header.values[signature]
    if is_full and (
        header.has_remark
        or field.length != FULL_CHARS
        or field.has_escapes
        or _hexadecimal(field.at) < 0
        or _hexadecimal(field.at + STAMP_CHARS - TIME_CHARS) < 0
    ):
        return False
    if room > SHORT_BYTES:
        text = <uint8_t *>PyMem_Malloc(<size_t>room)
        if text is NULL:
            raise MemoryError()
    try:
        if is_full:
            memcpy(text, LABEL, LABEL_BYTES)
            memcpy(text + LABEL_BYTES, field.at, STAMP_CHARS)
            length = LABEL_BYTES + STAMP_CHARS
            put_int32(text + length, <uint32_t>header.code)
            put_int32(text + length + 4, <uint32_t>header.flag)
            put_int32(text + length + 8, <uint32_t>header.version)
            put_int32(text + length + 12, 0)  # no remark
            put_int32(text + length + 16, <uint32_t>count)
        length = _join(header, order, count, text + fixed, is_full)
        return length >= 0 and _has_sum(
            text, fixed + length, body, body_bytes, field, STAMP_CHARS if is_full else 0, inner, outer
        )
    finally:
        if text is not short_text:
            PyMem_Free(text)


cdef bint _has_sum(
    const uint8_t *text,
    Py_ssize_t length,
    const uint8_t *body,
    Py_ssize_t body_bytes,
    Span field,
    Py_ssize_t position,
    inner,
    outer,
) except -1:
    """Whether the HMAC of text and body is in the field, from `position` on."""
    cdef bytes total
    if field.has_escapes:
        return False
    hashed = inner.copy()
    hashed.update(PyMemoryView_FromMemory(<char *>text, length, PyBUF_READ))
    if body_bytes:
        hashed.update(PyMemoryView_FromMemory(<char *>body, body_bytes, PyBUF_READ))
    total = hashed.digest()
    hashed = outer.copy()
    hashed.update(total)
    total = hashed.digest()
    return PyBytes_GET_SIZE(total) <= MAX_SUM_BYTES and _is_same(
        <const uint8_t *>PyBytes_AS_STRING(total),
        PyBytes_GET_SIZE(total),
        field.at + position,
        field.length - position,
    )


cdef int _sort(Header *header, int *order, int *signature, bint is_full) noexcept nogil:
    """How many fields are signed, and `order`, that of their names; -1 if two have the same name. The full
    signature leaves out both signatures, the other one only itself."""
    cdef int count = 0
    cdef int index, place, compared
    for index in range(header.field_count):
        if is_field(header.names[index], FIELD_FULL_SIGNATURE if is_full else FIELD_SIGNATURE):
            if signature[0] >= 0:
                return -1
            signature[0] = index
            continue
        if is_full and is_field(header.names[index], FIELD_SIGNATURE):
            continue
        place = count
        while place > 0:
            compared = _compare(header.names[order[place - 1]], header.names[index])
            if compared == 0:
                return -1
            if compared < 0:
                break
            order[place] = order[place - 1]
            place -= 1
        order[place] = index
        count += 1
    return count


cdef inline int _compare(Span one, Span other) noexcept nogil:
    cdef Py_ssize_t common = one.length if one.length < other.length else other.length
    cdef int compared = memcmp(one.at, other.at, <size_t>common)
    if compared:
        return compared
    return -1 if one.length < other.length else one.length > other.length


cdef Py_ssize_t _room(Header *header, int *order, int count) noexcept nogil:
    cdef Py_ssize_t room = 0
    cdef int index
    for index in range(count):
        room += header.names[order[index]].length + header.values[order[index]].length + 8
    return room


cdef Py_ssize_t _join(Header *header, int *order, int count, uint8_t *text, bint is_full) noexcept nogil:
    """The values one after the other; if `is_full`, also the names, and lengths in front. -1 if unusual."""
    cdef Py_ssize_t length = 0
    cdef Py_ssize_t written
    cdef int index
    for index in range(count):
        if is_full:
            written = _copy(header.names[order[index]], text + length + 4)
            if written < 0:
                return -1
            put_int32(text + length, <uint32_t>written)
            length += 4 + written
            written = _copy(header.values[order[index]], text + length + 4)
            put_int32(text + length, <uint32_t>written)
            length += 4
        else:
            written = _copy(header.values[order[index]], text + length)
        if written < 0:
            return -1
        length += written
    return length


cdef inline Py_ssize_t _copy(Span span, uint8_t *text) noexcept nogil:
    if span.has_escapes:
        return unescape(span, text)
    memcpy(text, span.at, <size_t>span.length)
    return span.length


cdef bint _is_same(
    const uint8_t *total, Py_ssize_t total_bytes, const uint8_t *claimed, Py_ssize_t claimed_chars
) noexcept nogil:
    """Compare with a sum in base64; every wrong one takes the same time."""
    cdef uint32_t group
    cdef uint8_t different = 0
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t left
    cdef int digit
    cdef Py_ssize_t place = 0
    if claimed_chars != (total_bytes + 2) // 3 * 4:
        return False
    while at < total_bytes:
        left = total_bytes - at
        group = <uint32_t>total[at] << 16
        if left > 1:
            group |= <uint32_t>total[at + 1] << 8
        if left > 2:
            group |= total[at + 2]
        for digit in range(4):
            if digit > left:
                different |= claimed[place] ^ 0x3D  # =
            else:
                different |= claimed[place] ^ <uint8_t>DIGITS[group >> (18 - 6 * digit) & 63]
            place += 1
        at += 3
    return different == 0


def is_signed_frame(bytes header not None, bint is_binary, bytes body not None, key, *, bint is_full):
    """For tests."""
    cdef Header found
    inner, outer = key
    return scan_header(
        <const uint8_t *>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header), is_binary, &found
    ) and is_signed(
        &found, <const uint8_t *>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), is_full, inner, outer
    )
