# cython: boundscheck=False, wraparound=False
"""Plain route queries, from the bytes of a read to the bytes of a write. See `pyromq.nameserver.fast_path`.

It reads the name server's own tables, so there is nothing to keep in step: a topic's layout has its encoded
routes as long as they are right.
"""

from time import monotonic as time_monotonic

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.time cimport monotonic as c_monotonic
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy

from pyromq.nameserver.route_answers import PLAIN, STRICT
from pyromq.protocol.catalogue import declaration_of
from pyromq.protocol.codes import V4_9_4
from pyromq.protocol.frame import RESPONSE_FLAG, Frame, HeaderForm
from pyromq.protocol.framing import encode_head
from pyromq.protocol.requests.routes import GetRoute

from pyromq_native.big_endian cimport get_uint32, put_int32
from pyromq_native.protocol.declared cimport PREFIX_BYTES
from pyromq_native.protocol.headers cimport Header, scan_header
from pyromq_native.protocol.requests cimport RouteQuery, read_route_query

cdef enum:
    BINARY_OPAQUE_AT = 5
    MAX_ANSWER_BYTES = 256
    MAX_BOUNDS = 64


cdef class Tally:
    """Adds to the metrics in a `FoundQueries`."""

    cdef object _distribution
    cdef dict _counts
    cdef tuple _labels
    cdef list _buckets
    cdef double _bounds[MAX_BOUNDS]
    cdef Py_ssize_t _bound_count

    def __init__(self, found):
        self._counts = found.counts
        self._labels = found.labels
        self._distribution = found.distribution
        self._buckets = found.distribution.counts
        self._bound_count = len(found.bounds)
        assert self._bound_count <= MAX_BOUNDS
        for index, bound in enumerate(found.bounds):
            self._bounds[index] = bound

    cdef int add(self, int count, double seconds) except -1:
        """One time counts for all."""
        cdef Py_ssize_t bucket = 0
        while bucket < self._bound_count and self._bounds[bucket] < seconds:
            bucket += 1
        self._buckets[bucket] = self._buckets[bucket] + count
        self._distribution.total = <double>self._distribution.total + seconds * count
        self._counts[self._labels] = self._counts.get(self._labels, 0) + count
        return 0


