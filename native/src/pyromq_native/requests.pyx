# cython: boundscheck=False, wraparound=False
"""Sends, ends of transactions, pulls and acknowledgements, read from a scanned header. A missing, repeated or unusual field makes the reader say no.

Fields that the fast path does not need are checked as well: it must not accept a request that the general path
refuses.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from pyromq_native.big_endian cimport get_int64
from pyromq_native.headers cimport Header, Span, is_called, read_bool, read_int32, read_int64
from pyromq_native.records cimport Outline, outline_record

cdef int64_t MAX_DELAY = <int64_t>1 << 48

cdef enum:
    # Fields of a send, in the order of the letters that SEND_MESSAGE_V2 uses as names.
    GROUP = 1
    TOPIC = 2
    DEFAULT_TOPIC = 4
    DEFAULT_QUEUES = 8
    QUEUE = 16
    SYS_FLAG = 32
    BORN = 64
    MESSAGE_FLAG = 128
    PROPERTIES = 256
    RECONSUMED = 512
    UNIT_MODE = 1024
    MAX_RECONSUMED = 2048
    BATCH = 4096
    BROKER = 8192
    NEEDED_BY_SEND = 255

    # Fields of a pull.
    OFFSET = 16384
    MAX_MESSAGES = 32768
    COMMIT = 65536
    SUSPEND = 131072
    SUBSCRIPTION = 262144
    SUB_VERSION = 524288
    EXPRESSION_TYPE = 1048576
    MAX_BYTES = 2097152
    SOURCE = 4194304
    FORWARDED = 8388608
    NEEDED_BY_PULL = 1 | 2 | 16 | 32 | 16384 | 32768 | 65536 | 131072 | 524288

    # Fields of the end of a transaction; OFFSET is that of the half message.
    LOG_OFFSET = 32768
    STATE = 65536
    IS_CHECK = 131072
    MESSAGE_ID = 262144
    NEEDED_BY_END = 1 | 16384 | 32768 | 65536 | 262144

    # Fields of an acknowledgement; OFFSET is that of the message.
    RECEIPT = 32768
    NEEDED_BY_ACK = 1 | 2 | 16 | 16384 | 32768

    # Fields of any request about a topic.
    NAMESPACED = 16777216
    ONEWAY_HINT = 33554432
    LOGICAL_QUEUE = 67108864

    UNKNOWN = 0


cdef bint read_send(Header *header, Send *send) noexcept nogil:
    cdef bint is_short = header.code != SEND
    cdef int seen = 0
    cdef int which, index
    cdef Span value
    cdef int32_t number = 0
    cdef bint truth = False
    send.reconsume_times = 0
    send.is_batch = False
    send.properties = Span(NULL, 0, False)
    for index in range(header.field_count):
        which = _short_field(header.names[index]) if is_short else _long_field(header.names[index])
        value = header.values[index]
        if which & seen or (value.has_escapes and which != PROPERTIES):
            return False
        seen |= which
        if which == TOPIC:
            send.topic = value
        elif which == PROPERTIES:
            send.properties = value
        elif which == QUEUE:
            if not read_int32(value, &send.queue_id):
                return False
        elif which == SYS_FLAG:
            if not read_int32(value, &send.sys_flag):
                return False
        elif which == MESSAGE_FLAG:
            if not read_int32(value, &send.flag):
                return False
        elif which == BORN:
            if not read_int64(value, &send.born_timestamp):
                return False
        elif which == RECONSUMED:
            if not read_int32(value, &send.reconsume_times):
                return False
        elif which == BATCH:
            if not read_bool(value, &send.is_batch):
                return False
        elif which & (DEFAULT_QUEUES | MAX_RECONSUMED):
            if not read_int32(value, &number):
                return False
        elif which & (UNIT_MODE | NAMESPACED | ONEWAY_HINT | LOGICAL_QUEUE):
            if not read_bool(value, &truth):
                return False
    if header.code == SEND_BATCH:
        send.is_batch = True
    return seen & NEEDED_BY_SEND == NEEDED_BY_SEND


cdef bint read_pull(Header *header, Pull *pull) noexcept nogil:
    cdef int seen = 0
    cdef int which, index
    cdef Span value
    cdef int64_t number = 0
    cdef int32_t small = 0
    cdef bint truth = False
    pull.max_bytes = 0
    pull.subscription = pull.expression_type = Span(NULL, 0, False)
    for index in range(header.field_count):
        which = _pull_field(header.names[index])
        value = header.values[index]
        if which & seen or value.has_escapes:
            return False
        seen |= which
        if which == GROUP:
            pull.group = value
        elif which == TOPIC:
            pull.topic = value
        elif which == SUBSCRIPTION:
            pull.subscription = value
        elif which == EXPRESSION_TYPE:
            pull.expression_type = value
        elif which == QUEUE:
            if not read_int32(value, &pull.queue_id):
                return False
        elif which == SYS_FLAG:
            if not read_int32(value, &pull.sys_flag):
                return False
        elif which == MAX_MESSAGES:
            if not read_int32(value, &pull.max_messages):
                return False
        elif which == MAX_BYTES:
            if not read_int32(value, &pull.max_bytes):
                return False
        elif which == OFFSET:
            if not read_int64(value, &pull.offset):
                return False
        elif which == COMMIT:
            if not read_int64(value, &pull.commit_offset):
                return False
        elif which == SUB_VERSION:
            if not read_int64(value, &pull.sub_version):
                return False
        elif which == SUSPEND:
            if not read_int64(value, &number):
                return False
        elif which == SOURCE:
            if not read_int32(value, &small):
                return False
        elif which & (NAMESPACED | ONEWAY_HINT | LOGICAL_QUEUE):
            if not read_bool(value, &truth):
                return False
    return seen & NEEDED_BY_PULL == NEEDED_BY_PULL


cdef bint read_end(Header *header, End *end) noexcept nogil:
    cdef int seen = 0
    cdef int which, index
    cdef Span value
    cdef bint truth = False
    for index in range(header.field_count):
        which = _end_field(header.names[index])
        value = header.values[index]
        if which & seen or value.has_escapes:
            return False
        seen |= which
        if which == GROUP:
            end.group = value
        elif which == OFFSET:
            if not read_int64(value, &end.queue_offset):
                return False
        elif which == LOG_OFFSET:
            if not read_int64(value, &end.log_offset):
                return False
        elif which == STATE:
            if not read_int32(value, &end.state):
                return False
        elif which & (IS_CHECK | NAMESPACED | ONEWAY_HINT | LOGICAL_QUEUE):
            if not read_bool(value, &truth):
                return False
    return seen & NEEDED_BY_END == NEEDED_BY_END


cdef bint read_ack(Header *header, Ack *ack) noexcept nogil:
    cdef int seen = 0
    cdef int which, index
    cdef Span value
    cdef int64_t number = 0
    cdef Py_ssize_t at, words = 0
    cdef bint truth = False
    for index in range(header.field_count):
        which = _ack_field(header.names[index])
        value = header.values[index]
        if which & seen or value.has_escapes:
            return False
        seen |= which
        if which == GROUP:
            ack.group = value
        elif which == TOPIC:
            ack.topic = value
        elif which == RECEIPT:
            ack.receipt = value
        elif which == QUEUE:
            if not read_int32(value, &ack.queue_id):
                return False
        elif which == OFFSET:
            if not read_int64(value, &ack.offset):
                return False
        elif which & (NAMESPACED | ONEWAY_HINT | LOGICAL_QUEUE):
            if not read_bool(value, &truth):
                return False
    if seen & NEEDED_BY_ACK != NEEDED_BY_ACK:
        return False
    for at in range(ack.receipt.length):
        if ack.receipt.at[at] == 0x20:
            words += 1
    if words != 7:
        return False
    at = ack.receipt.length
    while ack.receipt.at[at - 1] != 0x20:
        at -= 1
    value = Span(ack.receipt.at + at, ack.receipt.length - at, False)
    ack.receipt.length = at - 1
    return value.length > 0 and read_int64(value, &number) and number == ack.offset


cdef inline int _short_field(Span name) noexcept nogil:
    if name.length == 1:
        if 0x61 <= name.at[0] <= 0x6E:  # a to n
            return 1 << (name.at[0] - 0x61)
        return UNKNOWN
    return _common_field(name)


cdef inline int _common_field(Span name) noexcept nogil:
    if name.length > 4:
        return UNKNOWN
    if is_called(name, b"nsd", 3):
        return NAMESPACED
    if is_called(name, b"oway", 4):
        return ONEWAY_HINT
    if is_called(name, b"lo", 2):
        return LOGICAL_QUEUE
    return UNKNOWN


cdef int _long_field(Span name) noexcept nogil:
    if is_called(name, b"producerGroup", 13):
        return GROUP
    if is_called(name, b"topic", 5):
        return TOPIC
    if is_called(name, b"defaultTopic", 12):
        return DEFAULT_TOPIC
    if is_called(name, b"defaultTopicQueueNums", 21):
        return DEFAULT_QUEUES
    if is_called(name, b"queueId", 7):
        return QUEUE
    if is_called(name, b"sysFlag", 7):
        return SYS_FLAG
    if is_called(name, b"bornTimestamp", 13):
        return BORN
    if is_called(name, b"flag", 4):
        return MESSAGE_FLAG
    if is_called(name, b"properties", 10):
        return PROPERTIES
    if is_called(name, b"reconsumeTimes", 14):
        return RECONSUMED
    if is_called(name, b"unitMode", 8):
        return UNIT_MODE
    if is_called(name, b"batch", 5):
        return BATCH
    if is_called(name, b"maxReconsumeTimes", 17):
        return MAX_RECONSUMED
    return _common_field(name)


cdef int _pull_field(Span name) noexcept nogil:
    if is_called(name, b"topic", 5):
        return TOPIC
    if is_called(name, b"queueId", 7):
        return QUEUE
    if is_called(name, b"sysFlag", 7):
        return SYS_FLAG
    if is_called(name, b"maxMsgNums", 10):
        return MAX_MESSAGES
    if is_called(name, b"subVersion", 10):
        return SUB_VERSION
    if is_called(name, b"queueOffset", 11):
        return OFFSET
    if is_called(name, b"maxMsgBytes", 11):
        return MAX_BYTES
    if is_called(name, b"commitOffset", 12):
        return COMMIT
    if is_called(name, b"subscription", 12):
        return SUBSCRIPTION
    if is_called(name, b"consumerGroup", 13):
        return GROUP
    if is_called(name, b"requestSource", 13):
        return SOURCE
    if is_called(name, b"expressionType", 14):
        return EXPRESSION_TYPE
    if is_called(name, b"suspendTimeoutMillis", 20):
        return SUSPEND
    if is_called(name, b"proxyFrowardClientId", 20):
        return FORWARDED
    return _common_field(name)


cdef int _end_field(Span name) noexcept nogil:
    if is_called(name, b"producerGroup", 13):
        return GROUP
    if is_called(name, b"tranStateTableOffset", 20):
        return OFFSET
    if is_called(name, b"commitLogOffset", 15):
        return LOG_OFFSET
    if is_called(name, b"commitOrRollback", 16):
        return STATE
    if is_called(name, b"fromTransactionCheck", 20):
        return IS_CHECK
    if is_called(name, b"msgId", 5):
        return MESSAGE_ID
    return _common_field(name)


cdef int _ack_field(Span name) noexcept nogil:
    if is_called(name, b"consumerGroup", 13):
        return GROUP
    if is_called(name, b"topic", 5):
        return TOPIC
    if is_called(name, b"queueId", 7):
        return QUEUE
    if is_called(name, b"extraInfo", 9):
        return RECEIPT
    if is_called(name, b"offset", 6):
        return OFFSET
    return _common_field(name)


# ------------------------------------------------------------------------------------------ properties


cdef bint read_traits(const uint8_t *properties, Py_ssize_t length, Traits *traits) noexcept nogil:
    """Read the properties that a send needs; False if one asks for anything special but a transaction
    or a time of delivery."""
    cdef bint names_its_place = False
    cdef const uint8_t *at = properties
    cdef const uint8_t *end = properties + length
    cdef const uint8_t *stop
    cdef Py_ssize_t size
    traits.unique_key = Span(NULL, 0, False)
    traits.waits = True
    traits.is_half = traits.is_timed = False
    while at < end:
        stop = <const uint8_t *>memchr(at, 2, <size_t>(end - at))
        if stop is NULL:
            stop = end
        size = stop - at
        if size >= 5:
            if at[0] == 0x55:  # U
                if _begins(at, size, b"UNIQ_KEY\x01", 9):
                    if size == 9:
                        return False  # an empty value is ignored, but an earlier one may count
                    traits.unique_key = Span(at + 9, size - 9, False)
            elif at[0] == 0x57:  # W
                if _begins(at, size, b"WAIT\x01", 5):
                    traits.waits = size == 9 and memcmp(at + 5, b"true", 4) == 0
                    if size == 5:
                        return False
            elif at[0] == 0x54:  # T
                if _begins(at, size, b"TRAN_MSG\x01", 9):
                    if traits.is_half or size != 13 or memcmp(at + 9, b"true", 4):
                        return False
                    traits.is_half = True
                elif _begins(at, size, b"TIMER_DEL", 9):
                    if traits.is_timed or not _read_time(at, size, traits):
                        return False
                elif _begins(at, size, b"TIMER_OUT_MS\x01", 13):
                    names_its_place = True
            elif at[0] == 0x52:  # R
                if _begins(at, size, b"REAL_TOPIC\x01", 11) or _begins(at, size, b"REAL_QID\x01", 9):
                    names_its_place = True
            elif at[0] == 0x5F:  # _
                if _begins(at, size, b"__transactionId__\x01", 18):
                    names_its_place = True
                elif _begins(at, size, b"_SYS_MSG_PRIORITY_\x01", 19):
                    return False
            elif at[0] == 0x44:  # D
                if _begins(at, size, b"DELAY\x01", 6):
                    return False
            elif at[0] == 0x49:  # I
                if _begins(at, size, b"INNER_NUM\x01", 10):
                    return False
            elif at[0] == 0x50:  # P
                if _begins(at, size, b"POP_CK\x01", 7):
                    return False
        at = stop + 1
    if traits.is_half or traits.is_timed:
        return not names_its_place and traits.is_half != traits.is_timed
    return True


cdef inline bint _read_time(const uint8_t *at, Py_ssize_t size, Traits *traits) noexcept nogil:
    cdef Py_ssize_t name_bytes
    if _begins(at, size, b"TIMER_DELIVER_MS\x01", 17):
        name_bytes, traits.unit_ms = 17, 0
    elif _begins(at, size, b"TIMER_DELAY_SEC\x01", 16):
        name_bytes, traits.unit_ms = 16, 1000
    elif _begins(at, size, b"TIMER_DELAY_MS\x01", 15):
        name_bytes, traits.unit_ms = 15, 1
    else:
        return False
    traits.is_timed = True
    return read_int64(Span(at + name_bytes, size - name_bytes, False), &traits.asked)


cdef bint read_half_traits(const uint8_t *properties, Py_ssize_t length, HalfTraits *half) noexcept nogil:
    """Read the properties of a half message that its end needs; False unless they say all, and nothing that
    makes it wait for more."""
    cdef const uint8_t *at = properties
    cdef const uint8_t *end = properties + length
    cdef const uint8_t *stop
    cdef Py_ssize_t size, index
    cdef Span queue_id = Span(NULL, 0, False)
    cdef uint8_t seen = 0
    half.group = half.unique_key = half.topic = queue_id
    half.is_copy = False
    while at < end:
        stop = <const uint8_t *>memchr(at, 2, <size_t>(end - at))
        if stop is NULL:
            stop = end
        size = stop - at
        if _begins(at, size, b"PGROUP\x01", 7):
            half.group = Span(at + 7, size - 7, False)
        elif _begins(at, size, b"UNIQ_KEY\x01", 9):
            half.unique_key = Span(at + 9, size - 9, False)
        elif _begins(at, size, b"REAL_TOPIC\x01", 11):
            half.topic = Span(at + 11, size - 11, False)
        elif _begins(at, size, b"REAL_QID\x01", 9):
            queue_id = Span(at + 9, size - 9, False)
        elif (
            _begins(at, size, b"TRANSACTION_CHECK_TIMES\x01", 24) and size > 24
            or _begins(at, size, b"TRAN_PREPARED_QUEUE_OFFSET\x01", 27) and size > 27
        ):
            half.is_copy = True
        elif (
            _begins(at, size, b"DELAY\x01", 6)
            or _begins(at, size, b"TIMER_DEL", 9)
            or _begins(at, size, b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01", 31)
        ):
            return False
        at = stop + 1
    if not half.group.length or not half.unique_key.length or not half.topic.length:
        return False
    for index in range(half.topic.length):
        seen |= half.topic.at[index]
    for index in range(half.unique_key.length):
        seen |= half.unique_key.at[index]
    return seen < 0x80 and queue_id.length > 0 and read_int32(queue_id, &half.queue_id)


def read_timed(record):
    """Twin of the usual case of `pyromq.broker.flow.timed_outline.read_timed`: the values of its outline; None if
    the message is unusual."""
    cdef Py_buffer view
    cdef Outline outline
    cdef Traits traits
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *stop
    cdef Py_ssize_t size, index
    cdef Span topic = Span(NULL, 0, False), queue = topic, slot = topic
    cdef int32_t queue_id = 0
    cdef int64_t slot_ms = 0
    cdef uint8_t seen = 0
    traits.is_timed = False
    PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
    try:
        if not outline_record(<const uint8_t *>view.buf, view.len, &outline):
            return None
        at = <const uint8_t *>view.buf + outline.properties_start
        end = at + outline.properties_bytes
        while at < end:
            stop = <const uint8_t *>memchr(at, 2, <size_t>(end - at))
            if stop is NULL:
                stop = end
            size = stop - at
            if _begins(at, size, b"REAL_TOPIC\x01", 11):
                topic = Span(at + 11, size - 11, False)
            elif _begins(at, size, b"REAL_QID\x01", 9):
                queue = Span(at + 9, size - 9, False)
            elif _begins(at, size, b"TIMER_OUT_MS\x01", 13):
                slot = Span(at + 13, size - 13, False)
            elif _begins(at, size, b"TIMER_DEL", 9):
                if traits.is_timed or not _read_time(at, size, &traits):
                    return None
            elif _begins(at, size, b"TIMER_ENQUEUE_MS", 16) or _begins(at, size, b"TIMER_DEQUEUE_MS", 16):
                return None  # from an earlier stage
            at = stop + 1
        for index in range(topic.length):
            seen |= topic.at[index]
        if (
            not traits.is_timed
            or not topic.length
            or seen >= 0x80
            or not queue.length
            or not read_int32(queue, &queue_id)
            or not slot.length
            or not read_int64(slot, &slot_ms)
            or not -MAX_DELAY < traits.asked < MAX_DELAY
        ):
            return None
        return (
            topic.at[: topic.length].decode(),
            queue_id,
            slot_ms,
            None if traits.unit_ms else traits.asked,
            outline.store_timestamp + traits.asked * traits.unit_ms if traits.unit_ms else traits.asked,
            outline.store_timestamp,
            outline.size,
            None,
            True,
        )
    finally:
        PyBuffer_Release(&view)


def read_half(record):
    """Twin of the usual case of `pyromq.broker.flow.half_messages.read_half`: born timestamp, unique key, topic, and
    whether the broker stored it; None if it is unusual."""
    cdef Py_buffer view
    cdef Outline outline
    cdef HalfTraits half
    cdef const uint8_t *at
    PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        if not outline_record(at, view.len, &outline):
            return None
        if not read_half_traits(at + outline.properties_start, outline.properties_bytes, &half):
            return None
        return (
            get_int64(at + 40),
            half.unique_key.at[: half.unique_key.length].decode(),
            half.topic.at[: half.topic.length].decode(),
            bool(half.is_copy),
        )
    finally:
        PyBuffer_Release(&view)


cdef inline bint _begins(const uint8_t *at, Py_ssize_t size, const char *name, Py_ssize_t length) noexcept nogil:
    return size >= length and memcmp(at, name, <size_t>length) == 0
