"""Quick sends write the frames of the general path and read its answers, or decline."""

import asyncio
import json
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.test_gathering import BODY_LIMIT, KEY, messages, plain_messages, suffix
from tests.support.chance import examples

from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.values import Message, MessageQueue, SendResult, SendStatus
from pyromq.compiled import WHY, twin
from pyromq.errors import BadMessage, Refused, RemoteProtocolError
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES, FrameReader
from pyromq.protocol.names import DEFAULT_REGION
from pyromq.protocol.request_forms import RequestForm, as_text
from pyromq.protocol.requests.sending import SendMessageV2

native: Any = twin("client.fast_sends")

pytestmark = pytest.mark.skipif(native is None, reason=f"no quick sends: {WHY}")

VARYING = ("queue_id", "sys_flag", "born_timestamp", "flag", "properties")
QUEUE = MessageQueue("Orders", "broker-a", 2)


def form_for(topic: str) -> RequestForm[Any]:
    sample = SendMessageV2(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=0, flag=0, properties="", target_broker_name="a%b",
    )  # fmt: skip
    return RequestForm(sample, VARYING)


FORM = form_for("%RETRY%b%d")


def general_frame(message: Message, namespace: str | None, queue_id: int, born_ms: int, opaque: int) -> bytes:
    preparer = MessagePreparer(namespace=namespace, max_bytes=BODY_LIMIT - 1, compress_from_bytes=BODY_LIMIT)
    prepared = preparer.prepare(message, KEY, born_ms)
    text = as_text(prepared.properties)
    values = (queue_id, prepared.sys_flag, born_ms, prepared.flag, text)
    return FORM.head(values, opaque, len(prepared.body), DEFAULT_MAX_FRAME_BYTES) + prepared.body


def quick_frame(message: Message, namespace: str | None, *numbers: int) -> bytes | None:
    frame: bytes | None = native.plain_frame(
        FORM.pieces, message, KEY, suffix(namespace), BODY_LIMIT, *numbers
    )
    return frame


@given(
    messages | plain_messages,
    st.sampled_from([None, "shop"]),
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**62),
    st.integers(-(2**31), 2**31 - 1),
)
@example(Message("Orders", b"x", tags="x" * 5000), None, 0, 0, 0)
@example(Message("Orders", b"x", tags="".join(map(chr, range(3, 256))) + '"\\'), None, 0, 0, 0)
def test_a_quick_frame_is_what_the_general_path_writes(
    message: Message, namespace: str | None, queue_id: int, born_ms: int, opaque: int
) -> None:
    frame = quick_frame(message, namespace, queue_id, born_ms, opaque)
    if frame is not None:
        assert frame == general_frame(message, namespace, queue_id, born_ms, opaque)


@given(plain_messages)
def test_plain_messages_are_not_declined(message: Message) -> None:
    assert quick_frame(message, None, 1, 2, 3) is not None


@given(messages)
def test_what_the_general_path_refuses_is_declined(message: Message) -> None:
    try:
        general_frame(message, None, 0, 0, 0)
    except BadMessage:
        assert quick_frame(message, None, 0, 0, 0) is None


def test_pieces_have_no_gaps_of_names() -> None:
    assert len(form_for("%b%d%%b").pieces) == 7


# Answers

odd = st.sampled_from(["", "0", "7", "-1", "007", "x", "true", 'quo"te', "grün", None, 5, True])
answers = st.fixed_dictionaries(
    {"msgId": st.sampled_from(["7F0000010000", "a,b"]), "queueId": st.sampled_from(["2", "2", "2", "3"]),
     "queueOffset": st.sampled_from(["0", "17", str(2**60)])},
    optional={
        "transactionId": st.sampled_from(["T", ""]), "recallHandle": st.just("handle"),
        "MSG_REGION": st.sampled_from(["DefaultRegion", "moon", ""]),
        "TRACE_ON": st.sampled_from(["true", "x"]), "other": odd,
    },
)  # fmt: skip
headers = st.builds(
    lambda ext, odd_ext, more: {"code": 0, "extFields": ext | odd_ext, "flag": 1, "opaque": 5} | more,
    answers,
    st.just({}) | st.dictionaries(st.sampled_from(["msgId", "queueId", "queueOffset", "transactionId"]), odd),
    st.just({})
    | st.fixed_dictionaries(
        {},
        optional={
            "code": st.sampled_from([0, 10, 1, 2]),
            "flag": st.sampled_from([0, 1, 3]),
            "opaque": st.sampled_from([5, 6]),
            "remark": st.sampled_from(["why", None]),
            "language": st.just("JAVA"),
            "version": st.just(399),
        },
    ),
)


def as_frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    encoded = json.dumps(header, ensure_ascii=False).encode()
    return struct.pack(">iI", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


class Caller:
    """The part of a connection that quick answers use."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answered: asyncio.Future[Any] = loop.create_future()
        self.quick = {5: (self.answered, QUEUE, KEY)}


def quick_result(data: bytes) -> tuple[int, Any]:
    async def read() -> tuple[int, Any]:
        take = native.QuickAnswers(SendResult, SendStatus.SEND_OK, DEFAULT_REGION, DEFAULT_MAX_FRAME_BYTES)
        caller = Caller(asyncio.get_running_loop())
        frames, position = take(data, caller)
        if not frames:
            assert position == 0
            assert 5 in caller.quick
            return 0, None
        assert position == len(data)
        return frames, await caller.answered

    return asyncio.run(read())


def general_result(data: bytes) -> SendResult:
    (frame,) = FrameReader().feed(data)
    assert frame.opaque == 5
    assert frame.is_response
    answer = decode_answer(SendMessageV2, frame)
    return SendResult(
        SendStatus(answer.code),
        KEY,
        answer.msg_id,
        MessageQueue(QUEUE.topic, QUEUE.broker_name, answer.queue_id),
        answer.queue_offset,
        answer.transaction_id,
        answer.recall_handle,
        answer.msg_region or DEFAULT_REGION,
    )


@settings(max_examples=examples(200))
@given(headers, st.sampled_from([b"", b"", b"body"]))
def test_a_quick_answer_is_what_the_general_path_reads(header: dict[str, Any], body: bytes) -> None:
    data = as_frame(header, body)
    frames, result = quick_result(data)
    if frames:
        assert result == general_result(data)


@given(headers, st.data())
def test_damaged_answers_are_declined_or_read_alike(header: dict[str, Any], data: st.DataObject) -> None:
    damaged = bytearray(as_frame(header))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    frames, result = quick_result(bytes(damaged))
    if frames:
        try:
            assert result == general_result(bytes(damaged))
        except (RemoteProtocolError, Refused) as problem:
            pytest.fail(f"the general path refuses it: {problem}")


def test_a_plain_answer_is_not_declined() -> None:
    ext = {"msgId": "7F0000010000", "queueId": "2", "queueOffset": "9", "transactionId": "T",
           "TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}  # fmt: skip
    header = {"code": 0, "extFields": ext, "flag": 1, "language": "JAVA", "opaque": 5, "version": 399}
    frames, result = quick_result(as_frame(header))
    assert frames == 1
    assert result.queue_offset == 9