cdef class RouteLookup:
    """See `pyromq.nameserver.fast_path`."""

    cdef object _lookup, _find, _monotonic
    cdef Tally _found
    cdef dict _first
    cdef list _later
    cdef object _plain, _strict
    cdef bytes _before_opaque, _after_opaque, _binary_header
    cdef Py_ssize_t _max_frame_bytes, _high_water_bytes
    cdef int32_t _code, _standard_from

    def __init__(self, lookup, answers, found, monotonic, *, max_frame_bytes, high_water_bytes):
        self._lookup = lookup
        self._find = answers.find
        self._found = Tally(found)
        self._monotonic = monotonic
        self._first = answers.layouts_of_topics.first
        self._later = answers.layouts_of_topics.later
        self._plain = PLAIN
        self._strict = STRICT
        self._max_frame_bytes = max_frame_bytes
        self._high_water_bytes = high_water_bytes
        self._code = declaration_of(GetRoute).code
        self._standard_from = V4_9_4
        json = encode_head(Frame(0, flag=RESPONSE_FLAG), 0)[PREFIX_BYTES:]
        before, _, self._after_opaque = json.partition(b'"opaque":0')
        self._before_opaque = before + b'"opaque":'
        self._binary_header = encode_head(Frame(0, flag=RESPONSE_FLAG, form=HeaderForm.BINARY), 0)[PREFIX_BYTES:]
        assert len(json) + 11 < MAX_ANSWER_BYTES

    def __repr__(self):
        return f"<RouteLookup of {self._lookup!r}>"

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t body_at, end
        cdef Py_ssize_t answered_bytes = 0
        cdef uint32_t length, header_bytes
        cdef int frames = 0
        cdef Header header
        cdef RouteQuery query
        cdef bytes answer
        cdef list answers = None
        if connection.grants is not None or not self._lookup.is_plain:
            return 0, 0
        cdef double started = self._time()
        while available - position > PREFIX_BYTES and answered_bytes < self._high_water_bytes:
            length = get_uint32(start + position)
            header_bytes = get_uint32(start + position + 4)
            if length + <uint64_t>4 > <uint64_t>self._max_frame_bytes or header_bytes >> 24 > 1:
                break
            end = position + 4 + <Py_ssize_t>length
            body_at = position + PREFIX_BYTES + <Py_ssize_t>(header_bytes & 0xFFFFFF)
            if end > available or body_at != end:
                break
            if not scan_header(
                start + position + PREFIX_BYTES, body_at - position - PREFIX_BYTES, header_bytes >> 24 == 1, &header
            ):
                break
            if header.code != self._code or header.flag or not read_route_query(&header, &query):
                break
            answer = self._answer(&header, &query)
            if answer is None:
                break
            if end == available and not frames:
                connection.put(answer)  # the only one, as a client asks that waits for its answer
            elif answers is None:
                answers = [answer]
            else:
                answers.append(answer)
            answered_bytes += PyBytes_GET_SIZE(answer)
            frames += 1
            position = end
        if frames:
            if answers is not None:
                connection.put(b"".join(answers))
            self._found.add(frames, self._time() - started)
        return frames, position

    cdef double _time(self) except? -1:
        return c_monotonic() if self._monotonic is time_monotonic else self._monotonic()

    cdef bytes _answer(self, const Header *header, const RouteQuery *query):
        """A whole frame; None if the general path has to answer."""
        cdef bytes body = self._body_of(
            PyUnicode_DecodeASCII(<const char *>query.topic.at, query.topic.length, NULL),
            header.version >= self._standard_from or query.accepts_only_standard_json,
        )
        cdef uint8_t head[PREFIX_BYTES + MAX_ANSWER_BYTES]
        cdef Py_ssize_t head_bytes, body_bytes
        cdef bytes answer
        if body is None:
            return None
        body_bytes = PyBytes_GET_SIZE(body)
        head_bytes = self._write_head(head, header, body_bytes)
        if head_bytes + body_bytes > self._max_frame_bytes:
            return None
        answer = PyBytes_FromStringAndSize(NULL, head_bytes + body_bytes)
        memcpy(PyBytes_AS_STRING(answer), head, <size_t>head_bytes)
        memcpy(PyBytes_AS_STRING(answer) + head_bytes, PyBytes_AS_STRING(body), <size_t>body_bytes)
        return answer

    cdef bytes _body_of(self, str topic, bint is_standard):
        """The encoded route of a topic; None if the topic is unknown."""
        layout = self._first.get(topic)
        if layout is None:
            if self._later:
                layout = (<dict>self._later[hash(topic) & (len(self._later) - 1)]).get(topic)
            if layout is None:
                return None
        encoded = (<dict>layout.answers).get(self._strict if is_standard else self._plain)
        if encoded is None:
            return self._find(topic, strict=is_standard)
        return <bytes>(<tuple>encoded)[0]

    cdef Py_ssize_t _write_head(self, uint8_t *written, const Header *header, Py_ssize_t body_bytes) noexcept:
        cdef Py_ssize_t header_bytes
        cdef uint32_t form = 0
        if header.is_binary:
            form = 1
            header_bytes = PyBytes_GET_SIZE(self._binary_header)
            memcpy(written + PREFIX_BYTES, PyBytes_AS_STRING(self._binary_header), <size_t>header_bytes)
            put_int32(written + PREFIX_BYTES + BINARY_OPAQUE_AT, <uint32_t>header.opaque)
        else:
            header_bytes = snprintf(
                <char *>written + PREFIX_BYTES,
                MAX_ANSWER_BYTES,
                b"%s%d%s",
                PyBytes_AS_STRING(self._before_opaque),
                <int>header.opaque,
                PyBytes_AS_STRING(self._after_opaque),
            )
        put_int32(written, <uint32_t>(4 + header_bytes + body_bytes))
        put_int32(written + 4, form << 24 | <uint32_t>header_bytes)
        return PREFIX_BYTES + header_bytes
