# cython: boundscheck=False, wraparound=False
"""Sends and their answers, ends of transactions, pulls and acknowledgements, read from a scanned header. A missing, repeated or unusual field makes the reader say no.

Fields that the fast path does not need are checked as well: it must not accept a request that the general path
refuses.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, strlen

from pyromq_native.big_endian cimport get_int64
from pyromq_native.protocol.headers cimport Header, Span, read_bool, read_int32, read_int64
from pyromq_native.protocol.records cimport Outline, outline_record
from pyromq_native.protocol.spans cimport is_ascii

cdef int64_t MAX_DELAY = <int64_t>1 << 48

# ------------------------------------------------------------------------------------------ forms

cdef enum:
    MAX_NAMES = 20
    ONLY_CHECKED = -1


cdef enum Kind:
    TEXT
    ESCAPED_TEXT
    INT32
    INT64
    BOOL
    ANYTHING


cdef struct Field:
    const char *name
    Py_ssize_t length
    Kind kind
    # Where it goes in the struct of its request.
    Py_ssize_t offset


cdef struct Form:
    # What a request may have; a bit for each field that it must have, and for each length of a name.
    Field fields[MAX_NAMES]
    int count
    uint32_t needed
    uint32_t lengths


cdef Form SHORT_SEND, LONG_SEND, PULL_FORM, END_FORM, ACK_FORM, SEND_ANSWER_FORM


cdef bint _fill(Header *header, Form *form, void *request) noexcept nogil:
    """Read the fields of a request; False if one is missing, repeated or unusual."""
    cdef uint32_t seen = 0
    cdef int next = 0
    cdef int index, which
    cdef int64_t unused
    cdef void *target
    cdef Field *field
    cdef Span *value
    for index in range(header.field_count):
        value = &header.values[index]
        which = _find(form, &header.names[index], &next)
        if which < 0:
            if value.has_escapes:
                return False
            continue
        field = &form.fields[which]
        if seen >> which & 1 or (value.has_escapes and field.kind != ESCAPED_TEXT):
            return False
        seen |= <uint32_t>1 << which
        target = &unused if field.offset == ONLY_CHECKED else <char *>request + field.offset
        if field.kind == INT32:
            if not read_int32(value[0], <int32_t *>target):
                return False
        elif field.kind == INT64:
            if not read_int64(value[0], <int64_t *>target):
                return False
        elif field.kind == BOOL:
            if not read_bool(value[0], <bint *>target):
                return False
        elif field.kind != ANYTHING:
            (<Span *>target)[0] = value[0]
    return seen & form.needed == form.needed


cdef inline int _find(Form *form, Span *name, int *next) noexcept nogil:
    """Which field this is, -1 for one that the form does not have. Most clients write the fields in the order
    in which a form has them: the search begins at `next`."""
    cdef int which = next[0]
    cdef int tries
    cdef Field *field
    if name.length > 31 or not form.lengths >> name.length & 1:
        return -1
    for tries in range(form.count):
        if which == form.count:
            which = 0
        field = &form.fields[which]
        if field.length == name.length and not memcmp(field.name, name.at, <size_t>name.length):
            next[0] = which + 1
            return which
        which += 1
    return -1


cdef void _add(Form *form, bint is_needed, const char *name, Kind kind, Py_ssize_t offset) noexcept nogil:
    cdef Py_ssize_t length = <Py_ssize_t>strlen(name)
    form.fields[form.count] = Field(name, length, kind, offset)
    form.needed |= <uint32_t>is_needed << form.count
    form.lengths |= <uint32_t>1 << length
    form.count += 1


cdef void _add_common(Form *form) noexcept nogil:
    """Fields of any request about a topic."""
    _add(form, False, b"nsd", BOOL, ONLY_CHECKED)
    _add(form, False, b"oway", BOOL, ONLY_CHECKED)
    _add(form, False, b"lo", BOOL, ONLY_CHECKED)


cdef inline Py_ssize_t _in(void *request, void *field) noexcept nogil:
    return <char *>field - <char *>request


cdef void _add_send(
    bint is_needed, const char *letter, const char *name, Kind kind, Py_ssize_t offset
) noexcept nogil:
    _add(&SHORT_SEND, is_needed, letter, kind, offset)
    _add(&LONG_SEND, is_needed, name, kind, offset)


cdef void _describe_sends() noexcept nogil:
    cdef Send send
    _add_send(True, b"a", b"producerGroup", ANYTHING, ONLY_CHECKED)
    _add_send(True, b"b", b"topic", TEXT, _in(&send, &send.topic))
    _add_send(True, b"c", b"defaultTopic", ANYTHING, ONLY_CHECKED)
    _add_send(True, b"d", b"defaultTopicQueueNums", INT32, ONLY_CHECKED)
    _add_send(True, b"e", b"queueId", INT32, _in(&send, &send.queue_id))
    _add_send(True, b"f", b"sysFlag", INT32, _in(&send, &send.sys_flag))
    _add_send(True, b"g", b"bornTimestamp", INT64, _in(&send, &send.born_timestamp))
    _add_send(True, b"h", b"flag", INT32, _in(&send, &send.flag))
    _add_send(False, b"i", b"properties", ESCAPED_TEXT, _in(&send, &send.properties))
    _add_send(False, b"j", b"reconsumeTimes", INT32, _in(&send, &send.reconsume_times))
    _add_send(False, b"k", b"unitMode", BOOL, ONLY_CHECKED)
    _add_send(False, b"l", b"maxReconsumeTimes", INT32, ONLY_CHECKED)
    _add_send(False, b"m", b"batch", BOOL, _in(&send, &send.is_batch))
    _add(&SHORT_SEND, False, b"n", ANYTHING, ONLY_CHECKED)
    _add_common(&SHORT_SEND)
    _add_common(&LONG_SEND)


cdef void _describe_pulls() noexcept nogil:
    cdef Pull pull
    _add(&PULL_FORM, True, b"consumerGroup", TEXT, _in(&pull, &pull.group))
    _add(&PULL_FORM, True, b"topic", TEXT, _in(&pull, &pull.topic))
    _add(&PULL_FORM, True, b"queueId", INT32, _in(&pull, &pull.queue_id))
    _add(&PULL_FORM, True, b"queueOffset", INT64, _in(&pull, &pull.offset))
    _add(&PULL_FORM, True, b"maxMsgNums", INT32, _in(&pull, &pull.max_messages))
    _add(&PULL_FORM, True, b"sysFlag", INT32, _in(&pull, &pull.sys_flag))
    _add(&PULL_FORM, True, b"commitOffset", INT64, _in(&pull, &pull.commit_offset))
    _add(&PULL_FORM, True, b"suspendTimeoutMillis", INT64, ONLY_CHECKED)
    _add(&PULL_FORM, False, b"subscription", TEXT, _in(&pull, &pull.subscription))
    _add(&PULL_FORM, True, b"subVersion", INT64, _in(&pull, &pull.sub_version))
    _add(&PULL_FORM, False, b"expressionType", TEXT, _in(&pull, &pull.expression_type))
    _add(&PULL_FORM, False, b"maxMsgBytes", INT32, _in(&pull, &pull.max_bytes))
    _add(&PULL_FORM, False, b"requestSource", INT32, ONLY_CHECKED)
    _add(&PULL_FORM, False, b"proxyFrowardClientId", ANYTHING, ONLY_CHECKED)
    _add_common(&PULL_FORM)


cdef void _describe_ends() noexcept nogil:
    cdef End end
    _add(&END_FORM, True, b"producerGroup", TEXT, _in(&end, &end.group))
    _add(&END_FORM, True, b"tranStateTableOffset", INT64, _in(&end, &end.queue_offset))
    _add(&END_FORM, True, b"commitLogOffset", INT64, _in(&end, &end.log_offset))
    _add(&END_FORM, True, b"commitOrRollback", INT32, _in(&end, &end.state))
    _add(&END_FORM, False, b"fromTransactionCheck", BOOL, ONLY_CHECKED)
    _add(&END_FORM, True, b"msgId", ANYTHING, ONLY_CHECKED)
    _add_common(&END_FORM)


cdef void _describe_acks() noexcept nogil:
    cdef Ack ack
    _add(&ACK_FORM, True, b"consumerGroup", TEXT, _in(&ack, &ack.group))
    _add(&ACK_FORM, True, b"topic", TEXT, _in(&ack, &ack.topic))
    _add(&ACK_FORM, True, b"queueId", INT32, _in(&ack, &ack.queue_id))
    _add(&ACK_FORM, True, b"extraInfo", TEXT, _in(&ack, &ack.receipt))
    _add(&ACK_FORM, True, b"offset", INT64, _in(&ack, &ack.offset))
    _add_common(&ACK_FORM)


cdef void _describe_send_answers() noexcept nogil:
    cdef SendAnswer answer
    _add(&SEND_ANSWER_FORM, True, b"msgId", TEXT, _in(&answer, &answer.id))
    _add(&SEND_ANSWER_FORM, True, b"queueId", INT32, _in(&answer, &answer.queue_id))
    _add(&SEND_ANSWER_FORM, True, b"queueOffset", INT64, _in(&answer, &answer.offset))
    _add(&SEND_ANSWER_FORM, False, b"transactionId", TEXT, _in(&answer, &answer.transaction))
    _add(&SEND_ANSWER_FORM, False, b"recallHandle", TEXT, _in(&answer, &answer.recall_handle))
    _add(&SEND_ANSWER_FORM, False, b"MSG_REGION", TEXT, _in(&answer, &answer.region))
    _add(&SEND_ANSWER_FORM, False, b"TRACE_ON", BOOL, ONLY_CHECKED)


_describe_sends()
_describe_pulls()
_describe_ends()
_describe_acks()
_describe_send_answers()


# ------------------------------------------------------------------------------------------ requests


cdef bint read_send(Header *header, Send *send) noexcept nogil:
    send.reconsume_times = 0
    send.is_batch = False
    send.properties = Span(NULL, 0, False)
    if not _fill(header, &LONG_SEND if header.code == SEND else &SHORT_SEND, send):
        return False
    if header.code == SEND_BATCH:
        send.is_batch = True
    return True


cdef bint read_pull(Header *header, Pull *pull) noexcept nogil:
    pull.max_bytes = 0
    pull.subscription = pull.expression_type = Span(NULL, 0, False)
    return _fill(header, &PULL_FORM, pull)


cdef bint read_end(Header *header, End *end) noexcept nogil:
    return _fill(header, &END_FORM, end)


cdef bint read_ack(Header *header, Ack *ack) noexcept nogil:
    cdef Span value
    cdef int64_t number = 0
    cdef Py_ssize_t at, words = 0
    if not _fill(header, &ACK_FORM, ack):
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


cdef bint read_send_answer(Header *header, SendAnswer *answer) noexcept nogil:
    """The answer to a send that succeeded."""
    answer.transaction = answer.recall_handle = answer.region = Span(NULL, 0, False)
    return _fill(header, &SEND_ANSWER_FORM, answer)


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
    cdef Py_ssize_t size
    cdef Span queue_id = Span(NULL, 0, False)
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
    if not is_ascii(half.topic.at, half.topic.length):
        return False
    if not is_ascii(half.unique_key.at, half.unique_key.length):
        return False
    return queue_id.length > 0 and read_int32(queue_id, &half.queue_id)


def read_timed(record):
    """Twin of the usual case of `pyromq.broker.flow.timed_outline.read_timed`: the values of its outline; None if
    the message is unusual."""
    cdef Py_buffer view
    cdef Outline outline
    cdef Traits traits
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *stop
    cdef Py_ssize_t size
    cdef Span topic = Span(NULL, 0, False), queue = topic, slot = topic
    cdef int32_t queue_id = 0
    cdef int64_t slot_ms = 0
    traits.is_timed = False
    PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        if not _outline_plain(at, view.len, &outline):
            return None
        at += outline.properties_start
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
        if (
            not traits.is_timed
            or not topic.length
            or not is_ascii(topic.at, topic.length)
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
        if not _outline_plain(at, view.len, &outline):
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


cdef inline bint _outline_plain(const uint8_t *at, int64_t room, Outline *outline) noexcept nogil:
    """Find the parts of a record whose topic can surely be read."""
    return outline_record(at, room, outline) and is_ascii(at + outline.topic_start, outline.topic_bytes)


cdef inline bint _begins(const uint8_t *at, Py_ssize_t size, const char *name, Py_ssize_t length) noexcept nogil:
    return size >= length and memcmp(at, name, <size_t>length) == 0
