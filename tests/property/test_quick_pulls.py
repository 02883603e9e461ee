"""Answers to quick pulls: the compiled core reads what the general path reads, or declines."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property import test_quick_sends as sends
from tests.property.test_gathering import KEY
from tests.property.test_pulled_messages import QUEUE, answers, plain_answer, shown, understood
from tests.support.chance import examples

from pyromq.client.consumer.reading.quick_pulls import Pulled
from pyromq.client.quick_sends import quick_answers
from pyromq.client.values import ReceivedMessage
from pyromq.compiled import WHY, twin
from pyromq.errors import Refused, RemoteProtocolError
from pyromq.protocol.catalogue import decode_answer
from pyromq.protocol.framing import DEFAULT_MAX_FRAME_BYTES, FrameReader
from pyromq.protocol.requests.pulling import PullMessage, PullMessageAnswer

native: Any = twin("client.twin_pulled_message")

pytestmark = pytest.mark.skipif(native is None, reason=f"no quick pulls: {WHY}")

LOOP = asyncio.new_event_loop()

NAMES = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
FIELDS = ("suggest_which_broker_id", "next_begin_offset", "min_offset", "max_offset")

odd_fields: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.dictionaries(
    st.sampled_from([*NAMES, "offsetDelta", "topicSysFlag", "groupSysFlag", "forbiddenType", "other"]),
    st.sampled_from(["0", "7", "9", "-1", "007", "x", "", 'quo"te', str(2**40), None, 5]),
    max_size=2,
)
odd_heads: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([0, 19, 21, 1]),
        "flag": st.sampled_from([1, 3]),
        "remark": st.sampled_from(["FOUND", None]),
        "language": st.just("JAVA"),
        "version": st.just(399),
    },
)


def as_data(
    answer: PullMessageAnswer, odd: dict[str, Any], head: dict[str, Any] | None = None, opaque: int = 5
) -> bytes:
    fields = {name: str(getattr(answer, field)) for name, field in zip(NAMES, FIELDS, strict=True)}
    if answer.offset_delta is not None:
        fields["offsetDelta"] = str(answer.offset_delta)
    header = {"code": 0, "extFields": fields | odd, "flag": 1, "opaque": opaque} | (head or {})
    return sends.as_frame(header, answer.body)


class Caller:
    """The part of a connection that quick answers use: it waits for pulls 5 and 6, and for a send 7."""

    def __init__(self) -> None:
        self.answered: dict[int, asyncio.Future[Any]] = {opaque: LOOP.create_future() for opaque in (5, 6, 7)}
        wanted = (QUEUE, QUEUE.queue_id, b"Orders", "Orders", 5)
        self.quick: dict[int, tuple[Any, ...]] = {
            opaque: (self.answered[opaque], *wanted) for opaque in (5, 6)
        } | {7: (self.answered[7], QUEUE, KEY)}


def read(data: bytes) -> tuple[Caller, int, int]:
    caller = Caller()
    sent = quick_answers(DEFAULT_MAX_FRAME_BYTES)
    answers = native.PullAnswers(ReceivedMessage, Pulled, sent, DEFAULT_MAX_FRAME_BYTES)
    return caller, *answers(data, caller)


def general(data: bytes) -> Any:
    (frame,) = FrameReader().feed(data)
    return understood(decode_answer(PullMessage, frame), "*")


def numbers(pulled: Pulled) -> Any:
    return shown(pulled), pulled.min_offset, pulled.max_offset, pulled.next_broker_id


@settings(max_examples=examples(60))
@given(answers(), odd_fields, odd_heads, st.data())
def test_a_quick_answer_is_what_the_general_path_reads(
    answer: PullMessageAnswer, odd: dict[str, Any], head: dict[str, Any], damage: st.DataObject
) -> None:
    data = bytearray(as_data(answer, odd, head))
    if damage.draw(st.sampled_from([False, False, True])):
        data[damage.draw(st.integers(0, len(data) - 1))] = damage.draw(st.integers(0, 255))
    caller, frames, position = read(bytes(data))
    if not frames:
        assert position == 0
        assert not caller.answered[5].done()
        return
    assert position == len(data)
    (opaque,) = {5, 6} - caller.quick.keys()
    try:
        expected = general(bytes(data))
    except (RemoteProtocolError, Refused) as problem:
        pytest.fail(f"the general path refuses it: {problem}")
    assert numbers(caller.answered[opaque].result()) == numbers(expected)


def test_plain_answers_to_pulls_and_sends_are_read_in_one_go() -> None:
    ext = {"msgId": "7F0000010000", "queueId": str(QUEUE.queue_id), "queueOffset": "9"}
    sent = sends.as_frame({"code": 0, "extFields": ext, "flag": 1, "opaque": 7})
    flags = {"topicSysFlag": "0", "groupSysFlag": "0"}
    pulls = [as_data(plain_answer(count), flags, opaque=opaque) for count, opaque in ((3, 5), (2, 6))]
    data = b"".join([pulls[0], sent, pulls[1]])
    caller, frames, position = read(data + pulls[0][:-1])
    assert (frames, position) == (3, len(data))
    assert not caller.quick
    assert [len(caller.answered[opaque].result().messages) for opaque in (5, 6)] == [3, 2]
    assert caller.answered[7].result().queue_offset == 9


def test_the_answer_to_a_pull_that_was_given_up_is_left_to_the_general_path() -> None:
    caller, frames, position = read(as_data(plain_answer(1), {}, opaque=8))
    assert (frames, position) == (0, 0)
    assert len(caller.quick) == 3
