# cython: boundscheck=False, wraparound=False
"""The fast path of plain sends, transactions, pulls and acknowledgements: from the bytes of a read to the bytes of a write.

See `pyromq.broker.fast_path`. It scans a frame in place, looks up its queue and appends the answer to the
answers before it. It stops at the first frame that is not plain, and the general path continues there.
Counters are added to the statistics once per read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyromq.broker.flow.send_answers import binary_pieces, json_pieces
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import names
from pyromq.protocol.codes import CURRENT_VERSION, Language
from pyromq.store.results import AppendResult, AppendStatus, ReadStatus

from pyromq_native.appending cimport Appended, Appender, LogEnd, QueueEnd
from pyromq_native.big_endian cimport get_int32, get_int64, get_uint32, put_int32
from pyromq_native.checksums cimport crc32_of
from pyromq_native.digits cimport put_number
from pyromq_native.headers cimport Header, Span, is_called, scan_header, unescape
from pyromq_native.records cimport Outline, Record, outline_record
from pyromq_native.requests cimport (
    ACK,
    END,
    LITE_PULL,
    PULL,
    SEND,
    SEND_BATCH,
    SEND_V2,
    Ack,
    End,
    HalfTraits,
    Pull,
    Send,
    Traits,
    read_ack,
    read_end,
    read_half_traits,
    read_pull,
    read_send,
    read_traits,
)
from pyromq_native.signatures cimport is_signed

cdef enum:
    ONEWAY_FLAG = 2
    TRANSACTION_MASK = 0xC
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    INNER_BATCH = 0x80
    MAX_V1_TOPIC_BYTES = 127
    MIN_RECORD_BYTES = 91
    COMMIT_FLAG = 1
    SUBSCRIPTION_FLAG = 4
    MAX_KNOWN_TOPICS = 1024
    MAX_KNOWN_QUEUES = 1024
    ID_BYTES = 16
    PREFIX_BYTES = 8
    SHORT_BYTES = 32768
    MAX_GRANTS = 4096

cdef const char *HEX = b"0123456789ABCDEF"


cdef class Text:
    """A growing buffer, taken as a whole when it is complete."""

    cdef uint8_t *data
    cdef Py_ssize_t length
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef uint8_t *grown
        cdef Py_ssize_t wanted = self.length + more
        if wanted > self.capacity:
            wanted = wanted * 2
            grown = <uint8_t *>PyMem_Realloc(self.data, <size_t>wanted)
            if grown is NULL:
                raise MemoryError()
            self.data = grown
            self.capacity = wanted
        return 0

    cdef inline void put(self, const void *source, Py_ssize_t size) noexcept:
        """Call `reserve` first, for this and the methods below."""
        memcpy(self.data + self.length, source, <size_t>size)
        self.length += size

    cdef inline void put_bytes(self, bytes source) noexcept:
        self.put(PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source))

    cdef inline void put_uint32(self, uint32_t value) noexcept:
        put_int32(self.data + self.length, value)
        self.length += 4

    cdef inline void put_number(self, int64_t number) noexcept:
        self.length = put_number(self.data + self.length, number) - self.data

    cdef inline void put_hex(self, uint64_t number) noexcept:
        """Sixteen hexadecimal digits."""
        cdef int at
        for at in range(ID_BYTES):
            self.data[self.length + ID_BYTES - 1 - at] = <uint8_t>HEX[number & 15]
            number >>= 4
        self.length += ID_BYTES

    cdef bytes take(self):
        cdef bytes taken = PyBytes_FromStringAndSize(<char *>self.data, self.length)
        self.length = 0
        return taken


cdef inline const uint8_t *_start_of(bytes value) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(value)


cdef class Counted:
    """Counts of one queue that are not yet added to its statistics."""

    cdef object series
    cdef long calls
    cdef long messages
    cdef int64_t size_bytes

    cdef int settle(self) except -1:
        series = self.series
        series.calls += self.calls
        series.messages += self.messages
        series.size_bytes += self.size_bytes
        self.calls = self.messages = 0
        self.size_bytes = 0
        return 0


cdef class WritableQueue(Counted):
    """See `pyromq.broker.flow.writable_queues`."""

    cdef object topic
    cdef object queue_id
    cdef int32_t number
    cdef int32_t sys_flag


cdef class ReadGrant:
    """See `pyromq.broker.flow.read_grants`."""

    cdef object group
    cdef object topic
    cdef object tag_codes
    cdef int32_t queues
    cdef int64_t newest_version
    cdef int64_t suggested_near
    cdef int64_t suggested_far
    cdef dict counted


cdef class AckRun:
    """Acknowledgements of one pop, one after the other in one read; see `pyromq.broker.fast_path.AckedRun`."""

    cdef object found
    cdef bytes group, topic, receipt
    cdef int32_t queue_id
    cdef int64_t first, end
    cdef list offsets

    cdef bint is_of(self, Ack *ack) noexcept:
        return (
            ack.queue_id == self.queue_id
            and _is_same(ack.receipt, self.receipt)
            and _is_same(ack.topic, self.topic)
            and _is_same(ack.group, self.group)
        )


cdef class Pieces:
    """See `pyromq.broker.flow.send_answers.SendAnswerPieces`."""

    cdef bytes message_ids, queue_id, queue_offset, fixed, unique_key, recall_handle, text_end, opaque, end

    def __init__(self, *pieces):
        (
            self.message_ids,
            self.queue_id,
            self.queue_offset,
            self.fixed,
            self.unique_key,
            self.recall_handle,
            self.text_end,
            self.opaque,
            self.end,
        ) = pieces


cdef class FastPath:
    """See `pyromq.broker.fast_path`."""

    cdef object _store, _read
    cdef Appender _appender
    cdef int64_t _last_offset, _last_size
    cdef object _appending, _writable_queues, _send_throttle, _broker_properties, _born_hosts
    cdef object _statistics, _transactions, _read_grants, _offsets
    cdef object _half_topic, _timer_topic
    cdef bytes _half_topic_bytes, _recall_handle
    cdef Counted _half_puts, _timer_puts
    cdef bint _accepts_halves
    cdef object _put_ok, _found, _answer_when_safe
    cdef bytes _store_host, _id_prefix
    cdef bytes _born_host
    cdef bytes _suffix, _json_end
    cdef Pieces _json, _binary
    cdef object _known_suffix, _known_fields
    cdef Py_ssize_t _max_frame_bytes, _high_water_bytes
    cdef bint _waits
    cdef object _durability
    cdef dict _known_queues, _known_grants
    cdef set _granted_sends
    cdef bytes _last_topic
    cdef list _last_queues
    cdef Text _answers, _scratch, _place
    cdef list _touched
    cdef int _language, _version
    cdef object _acks
    cdef bytes _ack_begin, _ack_end
    cdef AckRun _run
    cdef Text _run_answers
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
        self._store = store
        self._appender = store.appender
        self._read = store.read
        self._last_offset = self._last_size = 0
        self._appending = appending
        self._writable_queues = writable_queues
        self._send_throttle = send_throttle
        self._broker_properties = broker_properties
        self._born_hosts = born_hosts
        self._statistics = statistics
        self._transactions = transactions
        self._half_topic = names.HALF_TOPIC
        self._half_topic_bytes = names.HALF_TOPIC.encode()
        self._timer_topic = names.TIMER_TOPIC
        self._half_puts = self._timer_puts = None
        self._recall_handle = None
        self._accepts_halves = False
        self._read_grants = read_grants
        self._offsets = offsets
        self._put_ok = AppendStatus.PUT_OK
        self._found = ReadStatus.FOUND
        self._answer_when_safe = answer_when_safe
        self._store_host = store_host
        self._id_prefix = store_host.hex().upper().encode()
        self._max_frame_bytes = max_frame_bytes
        self._high_water_bytes = high_water_bytes
        self._durability = appending.durability
        self._language = Language.PYTHON
        self._version = CURRENT_VERSION
        self._json_end = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
        self._known_queues = {}
        self._known_grants = {}
        self._last_topic = b""
        self._last_queues = []
        self._answers = Text()
        self._scratch = Text()
        self._place = Text()
        self._touched = []
        self._suffix = b""
        self._known_suffix = self._known_fields = None
        self.pulls_taken = self.ends_taken = self.acks_taken = 0
        self._acks = acks
        self._ack_begin, self._ack_end = acks.answer_pieces
        self._run = None
        self._run_answers = Text()
        writable_queues.on_change(self._forget_queues)
        if read_grants is not None:
            read_grants.on_change(self._forget_grants)

    def __repr__(self):
        return f"<FastPath queues={len(self._known_queues)} grants={len(self._known_grants)}>"

    def _forget_queues(self):
        self._known_queues.clear()
        self._half_puts = self._timer_puts = None
        self._last_topic = b""
        self._last_queues = []

    def _forget_grants(self):
        self._known_grants.clear()

    def __call__(self, bytes data not None, connection):
        cdef const uint8_t *start = _start_of(data)
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
        cdef Counted counted
        cdef bytes access_key = None
        cdef set granted_sends = None
        cdef set granted_pulls = None
        cdef bytes granted_topic = None
        cdef bint is_proven = True
        cdef int64_t oldest_ms = INT64_MIN
        cdef int64_t newest_ms = INT64_MAX
        grants = connection.grants
        if grants is not None:
            access_key, granted_sends, granted_pulls = grants.access_key, grants.sends, grants.pulls
            if grants.proof is not None:
                is_proven = False
                (inner, outer), max_age_ms, clock = grants.proof
                if max_age_ms:
                    now_ms = clock()
                    oldest_ms, newest_ms = now_ms - max_age_ms, now_ms + max_age_ms
        self._granted_sends = granted_sends
        self._answers.length = 0
        self._born_host = None
        self._waits = not self._durability.is_immediate
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
                    if send.sys_flag & INNER_BATCH:
                        break
                    if granted_sends is not None and not _is_called(send.topic, granted_topic):
                        granted_topic = _text(send.topic)
                        if granted_topic not in granted_sends:
                            break
                    if not is_proven:
                        if not oldest_ms <= send.born_timestamp <= newest_ms:
                            break
                        if not is_signed(&header, start + body_at, end - body_at, inner, outer):
                            break
                    if not self._take_send(&header, &send, start + body_at, end - body_at, connection):
                        break
                    has_sent = True
                elif header.code == END:
                    # Nearly all producers do not wait for the answer.
                    if body_at != end or header.flag != ONEWAY_FLAG or not read_end(&header, &end_of_half):
                        break
                    if granted_sends is not None and not _names_granted_topic(&header, granted_sends):
                        break
                    if not is_proven and not is_signed(&header, start + body_at, 0, inner, outer):
                        break
                    if not self._take_end(&end_of_half):
                        break
                    ends += 1
                elif (header.code == PULL or header.code == LITE_PULL) and self._read_grants is not None:
                    if header.flag or not read_pull(&header, &pull):
                        break
                    if granted_pulls is not None and (_text(pull.topic), _text(pull.group)) not in granted_pulls:
                        break
                    if not is_proven and not is_signed(&header, start + body_at, end - body_at, inner, outer):
                        break
                    pulled = self._take_pull(&header, &pull, connection)
                    if pulled < 0:
                        break
                    pulls += 1
                    given_bytes += pulled
                elif header.code == ACK:
                    if body_at != end or header.flag or header.is_binary or not read_ack(&header, &ack):
                        break
                    if granted_pulls is not None and (_text(ack.topic), _text(ack.group)) not in granted_pulls:
                        break
                    if not is_proven and not is_signed(&header, start + body_at, 0, inner, outer):
                        break
                    if not self._take_ack(&header, &ack, connection):
                        break
                    acks += 1
                else:
                    break
                frames += 1
                position = end
                if given_bytes >= self._high_water_bytes:
                    break
        finally:
            for counted in self._touched:
                counted.settle()
            self._touched.clear()
            self.pulls_taken = pulls
            self.ends_taken = ends
            self.acks_taken = acks
            self._end_run(connection)
        if has_sent or ends:
            self._appending.dispatch_soon()
            if self._answers.length:
                if self._waits:
                    self._answer_when_safe(connection, self._answers.take(), self._last_append())
                else:
                    connection.put(self._answers.take())
        return frames, position

    cdef object _last_append(self):
        return AppendResult(self._put_ok, self._last_offset, self._last_size)

    cdef bint _is_admitted(self, connection) except -1:
        """Whether the broker accepts sends now; asked once for each read."""
        if not self._send_throttle.admits():
            return False
        properties = self._broker_properties
        if properties.suffix is not self._known_suffix:
            self._known_suffix = properties.suffix
            self._suffix = properties.suffix.encode()
        if properties.answer_fields is not self._known_fields:
            self._known_fields = properties.answer_fields
            self._json = Pieces(*json_pieces(properties.answer_fields))
            self._binary = Pieces(*binary_pieces(properties.answer_fields))
        self._born_host = self._born_hosts.of(connection)
        self._accepts_halves = self._appender is not None and self._transactions.accepts_halves
        return True

    # Sends

    cdef bint _take_send(
        self, Header *header, Send *send, const uint8_t *body, Py_ssize_t body_bytes, connection
    ) except -1:
        """Append a message or a batch and write its answer; False if the general path must handle it."""
        cdef const uint8_t *text = send.properties.at
        cdef Py_ssize_t text_bytes = send.properties.length
        cdef Traits traits
        cdef WritableQueue queue
        cdef Text scratch = self._scratch
        cdef Appended appended
        cdef tuple offsets = ()
        cdef Counted counted
        if send.properties.has_escapes:
            scratch.length = 0
            scratch.reserve(text_bytes)
            text_bytes = unescape(send.properties, scratch.data)
            text = scratch.data
            if text_bytes < 0:
                return False
        if not read_traits(text, text_bytes, &traits) or (self._waits and not traits.waits):
            return False
        if not _is_alphanumeric(traits.unique_key):
            return False
        if traits.is_half or traits.is_timed:
            if send.is_batch or send.reconsume_times or send.topic.length > MAX_V1_TOPIC_BYTES:
                return False
        if send.sys_flag & TRANSACTION_MASK and not traits.is_half:
            return False
        queue = self._find_queue(send)
        if queue is None:
            return False
        if not send.is_batch and (not traits.unique_key.length or text[text_bytes - 1] != 2):
            return False
        if self._born_host is None and not self._is_admitted(connection):
            return False
        counted = queue
        self._recall_handle = None
        if send.is_batch:
            offsets = self._append_batch(queue, send, body[:body_bytes], &appended)
            if offsets is None:
                return False
        elif traits.is_half or traits.is_timed:
            if not self._park(queue, send, text, text_bytes, body, body_bytes, &traits, &appended):
                return False
            counted = self._parked_puts(&traits)
        elif not self._append_one(queue, send, text, text_bytes, body, body_bytes, &appended):
            return False
        self._last_offset = appended.log_offset
        self._last_size = appended.size_bytes
        self._count(counted, len(offsets) or 1, appended.size_bytes)
        if not header.flag:
            self._write_sent(header, queue, appended.log_offset, offsets, appended.queue_offset, &traits)
        return True

    cdef int _count(self, Counted counted, long messages, int64_t size_bytes) except -1:
        if not counted.calls:
            self._touched.append(counted)
        counted.calls += 1
        counted.messages += messages
        counted.size_bytes += size_bytes
        return 0

    cdef bint _append_one(
        self,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
        Appended *appended,
    ) except -1:
        cdef Record record
        cdef QueueEnd queue_end
        if self._appender is not None:
            queue_end = self._appender.find_queue(queue.topic, queue.queue_id)
            if queue_end is not None:
                self._describe(&record, queue, send, text, text_bytes, body, body_bytes)
                record.more_properties = _start_of(self._suffix)
                record.more_properties_bytes = PyBytes_GET_SIZE(self._suffix)
                if self._appender.append_record(queue_end, &record, appended):
                    return True
        result = self._store.append(
            queue.topic,
            queue.queue_id,
            body[:body_bytes],
            text[:text_bytes] + self._suffix,
            born_timestamp=send.born_timestamp,
            born_host=self._born_host,
            store_host=self._store_host,
            flag=send.flag,
            sys_flag=send.sys_flag | queue.sys_flag,
            reconsume_times=send.reconsume_times,
        )
        return self._note(result, appended)

    cdef void _describe(
        self,
        Record *record,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
    ) noexcept:
        """Everything in a record that comes from its send alone."""
        record.body = body
        record.body_bytes = body_bytes
        record.properties = text
        record.properties_bytes = text_bytes
        record.born_host = _start_of(self._born_host)
        record.born_host_bytes = PyBytes_GET_SIZE(self._born_host)
        record.store_host = _start_of(self._store_host)
        record.store_host_bytes = PyBytes_GET_SIZE(self._store_host)
        record.flag = send.flag
        record.sys_flag = send.sys_flag | queue.sys_flag
        record.reconsume_times = send.reconsume_times
        record.born_timestamp = send.born_timestamp
        record.prepared_transaction_offset = 0

    cdef bint _park(
        self,
        WritableQueue queue,
        Send *send,
        const uint8_t *text,
        Py_ssize_t text_bytes,
        const uint8_t *body,
        Py_ssize_t body_bytes,
        Traits *traits,
        Appended *appended,
    ) except -1:
        """Park a message in queue 0 of a system topic: a half message until its transaction ends, any other until
        its time; see `pyromq.broker.flow.parking`."""
        cdef Record record
        cdef Text place = self._place
        cdef QueueEnd queue_end
        if self._appender is None or (traits.is_half and not self._accepts_halves):
            return False
        queue_end = self._appender.find_queue(self._half_topic if traits.is_half else self._timer_topic, 0)
        if queue_end is None:
            return False
        place.length = 0
        place.reserve(PyBytes_GET_SIZE(self._suffix) + traits.unique_key.length + send.topic.length + 80)
        place.put_bytes(self._suffix)
        if traits.is_half:
            place.put(b"__transactionId__\x01", 18)
            place.put(traits.unique_key.at, traits.unique_key.length)
        else:
            slot_ms = self._appending.slot_for(traits.asked, traits.unit_ms, self._appender._time())
            if type(slot_ms) is not int:
                return False  # its time has come, or is refused
            place.put(b"TIMER_OUT_MS\x01", 13)
            place.put_number(slot_ms)
        place.put(b"\x02REAL_TOPIC\x01", 12)
        place.put(send.topic.at, send.topic.length)
        place.put(b"\x02REAL_QID\x01", 10)
        place.put_number(queue.number)
        place.put(b"\x02", 1)
        self._describe(&record, queue, send, text, text_bytes, body, body_bytes)
        record.more_properties = place.data
        record.more_properties_bytes = place.length
        # java: a record with transaction bits is in no queue, but parked messages are read from theirs
        record.sys_flag &= ~TRANSACTION_MASK
        if not self._appender.append_record(queue_end, &record, appended):
            return False
        if traits.is_half:
            self._transactions.opened(appended.queue_offset, queue.topic)
        else:
            unique_key = traits.unique_key.at[: traits.unique_key.length].decode()
            handle = self._broker_properties.recall_handle(queue.topic, slot_ms, unique_key)
            if handle is not None:
                self._recall_handle = handle.encode()
        return True

    cdef Counted _parked_puts(self, Traits *traits):
        cdef Counted counted = self._half_puts if traits.is_half else self._timer_puts
        if counted is None:
            counted = Counted.__new__(Counted)
            counted.series = self._statistics.puts_of(self._half_topic if traits.is_half else self._timer_topic, 0)
            if traits.is_half:
                self._half_puts = counted
            else:
                self._timer_puts = counted
        return counted

    # Ends of transactions

    cdef bint _take_end(self, End *end) except -1:
        """End a transaction whose half message is in the last file of the log; False if the general path must
        do that."""
        cdef LogEnd log
        cdef Py_buffer view
        if self._appender is None or end.state != TRANSACTION_COMMIT and end.state != TRANSACTION_ROLLBACK:
            return False
        log = self._appender._log
        if end.log_offset < log.buffer_start or end.log_offset > log.end_offset - MIN_RECORD_BYTES:
            return False
        if not self._transactions.is_open(end.queue_offset):
            return False
        PyObject_GetBuffer(log.buffer, &view, PyBUF_SIMPLE)
        try:
            if log.end_offset - log.buffer_start > view.len:
                return False
            ended = self._end_half(
                end,
                <const uint8_t *>view.buf + (end.log_offset - log.buffer_start),
                log.end_offset - end.log_offset,
            )
        finally:
            PyBuffer_Release(&view)
        if ended is None:
            return False
        self._transactions.ended(*ended)
        return True

    cdef tuple _end_half(self, End *end, const uint8_t *at, int64_t room):
        """Store the committed message, if any; returns what `ended` is to know, None if it was declined."""
        cdef Outline outline
        cdef HalfTraits half
        cdef Record record
        cdef Appended appended
        cdef WritableQueue queue
        cdef QueueEnd queue_end
        cdef Send send
        cdef int64_t needed_end = 0
        cdef Py_ssize_t body_at
        if (
            not outline_record(at, room, &outline)
            or outline.log_offset != end.log_offset
            or outline.queue_offset != end.queue_offset
            or outline.sys_flag & TRANSACTION_MASK
            or outline.topic_bytes != PyBytes_GET_SIZE(self._half_topic_bytes)
            or memcmp(at + outline.topic_start, _start_of(self._half_topic_bytes), <size_t>outline.topic_bytes)
            or not read_half_traits(at + outline.properties_start, outline.properties_bytes, &half)
            or half.group.length != end.group.length
            or memcmp(half.group.at, end.group.at, <size_t>half.group.length)
        ):
            return None
        record.born_host_bytes = 20 if outline.sys_flag & 0x10 else 8
        body_at = 48 + record.born_host_bytes + 8 + (20 if outline.sys_flag & 0x20 else 8) + 16
        record.body = at + body_at
        record.body_bytes = get_int32(at + body_at - 4)
        if record.body_bytes and <int32_t>(crc32_of(record.body, record.body_bytes) & 0x7FFFFFFF) != get_int32(at + 8):
            return None
        if self._granted_sends is not None and _text(half.topic) not in self._granted_sends:
            return None
        send.topic = half.topic
        send.queue_id = half.queue_id
        queue = self._find_queue(&send)
        if queue is None:
            return None
        record.born_timestamp = get_int64(at + 40)
        if end.state == TRANSACTION_COMMIT:
            queue_end = self._appender.find_queue(queue.topic, queue.queue_id)
            if queue_end is None:
                return None
            record.properties = at + outline.properties_start
            record.properties_bytes = outline.properties_bytes
            record.more_properties = NULL
            record.more_properties_bytes = 0
            record.born_host = at + 48
            record.store_host = _start_of(self._store_host)
            record.store_host_bytes = PyBytes_GET_SIZE(self._store_host)
            record.flag = get_int32(at + 16)
            record.sys_flag = outline.sys_flag | TRANSACTION_COMMIT
            record.reconsume_times = get_int32(at + body_at - 16)
            record.prepared_transaction_offset = end.log_offset
            if not self._appender.append_record(queue_end, &record, &appended):
                return None
            self._count(queue, 1, appended.size_bytes)
            needed_end = appended.log_offset + appended.size_bytes
        unique_key = half.unique_key.at[: half.unique_key.length].decode()
        return end.queue_offset, unique_key, record.born_timestamp, queue.topic, needed_end

    cdef tuple _append_batch(self, WritableQueue queue, Send *send, bytes body, Appended *appended):
        """The log offsets of the messages of a batch; None if it was not stored."""
        try:
            result = self._store.append_encoded_batch(
                queue.topic,
                queue.queue_id,
                body,
                born_timestamp=send.born_timestamp,
                born_host=self._born_host,
                store_host=self._store_host,
                sys_flag=send.sys_flag | queue.sys_flag,
                reconsume_times=send.reconsume_times,
            )
        except RemoteProtocolError:
            return None
        return result.record_offsets if self._note(result, appended) else None

    cdef bint _note(self, result, Appended *appended) except -1:
        if result.status is not self._put_ok:
            return False
        appended.log_offset = result.log_offset
        appended.size_bytes = result.size_bytes
        appended.queue_offset = result.queue_offset
        return True

    cdef WritableQueue _find_queue(self, Send *send):
        cdef Py_ssize_t topic_bytes = send.topic.length
        cdef object found
        cdef WritableQueue queue
        cdef bytes topic
        if (
            PyBytes_GET_SIZE(self._last_topic) != topic_bytes
            or memcmp(PyBytes_AS_STRING(self._last_topic), send.topic.at, <size_t>topic_bytes)
        ):
            topic = send.topic.at[:topic_bytes]
            found = self._known_queues.get(topic)
            if found is None:
                return self._open_queue(send)
            self._last_topic = topic
            self._last_queues = found
        if 0 <= send.queue_id < len(self._last_queues):
            queue = self._last_queues[send.queue_id]
            if queue is not None:
                return queue
        return self._open_queue(send)

    cdef WritableQueue _open_queue(self, Send *send):
        """Only existing topics are remembered: unknown names may have any length."""
        cdef bytes topic = send.topic.at[: send.topic.length]
        cdef WritableQueue queue
        cdef list known
        writable = self._writable_queues.find(topic.decode(), send.queue_id)
        if writable is None or not writable.is_plain:
            return None
        queue = WritableQueue.__new__(WritableQueue)
        queue.topic = writable.topic
        queue.queue_id = writable.queue_id
        queue.number = writable.queue_id
        queue.sys_flag = writable.sys_flag
        queue.series = self._statistics.puts_of(writable.topic, writable.queue_id)
        if 0 <= queue.number < MAX_KNOWN_QUEUES:
            known = self._known_queues.get(topic)
            if known is None:
                if len(self._known_queues) >= MAX_KNOWN_TOPICS:
                    self._known_queues.clear()
                known = self._known_queues[topic] = []
            while len(known) <= queue.number:
                known.append(None)
            known[queue.number] = queue
        return queue

    cdef int _write_sent(
        self,
        Header *header,
        WritableQueue queue,
        int64_t log_offset,
        tuple offsets,
        int64_t queue_offset,
        Traits *traits,
    ) except -1:
        cdef Text out = self._answers
        cdef Pieces pieces = self._binary if header.is_binary else self._json
        cdef Py_ssize_t start = out.length
        cdef Py_ssize_t fields_at, ids_at
        cdef Py_ssize_t ids = len(offsets) or 1
        cdef bytes handle = self._recall_handle
        out.reserve(
            512
            + ids * (PyBytes_GET_SIZE(self._id_prefix) + ID_BYTES + 1)
            + PyBytes_GET_SIZE(self._json.fixed)
            + PyBytes_GET_SIZE(self._binary.fixed)
            + traits.unique_key.length
            + (0 if handle is None else PyBytes_GET_SIZE(handle))
        )
        out.length += PREFIX_BYTES
        if header.is_binary:
            fields_at = self._begin_binary(out, header, b"")
            out.put_bytes(pieces.message_ids)
            out.length += 4
            ids_at = out.length
            self._write_ids(out, log_offset, offsets)
            put_int32(out.data + ids_at - 4, <uint32_t>(out.length - ids_at))
            _put_binary_number(
                out, PyBytes_AS_STRING(pieces.queue_id), PyBytes_GET_SIZE(pieces.queue_id), queue.number
            )
            _put_binary_number(
                out, PyBytes_AS_STRING(pieces.queue_offset), PyBytes_GET_SIZE(pieces.queue_offset), queue_offset
            )
            out.put_bytes(pieces.fixed)
            if traits.unique_key.length:
                out.put_bytes(pieces.unique_key)
                out.put_uint32(<uint32_t>traits.unique_key.length)
                out.put(traits.unique_key.at, traits.unique_key.length)
            if handle is not None:
                out.put_bytes(pieces.recall_handle)
                out.put_uint32(<uint32_t>PyBytes_GET_SIZE(handle))
                out.put_bytes(handle)
            put_int32(out.data + fields_at - 4, <uint32_t>(out.length - fields_at))
        else:
            out.put_bytes(pieces.message_ids)
            self._write_ids(out, log_offset, offsets)
            _put_json_number(
                out, PyBytes_AS_STRING(pieces.queue_id), PyBytes_GET_SIZE(pieces.queue_id), queue.number
            )
            _put_json_number(
                out, PyBytes_AS_STRING(pieces.queue_offset), PyBytes_GET_SIZE(pieces.queue_offset), queue_offset
            )
            out.put_bytes(pieces.fixed)
            if traits.unique_key.length:
                out.put_bytes(pieces.unique_key)
                out.put(traits.unique_key.at, traits.unique_key.length)
                out.put_bytes(pieces.text_end)
            if handle is not None:
                out.put_bytes(pieces.recall_handle)
                out.put_bytes(handle)
                out.put_bytes(pieces.text_end)
            _put_json_number(
                out, PyBytes_AS_STRING(pieces.opaque), PyBytes_GET_SIZE(pieces.opaque), header.opaque
            )
            out.put_bytes(pieces.end)
        _put_prefix(out, start, header.is_binary, 0)
        return 0

    cdef int _write_ids(self, Text out, int64_t log_offset, tuple offsets) except -1:
        cdef Py_ssize_t index
        if not offsets:
            out.put_bytes(self._id_prefix)
            out.put_hex(<uint64_t>log_offset)
        for index in range(len(offsets)):
            if index:
                out.put(b",", 1)
            log_offset = offsets[index]
            out.put_bytes(self._id_prefix)
            out.put_hex(<uint64_t>log_offset)
        return 0

    cdef Py_ssize_t _begin_binary(self, Text out, Header *header, bytes remark) except -1:
        """Write everything before the extension fields of a binary answer; returns where those begin."""
        out.put(b"\x00\x00", 2)
        out.data[out.length] = <uint8_t>self._language
        out.data[out.length + 1] = <uint8_t>(self._version >> 8)
        out.data[out.length + 2] = <uint8_t>self._version
        out.length += 3
        out.put_uint32(<uint32_t>header.opaque)
        out.put_uint32(1)
        out.put_uint32(<uint32_t>PyBytes_GET_SIZE(remark))
        out.put_bytes(remark)
        out.length += 4
        return out.length

    # Pulls

    cdef Py_ssize_t _take_pull(self, Header *header, Pull *pull, connection) except -2:
        """Answer a pull that finds messages now; returns their bytes, -1 if the general path must handle it."""
        cdef ReadGrant grant = self._find_grant(header.code, pull)
        cdef Text out = self._scratch
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
            or self._offsets.resets
        ):
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
        out.length = 0
        out.reserve(512)
        out.length = PREFIX_BYTES
        if header.is_binary:
            fields_at = self._begin_binary(out, header, b"FOUND")
            _put_binary_number(out, b"\x00\x14suggestWhichBrokerId", 22, suggested)
            _put_binary_number(out, b"\x00\x0fnextBeginOffset", 17, next_offset)
            _put_binary_number(out, b"\x00\x09minOffset", 11, result.min_offset)
            _put_binary_number(out, b"\x00\x09maxOffset", 11, result.max_offset)
            put_int32(out.data + fields_at - 4, <uint32_t>(out.length - fields_at))
        else:
            _put_json_number(out, b'{"code":0,"extFields":{"suggestWhichBrokerId":"', 47, suggested)
            _put_json_number(out, b'","nextBeginOffset":"', 21, next_offset)
            _put_json_number(out, b'","minOffset":"', 15, result.min_offset)
            _put_json_number(out, b'","maxOffset":"', 15, result.max_offset)
            _put_json_number(out, b'"},"flag":1,"language":"PYTHON","opaque":', 41, header.opaque)
            out.put(b',"remark":"FOUND"', 17)
            out.put_bytes(self._json_end)
        _put_prefix(out, 0, header.is_binary, body_bytes)
        if out.length + body_bytes > self._max_frame_bytes:
            return -1
        if pull.sys_flag & COMMIT_FLAG:
            self._offsets.commit(grant.group, grant.topic, pull.queue_id, pull.commit_offset)
        self._offsets.pulled(grant.group, grant.topic, pull.queue_id, next_offset)
        counted = grant.counted.get(pull.queue_id)
        if counted is None:
            counted = grant.counted[pull.queue_id] = Counted.__new__(Counted)
            counted.series = self._statistics.gets_of(grant.group, grant.topic, pull.queue_id)
        if not counted.calls:
            self._touched.append(counted)
        counted.calls += 1
        counted.messages += result.message_count
        counted.size_bytes += body_bytes
        if self._answers.length and not self._waits:
            connection.put(self._answers.take())
        views = result.views
        if len(views) == 1 and body_bytes >= SHORT_BYTES:
            # One contiguous view is sent without a copy.
            connection.put(out.take())
            connection.put(views[0])
            return body_bytes
        whole = PyBytes_FromStringAndSize(NULL, out.length + body_bytes)
        memcpy(PyBytes_AS_STRING(whole), out.data, <size_t>out.length)
        done = out.length
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

    # Acknowledgements

    cdef bint _take_ack(self, Header *header, Ack *ack, connection) except -1:
        """Gather an acknowledgement with the others of its pop; False if the general path must handle it."""
        cdef Text out = self._run_answers
        cdef AckRun run = self._run
        cdef Py_ssize_t start
        if run is None or not run.is_of(ack):
            self._end_run(connection)
            run = self._begin_run(ack)
            if run is None:
                return False
            self._run = run
        if not run.first <= ack.offset <= run.end:
            return False
        run.offsets.append(ack.offset)
        out.reserve(PREFIX_BYTES + PyBytes_GET_SIZE(self._ack_begin) + PyBytes_GET_SIZE(self._ack_end) + 32)
        start = out.length
        out.length += PREFIX_BYTES
        out.put_bytes(self._ack_begin)
        out.put_number(header.opaque)
        out.put_bytes(self._ack_end)
        _put_prefix(out, start, False, 0)
        return True

    cdef AckRun _begin_run(self, Ack *ack):
        cdef AckRun run = AckRun.__new__(AckRun)
        run.topic = ack.topic.at[: ack.topic.length]
        run.group = ack.group.at[: ack.group.length]
        run.receipt = ack.receipt.at[: ack.receipt.length]
        run.queue_id = ack.queue_id
        run.found = self._acks.begin(run.topic, run.group, run.queue_id, run.receipt)
        if run.found is None:
            return None
        run.first, run.end = run.found.first, run.found.end
        run.offsets = []
        return run

    cdef int _end_run(self, connection) except -1:
        cdef AckRun run = self._run
        if run is not None:
            self._run = None
            if run.offsets:
                self._acks.gather(run.found, run.offsets, connection, self._run_answers.take())
        return 0

    cdef ReadGrant _find_grant(self, int32_t code, Pull *pull):
        cdef bint brings_subscription = pull.sys_flag & SUBSCRIPTION_FLAG != 0
        cdef Text key = self._scratch
        cdef ReadGrant grant
        cdef bytes name
        key.length = 0
        key.reserve(
            24 + pull.group.length + pull.topic.length + pull.subscription.length + pull.expression_type.length
        )
        key.put_uint32(<uint32_t>code << 1 | brings_subscription)
        _put_part(key, pull.topic)
        _put_part(key, pull.group)
        if brings_subscription:
            _put_part(key, pull.expression_type)
            _put_part(key, pull.subscription)
        name = key.take()
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


cdef inline void _put_part(Text key, Span span) noexcept:
    """A part of a key after its length; a missing part differs from an empty one."""
    key.put_uint32(<uint32_t>0xFFFFFFFF if span.at is NULL else <uint32_t>span.length)
    if span.at is not NULL:
        key.put(span.at, span.length)


cdef inline bint _is_same(Span span, bytes text) noexcept:
    return span.length == PyBytes_GET_SIZE(text) and memcmp(span.at, PyBytes_AS_STRING(text), <size_t>span.length) == 0


cdef inline bint _has_access_key(Header *header, bytes access_key) noexcept:
    """Whether the request names this user; with an empty key, whether it names none."""
    cdef bint is_named = False
    cdef int index
    for index in range(header.field_count):
        if header.names[index].length == 9 and not memcmp(header.names[index].at, b"AccessKey", 9):
            if not _is_called(header.values[index], access_key):
                return False
            is_named = True
    return is_named or not PyBytes_GET_SIZE(access_key)


cdef inline bint _is_called(Span span, bytes name) noexcept:
    return name is not None and not span.has_escapes and _is_same(span, name)


cdef inline bint _names_granted_topic(Header *header, set granted) except -1:
    """Whether the end of a transaction names a topic that is granted, or none: its half message has one, too."""
    cdef int index
    for index in range(header.field_count):
        if is_called(header.names[index], b"topic", 5) and _text(header.values[index]) not in granted:
            return False
    return True


cdef inline bytes _text(Span span):
    """As granted; a text that is written in another way than usual is never granted."""
    return b"" if span.has_escapes else span.at[: span.length]


cdef inline object _text_or_none(Span span):
    return None if span.at is NULL else span.at[: span.length].decode()


cdef inline bint _is_alphanumeric(Span span) noexcept:
    cdef Py_ssize_t index
    cdef uint8_t letter
    for index in range(span.length):
        letter = span.at[index]
        if not (0x30 <= letter <= 0x39 or 0x41 <= letter <= 0x5A or 0x61 <= letter <= 0x7A):
            return False
    return True


cdef inline void _put_json_number(Text out, const char *before, Py_ssize_t length, int64_t number) noexcept:
    out.put(before, length)
    out.put_number(number)


cdef inline void _put_binary_number(Text out, const char *name, Py_ssize_t length, int64_t number) noexcept:
    """A field; `name` begins with its own length."""
    cdef Py_ssize_t at
    out.put(name, length)
    out.length += 4
    at = out.length
    out.put_number(number)
    put_int32(out.data + at - 4, <uint32_t>(out.length - at))


cdef inline void _put_prefix(Text out, Py_ssize_t start, bint is_binary, Py_ssize_t body_bytes) noexcept:
    cdef Py_ssize_t header_bytes = out.length - start - PREFIX_BYTES
    put_int32(out.data + start, <uint32_t>(4 + header_bytes + body_bytes))
    put_int32(out.data + start + 4, <uint32_t>header_bytes | <uint32_t>is_binary << 24)
