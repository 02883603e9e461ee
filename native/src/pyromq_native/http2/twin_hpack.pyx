# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled twin of `pyromq.http2.hpack.Decoder`, and a first look at header lists and at whole requests.

The decoder reads the same blocks and raises the same errors. `is_well_formed` says yes only if
`pyromq.http2.header_rules` finds nothing wrong; after a no, it has to look itself.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from pyromq_native.big_endian cimport get_uint32, put_int32

from pyromq.errors import RemoteProtocolError
from pyromq.http2 import huffman
from pyromq.http2.hpack import STATIC_TABLE, TABLE_BYTES, HeadersTooLarge

cdef enum:
    ENTRY_OVERHEAD = 32
    MAX_NODES = 512
    MAX_LETTER_BITS = 30
    END_OF_STRING = 256
    MAX_ENTRIES_KEPT = 256
    FRAME_HEADER_BYTES = 9
    DATA = 0
    HEADERS = 1
    END_STREAM = 1
    END_HEADERS = 4

cdef tuple _STATIC = tuple(STATIC_TABLE)
cdef Py_ssize_t _STATIC_SIZE = len(_STATIC)
cdef Py_ssize_t _TABLE_BYTES = TABLE_BYTES
cdef int16_t _nodes[MAX_NODES][2]
cdef bint _may_end[MAX_NODES]


cdef void _load_tree():
    cdef Py_ssize_t node
    for node, (left, right) in enumerate(huffman.NODES):
        _nodes[node][0] = left
        _nodes[node][1] = right
        _may_end[node] = node in huffman.ENDS


_load_tree()


