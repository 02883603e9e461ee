# cython: boundscheck=False, wraparound=False
"""The most frequent requests and their answers, read from a scanned header by the fields that the catalogue declares.

A reader says no to a field that it does not know, declared or not, and to one that is missing, repeated or unusual: the
general path reads that frame. Fields without effect on a fast path are checked as well: it must not accept a request
that the general path refuses.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, strlen

from msgspec.structs import fields as struct_fields

from pyromq.protocol.catalogue import FRAME_LEVEL, Int32, Int64, RoutedRequest, TopicRequest, without_none
from pyromq.protocol.requests.popping import AckMessage
from pyromq.protocol.requests.pulling import LitePullMessage, PullMessage, PullMessageAnswer
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.sending import SendMessage, SendMessageAnswer, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.transactions import EndTransaction
from pyromq.security.full_signature import FULL_SIGNATURE
from pyromq.security.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

from pyromq_native.big_endian cimport get_int64
from pyromq_native.protocol.declared cimport (
    ACK,
    AFTER_NAME,
    AFTER_PAIR,
    END,
    LITE_PULL,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_LITE_EPOCH,
    PROPERTY_LITE_OFFSET,
    PROPERTY_LITE_TOPIC,
    PROPERTY_POP_CK,
    PROPERTY_PRIORITY,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    PULL,
    SEND,
    SEND_BATCH,
    SEND_V2,
)
from pyromq_native.protocol.headers cimport Header, Span, is_called, read_bool, read_int32, read_int64, scan_header
from pyromq_native.protocol.records cimport Outline, outline_record
from pyromq_native.protocol.spans cimport is_ascii

cdef int64_t MAX_DELAY = <int64_t>1 << 48

# ------------------------------------------------------------------------------------------ forms

cdef enum:
    MAX_NAMES = 32
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


cdef bint _fill(Header *header, Form *form, void *request) noexcept nogil:
    """Read the fields of a request; False if one is unknown, missing, repeated or unusual."""
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
            return False
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


cdef list _names = []  # the texts of all forms

cdef dict _KINDS = {str: TEXT, Int32: INT32, Int64: INT64, bool: BOOL}

cdef tuple _ROUTING = tuple(field.name for field in struct_fields(RoutedRequest))
cdef tuple _TOPIC_ROUTING = tuple(field.name for field in struct_fields(TopicRequest))

# Fields that any request may have and that no handler reads. Connections with access control read the first four.
# java: consumers and clients of zones add the others.
cdef tuple _OF_ANY_REQUEST = (
    ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, FULL_SIGNATURE, "ReqT", "__ZONE_NAME", "__ZONE_MODE"
)


cdef int _add(Form *form, str name, Kind kind, Py_ssize_t offset, bint is_needed) except -1:
    cdef bytes text = name.encode()
    assert form.count < MAX_NAMES and len(text) < 32
    _names.append(text)
    form.fields[form.count] = Field(<const char *>text, len(text), kind, offset)
    form.needed |= <uint32_t>is_needed << form.count
    form.lengths |= <uint32_t>1 << len(text)
    form.count += 1
    return 0


cdef int _describe(Form *form, declared, dict read, tuple ignored, tuple undeclared=()) except -1:
    """A form has the fields that the fast path reads, with their kinds and places, and those that change nothing
    of what it does: declared ones, which are only checked, and undeclared ones."""
    cdef Kind kind
    # Clients write the fields of the request itself, in this order, and perhaps those of its parents.
    for field in sorted(struct_fields(declared), key=lambda field: field.name in _TOPIC_ROUTING):
        kind = _KINDS.get(without_none(field.type)[0], ANYTHING)
        if field.name in read:
            expected, offset = read[field.name]
            if kind != (TEXT if expected == ESCAPED_TEXT else expected):
                raise TypeError(f"{declared.__name__}.{field.name} has become a {field.type}")
            _add(form, field.encode_name, expected, offset, field.required)
        elif field.name in ignored:
            _add(form, field.encode_name, ANYTHING if kind == TEXT else kind, ONLY_CHECKED, field.required)
        elif field.required and field.name not in FRAME_LEVEL:
            raise TypeError(f"{declared.__name__}.{field.name} must be read")
    for name in undeclared:
        _add(form, name, ANYTHING, ONLY_CHECKED, False)
    return 0


cdef inline Py_ssize_t _in(void *request, void *field) noexcept nogil:
    return <char *>field - <char *>request


cdef Form SEND_FORM, SEND_V2_FORM, SEND_BATCH_FORM, PULL_FORM, LITE_PULL_FORM, END_FORM, ACK_FORM, ROUTE_FORM
cdef Form SEND_ANSWER_FORM, PULL_ANSWER_FORM


cdef int _describe_sends() except -1:
    cdef Send send
    read = {
        "topic": (TEXT, _in(&send, &send.topic)),
        "queue_id": (INT32, _in(&send, &send.queue_id)),
        "sys_flag": (INT32, _in(&send, &send.sys_flag)),
        "born_timestamp": (INT64, _in(&send, &send.born_timestamp)),
        "flag": (INT32, _in(&send, &send.flag)),
        "properties": (ESCAPED_TEXT, _in(&send, &send.properties)),
        "reconsume_times": (INT32, _in(&send, &send.reconsume_times)),
        "batch": (BOOL, _in(&send, &send.is_batch)),
    }
    ignored = _TOPIC_ROUTING + (
        "producer_group", "default_topic", "default_topic_queue_nums", "unit_mode", "max_reconsume_times"
    )
    _describe(&SEND_FORM, SendMessage, read, ignored, _OF_ANY_REQUEST)
    _describe(&SEND_V2_FORM, SendMessageV2, read, ignored, _OF_ANY_REQUEST)
    return _describe(&SEND_BATCH_FORM, SendMessageBatch, read, ignored, _OF_ANY_REQUEST)


cdef int _describe_pulls() except -1:
    cdef Pull pull
    read = {
        "consumer_group": (TEXT, _in(&pull, &pull.group)),
        "topic": (TEXT, _in(&pull, &pull.topic)),
        "queue_id": (INT32, _in(&pull, &pull.queue_id)),
        "queue_offset": (INT64, _in(&pull, &pull.offset)),
        "max_msg_nums": (INT32, _in(&pull, &pull.max_messages)),
        "sys_flag": (INT32, _in(&pull, &pull.sys_flag)),
        "commit_offset": (INT64, _in(&pull, &pull.commit_offset)),
        "subscription": (TEXT, _in(&pull, &pull.subscription)),
        "sub_version": (INT64, _in(&pull, &pull.sub_version)),
        "expression_type": (TEXT, _in(&pull, &pull.expression_type)),
        "max_msg_bytes": (INT32, _in(&pull, &pull.max_bytes)),
    }
    ignored = _TOPIC_ROUTING + ("suspend_timeout_millis", "request_source", "proxy_forward_client_id")
    _describe(&PULL_FORM, PullMessage, read, ignored, _OF_ANY_REQUEST)
    return _describe(&LITE_PULL_FORM, LitePullMessage, read, ignored, _OF_ANY_REQUEST)


cdef int _describe_ends() except -1:
    cdef End end
    read = {
        "producer_group": (TEXT, _in(&end, &end.group)),
        "tran_state_table_offset": (INT64, _in(&end, &end.queue_offset)),
        "commit_log_offset": (INT64, _in(&end, &end.log_offset)),
        "commit_or_rollback": (INT32, _in(&end, &end.state)),
    }
    # Access control reads the topic.
    ignored = _ROUTING + ("topic", "from_transaction_check", "msg_id", "transaction_id")
    return _describe(&END_FORM, EndTransaction, read, ignored, _OF_ANY_REQUEST)


cdef int _describe_acks() except -1:
    cdef Ack ack
    read = {
        "consumer_group": (TEXT, _in(&ack, &ack.group)),
        "topic": (TEXT, _in(&ack, &ack.topic)),
        "queue_id": (INT32, _in(&ack, &ack.queue_id)),
        "extra_info": (TEXT, _in(&ack, &ack.receipt)),
        "offset": (INT64, _in(&ack, &ack.offset)),
    }
    return _describe(&ACK_FORM, AckMessage, read, _TOPIC_ROUTING, _OF_ANY_REQUEST)


cdef int _describe_route_queries() except -1:
    cdef RouteQuery query
    read = {
        "topic": (TEXT, _in(&query, &query.topic)),
        "accept_standard_json_only": (BOOL, _in(&query, &query.accepts_only_standard_json)),
    }
    return _describe(&ROUTE_FORM, GetRoute, read, ())


cdef int _describe_answers() except -1:
    cdef SendAnswer sent
    cdef PullAnswer pulled
    _describe(
        &SEND_ANSWER_FORM,
        SendMessageAnswer,
        {
            "msg_id": (TEXT, _in(&sent, &sent.id)),
            "queue_id": (INT32, _in(&sent, &sent.queue_id)),
            "queue_offset": (INT64, _in(&sent, &sent.offset)),
            "transaction_id": (TEXT, _in(&sent, &sent.transaction)),
            "recall_handle": (TEXT, _in(&sent, &sent.recall_handle)),
            "msg_region": (TEXT, _in(&sent, &sent.region)),
        },
        ("batch_uniq_id", "trace_on"),
    )
    return _describe(
        &PULL_ANSWER_FORM,
        PullMessageAnswer,
        {
            "suggest_which_broker_id": (INT64, _in(&pulled, &pulled.broker_id)),
            "next_begin_offset": (INT64, _in(&pulled, &pulled.next_offset)),
            "min_offset": (INT64, _in(&pulled, &pulled.min_offset)),
            "max_offset": (INT64, _in(&pulled, &pulled.max_offset)),
        },
        ("topic_sys_flag", "group_sys_flag"),
    )


_describe_sends()
_describe_pulls()
_describe_ends()
_describe_acks()
_describe_route_queries()
_describe_answers()


# ------------------------------------------------------------------------------------------ requests


cdef bint read_send(Header *header, Send *send) noexcept nogil:
    send.reconsume_times = 0
    send.is_batch = False
    send.properties = Span(NULL, 0, False)
    if header.code == SEND_V2:
        return _fill(header, &SEND_V2_FORM, send)
    if header.code == SEND:
        return _fill(header, &SEND_FORM, send)
    if not _fill(header, &SEND_BATCH_FORM, send):
        return False
    send.is_batch = True
    return True


cdef bint read_pull(Header *header, Pull *pull) noexcept nogil:
    pull.max_bytes = 0
    pull.subscription = pull.expression_type = Span(NULL, 0, False)
    return _fill(header, &PULL_FORM if header.code == PULL else &LITE_PULL_FORM, pull)


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


cdef bint read_pull_answer(Header *header, PullAnswer *answer) noexcept nogil:
    """The answer to a pull that found messages."""
    return _fill(header, &PULL_ANSWER_FORM, answer)


cdef bint read_route_query(Header *header, RouteQuery *query) noexcept nogil:
    query.accepts_only_standard_json = False
    return _fill(header, &ROUTE_FORM, query) and query.topic.length > 0


def is_known(bytes header not None, bint is_binary):
    """Whether a fast path reads this request. For tests."""
    cdef Header found
    cdef Send send
    cdef Pull pull
    cdef End end
    cdef Ack ack
    if not scan_header(<const uint8_t *>header, len(header), is_binary, &found):
        return False
    if found.code == SEND or found.code == SEND_V2 or found.code == SEND_BATCH:
        return read_send(&found, &send)
    if found.code == PULL or found.code == LITE_PULL:
        return read_pull(&found, &pull)
    if found.code == END:
        return read_end(&found, &end)
    return found.code == ACK and read_ack(&found, &ack)


# ------------------------------------------------------------------------------------------ properties


cdef bint read_traits(const uint8_t *properties, Py_ssize_t length, Traits *traits) noexcept nogil:
    """Read the properties that a send needs; False if one asks for anything special but a transaction
    or a time of delivery."""
    cdef bint names_its_place = False
    cdef const uint8_t *at = properties
    cdef const uint8_t *end = properties + length
    cdef const uint8_t *stop
    cdef Py_ssize_t size
    cdef Span value
    traits.unique_key = Span(NULL, 0, False)
    traits.waits = True
    traits.is_half = traits.is_timed = False
    traits.lite_topic = Span(NULL, 0, False)
    traits.is_unusual_for_lite = False
    while at < end:
        stop = <const uint8_t *>memchr(at, AFTER_PAIR, <size_t>(end - at))
        if stop is NULL:
            stop = end
        size = stop - at
        if size >= 5:
            if at[0] == <uint8_t>PROPERTY_UNIQ_KEY[0]:
                if _is(at, size, PROPERTY_UNIQ_KEY, &value):
                    if not value.length:
                        return False  # an empty value is ignored, but an earlier one may count
                    traits.unique_key = value
            elif at[0] == <uint8_t>PROPERTY_WAIT[0]:
                if _is(at, size, PROPERTY_WAIT, &value):
                    traits.waits = is_called(value, b"true", 4)
                    if not value.length:
                        return False
            elif at[0] == 0x54:  # T
                if _is(at, size, PROPERTY_TRANSACTION_PREPARED, &value):
                    if traits.is_half or not is_called(value, b"true", 4):
                        return False
                    traits.is_half = True
                elif _begins(at, size, b"TIMER_DEL"):
                    if traits.is_timed or not _read_time(at, size, traits):
                        return False
                elif _is(at, size, PROPERTY_TIMER_OUT_MS, &value):
                    names_its_place = True
            elif at[0] == 0x52:  # R
                if _is(at, size, PROPERTY_REAL_TOPIC, &value) or _is(at, size, PROPERTY_REAL_QUEUE_ID, &value):
                    names_its_place = True
            elif at[0] == 0x5F:  # _
                if _is(at, size, PROPERTY_TRANSACTION_ID, &value):
                    names_its_place = True
                elif _is(at, size, PROPERTY_PRIORITY, &value):
                    return False
                elif _is(at, size, PROPERTY_LITE_TOPIC, &value):
                    if traits.lite_topic.length or not value.length:
                        traits.is_unusual_for_lite = True
                    traits.lite_topic = value
                elif (
                    _is(at, size, PROPERTY_LITE_EPOCH, &value)
                    or _is(at, size, PROPERTY_LITE_OFFSET, &value)
                    or _is(at, size, PROPERTY_SHARDING_KEY, &value)
                ):
                    traits.is_unusual_for_lite = True
            elif at[0] == <uint8_t>PROPERTY_DELAY[0]:
                if _is(at, size, PROPERTY_DELAY, &value):
                    return False
            elif at[0] == <uint8_t>PROPERTY_INNER_NUM[0]:
                if _is(at, size, PROPERTY_INNER_NUM, &value) or _is(at, size, PROPERTY_INNER_MULTI_DISPATCH, &value):
                    return False
                if _is(at, size, PROPERTY_INNER_MULTI_QUEUE_OFFSET, &value):
                    traits.is_unusual_for_lite = True
            elif at[0] == <uint8_t>PROPERTY_POP_CK[0]:
                if _is(at, size, PROPERTY_POP_CK, &value):
                    return False
        at = stop + 1
    if traits.is_half or traits.is_timed:
        return not names_its_place and traits.is_half != traits.is_timed
    return True


cdef inline bint _read_time(const uint8_t *at, Py_ssize_t size, Traits *traits) noexcept nogil:
    cdef Span value
    if _is(at, size, PROPERTY_TIMER_DELIVER_MS, &value):
        traits.unit_ms = 0
    elif _is(at, size, PROPERTY_TIMER_DELAY_SEC, &value):
        traits.unit_ms = 1000
    elif _is(at, size, PROPERTY_TIMER_DELAY_MS, &value):
        traits.unit_ms = 1
    else:
        return False
    traits.is_timed = True
    return read_int64(value, &traits.asked)


cdef bint read_half_traits(const uint8_t *properties, Py_ssize_t length, HalfTraits *half) noexcept nogil:
    """Read the properties of a half message that its end needs; False unless they say all, and nothing that
    makes it wait for more."""
    cdef const uint8_t *at = properties
    cdef const uint8_t *end = properties + length
    cdef const uint8_t *stop
    cdef Py_ssize_t size
    cdef Span value, queue_id = Span(NULL, 0, False)
    half.group = half.unique_key = half.topic = queue_id
    half.is_copy = False
    while at < end:
        stop = <const uint8_t *>memchr(at, AFTER_PAIR, <size_t>(end - at))
        if stop is NULL:
            stop = end
        size = stop - at
        if _is(at, size, PROPERTY_PRODUCER_GROUP, &value):
            half.group = value
        elif _is(at, size, PROPERTY_UNIQ_KEY, &value):
            half.unique_key = value
        elif _is(at, size, PROPERTY_REAL_TOPIC, &value):
            half.topic = value
        elif _is(at, size, PROPERTY_REAL_QUEUE_ID, &value):
            queue_id = value
        elif (
            _is(at, size, PROPERTY_TRANSACTION_CHECK_TIMES, &value)
            or _is(at, size, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, &value)
        ):
            half.is_copy = half.is_copy or value.length > 0
        elif (
            _is(at, size, PROPERTY_DELAY, &value)
            or _begins(at, size, b"TIMER_DEL")
            or _is(at, size, PROPERTY_INNER_MULTI_DISPATCH, &value)
            or _is(at, size, PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, &value)
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
    cdef Span value, topic = Span(NULL, 0, False), queue = topic, slot = topic
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
            stop = <const uint8_t *>memchr(at, AFTER_PAIR, <size_t>(end - at))
            if stop is NULL:
                stop = end
            size = stop - at
            if _is(at, size, PROPERTY_REAL_TOPIC, &value):
                topic = value
            elif _is(at, size, PROPERTY_REAL_QUEUE_ID, &value):
                queue = value
            elif _is(at, size, PROPERTY_TIMER_OUT_MS, &value):
                slot = value
            elif _begins(at, size, b"TIMER_DEL"):
                if traits.is_timed or not _read_time(at, size, &traits):
                    return None
            elif _begins(at, size, PROPERTY_TIMER_ENQUEUE_MS) or _begins(at, size, PROPERTY_TIMER_DEQUEUE_MS):
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


cdef inline bint _is(const uint8_t *at, Py_ssize_t size, const char *name, Span *value) noexcept nogil:
    """Whether a property has this name; then its `value`."""
    cdef Py_ssize_t length = <Py_ssize_t>strlen(name)
    if size <= length or at[length] != AFTER_NAME or memcmp(at, name, <size_t>length):
        return False
    value[0] = Span(at + length + 1, size - length - 1, False)
    return True


cdef inline bint _begins(const uint8_t *at, Py_ssize_t size, const char *name) noexcept nogil:
    cdef Py_ssize_t length = <Py_ssize_t>strlen(name)
    return size >= length and memcmp(at, name, <size_t>length) == 0
