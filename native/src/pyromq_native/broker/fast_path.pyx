# cython: boundscheck=False, wraparound=False
"""The fast path of plain sends, transactions, pulls and acknowledgements: from the bytes of a read to the bytes of a write.

See `pyromq.broker.fast_path`. It scans a frame in place and has the part for its kind take it. It stops at the
first frame that is not plain, and the general path continues there. Counters are added to the statistics once
per read.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from pyromq_native.big_endian cimport get_uint32
from pyromq_native.broker.counting cimport Touched
from pyromq_native.broker.fast_acks cimport FastAcks
from pyromq_native.broker.fast_ends cimport FastEnds
from pyromq_native.broker.fast_pulls cimport FastPulls
from pyromq_native.broker.fast_sends cimport FastSends
from pyromq_native.growing cimport take_bytes
from pyromq_native.protocol.declared cimport (
    ACK,
    END,
    FIELD_ACCESS_KEY,
    FLAG_INNER_BATCH,
    LITE_PULL,
    ONEWAY_FLAG,
    PREFIX_BYTES,
    PULL,
    SEND,
    SEND_BATCH,
    SEND_V2,
)
from pyromq_native.protocol.headers cimport Header, is_called, scan_header
from pyromq_native.broker.known_queues cimport KnownQueues
from pyromq_native.protocol.requests cimport (
    Ack,
    End,
    Pull,
    Send,
    read_ack,
    read_end,
    read_pull,
    read_send,
)
from pyromq_native.security.fast_signature cimport SignatureCheck
from pyromq_native.slices cimport start_of
from pyromq_native.protocol.spans cimport is_field, is_named, text_of


cdef class FastPath:
    """See `pyromq.broker.fast_path`."""

    cdef object _appending, _durability, _answer_when_safe
    cdef Py_ssize_t _max_frame_bytes, _high_water_bytes
    cdef Touched _touched
    cdef KnownQueues _queues
    cdef FastSends _sends
    cdef FastEnds _ends
    cdef FastPulls _pulls
    cdef FastAcks _acks
    cdef readonly int pulls_taken, ends_taken, acks_taken

    def __init__(
        self,
        store,
        bytes store_host,
        appending,
        writable_queues,
        send_throttle,
        broker_properties,
        born_hosts,
        statistics,
        transactions,
        read_grants,
        offsets,
        acks,
        *,
        Py_ssize_t max_frame_bytes,
        Py_ssize_t high_water_bytes,
        answer_when_safe,
    ):
        self._appending = appending
        self._durability = appending.durability
        self._answer_when_safe = answer_when_safe
        self._max_frame_bytes = max_frame_bytes
        self._high_water_bytes = high_water_bytes
        self._touched = touched = Touched()
        self._queues = KnownQueues(writable_queues, statistics, store.light is not None)
        self._sends = FastSends(
            store,
            store_host,
            appending,
            self._queues,
            writable_queues,
            send_throttle,
            broker_properties,
            born_hosts,
            statistics,
            transactions,
            touched,
            answer_when_safe.quotas,
        )
        self._ends = FastEnds(store, store_host, transactions, self._queues, touched)
        self._pulls = None
        if read_grants is not None:
            self._pulls = FastPulls(store, read_grants, offsets, statistics, touched, max_frame_bytes)
        self._acks = FastAcks(acks)
        self.pulls_taken = self.ends_taken = self.acks_taken = 0

    def __repr__(self):
        grants = 0 if self._pulls is None else len(self._pulls)
        return f"<FastPath queues={len(self._queues)} grants={grants}>"

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = start_of(data)
        cdef FastSends sends = self._sends
        cdef Py_ssize_t available = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t body_at, end
        cdef uint32_t length, header_bytes
        cdef Py_ssize_t given_bytes = 0
        cdef int frames = 0
        cdef int pulls = 0
        cdef int ends = 0
        cdef int acks = 0
        cdef Header header
        cdef Send send
        cdef Ack ack
        cdef End end_of_half
        cdef Pull pull
        cdef bint has_sent = False
        cdef Py_ssize_t pulled
        cdef bytes access_key = None
        cdef set granted_sends = None
        cdef set granted_pulls = None
        cdef bytes granted_topic = None
        cdef SignatureCheck check = None
        grants = connection.grants
        if grants is not None:
            access_key, granted_sends, granted_pulls = grants.access_key, grants.sends, grants.pulls
            if grants.proof is not None:
                check = SignatureCheck(grants.proof)
        sends.begin(not self._durability.is_immediate)
        try:
            while available - position > PREFIX_BYTES:
                length = get_uint32(start + position)
                header_bytes = get_uint32(start + position + 4)
                if length + <uint64_t>4 > <uint64_t>self._max_frame_bytes or header_bytes >> 24 > 1:
                    break
                end = position + 4 + <Py_ssize_t>length
                body_at = position + PREFIX_BYTES + <Py_ssize_t>(header_bytes & 0xFFFFFF)
                if end > available or body_at > end:
                    break
                if not scan_header(
                    start + position + PREFIX_BYTES,
                    body_at - position - PREFIX_BYTES,
                    header_bytes >> 24 == 1,
                    &header,
                ):
                    break
                if access_key is not None and not _has_access_key(&header, access_key):
                    break
                if header.code == SEND_V2 or header.code == SEND or header.code == SEND_BATCH:
                    if body_at == end or header.flag & ~ONEWAY_FLAG or not read_send(&header, &send):
                        break
                    if send.sys_flag & FLAG_INNER_BATCH:
                        break
                    if granted_sends is not None and not is_named(send.topic, granted_topic):
                        granted_topic = text_of(send.topic)
                        if granted_topic not in granted_sends:
                            break
                    if check is not None:
                        if not check.oldest_send_ms <= send.born_timestamp <= check.newest_send_ms:
                            break
                        if not check.accepts(&header, start + body_at, end - body_at):
                            break
                    if not sends.take(&header, &send, start + body_at, end - body_at, connection):
                        break
                    has_sent = True
                elif header.code == END:
                    # Nearly all producers do not wait for the answer.
                    if body_at != end or header.flag != ONEWAY_FLAG or not read_end(&header, &end_of_half):
                        break
                    if granted_sends is not None and not _names_granted_topic(&header, granted_sends):
                        break
                    if check is not None and not check.accepts(&header, start + body_at, 0):
                        break
                    if not self._ends.take(&end_of_half, granted_sends):
                        break
                    ends += 1
                elif (header.code == PULL or header.code == LITE_PULL) and self._pulls is not None:
                    if header.flag or not read_pull(&header, &pull):
                        break
                    if granted_pulls is not None and (text_of(pull.topic), text_of(pull.group)) not in granted_pulls:
                        break
                    if check is not None and not check.accepts(&header, start + body_at, end - body_at):
                        break
                    if sends.answers.size and not sends.waits:
                        connection.put(take_bytes(sends.answers))
                    pulled = self._pulls.take(&header, &pull, connection)
                    if pulled < 0:
                        break
                    pulls += 1
                    given_bytes += pulled
                elif header.code == ACK:
                    if body_at != end or header.flag or header.is_binary or not read_ack(&header, &ack):
                        break
                    if granted_pulls is not None and (text_of(ack.topic), text_of(ack.group)) not in granted_pulls:
                        break
                    if check is not None and not check.accepts(&header, start + body_at, 0):
                        break
                    if not self._acks.take(&header, &ack, connection):
                        break
                    acks += 1
                else:
                    break
                if check is not None:
                    check.took()
                frames += 1
                position = end
                if given_bytes >= self._high_water_bytes:
                    break
        finally:
            if check is not None:
                check.save()
            self._touched.settle()
            sends.settle()
            self.pulls_taken = pulls
            self.ends_taken = ends
            self.acks_taken = acks
            self._acks.end(connection)
        if has_sent or ends:
            self._appending.dispatch_soon()
            if sends.answers.size:
                if sends.waits:
                    self._answer_when_safe(connection, take_bytes(sends.answers), sends.last_append())
                else:
                    connection.put(take_bytes(sends.answers))
            if sends.late_answers.size:
                last = sends.last_append() if sends.waits else None
                self._answer_when_safe.later(connection, take_bytes(sends.late_answers), last, sends.delay_s)
        return frames, position


cdef inline bint _has_access_key(Header *header, bytes access_key) noexcept:
    """Whether the request names this user; with an empty key, whether it names none."""
    cdef bint names_user = False
    cdef int index
    for index in range(header.field_count):
        if is_field(header.names[index], FIELD_ACCESS_KEY):
            if not is_named(header.values[index], access_key):
                return False
            names_user = True
    return names_user or not PyBytes_GET_SIZE(access_key)


cdef inline bint _names_granted_topic(Header *header, set granted) except -1:
    """Whether the end of a transaction names a topic that is granted, or none: its half message has one, too."""
    cdef int index
    for index in range(header.field_count):
        if is_called(header.names[index], b"topic", 5) and text_of(header.values[index]) not in granted:
            return False
    return True