cdef bytes _unpacked(const uint8_t *data, Py_ssize_t length):
    cdef bytearray letters = bytearray(length * 8 // 5 + 1)  # the shortest letter has five bits
    cdef uint8_t *out = letters
    cdef Py_ssize_t position, count = 0
    cdef int bit, node = 0, follower
    for position in range(length):
        for bit in range(7, -1, -1):
            follower = _nodes[node][data[position] >> bit & 1]
            if follower < 0:
                if ~follower == END_OF_STRING:
                    raise RemoteProtocolError("a Huffman-coded header contains the end of a string")
                out[count] = <uint8_t>~follower
                count += 1
                follower = 0
            node = follower
    if not _may_end[node]:
        raise RemoteProtocolError("a Huffman-coded header ends within a letter")
    return PyBytes_FromStringAndSize(<char *>out, count)


cdef class Decoder:
    cdef Py_ssize_t _max_list_bytes, _size, _max_size
    cdef list _entries
    """The oldest first; those before `_first` are gone."""
    cdef Py_ssize_t _first
    cdef const uint8_t *_at
    cdef const uint8_t *_end

    def __init__(self, Py_ssize_t max_list_bytes):
        self._max_list_bytes = max_list_bytes
        self._entries = []
        self._first = 0
        self._size = 0
        self._max_size = _TABLE_BYTES

    def __repr__(self):
        return f"<Decoder entries={len(self._entries) - self._first} bytes={self._size}>"

    def decode(self, bytes block not None):
        """Raises HeadersTooLarge, or RemoteProtocolError; the connection cannot be used any more then."""
        cdef list headers = []
        cdef Py_ssize_t room = self._max_list_bytes, index
        cdef uint8_t first
        cdef tuple header
        cdef bytes name, value
        self._at = <const uint8_t *>PyBytes_AS_STRING(block)
        self._end = self._at + PyBytes_GET_SIZE(block)
        while self._at < self._end:
            first = self._at[0]
            if first & 0x80:
                index = self._integer(0x7F)
                header = <tuple>_STATIC[index] if 0 < index < _STATIC_SIZE else self._dynamic(index)
            elif first & 0x60 == 0x20:
                self._resize(self._integer(0x1F), not headers)
                continue
            else:
                index = self._integer(0x3F if first & 0x40 else 0x0F)
                if index:
                    header = <tuple>_STATIC[index] if index < _STATIC_SIZE else self._dynamic(index)
                    name = <bytes>header[0]
                else:
                    name = self._string()
                value = self._string()
                header = (name, value)
                if first & 0x40:
                    self._add(header)
            room -= PyBytes_GET_SIZE(<bytes>header[0]) + PyBytes_GET_SIZE(<bytes>header[1]) + ENTRY_OVERHEAD
            if room < 0:
                raise HeadersTooLarge(f"a header list is longer than {self._max_list_bytes} bytes")
            headers.append(header)
        return headers

    cdef Py_ssize_t _integer(self, uint8_t mask) except -1:
        cdef Py_ssize_t value = self._at[0] & mask
        cdef int shift
        cdef uint8_t byte
        self._at += 1
        if value < mask:
            return value
        for shift in range(0, 35, 7):
            if self._at == self._end:
                raise RemoteProtocolError("a header block ends within a header")
            byte = self._at[0]
            self._at += 1
            value += <Py_ssize_t>(byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise RemoteProtocolError("a header block has a number of more than 32 bits")

    cdef bytes _string(self):
        cdef bint is_coded
        cdef Py_ssize_t length
        cdef const uint8_t *start
        if self._at == self._end:
            raise RemoteProtocolError("a header block ends within a header")
        is_coded = self._at[0] & 0x80
        length = self._integer(0x7F)
        if length > self._end - self._at:
            raise RemoteProtocolError("a header block ends within a string")
        start = self._at
        self._at += length
        return _unpacked(start, length) if is_coded else PyBytes_FromStringAndSize(<const char *>start, length)

    cdef tuple _dynamic(self, Py_ssize_t index):
        cdef Py_ssize_t position = len(self._entries) - 1 - (index - _STATIC_SIZE)
        if index < _STATIC_SIZE or position < self._first:
            raise RemoteProtocolError(
                f"a header block refers to entry {index}, which its table does not have"
            )
        return <tuple>self._entries[position]

    cdef int _add(self, tuple header) except -1:
        cdef Py_ssize_t size = (
            PyBytes_GET_SIZE(<bytes>header[0]) + PyBytes_GET_SIZE(<bytes>header[1]) + ENTRY_OVERHEAD
        )
        self._evict(self._max_size - size)
        if size <= self._max_size:
            self._entries.append(header)
            self._size += size
        return 0

    cdef int _resize(self, Py_ssize_t size, bint may) except -1:
        if not may or size > _TABLE_BYTES:
            raise RemoteProtocolError(
                f"a header block changes the table size to {size}, at most {_TABLE_BYTES}"
            )
        self._max_size = size
        self._evict(size)
        return 0

    cdef int _evict(self, Py_ssize_t allowed) except -1:
        cdef tuple header
        while self._size > allowed and self._first < len(self._entries):
            header = <tuple>self._entries[self._first]
            self._entries[self._first] = None
            self._first += 1
            self._size -= (
                PyBytes_GET_SIZE(<bytes>header[0]) + PyBytes_GET_SIZE(<bytes>header[1]) + ENTRY_OVERHEAD
            )
        if self._first > MAX_ENTRIES_KEPT:
            del self._entries[: self._first]
            self._first = 0
        return 0


def is_well_formed(list headers not None, set good_names not None):
    """Whether these are surely the headers of a request; `good_names` are ordinary names that are allowed."""
    cdef tuple header
    cdef bytes name, value
    cdef const char *text
    cdef Py_ssize_t length, position
    cdef uint8_t letter
    cdef int seen = 0, pseudo
    cdef bint has_ordinary = False
    for header in headers:
        name = <bytes>header[0]
        value = <bytes>header[1]
        text = PyBytes_AS_STRING(name)
        length = PyBytes_GET_SIZE(name)
        if length and text[0] == b":":
            if length == 5 and memcmp(text, b":path", 5) == 0 and PyBytes_GET_SIZE(value):
                pseudo = 1
            elif length == 7 and memcmp(text, b":method", 7) == 0:
                pseudo = 2
            elif length == 7 and memcmp(text, b":scheme", 7) == 0:
                pseudo = 4
            elif length == 10 and memcmp(text, b":authority", 10) == 0:
                pseudo = 8
            else:
                return False
            if has_ordinary or seen & pseudo:
                return False
            seen |= pseudo
            continue
        has_ordinary = True
        if name not in good_names:
            return False
        text = PyBytes_AS_STRING(value)
        length = PyBytes_GET_SIZE(value)
        for position in range(length):
            letter = <uint8_t>text[position]
            if letter == 0 or letter == b"\r" or letter == b"\n":
                return False
            if (position == 0 or position == length - 1) and (letter == b" " or letter == b"\t"):
                return False
        if name == b"te" and value != b"trailers":
            return False
    return seen & 7 == 7


cdef inline Py_ssize_t _frame_bytes(const uint8_t *at) noexcept:
    return <Py_ssize_t>at[0] << 16 | <Py_ssize_t>at[1] << 8 | at[2]


cdef inline uint32_t _stream_of(const uint8_t *at) noexcept:
    return get_uint32(at + 5) & 0x7FFFFFFF


def whole_request(
    bytes data not None,
    Py_ssize_t position,
    Decoder decoder not None,
    set good_names not None,
    Py_ssize_t max_frame_bytes,
    uint32_t last_stream_id,
):
    """A new stream whose request is one HEADERS and one DATA frame, both whole in `data` and without extras.

    None if there is something else at `position`. Otherwise the position behind it, the stream, its headers,
    its data, and whether the headers are surely well formed, without a length. Raises as `decode` does.
    """
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(data) + position
    cdef Py_ssize_t available = PyBytes_GET_SIZE(data) - position
    cdef Py_ssize_t block_bytes, data_bytes
    cdef const uint8_t *block
    cdef uint32_t stream_id
    cdef list headers
    cdef tuple header
    cdef bytes name
    cdef bint is_plain
    if available < 2 * FRAME_HEADER_BYTES or at[3] != HEADERS or at[4] != END_HEADERS:
        return None
    block_bytes = _frame_bytes(at)
    stream_id = _stream_of(at)
    if block_bytes > max_frame_bytes or not stream_id & 1 or stream_id <= last_stream_id:
        return None
    available -= 2 * FRAME_HEADER_BYTES + block_bytes
    if available < 0:
        return None
    block = at + FRAME_HEADER_BYTES
    at = block + block_bytes
    data_bytes = _frame_bytes(at)
    if at[3] != DATA or at[4] != END_STREAM or _stream_of(at) != stream_id:
        return None
    if data_bytes > max_frame_bytes or data_bytes > available:
        return None
    at += FRAME_HEADER_BYTES
    headers = decoder.decode(PyBytes_FromStringAndSize(<const char *>block, block_bytes))
    is_plain = is_well_formed(headers, good_names)
    for header in headers:
        name = <bytes>header[0]
        if PyBytes_GET_SIZE(name) == 14 and memcmp(PyBytes_AS_STRING(name), b"content-length", 14) == 0:
            is_plain = False
    return (
        position + 2 * FRAME_HEADER_BYTES + block_bytes + data_bytes,
        stream_id,
        headers,
        PyBytes_FromStringAndSize(<const char *>at, data_bytes),
        is_plain,
    )


cdef inline uint8_t *_put_frame(uint8_t *at, bytes payload, int kind, int flags, uint32_t stream_id) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    at[0] = <uint8_t>(size >> 16)
    at[1] = <uint8_t>(size >> 8)
    at[2] = <uint8_t>size
    at[3] = <uint8_t>kind
    at[4] = <uint8_t>flags
    put_int32(at + 5, stream_id)
    memcpy(at + FRAME_HEADER_BYTES, PyBytes_AS_STRING(payload), <size_t>size)
    return at + FRAME_HEADER_BYTES + size


def answer_frames(uint32_t stream_id, bytes headers not None, bytes data not None, bytes trailers not None):
    """Twin of `pyromq.http2.frames.answer`."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(headers) + PyBytes_GET_SIZE(data) + PyBytes_GET_SIZE(trailers)
    cdef bytes written = PyBytes_FromStringAndSize(NULL, size + 3 * FRAME_HEADER_BYTES)
    cdef uint8_t *at = <uint8_t *>PyBytes_AS_STRING(written)
    at = _put_frame(at, headers, HEADERS, END_HEADERS, stream_id)
    at = _put_frame(at, data, DATA, 0, stream_id)
    _put_frame(at, trailers, HEADERS, END_HEADERS | END_STREAM, stream_id)
    return written
