"""The most frequent requests, as spans of the bytes they were read from."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from pyromq_native.protocol.headers cimport Header, Span

cdef struct Send:
    Span topic
    Span properties
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    bint is_batch


cdef struct Pull:
    Span group
    Span topic
    Span subscription
    Span expression_type
    int32_t queue_id
    int32_t sys_flag
    int32_t max_messages
    int32_t max_bytes
    int64_t offset
    int64_t commit_offset
    int64_t sub_version


cdef struct End:
    # The end of a transaction, and where its half message is.
    Span group
    int64_t queue_offset
    int64_t log_offset
    int32_t state


cdef struct Ack:
    # The acknowledgement of a popped message; `receipt` is without the offset at its end.
    Span group
    Span topic
    Span receipt
    int32_t queue_id
    int64_t offset


cdef struct SendAnswer:
    Span id
    Span transaction
    Span recall_handle
    Span region
    int32_t queue_id
    int64_t offset


cdef struct PullAnswer:
    int64_t broker_id
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset


cdef struct RouteQuery:
    Span topic
    bint accepts_only_standard_json


cdef struct Traits:
    Span unique_key
    # The lite topic that the message names, and whether more than that must be looked at if it enters it.
    Span lite_topic
    bint is_unusual_for_lite
    bint waits
    bint is_half
    # A time of delivery: in units of this many ms from now on, or with 0 the time itself.
    bint is_timed
    int64_t asked
    int32_t unit_ms


cdef struct HalfTraits:
    Span group
    Span unique_key
    Span topic
    int32_t queue_id
    bint is_copy


cdef bint read_send(Header *header, Send *send) noexcept nogil
cdef bint read_pull(Header *header, Pull *pull) noexcept nogil
cdef bint read_end(Header *header, End *end) noexcept nogil
cdef bint read_ack(Header *header, Ack *ack) noexcept nogil
cdef bint read_send_answer(Header *header, SendAnswer *answer) noexcept nogil
cdef bint read_pull_answer(Header *header, PullAnswer *answer) noexcept nogil
cdef bint read_route_query(Header *header, RouteQuery *query) noexcept nogil
cdef bint read_traits(const uint8_t *properties, Py_ssize_t length, Traits *traits) noexcept nogil
cdef bint read_half_traits(const uint8_t *properties, Py_ssize_t length, HalfTraits *half) noexcept nogil
