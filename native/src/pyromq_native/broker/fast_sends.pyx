# cython: boundscheck=False, wraparound=False
"""Plain sends on the broker's fast path: messages, batches, and messages that are parked."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import names
from pyromq.store.results import AppendResult, AppendStatus

from pyromq_native.protocol.declared cimport (
    AFTER_NAME,
    AFTER_PAIR,
    FLAG_TRANSACTION_MASK,
    MAX_LITE_TOPIC_BYTES,
    MAX_V1_TOPIC_BYTES,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_ID,
)
from pyromq_native.big_endian cimport get_int16, get_uint32
from pyromq_native.store.fast_appending cimport Appended, Appender, QueueEnd
from pyromq_native.broker.counting cimport Counted, Touched
from pyromq_native.growing cimport Growing, put, put_byte, put_bytes, put_constant, put_number, reserve
from pyromq_native.protocol.headers cimport Header, Span, unescape
from pyromq_native.broker.known_queues cimport KnownQueues, WritableQueue
from pyromq_native.protocol.records cimport Record
from pyromq_native.protocol.requests cimport Send, Traits, read_traits
from pyromq_native.broker.send_answers cimport SendAnswers
from pyromq_native.store.fast_light cimport LightEnd, hash_of
from pyromq_native.slices cimport start_of



cdef inline void put_name(Growing out, const char *name) noexcept:
    put_constant(out, name)
    put_byte(out, AFTER_NAME)


cdef class Account:
    def __init__(self, quotas):
        self._quotas = quotas
        self._topic = None

    cdef bint admits(self, topic) except -1:
        """Whether a send is not refused. The time stands still during a read."""
        if topic is not self._topic:
            self.settle()
            rates, levels, self._max_delay_s = self._quotas.account_of(topic)
            self._rates[0], self._rates[1] = rates
            self._levels[0], self._levels[1] = levels
            self._topic = topic
        return max(self._debt_s(0), self._debt_s(1)) <= self._max_delay_s

    cdef double charge(self, long messages, int64_t size_bytes) noexcept:
        """How much later the send is answered."""
        cdef double debt_s, other_s
        self._messages += messages
        self._size_bytes += size_bytes
        self._levels[0] -= messages
        self._levels[1] -= size_bytes
        debt_s, other_s = self._debt_s(0), self._debt_s(1)
        if debt_s <= 0 and other_s <= 0:
            return 0
        self._delayed[other_s > debt_s] += 1
        return min(max(debt_s, other_s), self._max_delay_s)

    cdef int settle(self) except -1:
        if self._topic is not None:
            topic, self._topic = self._topic, None
            if self._messages:
                self._quotas.charge(
                    topic, self._messages, self._size_bytes, (self._delayed[0], self._delayed[1])
                )
            self._messages = self._size_bytes = 0
            self._delayed[0] = self._delayed[1] = 0
        return 0

    cdef double _debt_s(self, int which) noexcept:
        return -self._levels[which] / self._rates[which] if self._rates[which] else 0


cdef class FastSends:
    """Sends, appended to the log."""

    def __init__(
        self,
        store,
        bytes store_host not None,
        appending,
        KnownQueues queues,
        writable_queues,
        send_throttle,
        broker_properties,
        born_hosts,
        statistics,
        transactions,
        Touched touched,
        quotas,
    ):
        self._store = store
        self._appender = store.appender
        self._light = store.light
        self._store_host = store_host
        self._appending = appending
        self._recent = appending.resends.recent
        self._queues = queues
        self._send_throttle = send_throttle
        self._broker_properties = broker_properties
        self._born_hosts = born_hosts
        self._statistics = statistics
        self._transactions = transactions
        self._touched = touched
        self._account = Account(quotas)
        self._send_answers = SendAnswers(store_host)
        self._put_ok = AppendStatus.PUT_OK
        self._half_topic = names.HALF_TOPIC
        self._timer_topic = names.TIMER_TOPIC
        self._suffix = b""
        self._scratch = Growing()
        self._place = Growing()
        self.answers = Growing()
        self.late_answers = Growing()
        writable_queues.on_change(self._forget)

    def _forget(self):
        self._half_puts = self._timer_puts = None

    cdef object last_append(self):
        return AppendResult(self._put_ok, self._last_offset, self._last_size)

    cdef int settle(self) except -1:
        """A read is over."""
        return self._account.settle()

    cdef void begin(self, bint waits) noexcept:
        """A read begins; `waits`: answers are sent when their messages are safe."""
        self.answers.size = self.late_answers.size = 0
        self.delay_s = 0
        self.waits = waits
        self._born_host = None

    cdef bint take(
        self, Header *header, Send *send, const uint8_t *body, Py_ssize_t body_bytes, connection
    ) except -1:
        """Append a message or a batch and write its answer; False if the general path must handle it."""
        cdef const uint8_t *text = send.properties.at
        cdef Py_ssize_t text_bytes = send.properties.length
        cdef Traits traits
        cdef WritableQueue queue
        cdef Growing scratch = self._scratch
        cdef Appended appended
        cdef tuple offsets = ()
        cdef Counted counted
        cdef Growing answers = self.answers
        cdef double delay_s
        if send.properties.has_escapes:
            scratch.size = 0
            reserve(scratch, text_bytes)
            text_bytes = unescape(send.properties, scratch.data)
            text = scratch.data
            if text_bytes < 0:
                return False
        if not read_traits(text, text_bytes, &traits) or (self.waits and not traits.waits):
            return False
        if not is_alphanumeric(traits.unique_key):
            return False
        if self._recent and self._is_recent(send, &traits, body, body_bytes):
            return False
        if traits.is_half or traits.is_timed:
            if send.is_batch or send.reconsume_times or send.topic.length > MAX_V1_TOPIC_BYTES:
                return False
        if send.sys_flag & FLAG_TRANSACTION_MASK and not traits.is_half:
            return False
        queue = self._queues.find(&send.topic, send.queue_id)
        if queue is None:
            return False
        if not send.is_batch and (not traits.unique_key.length or text[text_bytes - 1] != 2):
            return False
        if queue.lite_prefix is not None:
            if send.is_batch or traits.is_half or traits.is_timed or traits.is_unusual_for_lite:
                return False
            if traits.lite_topic.length:
                if not is_lite_name(traits.lite_topic):
                    return False
                self._lite_hash = queue.lite_hash + hash_of(traits.lite_topic.at, traits.lite_topic.length)
                self._light.names_end.expect(self._lite_hash)
        if queue.has_quota and not self._account.admits(queue.topic):
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
        elif queue.lite_prefix is not None and traits.lite_topic.length:
            if not self._append_lite(queue, send, text, text_bytes, body, body_bytes, &traits, &appended):
                return False
        elif not self._append_one(queue, send, text, text_bytes, body, body_bytes, &appended):
            return False
        self._last_offset = appended.log_offset
        self._last_size = appended.size_bytes
        self._touched.count(counted, len(offsets) or 1, appended.size_bytes)
        if queue.has_quota:
            delay_s = self._account.charge(len(offsets) or 1, body_bytes)
            if delay_s > 0:
                self.delay_s = max(delay_s, self.delay_s)
                answers = self.late_answers
        if not header.flag:
            self._send_answers.put_sent(
                answers,
                header,
                queue.number,
                appended.log_offset,
                offsets,
                appended.queue_offset,
                &traits.unique_key,
                self._recall_handle,
            )
        return True

    cdef bint _is_recent(self, Send *send, Traits *traits, const uint8_t *body, Py_ssize_t body_bytes) except -1:
        """Whether a message may have been resent before it came; see `pyromq.broker.flow.resends`."""
        cdef Span key = traits.unique_key
        cdef Traits first
        cdef Py_ssize_t at, length
        if send.is_batch:
            # The key of its first message, whose body begins after 20 bytes; its properties follow the body.
            at = 22 + <Py_ssize_t>get_uint32(body + 16) if body_bytes >= 20 else body_bytes + 1
            length = get_int16(body + at - 2) if at <= body_bytes else -1
            if not 0 <= length <= body_bytes - at or not read_traits(body + at, length, &first):
                return True
            key = first.unique_key
        return key.length > 0 and key.at[: key.length].decode("latin-1") in self._recent

    cdef bint _is_admitted(self, connection) except -1:
        """Whether the broker accepts sends now; asked once for each read."""
        if not self._send_throttle.admits():
            return False
        properties = self._broker_properties
        if properties.suffix is not self._known_suffix:
            self._known_suffix = properties.suffix
            self._suffix = properties.suffix.encode()
        self._send_answers.use_fields(properties.answer_fields)
        self._born_host = self._born_hosts.of(connection)
        self._accepts_halves = self._appender is not None and self._transactions.accepts_halves
        return True

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
                record.more_properties = start_of(self._suffix)
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
        record.born_host = start_of(self._born_host)
        record.born_host_bytes = PyBytes_GET_SIZE(self._born_host)
        record.store_host = start_of(self._store_host)
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
        cdef Growing place = self._place
        cdef QueueEnd queue_end
        if self._appender is None or (traits.is_half and not self._accepts_halves):
            return False
        queue_end = self._appender.find_queue(self._half_topic if traits.is_half else self._timer_topic, 0)
        if queue_end is None:
            return False
        place.size = 0
        reserve(place, PyBytes_GET_SIZE(self._suffix) + traits.unique_key.length + send.topic.length + 80)
        put_bytes(place, self._suffix)
        if traits.is_half:
            put_name(place, PROPERTY_TRANSACTION_ID)
            put(place, traits.unique_key.at, traits.unique_key.length)
        else:
            slot_ms = self._appending.slot_for(traits.asked, traits.unit_ms, self._appender._time())
            if type(slot_ms) is not int:
                return False  # its time has come, or is refused
            put_name(place, PROPERTY_TIMER_OUT_MS)
            put_number(place, slot_ms)
        put_byte(place, AFTER_PAIR)
        put_name(place, PROPERTY_REAL_TOPIC)
        put(place, send.topic.at, send.topic.length)
        put_byte(place, AFTER_PAIR)
        put_name(place, PROPERTY_REAL_QUEUE_ID)
        put_number(place, queue.number)
        put_byte(place, AFTER_PAIR)
        self._describe(&record, queue, send, text, text_bytes, body, body_bytes)
        record.more_properties = place.data
        record.more_properties_bytes = place.size
        # java: a record with transaction bits is in no queue, but parked messages are read from theirs
        record.sys_flag &= ~FLAG_TRANSACTION_MASK
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

    cdef bint _append_lite(
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
        """Append a message that enters a lite topic; see `Sending` and `LightQueues.numbered`."""
        cdef Record record
        cdef Growing place = self._place
        cdef LightEnd light = self._light
        cdef QueueEnd queue_end
        cdef Py_ssize_t name_at
        cdef int64_t number, following
        if self._appender is None:
            return False
        light.names_end.expect_name(self._lite_hash)
        queue_end = self._appender.find_queue(queue.topic, queue.queue_id)
        if queue_end is None:
            return False
        place.size = 0
        reserve(
            place,
            PyBytes_GET_SIZE(self._suffix) + PyBytes_GET_SIZE(queue.lite_prefix) + traits.lite_topic.length + 80,
        )
        put_name(place, PROPERTY_INNER_MULTI_DISPATCH)
        name_at = place.size
        put_bytes(place, queue.lite_prefix)
        put(place, traits.lite_topic.at, traits.lite_topic.length)
        number = light.names_end.recall(place.data + name_at, place.size - name_at, self._lite_hash)
        if number >= 0:
            name = light.names_end.name_of(number)
        else:
            name = place.data[name_at : place.size].decode("ascii")
            number = light.find(name)
        put_byte(place, AFTER_PAIR)
        put_bytes(place, self._suffix)
        if place.data[place.size - 1] != AFTER_PAIR:
            put_byte(place, AFTER_PAIR)
        following = 0 if number < 0 else light.nexts.data.as_longlongs[number]
        if following:
            if light.epochs.data.as_longlongs[number]:
                return False  # a writer with an epoch has it, or that is not known
        elif self._store.settings.light_queue_quota:
            return False
        put_name(place, PROPERTY_INNER_MULTI_QUEUE_OFFSET)
        put_number(place, following)
        put_byte(place, AFTER_PAIR)
        self._describe(&record, queue, send, text, text_bytes, body, body_bytes)
        record.more_properties = place.data
        record.more_properties_bytes = place.size
        if not self._appender.append_record(queue_end, &record, appended):
            return False
        light.appended(name, number)
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


cdef inline bint is_lite_name(Span name) noexcept:
    """Whether a name of this length may be one, and has nothing but letters, digits, `_` and `-`."""
    cdef Py_ssize_t index
    cdef uint8_t letter
    for index in range(name.length):
        letter = name.at[index]
        if not (
            0x30 <= letter <= 0x39
            or 0x41 <= letter <= 0x5A
            or 0x61 <= letter <= 0x7A
            or letter == c"_"
            or letter == c"-"
        ):
            return False
    return name.length <= MAX_LITE_TOPIC_BYTES


cdef inline bint is_alphanumeric(Span span) noexcept:
    cdef Py_ssize_t index
    cdef uint8_t letter
    for index in range(span.length):
        letter = span.at[index]
        if not (0x30 <= letter <= 0x39 or 0x41 <= letter <= 0x5A or 0x61 <= letter <= 0x7A):
            return False
    return True
